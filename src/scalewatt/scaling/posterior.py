"""What measured points say of non-negative costs: draws from the posterior of a linear model.

A value y is the sum of its terms, x · b with b ≥ 0, times 1 + e: its error is relative. The errors
are normal with an unknown standard deviation, whose prior is worth `PRIOR_POINTS` points with the
spread `PRIOR_SPREAD`; b has a flat prior where it is not negative. emcee (Foreman-Mackey et al. 2013,
arXiv 1202.3665) samples it: terms that the points cannot tell apart stay undecided, and what they
decide together stays narrow.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from scalewatt.scaling.terms import Array

PRIOR_SPREAD = 0.03
"""Relative; the paper's repeats of one training vary by 0.2 to 3.4 % in time, 0.2 to 1.4 % in energy at
5 repeats (reference/published_results.csv)."""
PRIOR_POINTS = 2.0
DRAWS = 500
_STEPS, _BURNT = 1200, 400
_SEED = 1


@dataclass(frozen=True)
class Draws:
    """Draws of the posterior."""

    terms: Array
    """(draws, terms): the cost of each term."""
    spread: Array
    """(draws,): relative standard deviation of a point around the model."""

    def means(self, columns: Array) -> Array:
        """Values of the model, (draws, points), for columns (points, terms) or (draws, points, terms)."""
        if columns.ndim == 2:
            return self.terms @ columns.T
        return np.einsum("dt,dpt->dp", self.terms, columns)


def best(columns: Array, values: Array) -> Array:
    """The non-negative costs with the smallest relative errors (least squares)."""
    from scipy.optimize import nnls

    relative = columns / values[:, None]
    scale = _scale(relative)
    return nnls(relative / scale, np.ones(len(values)))[0] / scale


def draw(columns: Array, values: Array, seed: int = _SEED) -> Draws:
    """Draw costs for columns (points, terms) and the values (points,) that were found.

    Draws of other values come from another random stream: sums of several models pair them.
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
        return np.where((costs < 0).any(axis=1), -np.inf, density)

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
    sampler.run_mcmc(state, _STEPS)
    chain = sampler.get_chain(discard=_BURNT, flat=True)
    kept = chain[:: len(chain) // DRAWS][:DRAWS]
    return Draws(kept[:, :terms] / scale, np.exp(kept[:, terms]))


def _scale(relative: Array) -> Array:
    largest = relative.max(axis=0)
    return np.where(largest > 0, largest, 1.0)
