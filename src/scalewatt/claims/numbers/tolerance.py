"""The tolerance rules of all checks, in one place (docs/claims.md describes them).

Currency is a `Number`: a value with half the width of its 95 % interval; `uncertain.number` says whose it
is where a run is single.

- band: inside, reproduced; outside, not reproduced, unless the interval reaches into the band:
  then unresolved, with the repeats that would tell.
- sign: the ratio of two numbers is on the claimed side of 1, with its whole interval: reproduced; with
  the whole interval on the other side: not reproduced; else unresolved.
- trends need MINIMUM_POINTS points, and a slope that is more than its interval, else they are unresolved.
- monotony allows steps back of one standard deviation; more is unresolved within the step's interval.
- fits are least squares; a line with intercept, and one through the origin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, takewhile

from scalewatt.claims.evidence.claim_types import (
    NOT_REPRODUCED,
    NOT_TESTABLE,
    REPRODUCED,
    UNRESOLVED,
    NotTestable,
    Outcome,
    Undecided,
    Unresolved,
    Value,
)
from scalewatt.claims.evidence.evidence import Point
from scalewatt.claims.numbers.uncertain_number import (
    Number,
    line_fit,
    needed,
    ranks,
    repeats_text,
    repeats_to_tell,
    shown,
    spearman,
    text,
    told,
    variation,
    weighted,
)

MINIMUM_POINTS = 3
LINEAR_R2 = 0.98
"""Claim A01: from which R² a line with intercept counts as linear."""


def band(what: str, own: Number, low: float | None, high: float | None, unit: str = "") -> Outcome:
    """Check whether a number lies in a band, bounds included; null: no bound on that side."""
    expected = _band_text(low, high, unit)
    if low is not None and own.value < low:
        return _beyond(what, own, low, False, expected, unit)
    if high is not None and own.value > high:
        return _beyond(what, own, high, False, expected, unit)
    return decided(True, own.value, f"{what} is {text(own, unit)}, expected {expected}.")


def sign(what: str, ratio: Number, rises: bool) -> Outcome:
    """Check whether a ratio is above 1 (`rises`) or below it, with its whole interval."""
    expected = f"{'above' if rises else 'below'} 1"
    return _beyond(what, ratio, 1, (ratio.value > 1) == rises, expected)


def positive(what: str, own: Number, unit: str = "") -> Outcome:
    """Check whether a number is above 0, with its whole interval; unresolved where 0 is in it."""
    return _beyond(what, own, 0, own.value > 0, "above 0", unit)


def _beyond(
    what: str, own: Number, bound: float, is_right: bool, expected: str, unit: str = ""
) -> Outcome:
    """Decide by the side of a bound that a number is on; unresolved where its interval reaches it."""
    sentence = f"{what} is {text(own, unit)}, expected {expected}"
    distance = abs(own.value - bound)
    if distance > own.half:
        return decided(is_right, own.value, f"{sentence}.")
    return Outcome(UNRESOLVED, own.value, f"{sentence}; {needed(own, distance)}.")


def combine(parts: Iterable[tuple[str, Outcome]]) -> Outcome:
    """Return one outcome of alike parts (devices, lines): not reproduced if one is not, then unresolved.

    Parts that are not testable are named; they decide only where all are. The value is that of the
    part that decides. NotTestable if there are no parts.
    """
    return _deciding(parts, (NOT_REPRODUCED, UNRESOLVED, REPRODUCED, NOT_TESTABLE))


def all_of(parts: Iterable[tuple[str, Outcome]]) -> Outcome:
    """Return one outcome of all that a claim names (quantities, series, models): none may be lacking.

    Not reproduced if one is not; then not testable, then unresolved, if one is; else reproduced.
    """
    return _deciding(parts, (NOT_REPRODUCED, NOT_TESTABLE, UNRESOLVED, REPRODUCED))


def _deciding(given: Iterable[tuple[str, Outcome]], order: Sequence[str]) -> Outcome:
    parts = list(given)
    if not parts:
        raise NotTestable("There is nothing to check.")
    decides = min((outcome for _, outcome in parts), key=lambda one: order.index(one.verdict))
    detail = " ".join(
        f"{name}: {one.detail}"
        if name and len(parts) > 1 and not one.detail.casefold().startswith(name.casefold())
        else one.detail
        for name, one in parts
    )
    return Outcome(decides.verdict, decides.value, detail)


def attempt(name: str, run: Callable[..., Outcome], *arguments: object) -> tuple[str, Outcome]:
    """Return a part for `combine`: the outcome of a function that may raise NotTestable or Unresolved."""
    try:
        return name, run(*arguments)
    except Undecided as missing:
        return name, missing.outcome


def enough(points: Sequence[Point], what: str, least: int = MINIMUM_POINTS) -> Sequence[Point]:
    """Return the points, if a trend can be seen in them; NotTestable for none, Unresolved for too few."""
    if not points:
        raise NotTestable(f"{what}: known at no point.")
    if len(points) < least:
        there = ", ".join(str(point.gpus) for point in points)
        raise Unresolved(
            f"{what}: known at {len(points)} of the {least} points that a trend needs (n = {there}); "
            f"{least - len(points)} more needed."
        )
    return points


def decided(holds: bool, value: Value, detail: str) -> Outcome:
    """Return reproduced or not."""
    return Outcome(REPRODUCED if holds else NOT_REPRODUCED, value, detail)


def within_noise(numbers: Sequence[Number]) -> bool:
    """Return True if any two numbers are as far apart as their intervals allow, at most."""
    return all(
        abs(one.value - other.value) <= math.hypot(one.half, other.half)
        for i, one in enumerate(numbers)
        for other in numbers[:i]
    )


def monotone(what: str, numbers: Sequence[Number], rises: bool) -> Outcome:
    """Check whether each step goes the claimed way, or back by one standard deviation at most; and the whole.

    Not reproduced where a step back, or the slope of the whole against it, is more than its interval;
    unresolved where the slope is within its interval. The value is the step furthest back.
    """
    steps = [b - a if rises else a - b for a, b in pairwise(numbers)]
    whole = _way(range(len(numbers)), numbers, rises)
    back = [step for step in steps if step.value < -step.spread]
    worst = min(steps, key=lambda step: step.value)
    sentence = f"{what} go {', '.join(shown(one.value) for one in numbers)}"
    way = "rising" if rises else "falling"
    if whole.high < 0 or any(step.high < 0 for step in back):
        return Outcome(NOT_REPRODUCED, worst.value, f"{sentence}: not {way}.")
    if whole.low > 0 and not back:
        return Outcome(REPRODUCED, worst.value, f"{sentence}: {way}.")
    open_ = max(back, key=lambda step: -step.value) if whole.low > 0 else whole
    return Outcome(
        UNRESOLVED, worst.value, f"{sentence}: {way} or not within their spread; {told(open_)}."
    )


def ranked(
    what: str, x: Sequence[float], numbers: Sequence[Number], rises: bool, least: float
) -> Outcome:
    """Check whether Spearman's correlation with x is at least `least` (`rises`), or at most its negative.

    Unresolved if the slope against the ranks is within its interval, or no pair that goes the other
    way is further apart than its interval.
    """
    rho = round(spearman(x, [one.value for one in numbers]), 9)
    bound = f"at least {least:g}" if rises else f"at most {-least:g}"
    sentence = f"Spearman's correlation of {what} is {rho:.2f}, expected {bound}"
    whole = _way(ranks(x), numbers, rises)
    ordered = [one for _, one in sorted(zip(x, numbers, strict=True), key=lambda pair: pair[0])]
    pairs = [b - a if rises else a - b for a, b in combinations(ordered, 2)]
    if (rho if rises else -rho) < least:
        if any(pair.high < 0 for pair in pairs):
            return Outcome(NOT_REPRODUCED, rho, f"{sentence}.")
        open_ = min(pairs, key=lambda pair: pair.value)
    elif whole.low > 0:
        return Outcome(REPRODUCED, rho, f"{sentence}.")
    else:
        open_ = whole
    return Outcome(UNRESOLVED, rho, f"{sentence}, which their spread may make; {told(open_)}.")


def _way(x: Sequence[float], numbers: Sequence[Number], rises: bool) -> Number:
    """Return the slope against x along the claimed way."""
    return slope(x, numbers) * (1 if rises else -1)


def onset(
    what: str,
    sizes: Sequence[int],
    numbers: Sequence[Number],
    margin: float,
    low: int,
    high: int,
    unit: str = "",
) -> Outcome:
    """Check whether numbers leave the first by more than `margin` above the batch size `low`, up to `high`.

    The onset is between the last size that is at base and the first beyond, both with their whole
    intervals. Unresolved if that step is not inside or outside of the range, and where the first
    size is not below it: then nothing says what the base is.
    """
    if sizes[0] >= low:
        raise Unresolved(
            f"{what} is known from GBS {sizes[0]} on, which need not be its base; 1 more needed, at a GBS "
            f"below {low}."
        )
    rises = [one - numbers[0] for one in numbers[1:]]
    known = list(zip(sizes[1:], rises, strict=True))
    calm = [size for size, _ in takewhile(lambda one: one[1].high <= margin, known)]
    last = max([sizes[0], *calm])
    first = next((size for size, rise in known if rise.low > margin), None)
    end = math.inf if first is None else first
    between = [(size, rise) for size, rise in known if last < size < end]
    where = f"beyond GBS {last}, if at all" if first is None else f"between GBS {last} and {first}"
    sentence = (
        f"{what} leaves {text(numbers[0], unit)} (at GBS {sizes[0]}) by more than {shown(margin)} "
        f"{where}; expected above {low}, up to {high}"
    )
    value = None if first is None else float(first)
    if first is not None and last >= low and first <= high:
        return Outcome(REPRODUCED, value, f"{sentence}.")
    if last >= high or (first is not None and first <= low):
        return Outcome(NOT_REPRODUCED, value, f"{sentence}.")
    wanted = [g for g in (low, high) if last < g < end and g not in sizes]
    more = [f"points at GBS {' and '.join(map(str, wanted))} are needed"] if wanted else []
    if between:
        size, rise = between[0]
        more.append(f"at GBS {size} {needed(rise, abs(rise.value - margin))}")
    return Outcome(UNRESOLVED, value, f"{sentence}; {'; '.join(more)}.")


def steady(what: str, numbers: Sequence[Number], most: float) -> Outcome:
    """Check whether the coefficient of variation is at most `most`; unresolved if it is not, within noise."""
    cv = variation([one.value for one in numbers])
    sentence = (
        f"{what} goes {', '.join(shown(one.value) for one in numbers)}: coefficient of variation "
        f"{100 * cv:.1f} %, expected at most {100 * most:g} %"
    )
    if cv <= most:
        return Outcome(REPRODUCED, cv, f"{sentence}.")
    if within_noise(numbers):
        spread = max(one.spread / abs(one.value) for one in numbers if one.value)
        return Outcome(
            UNRESOLVED,
            cv,
            f"{sentence}; all are within their spread, {repeats_text(repeats_to_tell(most, spread))}.",
        )
    return Outcome(NOT_REPRODUCED, cv, f"{sentence}.")


def slope(x: Sequence[float], numbers: Sequence[Number]) -> Number:
    """Return slope of the line through independent numbers, with what it has of their intervals."""
    fit = line_fit(x, [one.value for one in numbers])
    middle = math.fsum(x) / len(x)
    squares = math.fsum((a - middle) ** 2 for a in x)
    return replace(weighted([(a - middle) / squares for a in x], numbers), value=fit.slope)


def linear(
    what: str, x: Sequence[float], numbers: Sequence[Number], least: float = LINEAR_R2
) -> Outcome:
    """Check whether numbers are a line of x with R² of at least `least`.

    Its intercept is told, and the line through 0. Unresolved if the slope is within its interval, or
    where R² is smaller and all points lie within their intervals of the line.
    """
    fit = line_fit(x, [one.value for one in numbers])
    half = "" if fit.intercept_half is None else f" ± {shown(fit.intercept_half)}"
    sentence = (
        f"{what}: R² of a line with intercept is {fit.r2:.4f} (expected at least {least:g}), slope "
        f"{shown(fit.slope)}, intercept {shown(fit.intercept)}{half}; R² of the line through the "
        f"origin is {fit.origin_r2:.4f}, slope {shown(fit.origin_slope)}; {fit.n} points"
    )
    own = slope(x, numbers)
    if fit.r2 >= least:
        if abs(own.value) > own.half:
            return Outcome(REPRODUCED, fit.r2, f"{sentence}.")
        return Outcome(
            UNRESOLVED, fit.r2, f"{sentence}; the slope is within its interval, {told(own)}."
        )
    rests = [
        Number(one.value - fit.slope * a - fit.intercept, one.half, one.spread)
        for a, one in zip(x, numbers, strict=True)
    ]
    if all(abs(rest.value) <= rest.half for rest in rests):
        furthest = max(rests, key=lambda rest: abs(rest.value) / (rest.half or math.ulp(1.0)))
        more = f"all lie on the line within their intervals, {told(furthest)}"
        return Outcome(UNRESOLVED, fit.r2, f"{sentence}; {more}.")
    return Outcome(NOT_REPRODUCED, fit.r2, f"{sentence}.")


def _band_text(low: float | None, high: float | None, unit: str) -> str:
    unit = f" {unit}" if unit else ""
    if low is None:
        return f"at most {shown(high or 0)}{unit}"
    if high is None:
        return f"at least {shown(low)}{unit}"
    return f"{shown(low)} to {shown(high)}{unit}"


# --- two joined lines -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bend:
    """Two joined lines: the knee, the slope before it and its change there, and how they fit."""

    gbs: int
    before: Number
    change: Number
    squares: float
    furthest: Number
    """The distance from them of the point that is furthest by its interval."""

    @property
    def is_possible(self) -> bool:
        """Return True if all points lie on the lines within their intervals."""
        return self.furthest.value <= self.furthest.half


def knee(sizes: Sequence[int], numbers: Sequence[Number], low: float, high: float) -> Outcome:
    """Check whether numbers rise with log2 of the batch sizes, and faster from `low` to `high` on.

    The knee is the inner point where two joined lines fit best; any other with which all points lie on
    the lines within their intervals is possible too. The second slope must be above the first by more
    than the points' intervals.
    """

    def is_inside(bend: _Bend) -> bool:
        return low <= bend.gbs <= high

    bends = [_joined(sizes, numbers, size) for size in sizes[1:-1]]
    best = min(bends, key=lambda bend: bend.squares)
    others = [b for b in bends if b.is_possible and is_inside(b) != is_inside(best)]
    sentence = (
        f"Two joined lines fit best with a knee at GBS {best.gbs}, expected at {low:g} to {high:g}"
    )
    place = decided(is_inside(best), best.gbs, f"{sentence}.")
    if others:
        other = max(others, key=lambda bend: bend.furthest.value)
        what = f"the distance from lines with a knee at GBS {other.gbs}"
        place = Outcome(
            UNRESOLVED, best.gbs, f"{sentence}; {positive(what, other.furthest).detail}"
        )
    return all_of(
        [
            ("", place),
            ("", band("The slope per doubling before it", best.before, 0.0, None)),
            ("", positive("Its change there", best.change)),
        ]
    )


def _joined(sizes: Sequence[int], numbers: Sequence[Number], at: int) -> _Bend:
    import numpy as np

    x = np.log2(sizes)
    beyond = np.maximum(x - math.log2(at), 0.0)
    design = np.stack([np.ones_like(x), x, beyond], axis=1)
    inverse = np.linalg.pinv(design)
    y = np.array([one.value for one in numbers])
    rests = y - design @ (inverse @ y)

    distances = [
        Number(abs(float(rest)), one.half, one.spread, one.assumed)
        for rest, one in zip(rests, numbers, strict=True)
    ]
    furthest = max(distances, key=lambda one: one.value / (one.half or math.ulp(1.0)))
    before, change = (weighted(map(float, inverse[index]), numbers) for index in (1, 2))
    return _Bend(at, before, change, float(np.sum(rests**2)), furthest)
