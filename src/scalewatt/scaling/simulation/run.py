"""A simulated run: one draw of the scaling model, the same at each simulation, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, Device
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import DEVICE_KINDS, Floats
from scalewatt.scaling.model.fit import TOTAL, KindModel
from scalewatt.scaling.model.model_file import ScalingModel
from scalewatt.scaling.model.terms import energy_columns, kind_of_spec, load_of_spec, time_columns
from scalewatt.scaling.simulation import assumptions
from scalewatt.scaling.simulation.power import Course, Stage, schedule

SEED = 7
"""The seed of all simulations: with a spec's hash it gives the run's own seed."""
BEGUN_S = 946_684_800.0
"""Unix time at which every simulated run begins: 2000-01-01, which no measured run has."""


@dataclass(frozen=True)
class RunDraw:
    """Time and energy of a run."""

    seed: int
    runtime_s: float
    joules: Mapping[str, float]
    """By device kind, over all nodes; only the kinds in the model's scope."""
    metric_deviation: float
    """In standard deviations."""

    def random(self, *part: int) -> np.random.Generator:
        """Random numbers for one part of the run, independent of those of its other parts."""
        return np.random.default_rng([self.seed, *part])


@dataclass(frozen=True)
class Simulation:
    """A run as it is simulated."""

    spec: RunSpec
    model: KindModel
    device: Device
    draw: RunDraw
    stages: tuple[Stage, ...]
    courses: Mapping[str, Course]
    """Power of one GPU, one CPU socket, and the memory of one socket."""
    period_s: float
    """Sampling period, after `fine_start_s` at `fine_period_s`."""
    fine_period_s: float
    fine_start_s: float = assumptions.FINE_START_S
    begun_s: float = BEGUN_S

    @property
    def hosts(self) -> list[str]:
        """Names of its nodes."""
        return [f"sim-{self.device.name}-{n:04d}" for n in range(1, self.spec.nodes + 1)]

    def uuids(self, host: str) -> list[str]:
        """UUIDs of all GPUs of a node."""
        return [f"GPU-{host}-{index}" for index in range(self.device.gpus_per_node)]

    @property
    def gpu_w(self) -> Mapping[str, Any]:
        """Idle and rated power of its GPUs in W; 0 where the cluster file states none."""
        return self.device.gpu or {"idle_w": 0.0, "rated_w": 0.0}


