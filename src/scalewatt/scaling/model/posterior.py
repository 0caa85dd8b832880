"""Draws from the posterior of a linear model with non-negative costs.

A value y is the sum of its terms, x · b with b ≥ 0, times 1 + e: its error is relative. The errors
are normal with an unknown standard deviation, whose prior is worth `PRIOR_POINTS` points with the
spread `PRIOR_SPREAD`; b has a flat prior where it is not negative. A Gibbs sampler draws from it, each
draw by a chain of its own, so that draws are independent: terms that the points cannot separate stay
uncertain, and what they determine together stays narrow.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from scalewatt.scaling.model.terms import Array

PRIOR_SPREAD = 0.03
"""Relative; the paper's repeats of one training vary by 0.2 to 3.4 % in time, 0.2 to 1.4 % in energy at
5 repeats (reference/published_results.csv)."""
PRIOR_POINTS = 2.0
MOST_SPREAD = 0.5
"""Without it the spread would be unbounded where there are as many terms as points."""
MOST_UNSURE = 0.3
"""Relative standard deviation that `widened` gives at most: its nominal 90 % interval is ± 50 %."""
LEAST_FACTOR = 0.1
"""Of a deviation from a cost or a model: a normal one would make some runs take no time at all."""
DRAWS = 500
SWEEPS = 100
"""Updates of everything in a chain, of which the last is the draw; after 50 nothing changes any more, also
where points hardly separate terms."""
SEED = 1
_FACTORS_SEED = 3
_LEAST_PRECISION, _RIDGE = 1e-9, 1e-6
"""For directions of costs, scaled to 1, on which no value depends."""


@dataclass(frozen=True)
class Draws:
    """Draws of the posterior."""

    terms: Array
    """(draws, terms): the cost of each term."""
    spread: Array
    """(draws,): relative standard deviation of a point around the model."""

    def means(self, columns: Array) -> Array:
        """Values (draws, points) of columns (points, terms) or (draws, points, terms)."""
        if columns.ndim == 2:
            return self.terms @ columns.T
        return np.einsum("dt,dpt->dp", self.terms, columns)

    def repeated(self, times: int) -> Draws:
        """Each draw several times, in order: draws of time and energy stay paired."""
        return Draws(np.repeat(self.terms, times, axis=0), np.repeat(self.spread, times))

    def times(self, factors: Array) -> Draws:
        """The draws with their costs multiplied by factors (draws, terms)."""
        return Draws(self.terms * factors, self.spread)


def best(columns: Array, values: Array) -> Array:
    """Non-negative costs with the smallest relative errors (least squares)."""
    from scipy.optimize import nnls

    relative = columns / values[:, None]
    scale = _scale(relative)
    return nnls(relative / scale, np.ones(len(values)))[0] / scale


def draw(columns: Array, values: Array, seed: int = SEED) -> Draws:
    """Draw costs for columns (points, terms) and measured values (points,).

    Draws for other values use another random stream, because sums of several models pair them.
    """
    digits = " ".join(f"{value:.9g}" for value in values)  # alike where sums are rounded otherwise
    random = np.random.default_rng(seed + zlib.crc32(digits.encode()) % 2**31)
    relative = columns / values[:, None]
    scale = _scale(relative)
    relative = relative / scale
    gram, sums = relative.T @ relative, relative.sum(axis=0)
    costs = np.tile(best(columns, values) * scale, (DRAWS, 1))
    spread = np.full(DRAWS, PRIOR_SPREAD)
    ways = [(way, gram @ way, float(sums @ way)) for way in _ways(gram)]
    for _ in range(SWEEPS):
        for way, change, aim in ways:
            # Along a way the squares are a parabola, so the density of the step is a normal one.
            precision = max(float(way @ change), _LEAST_PRECISION)
            middle = (aim - costs @ change) / precision
            deviation = spread / math.sqrt(precision)
            steps = _normal_within(*_room(costs, way), middle, deviation, random)
            costs = np.maximum(costs + np.outer(steps, way), 0.0)
        squares = ((costs @ relative.T - 1) ** 2).sum(axis=1) + PRIOR_POINTS * PRIOR_SPREAD**2
        spread = _spread(squares, len(values) + PRIOR_POINTS, random)
    return Draws(costs / scale, spread)


def _ways(gram: Array) -> list[Array]:
    """Directions in which costs are moved: each alone, and each with those before it.

    In the latter these move so that the values change as little as they can (conjugate directions). Where
    points hardly separate terms, or as GPU and node hours not at all, single costs would move by tiny
    steps.
    """
    factor = np.linalg.cholesky(gram + _RIDGE * np.eye(len(gram)))
    together = np.linalg.inv(factor)[1:]
    together /= np.abs(together).max(axis=1, keepdims=True)
    return [*np.eye(len(gram)), *together]


def _room(costs: Array, way: Array) -> tuple[Array, Array]:
    """How far each row of costs can go back and forth along a way until one of them is 0."""
    up, down = way > _LEAST_PRECISION, way < -_LEAST_PRECISION
    back = (-costs[:, up] / way[up]).max(axis=1, initial=-np.inf)
    return back, (-costs[:, down] / way[down]).min(axis=1, initial=np.inf)


def _normal_within(
    low: Array, high: Array, middle: Array, deviation: Array, random: np.random.Generator
) -> Array:
    """Draw from normal distributions that are cut off below `low` and above `high`."""
    from scipy.special import ndtr, ndtri

    first, last = (low - middle) / deviation, (high - middle) / deviation
    upper = first > 0  # mirrored: probabilities near 0 are exact, those near 1 are not
    first, last = np.where(upper, -last, first), np.where(upper, -first, last)
    below = ndtr(first)
    part = below + (ndtr(last) - below) * random.random(len(low))
    drawn = ndtri(np.clip(part, 1e-300, 1 - 1e-16))
    return np.clip(middle + deviation * np.where(upper, -drawn, drawn), low, high)


def _spread(squares: Array, weight: float, random: np.random.Generator) -> Array:
    """Draw standard deviations, at most MOST_SPREAD, of `weight` errors with these sums of squares."""
    from scipy.special import gammaincc, gammainccinv

    half, least = weight / 2, squares / 2 / MOST_SPREAD**2
    precisions = random.gamma(half, size=len(squares))
    parts = random.random(len(squares))  # drawn for all, so that no rounding shifts what follows
    outside = precisions < least
    allowed = gammaincc(half, least[outside])
    precisions[outside] = gammainccinv(half, parts[outside] * allowed)
    return np.sqrt(squares / 2 / precisions)


def widened(draws: Draws, least: float) -> Draws:
    """The draws times a factor each, so that a point's standard deviation is `least`.

    `least` is limited to MOST_UNSURE. All predictions of a draw share its factor, so their errors are
    fully correlated. Every other draw is used twice, with factors as far above 1 as below, so that
    medians stay.
    """
    least = min(least, MOST_UNSURE)
    spread = float(np.median(draws.spread))
    if least <= spread:
        return draws
    kept = np.arange(0, 2 * (len(draws.spread) // 2), 2)
    above = factors_around_one(len(kept), math.sqrt(least**2 - spread**2))
    factors = np.concatenate([above, 2 - above])
    both = np.concatenate([kept, kept])
    return Draws(draws.terms[both] * factors[:, None], draws.spread[both])


def factors_around_one(count: int, deviation: float) -> Array:
    """Factors (count,), at least LEAST_FACTOR: shuffled quantiles of a normal one around 1."""
    normal = NormalDist(1.0, deviation)
    quantiles = np.array([normal.inv_cdf((number + 0.5) / count) for number in range(count)])
    return np.random.default_rng(_FACTORS_SEED).permutation(np.maximum(quantiles, LEAST_FACTOR))


def _scale(relative: Array) -> Array:
    largest = relative.max(axis=0)
    return np.where(largest > 0, largest, 1.0)
