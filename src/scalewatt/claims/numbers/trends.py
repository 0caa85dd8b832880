"""What several numbers show together: an order, constancy, a straight line, a power law.

Each is made of numbers with intervals, to which the one rule of `decisions` applies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

from scalewatt.claims.evidence.claim_types import (
    CONTRADICTED,
    SUPPORTED,
    UNDECIDED,
    Outcome,
)
from scalewatt.claims.numbers.decisions import (
    LEVEL,
    all_of,
    band,
    needed,
    positive,
    told,
)
from scalewatt.claims.numbers.uncertain_number import (
    Number,
    ends_text,
    line_fit,
    shown,
    spearman,
    text,
    weighted,
)
from scalewatt.results.tables.t_tests import quantile


def slope(x: Sequence[float], numbers: Sequence[Number]) -> Number:
    """Return slope of the line through independent numbers, with what it has of their intervals."""
    fit = line_fit(x, [one.value for one in numbers])
    return replace(weighted(_slope_weights(x), numbers), value=fit.slope)


def slope_change(
    x: Sequence[float], numbers: Sequence[Number], first: slice, last: slice, times: float = 1.0
) -> Number:
    """Return the slope of the last of independent numbers less `times` that of the first.

    The two may share some of them: then their errors do not add up as those of independent slopes do.
    """
    weights = np.zeros(len(x))
    weights[last] += _slope_weights(x[last])
    weights[first] -= times * np.array(_slope_weights(x[first]))
    return weighted(map(float, weights), numbers)


def _slope_weights(x: Sequence[float]) -> list[float]:
    middle = math.fsum(x) / len(x)
    squares = math.fsum((a - middle) ** 2 for a in x)
    return [(a - middle) / squares for a in x]


def within_noise(numbers: Sequence[Number]) -> bool:
    """Return True if no two numbers differ by more than the interval of their difference."""
    return all((gap := one - other).low <= 0 <= gap.high for one, other in combinations(numbers, 2))


def monotone(what: str, numbers: Sequence[Number], rises: bool, most: float) -> Outcome:
    """Check whether numbers, all positive, go the claimed way as a whole, and back by `most` at no step.

    The whole is the slope along their places, a step the ratio to the number before. The value is the
    step furthest back.
    """
    steps = [b / a if rises else a / b for a, b in pairwise(numbers)]
    whole = slope(range(len(numbers)), numbers) * (1 if rises else -1)
    parts = [positive("the slope", whole)]
    parts += [band("a step", step, 1 / (1 + most), None) for step in steps]
    found = all_of(("", part) for part in parts)
    back = min((b - a if rises else a - b for a, b in pairwise(numbers)), key=lambda one: one.value)
    way = "rising" if rises else "falling"
    sentence = f"{what} go {', '.join(shown(one.value) for one in numbers)}"
    says = {
        SUPPORTED: f"{way}, and no step back is as much as {100 * most:g} %",
        CONTRADICTED: f"not {way}",
    }
    if found.verdict in says:
        detail = f"{sentence}: {says[found.verdict]}."
        return replace(found, value=back.value, detail=detail)
    open_ = next(part.detail for part in parts if part.verdict != SUPPORTED)
    return replace(found, value=back.value, detail=f"{sentence}: {way} as far as is told; {open_}")


def ranked(
    what: str, x: Sequence[float], numbers: Sequence[Number], rises: bool, least: float
) -> Outcome:
    """Check whether Spearman's correlation with x is at least `least` (`rises`), or at most its negative.

    Its interval is that of all numbers within their own intervals, which hold all of them together with
    95 %: from the most reversed to the most ordered that these allow. Numbers of unknown spread are no test.
    """
    sense = 1 if rises else -1
    found = sense * round(spearman(x, [one.value for one in numbers]), 9)
    bound = f"at least {least:g}" if rises else f"at most {-least:g}"
    gaps = _gaps(x, numbers, sense)
    low, high = _ranks_within(x, gaps, 2 * LEVEL)
    rho = sense * found
    ends = sorted((sense * low, sense * high))
    sentence = (
        f"Spearman's correlation of {what} is {rho:.2f} ({ends[0]:.2f} to {ends[1]:.2f}), expected "
        f"{bound}"
    )
    if low >= least:
        return Outcome(SUPPORTED, rho, f"{sentence}.", p=1.0)
    if high < least:
        return Outcome(CONTRADICTED, rho, f"{sentence}.", p=_rank_p(x, gaps, least))
    open_ = min((gap for _, _, gap in gaps), key=lambda gap: gap.low)
    is_test = any(math.isfinite(gap.error) for _, _, gap in gaps)
    return Outcome(UNDECIDED, rho, f"{sentence}; {told(open_)}.", p=1.0 if is_test else None)


def _gaps(
    x: Sequence[float], numbers: Sequence[Number], sense: int
) -> list[tuple[int, int, Number]]:
    """Return each pair of places that differ in x, and how much more the latter has along the claimed way."""
    order = sorted(range(len(x)), key=lambda index: x[index])
    return [
        (one, other, (numbers[other] - numbers[one]) * sense)
        for one, other in combinations(order, 2)
        if x[one] != x[other]
    ]


def _ranks_within(
    x: Sequence[float], gaps: Sequence[tuple[int, int, Number]], level: float
) -> tuple[float, float]:
    """Return the least and the largest rank correlation that the pairs allow, all with 1 − `level`.

    A pair whose difference is within its interval counts as reversed, and as ordered.
    """
    below = np.ones((2, len(x)))
    for one, other, gap in gaps:
        half = quantile(gap.freedom, 1 - level / len(gaps)) * gap.error if gap.error else 0.0
        for row, counts_as_ordered in enumerate((gap.value - half > 0, gap.value + half > 0)):
            below[row, other if counts_as_ordered else one] += 1
    low, high = (round(spearman(x, list(ranks)), 9) for ranks in below)
    return low, high


def _rank_p(x: Sequence[float], gaps: Sequence[tuple[int, int, Number]], least: float) -> float:
    """Return the level, halved, from which on intervals leave a correlation of `least` out."""
    low, high = -30.0, math.log10(2 * LEVEL)
    for _ in range(40):
        middle = (low + high) / 2
        _, most = _ranks_within(x, gaps, 10.0**middle)
        low, high = (low, middle) if most < least else (middle, high)
    return 10.0**high / 2


# --- constancy ------------------------------------------------------------------------------------


def constant(
    what: str,
    x: Sequence[float],
    numbers: Sequence[Number],
    most: float,
    unit: str = "",
) -> Outcome:
    """Check whether numbers neither drift along x nor lie away from their mean, by more than `most`.

    By logarithms, `most` a part (upwards; downwards by the same factor) and the mean the geometric one;
    where a `unit` is given by differences in that. Each of the drift from the first x to the last, by the
    slope, and of the distances from the mean must be within.
    """
    own = [one.linear() if unit else one.logarithm() for one in numbers]
    low, high = (-most, most) if unit else (-math.log1p(most), math.log1p(most))
    drift = slope(x, own) * (max(x) - min(x))
    around = np.eye(len(own)) - 1 / len(own)
    rests = [weighted(map(float, row), own) for row in around]
    parts = [("drift", drift), *(("", rest) for rest in rests)]
    furthest = max(rests, key=lambda one: abs(one.value))
    mean = "mean" if unit else "geometric mean"
    margin = f"± {shown(most)} {unit}" if unit else by_factor(most)
    values = [one.value for one in numbers]
    sentence = (
        f"{what} goes {', '.join(map(shown, values))}: by the slope it "
        f"drifts by {_change(drift, unit)} in all, and is furthest from its {mean} by "
        f"{_change(furthest, unit)}; expected {margin}"
    )
    return _all_within(sentence, parts, low, high, drift if unit else _expm1(drift))


def _all_within(
    sentence: str,
    parts: Sequence[tuple[str, Number]],
    low: float,
    high: float,
    tells: Number,
) -> Outcome:
    """Return whether all of several numbers are within bounds, in one sentence; the value is of `tells`."""
    found = all_of(("", band(name, one, low, high)) for name, one in parts)
    if found.verdict != UNDECIDED:
        return replace(found, value=tells.value, detail=f"{sentence}.")
    open_ = max((one for _, one in parts), key=lambda one: max(low - one.low, one.high - high))
    return replace(found, value=tells.value, detail=f"{sentence}; {needed(open_, low, high)}.")


def _expm1(own: Number) -> Number:
    return replace(own, value=math.expm1(own.value))


def by_factor(most: float) -> str:
    """Return in per cent what a factor of at most 1 + `most` is, down and up."""
    return f"{100 * (1 / (1 + most) - 1):.2g} to {100 * most:+g} %"


def _change(own: Number, unit: str) -> str:
    """Return a change with its interval, in per cent where it is of a logarithm."""
    if unit:
        return text(own, unit)
    if math.isinf(own.error):
        return f"{math.expm1(own.value):+.1%} ({own.assumed})"
    value, low, high = (f"{math.expm1(one):+.1%}" for one in (own.value, own.low, own.high))
    return f"{value} {ends_text(own, low, high)}" if own.error else value


# --- straight lines and powers ---------------------------------------------------------------------


def elasticity(x: Sequence[Number], numbers: Sequence[Number]) -> Number:
    """Return the exponent b of numbers that go as x to the power of b, by logarithms.

    The errors of x count as well, as if independent of the numbers'.
    """
    logs, own = [one.logarithm() for one in x], [one.logarithm() for one in numbers]
    places = [one.value for one in logs]
    return slope(places, with_errors_of(own, logs, slope(places, own).value))


def with_errors_of(numbers: Sequence[Number], x: Sequence[Number], factor: float) -> list[Number]:
    """Return numbers with the errors too that those of x make by this slope."""
    return [
        replace(one, variances=(one - a * factor).variances)
        for one, a in zip(numbers, x, strict=True)
    ]


def straight(
    what: str,
    places: Sequence[Number],
    numbers: Sequence[Number],
    most: float,
    gpus: Sequence[int] = (),
) -> Outcome:
    """Check whether numbers lie on a straight line of x that rises, by their curvature.

    The bow is that of a parabola, half-way, from the chord of its ends, as a part of the rise between
    these; below 0 where they flatten. It and the distance of each point from a line must be at most `most`
    of the rise; the line is that of least squares of distances as parts of each positive number. Undecided
    where the rise is within its interval. `gpus` are told of the point that is furthest off.
    """
    x = [one.value for one in places]
    z = (np.array(x) - min(x)) / (max(x) - min(x) or 1.0)
    # Not by errors: those of few repeats would make another line of each campaign.
    values = np.array([one.value for one in numbers])
    is_relative = bool(np.all(values > 0))
    weights = 1 / values**2 if is_relative else np.ones(len(z))
    fit = line_fit(x, [one.value for one in numbers])
    sentence = f"{what}, {len(x)} points"
    numbers = with_errors_of([one.linear() for one in numbers], places, fit.slope)
    parabola = _estimators(weights, np.stack([np.ones_like(z), z, z**2], axis=1))
    ends = parabola[1] + parabola[2]
    rise = weighted(map(float, ends), numbers)
    if not rise.low > 0:
        found = positive("the rise", rise)
        return replace(found, detail=f"{sentence}; {found.detail}")
    bow = _part(parabola[2] / 4, ends, numbers)
    line = np.stack([np.ones_like(z), z], axis=1)
    off = np.eye(len(z)) - line @ _estimators(weights, line)
    rests = [_part(one, ends, numbers) for one in off]
    index = max(range(len(rests)), key=lambda one: abs(rests[one].value))
    where = f"x = {shown(x[index])}" + (f" (n = {gpus[index]})" if gpus else "")
    way = "" if bow.low <= 0 <= bow.high else " (flattening)" if bow.value < 0 else " (steepening)"
    line_of = "weights 1/value²" if is_relative else "least squares"
    sentence += (
        f": its bow is {_percent(bow)} of the rise{way}, and the furthest point, at {where}, lies "
        f"{_percent(rests[index])} of it off the line of {line_of}; expected within ± {100 * most:g} %"
    )
    parts = [("bow", bow), *(("", one) for one in rests)]
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