def simulation(spec: RunSpec, cluster: Cluster, model: KindModel) -> Simulation:
    """Draw a run and lay out its stages and powers.

    InputError if the cluster's nodes are not as wide as the spec's, or as `draw_run` raises it.
    """
    device = cluster.devices[spec.device]
    width, sockets = device.gpus_per_node, spec.nodes * int(device.cpu["sockets"])
    if (spec.nodes, spec.ranks_per_node) != (-(-spec.gpus // width), min(spec.gpus, width)):
        raise InputError(
            f"{spec.configuration}: has {spec.ranks_per_node} ranks on each of {spec.nodes} nodes, "
            f"but nodes of {device.name} have {width} GPUs; make the spec with this cluster"
        )
    draw = draw_run(spec, model, device)
    stages = schedule(spec, draw.runtime_s)
    ram_w = draw.joules.get("ram", 0.0) / sockets / draw.runtime_s
    devices = {
        "gpu": (spec.gpus, device.gpu["idle_w"] if device.gpu else 0.0),
        "cpu": (sockets, device.cpu["idle_w"]),
        "ram": (sockets, assumptions.RAM_IDLE * ram_w),
    }
    courses = {
        kind: Course.of(kind, joules / devices[kind][0], devices[kind][1], stages)
        for kind, joules in draw.joules.items()
    }
    fine_s = float(spec.sampling_period_s or 1.0)
    period_s = max(fine_s, assumptions.PERIOD_S)
    return Simulation(spec, model, device, draw, stages, courses, period_s, fine_s)


def check_simulations(campaign: Campaign, cluster: Cluster, model: ScalingModel) -> None:
    """Raise InputError if a run of the campaign cannot be simulated: the first reason in full.

    Of the others each kind of training that the model does not know is named, and how many
    configurations cannot be simulated.
    """
    reasons: list[tuple[str, str]] = []
    for id_ in campaign.configurations:
        spec = run_spec(campaign, id_, 1)
        kind = kind_of_spec(spec)
        try:
            simulation(spec, cluster, model.of(kind))
        except InputError as error:
            reasons.append((kind.name, str(error)))
    if reasons:
        first, *others = dict(reasons)
        more = f"; nor are {'; '.join(others)}" if others else ""
        raise InputError(
            f"{campaign.path}: {len(reasons)} of {len(campaign.configurations)} configurations "
            f"cannot be simulated, first {first}{more}: {reasons[0][1]}"
        )


# --- the draw -------------------------------------------------------------------------------------


def draw_run(spec: RunSpec, model: KindModel, device: Device) -> RunDraw:
    """Draw a run: the model's median, with the scatter of repeats after the first.

    InputError if the model has no energy of GPUs, or cannot predict the LBS.
    """
    if not model.energy or "gpu" not in (model.scope or "").split("+"):
        raise InputError(
            f"{spec.configuration}: the scaling model of {model.kind.name} has no energy of GPUs; "
            "expected one calibrated on runs whose energy is known"
        )
    seed = int(spec.sha256[:12], 16) + SEED
    pairs = bounded_pairs(np.random.default_rng([seed, 0]), 2)
    in_time, in_energy, in_metric, _ = pairs.ravel() if spec.repeat > 1 else np.zeros(4)
    scatter, load = assumptions.of_training(spec), load_of_spec(spec)
    model.check(load)
    means = model.time.means(time_columns([load], model.time_terms))
    runtime_s = float(np.median(means)) * (1 + scatter.runtime_sd * in_time)
    columns = energy_columns([load], np.array([runtime_s]))
    energies = {
        name: float(np.median(draws.means(columns))) * (1 + scatter.energy_sd * in_energy)
        for name, draws in model.energy.items()
    }
    joules = _by_device_kind(spec, model, device, energies, runtime_s)
    return RunDraw(seed, runtime_s, joules, float(in_metric))


def bounded_pairs(random: np.random.Generator, count: int) -> Floats:
    """Draw pairs of uncorrelated deviations (count, 2), each of mean 0 and standard deviation 1.

    They are normal, truncated where they jointly exceed MOST_NORMAL, and then scaled.
    """
    half = 0.5 * assumptions.MOST_NORMAL**2
    kept = -math.expm1(-half)
    deviation = math.sqrt(1 - half * math.exp(-half) / kept)
    pairs = np.empty((0, 2))
    while len(pairs) < count:
        drawn = random.standard_normal((4 * count, 2))
        pairs = np.concatenate((pairs, drawn[np.hypot(*drawn.T) <= assumptions.MOST_NORMAL]))
    return np.asarray(pairs[:count] / deviation)


def _by_device_kind(
    spec: RunSpec,
    model: KindModel,
    device: Device,
    energies: Mapping[str, float],
    runtime_s: float,
) -> dict[str, float]:
    """Energies by device kind: the model's where it has them, else its total divided by assumption."""
    if TOTAL not in energies:
        return {kind: energies[kind] for kind in DEVICE_KINDS if kind in energies}
    total, kinds = energies[TOTAL], (model.scope or "").split("+")
    host_w = assumptions.beside_gpus_w(spec, device)
    host = {kind: w * spec.nodes * runtime_s for kind, w in host_w.items() if kind in kinds}
    shrunk = min(1.0, assumptions.MOST_BESIDE_GPUS * total / max(sum(host.values()), 1e-9))
    host = {kind: joules * shrunk for kind, joules in host.items()}
    return {"gpu": total - sum(host.values()), **host}
