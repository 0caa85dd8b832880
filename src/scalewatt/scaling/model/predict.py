"""Predict time and energy of a load by the scaling model, with their uncertainty."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalewatt.scaling.model.fit import KindModel
from scalewatt.scaling.model.posterior import LEAST_FACTOR, Draws
from scalewatt.scaling.model.terms import Array, Load, energy_columns, time_columns

INTERVAL = (0.05, 0.95)
"""Quantiles of the nominal 90 % intervals."""
FAR = 4
"""Beyond so many times the calibrated n a prediction carries a warning."""
NEAR = 1.0
"""Doublings of n or LBS within which a calibrated point determines the uncertainty of a time."""
UNSEEN = 0.05
"""Relative standard deviation of a time that each doubling beyond these adds; assumed."""
DEVIATIONS = 4
"""Deviations of a run sampled for each posterior sample of the costs: quantiles become smoother."""
_SEED = 2


@dataclass(frozen=True)
class Estimate:
    """A median with its nominal 90 % interval."""

    median: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """True if a value lies in the interval."""
        return self.low <= value <= self.high


def estimate(draws: Array) -> Estimate:
    """Median and nominal 90 % interval of draws (draws,)."""
    low, median, high = np.quantile(draws, [INTERVAL[0], 0.5, INTERVAL[1]])
    return Estimate(float(median), float(low), float(high))


@dataclass(frozen=True)
class Predicted:
    """Draws (draws, loads) of single runs, their deviations from the model included."""

    runtime_s: Array
    energy_j: Array | None
    """None if no energy was known."""


def predict(model: KindModel, loads: Sequence[Load], seed: int = _SEED) -> Predicted:
    """Draw run times and energies of `loads`, each a separate run."""
    random = np.random.default_rng(seed)
    draws = model.time.repeated(DEVIATIONS)
    means = draws.means(time_columns(loads, model.time_terms))
    runtimes = means * _deviations(draws, len(loads), random) * unseen(model, loads)
    return Predicted(runtimes, energy_at(model, loads, runtimes, random))


def energy_at(
    model: KindModel, loads: Sequence[Load], runtimes_s: Array, random: np.random.Generator
) -> Array | None:
    """Draw energies at known run times, (loads,) or (draws, loads); None if no energy was known."""
    if model.energy is None:
        return None
    draws = model.energy.repeated(DEVIATIONS)
    means = draws.means(energy_columns(loads, runtimes_s))
    return means * _deviations(draws, len(loads), random)


def _deviations(draws: Draws, runs: int, random: np.random.Generator) -> Array:
    normal = random.standard_normal((len(draws.spread), runs))
    return np.maximum(1 + draws.spread[:, None] * normal, LEAST_FACTOR)


def unseen(model: KindModel, loads: Sequence[Load]) -> Array:
    """Factors (draws, loads) on times of loads far from all points; 1 for loads near one.

    The error of the terms grows with the distance, in the same direction for all loads of a draw.
    """
    random = np.random.default_rng(zlib.crc32(model.kind.name.encode()))
    deviations = random.standard_normal(DEVIATIONS * len(model.time.spread))
    beyond = [max(0.0, doublings_apart(model, load) - NEAR) for load in loads]
    return np.exp(UNSEEN * np.outer(deviations, beyond))


def doublings_apart(model: KindModel, load: Load) -> float:
    """Doublings of n or LBS, the larger, between a load and the nearest calibrated point."""
    return min(
        max(
            abs(math.log2(load.gpus / point.load.gpus)),
            abs(math.log2(load.pass_size / point.load.pass_size)),
        )
        for point in model.points
    )


def warnings_of(model: KindModel, load: Load) -> list[str]:
    """Warnings about a prediction that is extrapolated."""
    if load.gpus <= FAR * model.largest_gpus:
        return []
    return [
        f"n = {load.gpus} is more than {FAR} times the largest calibrated "
        f"({model.largest_gpus}): extrapolated"
    ]
