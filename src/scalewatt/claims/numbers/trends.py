"""What several numbers show together: an order, constancy, a straight line, an onset, a knee.

Each is made of numbers with intervals, to which the one rule of `decisions` applies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, takewhile

import numpy as np
import numpy.typing as npt

from scalewatt.claims.evidence.claim_types import (
    CONTRADICTED,
    SUPPORTED,
    UNDECIDED,
    Outcome,
    TooFew,
)
from scalewatt.claims.numbers.decisions import (
    LEVEL,
    against,
    all_of,
    band,
    needed,
    positive,
    told,
)
from scalewatt.claims.numbers.uncertain_number import (
    Number,
    line_fit,
    ranks,
    shown,
    spearman,
    text,
    weighted,
)


def slope(x: Sequence[float], numbers: Sequence[Number]) -> Number:
    """Return slope of the line through independent numbers, with what it has of their intervals."""
    fit = line_fit(x, [one.value for one in numbers])
    middle = math.fsum(x) / len(x)
    squares = math.fsum((a - middle) ** 2 for a in x)
    return replace(weighted([(a - middle) / squares for a in x], numbers), value=fit.slope)


def within_noise(numbers: Sequence[Number]) -> bool:
    """Return True if no two numbers differ by more than the interval of their difference."""
    return all((gap := one - other).low <= 0 <= gap.high for one, other in combinations(numbers, 2))


def _backward(numbers: Sequence[Number]) -> float:
    """Return the probability of numbers so far below 0, were all of them above: the least, by Bonferroni."""
    return min(1.0, len(numbers) * min(against(one, 0.0, math.inf) for one in numbers))


def monotone(what: str, numbers: Sequence[Number], rises: bool) -> Outcome:
    """Check whether each step goes the claimed way, or back by one standard deviation at most; and the whole.

    Contradicted where a step back, or the slope of the whole against it, is more than its interval;
    undecided where the slope is within its interval. The value is the step furthest back.
    """
    steps = [b - a if rises else a - b for a, b in pairwise(numbers)]
    whole = _way(range(len(numbers)), numbers, rises)
    back = [step for step in steps if step.value < -step.spread]
    worst = min(steps, key=lambda step: step.value)
    way = "rising" if rises else "falling"
    sentence = f"{what} go {', '.join(shown(one.value) for one in numbers)}"
    p = _backward([whole, *steps])
    if p <= LEVEL:
        return Outcome(CONTRADICTED, worst.value, f"{sentence}: not {way}.", p=p)
    if whole.low > 0 and not back:
        return Outcome(SUPPORTED, worst.value, f"{sentence}: {way}.", p=p)
    open_ = max(back, key=lambda step: -step.value) if whole.low > 0 else whole
    more = f"{way} or not within their spread; {told(open_)}"
    return Outcome(UNDECIDED, worst.value, f"{sentence}: {more}.", p=p)


def ranked(
    what: str, x: Sequence[float], numbers: Sequence[Number], rises: bool, least: float
) -> Outcome:
    """Check whether Spearman's correlation with x is at least `least` (`rises`), or at most its negative.

    Undecided if the slope against the ranks is within its interval, or no pair that goes the other
    way is further apart than its interval.
    """
    rho = round(spearman(x, [one.value for one in numbers]), 9)
    bound = f"at least {least:g}" if rises else f"at most {-least:g}"
    sentence = f"Spearman's correlation of {what} is {rho:.2f}, expected {bound}"
    whole = _way(ranks(x), numbers, rises)
    ordered = [one for _, one in sorted(zip(x, numbers, strict=True), key=lambda pair: pair[0])]
    pairs = [b - a if rises else a - b for a, b in combinations(ordered, 2)]
    is_low = (rho if rises else -rho) < least
    p = _backward(pairs) if is_low else 1.0
    if is_low and p <= LEVEL:
        return Outcome(CONTRADICTED, rho, f"{sentence}.", p=p)
    if not is_low and whole.low > 0:
        return Outcome(SUPPORTED, rho, f"{sentence}.", p=p)
    open_ = min(pairs, key=lambda pair: pair.value) if is_low else whole
    more = f"which their spread may make; {told(open_)}"
    return Outcome(UNDECIDED, rho, f"{sentence}, {more}.", p=p)


def _way(x: Sequence[float], numbers: Sequence[Number], rises: bool) -> Number:
    """Return the slope against x along the claimed way."""
    return slope(x, numbers) * (1 if rises else -1)


# --- constancy ------------------------------------------------------------------------------------


def constant(
    what: str,
    x: Sequence[float],
    numbers: Sequence[Number],
    most: float,
    unit: str = "",
) -> Outcome:
    """Check whether numbers neither drift along x nor lie away from their mean, by more than `most`.

    By logarithms, `most` a part; where a `unit` is given by differences in that. Each of the drift from
    the first x to the last, by the slope, and of the distances from the mean must be within.
    """
    own = [one.linear() if unit else one.logarithm() for one in numbers]
    low, high = (-most, most) if unit else (-math.log1p(most), math.log1p(most))
    drift = slope(x, own) * (max(x) - min(x))
    around = np.eye(len(own)) - 1 / len(own)
    rests = [weighted(map(float, row), own) for row in around]
    parts = [("drift", drift), *(("", rest) for rest in rests)]
    furthest = max(rests, key=lambda one: abs(one.value))
    margin = _in_words(most, unit, "± ")
    values = [one.value for one in numbers]
    sentence = (
        f"{what} goes {', '.join(map(shown, values))} ({_extremes(values, unit)}): by the slope it "
        f"drifts by {_change(drift, unit)} in all, and lies at most {_change(furthest, unit)} off its "
        f"mean; expected {margin}"
    )
    return _all_within(sentence, parts, low, high, drift if unit else _expm1(drift))


def _all_within(
    sentence: str, parts: Sequence[tuple[str, Number]], low: float, high: float, tells: Number
) -> Outcome:
    """Return whether all of several numbers are within bounds, in one sentence; the value is of `tells`."""
    found = all_of(("", band(name, one, low, high)) for name, one in parts)
    if found.verdict != UNDECIDED:
        return replace(found, value=tells.value, detail=f"{sentence}.")
    open_ = max((one for _, one in parts), key=lambda one: max(low - one.low, one.high - high))
    return replace(found, value=tells.value, detail=f"{sentence}; {needed(open_, low, high)}.")


def _extremes(values: Sequence[float], unit: str) -> str:
    """Return what the values range over, which does not decide."""
    largest, smallest = max(values), min(values)
    if unit:
        return f"largest less smallest {shown(largest - smallest)} {unit}"
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return (
        f"largest over smallest {shown(largest / smallest)}, coefficient of variation "
        f"{spread / mean:.2%}"
    )


def _expm1(own: Number) -> Number:
    return replace(own, value=math.expm1(own.value))


def _change(own: Number, unit: str) -> str:
    """Return a change with its interval, in per cent where it is of a logarithm."""
    if unit:
        return text(own, unit)
    if math.isinf(own.error):
        return f"{math.expm1(own.value):+.1%} ({own.assumed})"
    ends = f" ({math.expm1(own.low):+.1%} to {math.expm1(own.high):+.1%})" if own.error else ""
    return f"{math.expm1(own.value):+.1%}{ends}"


def _in_words(most: float, unit: str, sign: str = "") -> str:
    return f"{sign}{shown(most)} {unit}" if unit else f"{sign}{100 * most:g} %"


# --- straight lines and powers ---------------------------------------------------------------------


def elasticity(x: Sequence[float], numbers: Sequence[Number]) -> Number:
    """Return the exponent b of numbers that go as x to the power of b, by logarithms; x is exact."""
    return slope([math.log(a) for a in x], [one.logarithm() for one in numbers])


def straight(what: str, x: Sequence[float], numbers: Sequence[Number], most: float) -> Outcome:
    """Check whether numbers lie on a straight line of x that rises, by their curvature.

    The bow is that of a parabola, half-way, from the chord of its ends, as a part of the rise between
    these; it and the distance of each point from the line of least squares must be at most `most` of the
    rise. Undecided where the rise is within its interval. R² and the exponent of a power law are told and
    do not decide: R² is high for many exponents.
    """
    z = (np.array(x) - min(x)) / (max(x) - min(x) or 1.0)
    errors = np.array([one.linear().error for one in numbers])
    usable = bool(np.all(np.isfinite(errors)) and np.all(errors > 0))
    weights = 1 / errors**2 if usable else np.ones(len(z))
    parabola = _estimators(weights, np.stack([np.ones_like(z), z, z**2], axis=1))
    line = np.stack([np.ones_like(z), z], axis=1)
    rise = weighted(map(float, parabola[1] + parabola[2]), numbers)
    fit = line_fit(x, [one.value for one in numbers])
    sentence = (
        f"{what}: R² of a line with intercept is {fit.r2:.4f}, slope {shown(fit.slope)}, intercept "
        f"{shown(fit.intercept)}; R² of the line through the origin is {fit.origin_r2:.4f}; "
        f"{fit.n} points"
    )
    if min(x) > 0 and min(one.value for one in numbers) > 0:
        sentence += f". As a power law the exponent is {text(elasticity(x, numbers))}"
    if not rise.low > 0:
        found = positive("the rise", rise)
        return replace(found, detail=f"{sentence}; {found.detail}")
    bow = _part(parabola[2] / 4, parabola[1] + parabola[2], numbers)
    chord = _estimators(weights, line)
    rests = [
        _part(np.eye(len(z))[index] - line[index] @ chord, parabola[1] + parabola[2], numbers)
        for index in range(len(z))
    ]
    parts = [("bow", bow), *(("", one) for one in rests)]
    furthest = max(rests, key=lambda one: abs(one.value))
    sentence += (
        f". Its bow is {_percent(bow)} of the rise, and a point lies {_percent(furthest)} of it off "
        f"the line; expected within ± {100 * most:g} %"
    )
    return _all_within(sentence, parts, -most, most, bow)


def _estimators(weights: npt.ArrayLike, design: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return what the coefficients of weighted least squares take of each point (coefficients, points)."""
    root = np.sqrt(np.asarray(weights) / np.max(weights))
    return np.linalg.pinv(design * root[:, None]) * root


