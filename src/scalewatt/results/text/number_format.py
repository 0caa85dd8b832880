"""Numbers as pages print them; what is missing is an en dash."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MISSING = "–"
_SPACE = "\u202f"
_MIDDLE = 0.02
"""How far from the middle of its interval, in half widths, a mean may be to be printed with ±."""


@dataclass(frozen=True)
class Unit:
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
    "h": (
        (1.0, Unit("h", 1.0)),
        (1 / 60, Unit("min", 60.0)),
        (0.0, Unit("s", 3600.0)),
    ),
    "kW": ((0.1, Unit("kW", 1.0)), (0.0, Unit("W", 1e3))),
    "kg": ((1e4, Unit("t", 1e-3)), (0.1, Unit("kg", 1.0)), (0.0, Unit("g", 1e3))),
}


def unit_for(values: Iterable[float | None], unit: str) -> Unit:
    """Return the unit in which the largest of `values` (in `unit`) reads well; `unit` itself without any."""
    known = [abs(value) for value in values if value is not None and value == value]
    largest = max(known, default=0.0)
    if unit not in _UNITS or not largest:
        return Unit(unit, 1.0)
    return next(one for limit, one in _UNITS[unit] if largest >= limit)


def number(value: Any, digits: int = 4) -> str:
    """Return a number with `digits` significant digits, text as it is, null as a dash."""
    if value is None or value == "":
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}".replace(",", _SPACE) if abs(value) >= 10_000 else str(value)
    if value != value:
        return MISSING
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) >= 10_000:
        return f"{rounded:,.0f}".replace(",", _SPACE)
    if rounded and abs(rounded) < 1e-6:
        return f"{rounded:.1e}"
    text = f"{rounded:.12f}"
    return text.rstrip("0").rstrip(".")


def with_unit(value: float | None, unit: str, digits: int = 4) -> str:
    """Return a number with the unit that suits it, such as `420 Wh` for 0.42 in kWh."""
    if value is None or value != value:
        return MISSING
    suited = unit_for([value], unit)
    return f"{number(float(value) * suited.factor, digits)} {suited.name}".strip()


def with_interval(
    mean: float | None, low: float | None, high: float | None, factor: float = 1.0
) -> str:
    """Return `mean ± half the 95 % interval`, times `factor`, or `mean (low to high)` where the mean is not
    in its middle, as of an interval in logarithms; the mean alone where there is no interval."""
    if mean is None or low is None or high is None:
        return number(None if mean is None else mean * factor)
    half = (high - low) / 2
    if abs((low + high) / 2 - mean) > _MIDDLE * half:
        ends = f"{number(low * factor, 3)} to {number(high * factor, 3)}"
        return f"{number(mean * factor)} ({ends})"
    return f"{number(mean * factor)} ± {number(half * factor, 2)}"


def percent(share: float) -> str:
    """Return a share in per cent that is never rounded up to 100."""
    return f"{min(number(100 * share, 5), '99.999', key=float)} %" if share < 1 else "100 %"


def count(n: int, word: str, plural: str | None = None) -> str:
    """Return `1 run`, `2 runs`, `no runs`."""
    several = plural or f"{word}s"
    return f"{number(n)} {word}" if n == 1 else f"{number(n) if n else 'no'} {several}"


def part_of(n: int, total: int, word: str) -> str:
    """Return `2 of 3 runs are`, `1 of 3 runs is`, `1 of 1 run is`."""
    return f"{number(n)} of {count(total, word)} {'is' if n == 1 else 'are'}"


def listed(names: Iterable[str], most: int = 0) -> str:
    """Return names with commas; of more than `most` (0: no limit) the first and how many more."""
    found = list(names)
    if most and len(found) > most:
        return f"{', '.join(found[:most])} and {len(found) - most} more"
    return ", ".join(found)
