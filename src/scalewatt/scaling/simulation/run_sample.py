"""Time and energy of a simulated run: one draw of the scaling model, the same at each simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scalewatt.campaign.cluster import Device
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import DEVICE_KINDS, Floats
from scalewatt.scaling.model.cost_terms import load_of_spec
from scalewatt.scaling.model.kind_model import KindModel
from scalewatt.scaling.model.predict import TOTAL
from scalewatt.scaling.simulation.assumptions import (
    MOST_BESIDE_GPUS,
    MOST_NORMAL,
    OTHER_SCATTER,
    SCATTERS,
    Scatter,
    beside_gpus_w,
)

SEED = 7
"""The seed of all simulations: with a spec's hash it gives the run's own seed."""


@dataclass(frozen=True)
class RunDraw:
    """Time and energy of one uninterrupted run."""

    seed: int
    runtime_s: float
    joules: Mapping[str, float]
    """By device kind, over all nodes; only the kinds in the model's scope."""
    metric_deviation: float
    """In standard deviations."""

    def random(self, *what: int) -> np.random.Generator:
        """Return random numbers for one part of the run, independent of those of its other parts."""
        return np.random.default_rng([self.seed, *what])


def seed_of(spec: RunSpec) -> int:
    """Return a run's seed, which depends on its spec, not on the campaign."""
    return int(spec.sha256[:12], 16) + SEED


def draw_run(spec: RunSpec, model: KindModel, device: Device) -> RunDraw:
    """Draw a run: the model's median, with the scatter of repeats after the first.

    InputError if the model has no energy, or cannot predict the LBS.
    """
    if not model.energy or model.scope is None:
        raise InputError(
            f"{spec.configuration}: the scaling model of {model.kind.name} has no energy; expected "
            "one calibrated on runs whose energy is known"
        )
    seed = seed_of(spec)
    pairs = bounded_pairs(np.random.default_rng([seed, 0]), 2)
    in_time, in_energy, in_metric, _ = pairs.ravel() if spec.repeat > 1 else np.zeros(4)
    scatter = scatter_of(spec)
    load = load_of_spec(spec)
    model.check(load)
    means = model.time.means(model.time_terms.columns([load]))
    runtime_s = float(np.median(means)) * (1 + scatter.runtime * in_time)
    columns = model.energy_terms.columns([load], np.array([runtime_s]))
    factor = 1 + scatter.energy_at_time * in_energy
    energies = {
        name: float(np.median(draws.means(columns))) * factor
        for name, draws in model.energy.items()
    }
    kinds = model.scope.split("+")
    joules = _shared_out(spec, device, energies, kinds, runtime_s)
    return RunDraw(seed, runtime_s, joules, float(in_metric))


def bounded_pairs(random: np.random.Generator, count: int) -> Floats:
    """Return pairs of uncorrelated deviations (count, 2), each of mean 0 and standard deviation 1.

    They are normal, truncated where they jointly exceed MOST_NORMAL, and then scaled.
    """
    half = 0.5 * MOST_NORMAL**2
    kept = -math.expm1(-half)
    deviation = math.sqrt(1 - half * math.exp(-half) / kept)
    found = np.empty((0, 2))
    while len(found) < count:
        drawn = random.standard_normal((4 * count, 2))
        found = np.concatenate((found, drawn[np.hypot(*drawn.T) <= MOST_NORMAL]))
    return np.asarray(found[:count] / deviation)


def scatter_of(spec: RunSpec) -> Scatter:
    """Return how much the run's repeats vary."""
    return SCATTERS.get(spec.model, OTHER_SCATTER)


def _shared_out(
    spec: RunSpec,
    device: Device,
    energies: Mapping[str, float],
    kinds: list[str],
    runtime_s: float,
) -> dict[str, float]:
    """Return energies by device kind: the model's where it has them, else a total divided by assumption."""
    if TOTAL not in energies:
        return {kind: energies[kind] for kind in DEVICE_KINDS if kind in energies}
    total = energies[TOTAL]
    watts = {kind: w for kind, w in beside_gpus_w(spec, device).items() if kind in kinds}
    beside = {kind: w * spec.nodes * runtime_s for kind, w in watts.items()}
    if "gpu" not in kinds:
        whole = sum(beside.values())
        return {kind: total * joules / whole for kind, joules in beside.items()}
    shrunk = min(1.0, MOST_BESIDE_GPUS * total / max(sum(beside.values()), 1e-9))
    beside = {kind: joules * shrunk for kind, joules in beside.items()}
    return {"gpu": total - sum(beside.values()), **beside}
