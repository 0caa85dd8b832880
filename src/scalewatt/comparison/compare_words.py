"""Ratios, verdicts and counts of a comparison in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from scalewatt.comparison.ratios import (
    A_LOWER,
    B_LOWER,
    NO_INTERVAL,
    NOT_APART,
    NOT_COMPARED,
    QUANTITIES,
    SIDES,
    Quantity,
)
from scalewatt.results.text.metric_labels import METRIC_LABELS
from scalewatt.results.text.number_format import MISSING, Unit, number, unit_for

Row = Mapping[str, Any]
_PER_GPU = "p_gpuh_kw"
_SAME = "the same within 5 %"
_NEAR_ONE = 0.9, 1.1


def heading_of(quantity: Quantity, rows: Sequence[Row], word: str, metric: str | None) -> str:
    """Return a quantity's name; of the metric its own where all rows have one."""
    if quantity.name == _PER_GPU and word != "GPU":
        return f"Mean power per {word}"
    if quantity.name == "metric_last" and metric is not None:
        return METRIC_LABELS.get(metric, f"{quantity.words} ({metric})")
    return quantity.words


def unit_of(rows: Sequence[Row], quantity: Quantity) -> Unit:
    """Return the unit that suits all means of a quantity."""
    return unit_for((row[f"mean_{side}"] for row in rows for side in SIDES), quantity.unit)


def value_text(row: Row, side: str, unit: Unit) -> str:
    """Return the mean of one campaign with its unit."""
    value = row[f"mean_{side}"]
    return MISSING if value is None else f"{number(value * unit.factor)} {unit.name}".strip()


def ratio_text(row: Row) -> str:
    """Return the ratio B/A with its interval."""
    if row["ratio"] is None:
        return MISSING
    text = _ratio(row["ratio"])
    if row["ratio_low"] is not None:
        text += f" ({_ratio(row['ratio_low'])} to {_ratio(row['ratio_high'])})"
    return text


def _ratio(value: float) -> str:
    """Return a ratio with four decimals near 1, where the side of 1 matters; else three digits."""
    near = _NEAR_ONE[0] < value < _NEAR_ONE[1]
    return f"{value:.4f}" if near else f"{value:.2f}" if 0.1 < value < 10 else number(value, 3)


def verdict_text(row: Row) -> str:
    """Return the verdict in a few words, such as "A is lower by 20 % (15 to 24 %)"."""
    verdict, reason = row["verdict"], row["reason"]
    if verdict in (A_LOWER, B_LOWER):
        return f"{'A' if verdict == A_LOWER else 'B'} is lower by {_by(row)}" + (
            f"; {_SAME}" if row["equivalent"] else ""
        )
    if verdict == NOT_APART:
        return f"cannot be told apart{f'; {_SAME}' if row['equivalent'] else ''}"
    if verdict == NO_INTERVAL:
        return f"no interval: {reason}"
    return f"not compared: {reason}"


def _by(row: Row) -> str:
    """Return by how much the lower one is lower, of the higher one, with the interval over repeats."""
    ratios = [row[name] for name in ("ratio", "ratio_low", "ratio_high")]
    shares = [100 * (1 - (1 / one if row["verdict"] == A_LOWER else one)) for one in ratios]
    low, high = sorted(shares[1:])
    text = f"{number(shares[0], 3)} %"
    return text if low == high else f"{text} ({number(low, 3)} to {number(high, 3)} %)"


def origins_text(rows: Sequence[Row]) -> str:
    """Return where the values of a quantity are from, and of what its energies are."""
    compared = [row for row in rows if row["ratio"] is not None]
    pairs = dict.fromkeys((row["origin_a"], row["origin_b"]) for row in compared)
    parts = [f"both {a}" if a == b else f"A {a}, B {b}" for a, b in pairs]
    scopes = sorted({row["scope_a"] for row in compared if row["scope_a"]})
    of = f" Energy of {', '.join(scopes)}." if scopes else ""
    return f"{'; '.join(parts)[:1].upper()}{'; '.join(parts)[1:]}.{of}" if parts else ""


def same_sentence(same_runs: int) -> str:
    """Return that the campaigns share measurements, whose ratio of 1 says nothing; empty if they do not."""
    return (
        f"The same measurements in both, whose ratios say nothing: {same_runs}."
        if same_runs
        else ""
    )


_TALLIED = {
    A_LOWER: "A lower",
    B_LOWER: "B lower",
    NOT_APART: "not told apart",
    NO_INTERVAL: "without an interval",
    NOT_COMPARED: "not compared",
}


def tally(rows: Sequence[Row]) -> str:
    """Return how many configurations have each verdict."""
    found = Counter(row["verdict"] for row in rows)
    return ", ".join(
        f"{words}: {found[verdict]}" for verdict, words in _TALLIED.items() if found[verdict]
    )


def by_quantity(rows: Sequence[Row]) -> list[tuple[Quantity, list[Row]]]:
    """Return the rows of each quantity that has any, in the order of QUANTITIES."""
    found = [(one, [row for row in rows if row["quantity"] == one.name]) for one in QUANTITIES]
    return [(quantity, own) for quantity, own in found if own]
