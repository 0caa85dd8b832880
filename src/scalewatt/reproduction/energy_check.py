"""The fourth check: compare the energy of a re-run with that of the earlier repeats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalewatt.recordings.series import DEVICE_KINDS
from scalewatt.reproduction.check_result import DIFFERS, ENERGY, SAME, Finding, not_checked
from scalewatt.results.tables.repeat_statistics import CONFIDENCE, summarise
from scalewatt.results.text.number_format import number

QUANTITIES = ("energy_kwh", *(f"{kind}_energy_kwh" for kind in DEVICE_KINDS))
_AGAIN = "to measure once more, on an otherwise idle machine: -R run_again"
_ALIKE = ("energy_origin", "energy_scope", "device_name")

Row = Mapping[str, Any]


def energy_findings(run: str, earlier: Sequence[Row], again: Row) -> list[Finding]:
    """Return one row for the whole energy and for each device kind, except one that is the whole.

    `earlier`: rows of the runs table of the same configuration, without excluded runs; those of another
    origin, scope or machine are not comparable with `again`, and named.
    """
    counted = [row for row in earlier if all(row[name] == again[name] for name in _ALIKE)]
    others = [row for row in earlier if row not in counted]
    names = QUANTITIES
    if "+" not in (again["energy_scope"] or "+"):  # one kind, whose energy is the whole
        names = tuple(name for name in names if name != f"{again['energy_scope']}_energy_kwh")
    return [_finding(f"{run}: {name}", name, counted, others, again) for name in names]


def _finding(
    what: str, name: str, earlier: Sequence[Row], others: Sequence[Row], again: Row
) -> Finding:
    found = again[name]
    known = [row[name] for row in earlier if row[name] is not None]
    if found is None and not known:
        return not_checked(ENERGY, what, "neither the repeat nor an earlier run has a known energy")
    if found is None:
        return not_checked(ENERGY, what, "the repeat's energy is not known", expected=_mean(known))
    left = _left_out(earlier, others, name)
    if not known:
        mine = f"this one is {_basis(again)}"
        why = f"no earlier energy to compare with: {mine}{left}"
        return not_checked(ENERGY, what, why, expected=_first(others, name), found=found)
    interval = prediction_interval(known)
    if interval is None:
        ratio = f", ratio {number(found / known[0])}" if known[0] else ""
        why = f"one earlier run has no scatter{ratio}{left}"
        return not_checked(ENERGY, what, why, expected=known[0], found=found)
    outcome = SAME if interval.holds(found) else DIFFERS
    place = "within" if outcome == SAME else "outside"
    if outcome == DIFFERS:
        left += f"; {_AGAIN}"
    detail = (
        f"{place} the 95 % prediction interval {number(interval.low)} to {number(interval.high)} kWh of "
        f"{interval.n} earlier runs (mean {number(interval.mean)}, ratio "
        f"{number(found / interval.mean) if interval.mean else 'unknown'}){left}"
    )
    return Finding(ENERGY, what, outcome, [interval.low, interval.high], found, detail)


def _left_out(earlier: Sequence[Row], others: Sequence[Row], name: str) -> str:
    """Return which earlier runs do not count, and why."""
    unknown = [row for row in earlier if row[name] is None]
    parts = []
    if unknown:
        parts.append(f"that of {_repeats(unknown)} is unknown")
    for row in others:
        parts.append(f"{_repeats([row])} is {_basis(row)}")
    return "".join(f"; {part}" for part in parts)


def _basis(row: Row) -> str:
    """Return origin, scope and machine of an energy."""
    origin, scope = row["energy_origin"] or "of unknown origin", row["energy_scope"] or "no scope"
    return f"{origin} ({scope}) on {row['device_name'] or 'an unknown machine'}"


def _repeats(rows: Sequence[Row]) -> str:
    word = "repeat" if len(rows) == 1 else "repeats"
    return f"{word} {', '.join(str(row['repeat']) for row in rows)}"


def _first(rows: Sequence[Row], name: str) -> float | None:
    return next((row[name] for row in rows if row[name] is not None), None)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@dataclass(frozen=True)
class Interval:
    """A prediction interval, in the unit of the values that it is made from."""

    low: float
    high: float
    mean: float
    n: int

    def holds(self, value: float) -> bool:
        """Return True if a value lies within it, its ends included."""
        return self.low <= value <= self.high


def prediction_interval(earlier: Sequence[float]) -> Interval | None:
    """Return the 95 % Student-t prediction interval of one more observation; None of fewer than two values.

    mean ± t · s · √(1 + 1/n), s the sample standard deviation, t the quantile of n − 1 degrees of
    freedom: for observations that are independent and normal. Unlike the interval of the mean it does
    not shrink to nothing with n. Source: G. J. Hahn and W. Q. Meeker, "Statistical Intervals", Wiley
    1991, on intervals to contain a single future observation.
    """
    found = summarise(earlier)
    if found.n < 2 or found.mean is None or found.sd is None:
        return None
    from scipy.special import stdtrit  # as in results.statistics

    t = float(stdtrit(found.n - 1, (1 + CONFIDENCE) / 2))
    half = t * found.sd * math.sqrt(1 + 1 / found.n)
    return Interval(found.mean - half, found.mean + half, found.mean, found.n)