def _part(
    top: npt.NDArray[np.float64], bottom: npt.NDArray[np.float64], numbers: Sequence[Number]
) -> Number:
    """Return the ratio of two weighted sums of the same numbers, to first order."""
    values = [one.value for one in numbers]
    over = float(bottom @ values)
    ratio = float(top @ values) / over
    return replace(weighted(map(float, (top - ratio * bottom) / over), numbers), value=ratio)


def _percent(own: Number) -> str:
    half = "" if not own.error or math.isinf(own.error) else f" ± {100 * own.half:.1f}"
    return f"{100 * own.value:+.1f}{half} %"


# --- batch sizes: an onset, a knee ------------------------------------------------------------------


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
    intervals. Undecided if that step is not inside or outside of the range, and where the first
    size is not below it: then nothing says what the base is.
    """
    if sizes[0] >= low:
        raise TooFew(
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
    early = [against(rise, -math.inf, margin) for size, rise in known if size <= low]
    late = [against(rise, margin, math.inf) for size, rise in known if size >= high][:1]
    tests = [*early, *late]
    p = min(1.0, len(tests) * min(tests, default=1.0))
    if first is not None and last >= low and first <= high:
        return Outcome(SUPPORTED, value, f"{sentence}.", p=p)
    if p <= LEVEL:
        return Outcome(CONTRADICTED, value, f"{sentence}.", p=p)
    wanted = [g for g in (low, high) if last < g < end and g not in sizes]
    more = [f"points at GBS {' and '.join(map(str, wanted))} are needed"] if wanted else []
    if between:
        size, rise = between[0]
        more.append(f"at GBS {size} {needed(rise, -math.inf, margin)}")
    return Outcome(UNDECIDED, value, f"{sentence}; {'; '.join(more)}.", p=p)


@dataclass(frozen=True)
class _Bend:
    """Two joined lines: the knee, the slope before it and its change there, and how they fit."""

    gbs: int
    before: Number
    change: Number
    squares: float
    furthest: Number
    """The distance from them of the point that is furthest by its interval."""

    points: int

    @property
    def is_possible(self) -> bool:
        """Return True if all points lie on the lines within their intervals."""
        return self.furthest.value <= self.furthest.half

    @property
    def p(self) -> float:
        """Return the probability of a point so far from the lines, were they the truth."""
        return min(1.0, 2 * self.points * against(self.furthest, -math.inf, 0.0))


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
    p = max((one.p for one in bends if is_inside(one)), default=1.0)
    if is_inside(best) and not others:
        place = Outcome(SUPPORTED, best.gbs, f"{sentence}.", p=p)
    elif p <= LEVEL:
        place = Outcome(CONTRADICTED, best.gbs, f"{sentence}.", p=p)
    else:
        other = max(others or [best], key=lambda bend: bend.furthest.value)
        what = f"the distance from lines with a knee at GBS {other.gbs}"
        more = positive(what, other.furthest).detail
        place = Outcome(UNDECIDED, best.gbs, f"{sentence}; {more}", p=p)
    return all_of(
        [
            ("", place),
            ("", band("The slope per doubling before it", best.before, 0.0, None)),
            ("", positive("Its change there", best.change)),
        ]
    )


def _joined(sizes: Sequence[int], numbers: Sequence[Number], at: int) -> _Bend:
    x = np.log2(sizes)
    beyond = np.maximum(x - math.log2(at), 0.0)
    design = np.stack([np.ones_like(x), x, beyond], axis=1)
    inverse = np.linalg.pinv(design)
    y = np.array([one.value for one in numbers])
    rests = y - design @ (inverse @ y)

    distances = [
        replace(one.linear(), value=abs(float(rest)))
        for rest, one in zip(rests, numbers, strict=True)
    ]
    furthest = max(distances, key=lambda one: one.value / (one.half or math.ulp(1.0)))
    before, change = (weighted(map(float, inverse[index]), numbers) for index in (1, 2))
    return _Bend(at, before, change, float(np.sum(rests**2)), furthest, len(sizes))
