"""Numbers as pages print them; what is missing is an en dash."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

MISSING = "–"
_SPACE = "\u202f"
_MIDDLE = 0.02
"""How far from the middle of its interval, in half widths, a mean may be to be printed with ±."""


class Unit(NamedTuple):
    """A unit that suits some numbers: its name, and what they are multiplied by."""

    name: str
    factor: float


_UNITS: dict[str, tuple[tuple[float, Unit], ...]] = {
    # From which magnitude on, in the tables' unit (the first of them that fits).
    "kWh": (
        (1e5, Unit("MWh", 1e-3)),
        (0.1, Unit("kWh", 1.0)),
        (1e-4, Unit("Wh", 1e3)),
        (0.0, Unit("mWh", 1e6)),
    ),
    "h": ((1.0, Unit("h", 1.0)), (1 / 60, Unit("min", 60.0)), (0.0, Unit("s", 3600.0))),
    "kW": ((0.1, Unit("kW", 1.0)), (0.0, Unit("W", 1e3))),
    "kg": ((1e4, Unit("t", 1e-3)), (0.1, Unit("kg", 1.0)), (0.0, Unit("g", 1e3))),
    "J": ((0.1, Unit("J", 1.0)), (0.0, Unit("mJ", 1e3))),
    "s": ((0.1, Unit("s", 1.0)), (0.0, Unit("ms", 1e3))),
}


def unit_for(values: Iterable[float | None], unit: str) -> Unit:
    """Choose the unit in which the largest of `values` (in `unit`) reads well; `unit` itself without any."""
    known = [abs(value) for value in values if value is not None and value == value]
    largest = max(known, default=0.0)
    if unit not in _UNITS or not largest:
        return Unit(unit, 1.0)
    return next(suited for limit, suited in _UNITS[unit] if largest >= limit)


def number(value: Any, digits: int = 4) -> str:
    """Print a number with `digits` significant digits, text as it is, null as a dash."""
    if value is None or value == "" or value != value:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    rounded = value if isinstance(value, int) else float(f"{value:.{digits}g}")
    if abs(rounded) >= 10_000:
        return f"{rounded:,.0f}".replace(",", _SPACE)
    if rounded and abs(rounded) < 1e-6:
        return f"{rounded:.1e}"
    return f"{rounded:.12f}".rstrip("0").rstrip(".")


def with_unit(value: float | None, unit: str, digits: int = 4) -> str:
    """Print a number with the unit that suits it, such as `420 Wh` for 0.42 in kWh."""
    if value is None or value != value:
        return MISSING
    suited = unit_for([value], unit)
    return f"{number(float(value) * suited.factor, digits)} {suited.name}".strip()


def with_interval(
    mean: float | None, low: float | None, high: float | None, factor: float = 1.0
) -> str:
    """Print `mean ± half the 95 % interval`, times `factor`; the mean alone where there is no interval.

    `mean (low to high)` where the mean is not in its middle, as of an interval in logarithms.
    """
    if mean is None or low is None or high is None:
        return number(None if mean is None else mean * factor)
    half = (high - low) / 2
    if abs((low + high) / 2 - mean) > _MIDDLE * half:
        ends = f"{number(low * factor, 3)} to {number(high * factor, 3)}"
        return f"{number(mean * factor)} ({ends})"
    return f"{number(mean * factor)} ± {number(half * factor, 2)}"


def plus_minus(mean: float | None, high: float | None, factor: float = 1.0) -> str:
    """Print `mean ± half its interval`, times `factor`, both to the second digit of that half.

    Without an interval five digits, or all before the point.
    """
    if mean is None:
        return MISSING
    mean = mean * factor
    half = 0.0 if high is None else high * factor - mean
    if half > 0:
        digits = min(max(1 - math.floor(math.log10(half)), 0), 9)
        return f"{mean:.{digits}f} ± {half:.{digits}f}"
    return (f"{mean:.0f}" if 1e5 <= abs(mean) < 1e15 else f"{mean:.5g}") + " ± 0" * (
        high is not None
    )


def percent(share: float) -> str:
    """Print a share in per cent that is never rounded up to 100."""
    return f"{min(number(100 * share, 5), '99.999', key=float)} %" if share < 1 else "100 %"


def listed(names: Iterable[str], most: int = 0) -> str:
    """Join names with commas; of more than `most` (0: no limit) the first and how many more."""
    texts = list(names)
    if most and len(texts) > most:
        return f"{', '.join(texts[:most])} and {len(texts) - most} more"
    return ", ".join(texts)
