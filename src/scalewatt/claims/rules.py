"""The tolerance rules of all checks, in one place (docs/claims.md says them in words).

Currency is a `Number`: a value with half the width of its 95 % interval. A single run, or a published
value without spread, gets ± 2 × the relative spread of the paper's probe (3.8 %) in place of it.

- band: inside, reproduced; outside, not reproduced, unless the interval reaches into the band:
  then unresolved, with the repeats that would tell.
- sign: the ratio of two numbers is on the claimed side of 1, with its whole interval: reproduced; with
  the whole interval on the other side: not reproduced; else unresolved.
- trends need MINIMUM_POINTS points, else they are unresolved.
- monotony allows steps back of one standard deviation.
- fits are least squares; a line with intercept, and one through the origin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from scalewatt.claims.evidence import Point
from scalewatt.claims.fits import Fit as Fit
from scalewatt.claims.fits import line_fit, spearman, variation
from scalewatt.claims.model import (
    NOT_REPRODUCED,
    NOT_TESTABLE,
    REPRODUCED,
    UNRESOLVED,
    NotTestable,
    Outcome,
    Unresolved,
)
from scalewatt.claims.words import word
from scalewatt.results.comparisons import MOST_REPEATS, PUBLISHED_SPREAD
from scalewatt.results.statistics import CONFIDENCE, Summary

MINIMUM_POINTS = 3
ASSUMED_HALF = 2 * PUBLISHED_SPREAD
LINEAR_R2 = 0.98
"""Claim A01: from which R² a line with intercept counts as linear."""


@dataclass(frozen=True)
class Number:
    """A value with half its 95 % interval."""

    value: float
    half: float
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


def band(what: str, own: Number, low: float | None, high: float | None, unit: str = "") -> Outcome:
    """Whether a number lies in a band, bounds included; null: no bound on that side."""
    said = f"{what} is {text(own, unit)}, expected {_band_text(low, high, unit)}"
    below = low is not None and own.value < low
    above = high is not None and own.value > high
    if not below and not above:
        return Outcome(REPRODUCED, own.value, f"{said}.")
    bound = low if below else high
    assert bound is not None
    distance = abs(own.value - bound)
    if own.half < distance:
        return Outcome(NOT_REPRODUCED, own.value, f"{said}.")
    return Outcome(UNRESOLVED, own.value, f"{said}; {_needed(own, distance)}.")


def sign(what: str, ratio: Number, rises: bool) -> Outcome:
    """Whether a ratio is above 1 (`rises`) or below it, with its whole interval."""
    side = "above" if rises else "below"
    said = f"{what} is {text(ratio)}, expected {side} 1"
    distance = abs(ratio.value - 1)
    if distance > ratio.half:
        right = (ratio.value > 1) == rises
        return Outcome(REPRODUCED if right else NOT_REPRODUCED, ratio.value, f"{said}.")
    return Outcome(UNRESOLVED, ratio.value, f"{said}; {_needed(ratio, distance)}.")


def positive(what: str, own: Number, unit: str = "") -> Outcome:
    """Whether a number is above 0, with its whole interval; unresolved where 0 is in it."""
    said = f"{what} is {text(own, unit)}, expected above 0"
    if abs(own.value) > own.half:
        return Outcome(REPRODUCED if own.value > 0 else NOT_REPRODUCED, own.value, f"{said}.")
    return Outcome(UNRESOLVED, own.value, f"{said}; {_needed(own, abs(own.value))}.")


def repeats_needed(distance: float, spread: float) -> int | None:
    """From how many repeats half a 95 % interval is less than `distance`; null beyond 1000."""
    from scipy.special import stdtrit

    for n in range(2, MOST_REPEATS + 1):
        if float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * spread / math.sqrt(n) < distance:
            return n
    return None


def combine(parts: Sequence[tuple[str, Outcome]]) -> Outcome:
    """One outcome of several lines: not reproduced if one is not, then unresolved, then reproduced.

    Parts that are not testable are named; they decide only where all are. The value is that of the
    part that decides. NotTestable where there are no parts.
    """
    if not parts:
        raise NotTestable("There is nothing to check.")
    for verdict in (NOT_REPRODUCED, UNRESOLVED, REPRODUCED, NOT_TESTABLE):
        deciding = [outcome for _, outcome in parts if outcome.verdict == verdict]
        if deciding:
            break
    named = len(parts) > 1
    detail = " ".join(
        f"{name}: {one.detail}" if named and not one.detail.startswith(name) else one.detail
        for name, one in parts
    )
    return Outcome(deciding[0].verdict, deciding[0].value, detail)


def attempt(name: str, run: Callable[..., Outcome], *arguments: object) -> tuple[str, Outcome]:
    """A part for `combine`: the outcome of a function that may raise NotTestable or Unresolved."""
    try:
        return name, run(*arguments)
    except NotTestable as missing:
        return name, Outcome(NOT_TESTABLE, None, str(missing))
    except Unresolved as missing:
        return name, Outcome(UNRESOLVED, None, str(missing))


def enough(points: Sequence[Point], what: str, least: int = MINIMUM_POINTS) -> Sequence[Point]:
    """The points, if a trend can be seen in them; NotTestable for none, Unresolved for too few."""
    if not points:
        raise NotTestable(f"{what}: known at no point.")
    if len(points) < least:
        there = ", ".join(str(point.gpus) for point in points)
        raise Unresolved(
            f"{what}: known at {len(points)} of the {least} points that a trend needs (n = {there}); "
            f"{least - len(points)} more needed."
        )
    return points


def decided(holds: bool, value: float | None, detail: str) -> Outcome:
    """Reproduced or not."""
    return Outcome(REPRODUCED if holds else NOT_REPRODUCED, value, detail)


def within_noise(numbers: Sequence[Number]) -> bool:
    """Whether any two numbers are as far apart as their intervals allow, at most."""
    return all(
        abs(one.value - other.value) <= math.hypot(one.half, other.half)
        for i, one in enumerate(numbers)
        for other in numbers[:i]
    )


def monotone(what: str, numbers: Sequence[Number], rises: bool) -> Outcome:
    """Whether each step goes the claimed way, or back by at most one standard deviation; and the whole does.

    Unresolved where all numbers are within each other's noise.
    """
    way = 1 if rises else -1
    steps = [
        way * (b.value - a.value) / (math.hypot(a.spread, b.spread) or math.ulp(1.0))
        for a, b in pairwise(numbers)
    ]
    whole = way * (numbers[-1].value - numbers[0].value)
    worst = min(steps)
    said = f"{what} go {', '.join(shown(one.value) for one in numbers)}"
    if whole > 0 and worst >= -1:
        return Outcome(REPRODUCED, worst, f"{said}: {'rising' if rises else 'falling'}.")
    if within_noise(numbers):
        return Outcome(UNRESOLVED, worst, f"{said}: all within their spread; {_step(numbers)}.")
    return Outcome(NOT_REPRODUCED, worst, f"{said}: not {'rising' if rises else 'falling'}.")


def ranked(
    what: str, x: Sequence[float], numbers: Sequence[Number], rises: bool, least: float
) -> Outcome:
    """Whether Spearman's correlation with x is at least `least` (`rises`), or at most its negative.

    Unresolved where it is not and all numbers are within each other's noise.
    """
    rho = spearman(x, [one.value for one in numbers])
    bound = f"at least {least:g}" if rises else f"at most {-least:g}"
    said = f"Spearman's correlation of {what} is {rho:.2f}, expected {bound}"
    if (rho if rises else -rho) >= least:
        return Outcome(REPRODUCED, rho, f"{said}.")
    if within_noise(numbers):
        return Outcome(UNRESOLVED, rho, f"{said}; all are within their spread: {_step(numbers)}.")
    return Outcome(NOT_REPRODUCED, rho, f"{said}.")


def constant(what: str, numbers: Sequence[Number], most: float) -> Outcome:
    """Whether the largest is at most `most` times the smallest."""
    top, bottom = (pick(numbers, key=lambda one: one.value) for pick in (max, min))
    return band(f"largest over smallest {what}", over(top, bottom), None, most)


def steady(what: str, numbers: Sequence[Number], most: float) -> Outcome:
    """Whether the coefficient of variation is at most `most`; unresolved if it is not, within noise."""
    cv = variation([one.value for one in numbers])
    said = (
        f"{what} goes {', '.join(shown(one.value) for one in numbers)}: coefficient of variation "
        f"{100 * cv:.1f} %, expected at most {100 * most:g} %"
    )
    if cv <= most:
        return Outcome(REPRODUCED, cv, f"{said}.")
    if within_noise(numbers):
        spread = max(one.spread / abs(one.value) for one in numbers if one.value)
        return Outcome(
            UNRESOLVED,
            cv,
            f"{said}; all are within their spread, {_repeats(repeats_needed(most, spread))}.",
        )
    return Outcome(NOT_REPRODUCED, cv, f"{said}.")


def slope(x: Sequence[float], numbers: Sequence[Number]) -> Number:
    """Slope of the line through independent numbers, with what it has of their intervals."""
    fit = line_fit(x, [one.value for one in numbers])
    middle = math.fsum(x) / len(x)
    squares = math.fsum((a - middle) ** 2 for a in x)
    weights = [(a - middle) / squares for a in x]
    half, spread = (
        math.hypot(*(w * getattr(one, part) for w, one in zip(weights, numbers, strict=True)))
        for part in ("half", "spread")
    )
    return Number(fit.slope, half, spread, any(one.assumed for one in numbers))


def linear(
    what: str,
    x: Sequence[float],
    y: Sequence[float],
    least: float = LINEAR_R2,
    halves: Sequence[float] = (),
) -> Outcome:
    """Whether y is a line of x with R² of at least `least`; its intercept is told, and the line through 0.

    `halves`: half the intervals of y. If all points lie within theirs of the line, a smaller R² leaves
    the claim unresolved.
    """
    fit = line_fit(x, y)
    half = "" if fit.intercept_half is None else f" ± {shown(fit.intercept_half)}"
    said = (
        f"{what}: R² of a line with intercept is {fit.r2:.4f} (expected at least {least:g}), slope "
        f"{shown(fit.slope)}, intercept {shown(fit.intercept)}{half}; R² of the line through the "
        f"origin is {fit.origin_r2:.4f}, slope {shown(fit.origin_slope)}; {fit.n} points"
    )
    if fit.r2 < least and halves:
        rests = [abs(b - fit.slope * a - fit.intercept) for a, b in zip(x, y, strict=True)]
        if all(rest <= room for rest, room in zip(rests, halves, strict=True)):
            more = "all lie on the line within their intervals, so that more repeats are needed"
            return Outcome(UNRESOLVED, fit.r2, f"{said}; {more}.")
    return decided(fit.r2 >= least, fit.r2, f"{said}.")


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


def _band_text(low: float | None, high: float | None, unit: str) -> str:
    unit = f" {unit}" if unit else ""
    if low is None:
        return f"at most {shown(high or 0)}{unit}"
    if high is None:
        return f"at least {shown(low)}{unit}"
    return f"{shown(low)} to {shown(high)}{unit}"


def _needed(own: Number, distance: float) -> str:
    if not distance:
        return "it lies on the bound, where no number of repeats would tell"
    return _repeats(repeats_needed(distance, own.spread))


def _repeats(repeats: int | None) -> str:
    if repeats is None:
        return f"more than {MOST_REPEATS} repeats of each point would tell"
    return f"about {repeats} repeats of each point would tell"


def _step(numbers: Sequence[Number]) -> str:
    ends = minus(numbers[-1], numbers[0])
    return _needed(ends, abs(ends.value))
