"""Numbers with an interval: that of repeats, or of a single run a convention. Arithmetic and words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scalewatt.claims.evidence import Point
from scalewatt.claims.model import NotTestable
from scalewatt.claims.words import word
from scalewatt.results.comparisons import MOST_REPEATS, PUBLISHED_SPREAD
from scalewatt.results.statistics import CONFIDENCE, Summary

ASSUMED_HALF = 2 * PUBLISHED_SPREAD


@dataclass(frozen=True)
class Number:
    """A value with half its interval."""

    value: float
    half: float
    """Half the 95 % interval; of a single run ASSUMED_HALF of the value."""
    spread: float
    """Standard deviation of a single run, in the value's unit."""
    assumed: bool = False
    """Whether the interval rests on the paper's spread, as there are no repeats."""

    @property
    def low(self) -> float:
        """Lower end of the interval; likewise `high`."""
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half


def number(summary: Summary) -> Number:
    """A quantity's mean with its interval; NotTestable where the mean is unknown."""
    if summary.mean is None:
        raise NotTestable("A quantity is not known.")
    if summary.sd is None or summary.high is None:
        size = abs(summary.mean)
        return Number(summary.mean, ASSUMED_HALF * size, PUBLISHED_SPREAD * size, True)
    return Number(summary.mean, summary.high - summary.mean, summary.sd)


def quantity(point: Point, name: str) -> Number:
    """A point's quantity as a number; NotTestable names what is unknown of which configuration."""
    summary = point.stat(name)
    if summary.mean is None:
        raise NotTestable(f"The {word(name)} of {point.id} is not known.")
    return number(summary)


def over(top: Number, bottom: Number, factor: float = 1.0) -> Number:
    """factor · top / bottom of independent numbers; NotTestable for a divisor of 0."""
    if not bottom.value:
        raise NotTestable("A quantity that is divided by is 0.")
    value = factor * top.value / bottom.value
    own = (top.half / top.value, top.spread / top.value) if top.value else (0.0, 0.0)
    other = (bottom.half / bottom.value, bottom.spread / bottom.value)
    half, spread = (abs(value) * math.hypot(*both) for both in zip(own, other, strict=True))
    return Number(value, half, spread, top.assumed or bottom.assumed)


def minus(one: Number, other: Number) -> Number:
    """The difference of independent numbers."""
    return Number(
        one.value - other.value,
        math.hypot(one.half, other.half),
        math.hypot(one.spread, other.spread),
        one.assumed or other.assumed,
    )


def mean_of(numbers: Sequence[Number]) -> Number:
    """The mean of independent numbers."""
    n = len(numbers)
    return Number(
        math.fsum(one.value for one in numbers) / n,
        math.hypot(*(one.half for one in numbers)) / n,
        math.hypot(*(one.spread for one in numbers)) / n,
        any(one.assumed for one in numbers),
    )


def repeats_to_tell(distance: float, spread: float) -> int | None:
    """From how many repeats half a 95 % interval is less than `distance`; null beyond 1000."""
    from scipy.special import stdtrit

    for n in range(2, MOST_REPEATS + 1):
        if float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * spread / math.sqrt(n) < distance:
            return n
    return None


def text(own: Number, unit: str = "") -> str:
    """A number with its interval, and on what it rests."""
    unit = f" {unit}" if unit else ""
    if not own.half:
        return f"{shown(own.value)}{unit}"
    basis = " (by the published spread)" if own.assumed else ""
    return f"{shown(own.value)} ± {shown(own.half)}{unit}{basis}"


def shown(value: float) -> str:
    """A value with four significant digits, without an exponent up to ten digits."""
    if 1e4 <= abs(value) < 1e10:
        return f"{float(f'{value:.4g}'):.0f}"
    return f"{value:.4g}"


def needed(own: Number, distance: float) -> str:
    """The repeats from which half the interval is less than this distance, in words."""
    if not distance:
        return "it lies on the bound, where no number of repeats would tell"
    return repeats_text(repeats_to_tell(distance, own.spread))


def repeats_text(repeats: int | None) -> str:
    """So many repeats, in words."""
    if repeats is None:
        return f"more than {MOST_REPEATS} repeats of each point would tell"
    return f"about {repeats} repeats of each point would tell"


def told(own: Number) -> str:
    """The repeats that would tell a number from 0."""
    return needed(own, abs(own.value))
