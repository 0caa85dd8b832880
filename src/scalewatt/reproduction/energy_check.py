"""The fourth check: the energy of a run that was made again, against that of the earlier repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scalewatt.recordings.series import DEVICE_KINDS
from scalewatt.reproduction.check_result import DIFFERS, ENERGY, SAME, Finding, not_checked
from scalewatt.reproduction.prediction_interval import prediction_interval
from scalewatt.results.text.number_format import number

QUANTITIES = ("energy_kwh", *(f"{kind}_energy_kwh" for kind in DEVICE_KINDS))
_AGAIN = "to measure once more, on a machine that does nothing else: -R run_again"
_ALIKE = ("energy_origin", "energy_scope", "device_name")

Row = Mapping[str, Any]


def energy_findings(run: str, earlier: Sequence[Row], again: Row) -> list[Finding]:
    """One row for the whole energy and for each device kind, but for one that is the whole.

    `earlier`: rows of the runs table of the same configuration, excluded runs left out; those of another
    origin, scope or machine are no measure for `again`, and named.
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
        why = f"one earlier run says nothing of the scatter{ratio}{left}"
        return not_checked(ENERGY, what, why, expected=known[0], found=found)
    outcome = SAME if interval.holds(found) else DIFFERS
    said = "within" if outcome == SAME else "outside"
    if outcome == DIFFERS:
        left += f"; {_AGAIN}"
    detail = (
        f"{said} the 95 % prediction interval {number(interval.low)} to {number(interval.high)} kWh of "
        f"{interval.n} earlier runs (mean {number(interval.mean)}, ratio "
        f"{number(found / interval.mean) if interval.mean else 'unknown'}){left}"
    )
    return Finding(ENERGY, what, outcome, [interval.low, interval.high], found, detail)


def _left_out(earlier: Sequence[Row], others: Sequence[Row], name: str) -> str:
    """Which earlier runs do not count, and why."""
    unknown = [row for row in earlier if row[name] is None]
    parts = []
    if unknown:
        parts.append(f"of {_repeats(unknown)} it is not known")
    for row in others:
        parts.append(f"{_repeats([row])} is {_basis(row)}")
    return "".join(f"; {part}" for part in parts)


def _basis(row: Row) -> str:
    """What an energy is of."""
    origin, scope = row["energy_origin"] or "of unknown origin", row["energy_scope"] or "no scope"
    return f"{origin} ({scope}) on {row['device_name'] or 'an unknown machine'}"


def _repeats(rows: Sequence[Row]) -> str:
    word = "repeat" if len(rows) == 1 else "repeats"
    return f"{word} {', '.join(str(row['repeat']) for row in rows)}"


def _first(rows: Sequence[Row], name: str) -> float | None:
    return next((row[name] for row in rows if row[name] is not None), None)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
