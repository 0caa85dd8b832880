"""Draws from the posterior of a linear model with non-negative costs.

A value y is the sum of its terms, x · b with b ≥ 0, times 1 + e: its error is relative. The errors
are normal with an unknown standard deviation, whose prior is worth `PRIOR_POINTS` points with the
spread `PRIOR_SPREAD`; b has a flat prior where it is not negative. emcee (Foreman-Mackey et al. 2013,
arXiv 1202.3665) samples it: terms that the points cannot separate stay uncertain, and what they
determine together stays narrow.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from scalewatt.scaling.model.cost_terms import Array

PRIOR_SPREAD = 0.03
"""Relative; the paper's repeats of one training vary by 0.2 to 3.4 % in time, 0.2 to 1.4 % in energy at
5 repeats (reference/published_results.csv)."""
PRIOR_POINTS = 2.0
MOST_SPREAD = 0.5
"""Without it the spread would be unbounded where there are as many terms as points."""
MOST_UNSURE = 0.3
"""Relative standard deviation that `widened` gives at most: its nominal 90 % interval is ± 50 %."""
DRAWS = 500
LENGTHS = 25
"""A chain is continued until it has so many autocorrelation lengths of each parameter, per walker."""
_BURNT, _STEPS, _LONGEST = 500, 80, 20000
"""Steps: of the burn-in, for each length at first, and at most."""
SEED = 1
_FACTORS_SEED = 3


@dataclass(frozen=True)
class Draws:
    """Draws of the posterior."""

    terms: Array
    """(draws, terms): the cost of each term."""
    spread: Array
    """(draws,): relative standard deviation of a point around the model."""

    def means(self, columns: Array) -> Array:
        """Return values (draws, points) of columns (points, terms) or (draws, points, terms)."""
        if columns.ndim == 2:
            return self.terms @ columns.T
        return np.einsum("dt,dpt->dp", self.terms, columns)


def best(columns: Array, values: Array) -> Array:
    """Return the non-negative costs with the smallest relative errors (least squares)."""
    from scipy.optimize import nnls

    relative = columns / values[:, None]
    scale = _scale(relative)
    return nnls(relative / scale, np.ones(len(values)))[0] / scale


def left_out_error(columns: Array, values: Array) -> float:
    """Return the mean relative error of values (points,), each predicted by `best` of the others."""
    errors = []
    for number, value in enumerate(values):
        others = np.arange(len(values)) != number
        costs = best(columns[others], values[others])
        errors.append(abs(columns[number] @ costs / value - 1))
    return float(np.mean(errors))


def draw(columns: Array, values: Array, seed: int = SEED, lengths: int = LENGTHS) -> Draws:
    """Draw costs for columns (points, terms) and measured values (points,).

    `lengths`: of the chain, as LENGTHS; fewer are enough for medians.
    Draws for other values use another random stream, because sums of several models pair them.
    """
    import emcee

    seed += zlib.crc32(np.ascontiguousarray(values, dtype=float).tobytes()) % 2**31
    relative = columns / values[:, None]
    scale = _scale(relative)
    relative = relative / scale
    points, terms = relative.shape
    start = best(columns, values) * scale

    def log_posterior(theta: Array) -> Array:
        costs, log_spread = theta[:, :terms], theta[:, terms]
        squares = ((costs @ relative.T - 1) ** 2).sum(axis=1) + PRIOR_POINTS * PRIOR_SPREAD**2
        density = -(points + PRIOR_POINTS) * log_spread - squares / (2 * np.exp(2 * log_spread))
        outside = (costs < 0).any(axis=1) | (log_spread > np.log(MOST_SPREAD))
        return np.where(outside, -np.inf, density)

    walkers = max(4 * (terms + 1), 32)
    random = np.random.default_rng(seed)
    first = np.column_stack(
        [
            np.abs(start + random.normal(0, PRIOR_SPREAD, (walkers, terms))),
            np.log(PRIOR_SPREAD) + random.normal(0, 0.2, walkers),
        ]
    )
    sampler = emcee.EnsembleSampler(walkers, terms + 1, log_posterior, vectorize=True)
    state = emcee.State(first, random_state=np.random.RandomState(seed).get_state())
    sampler.run_mcmc(state, _BURNT + lengths * _STEPS)
    while _lengths(sampler) < lengths and sampler.iteration < _LONGEST:
        sampler.run_mcmc(None, lengths * _STEPS)
    chain = sampler.get_chain(discard=_BURNT, flat=True)
    kept = chain[:: len(chain) // DRAWS][:DRAWS]
    return Draws(kept[:, :terms] / scale, np.exp(kept[:, terms]))


def _lengths(sampler: Any) -> float:
    """Return how many autocorrelation lengths of its slowest parameter a chain has."""
    slowest = sampler.get_autocorr_time(discard=_BURNT, tol=0).max()
    return float((sampler.iteration - _BURNT) / slowest)


def widened(draws: Draws, least: float) -> Draws:
    """Return the draws times a factor each, so that a point's standard deviation is `least`.

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
    """Return factors (count,): shuffled quantiles of a normal distribution around 1, none below 0.1."""
    normal = NormalDist(1.0, deviation)
    quantiles = np.array([normal.inv_cdf((number + 0.5) / count) for number in range(count)])
    return np.random.default_rng(_FACTORS_SEED).permutation(np.maximum(quantiles, 0.1))


def _scale(relative: Array) -> Array:
    largest = relative.max(axis=0)
    return np.where(largest > 0, largest, 1.0)
