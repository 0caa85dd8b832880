"""A simulated run: one draw of the scaling model, the same at each simulation, its stages and powers.

A device's power is constant within a stage, but for the time in which GPUs wait for the first batch. It
follows from the run's energy, which it gives exactly when it is integrated over the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, Device
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.recordings.stage_log import EVALUATIONS
from scalewatt.recordings.terms import Floats
from scalewatt.scaling.model import KindModel, energy_columns, load_of_spec, time_columns
from scalewatt.scaling.predict import ScalingModel
from scalewatt.scaling.simulation import assumptions

SEED = 7
"""The seed of all simulations: with a spec's hash it gives the run's own seed."""
BEGUN_S = 946_684_800.0
"""Unix time at which every simulated run begins: 2000-01-01, which no measured run has."""
WORKING = ("train", *EVALUATIONS)
"""Stages in which devices compute."""


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


def simulation(spec: RunSpec, cluster: Cluster, scaling_model: ScalingModel) -> Simulation:
    """Draw a run and lay out its stages and powers.

    InputError if the cluster's nodes are not as wide as the spec's, the model cannot predict it, or has no
    energy of GPUs.
    """
    device, model = cluster.devices[spec.device], scaling_model.find_for(spec)
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
        kind: Course.solve(kind, joules / devices[kind][0], devices[kind][1], stages)
        for kind, joules in draw.joules.items()
    }
    fine_s = float(spec.sampling_period_s or 1.0)
    period_s = max(fine_s, assumptions.PERIOD_S)
    return Simulation(spec, model, device, draw, stages, courses, period_s, fine_s)


def check_simulations(campaign: Campaign, cluster: Cluster, model: ScalingModel) -> None:
    """Raise InputError, with the first reason, if a run of the campaign cannot be simulated."""
    reasons: list[str] = []
    for id_ in campaign.configurations:
        try:
            simulation(run_spec(campaign, id_, 1), cluster, model)
        except InputError as error:
            reasons.append(str(error))
    if reasons:
        raise InputError(
            f"{campaign.path}: {len(reasons)} of {len(campaign.configurations)} configurations "
            f"cannot be simulated: {reasons[0]}"
        )


# --- the draw -------------------------------------------------------------------------------------


def draw_run(spec: RunSpec, model: KindModel, device: Device) -> RunDraw:
    """Draw a run: the model's median, with the scatter of repeats after the first.

    InputError if the model has no energy of GPUs.
    """
    scope = (model.energy_facts[1] or "").split("+")
    if model.energy is None or "gpu" not in scope:
        raise InputError(
            f"{spec.configuration}: the scaling model of {model.kind.name} has no energy of GPUs; "
            "expected one calibrated on runs whose energy is known"
        )
    seed = int(spec.sha256[:12], 16) + SEED
    deviations = _deviations(np.random.default_rng([seed, 0])) if spec.repeat > 1 else np.zeros(4)
    in_time, in_energy, in_metric, _ = deviations
    training, load = assumptions.of_training(spec), load_of_spec(spec)
    median_s = float(np.median(model.time.means(time_columns([load], model.time_terms))))
    runtime_s = median_s * (1 + training.runtime_sd * in_time)
    columns = energy_columns([load], np.array([runtime_s]))
    energy_j = float(np.median(model.energy.means(columns)))
    energy_j *= 1 + training.energy_sd * in_energy
    # CPUs and memory take what is assumed, GPUs the rest.
    host_w = assumptions.host_power_w(spec, device)
    host = {kind: w * spec.nodes * runtime_s for kind, w in host_w.items() if kind in scope}
    part = min(1.0, assumptions.MOST_BESIDE_GPUS * energy_j / max(sum(host.values()), 1e-9))
    host = {kind: joules * part for kind, joules in host.items()}
    joules = {"gpu": energy_j - sum(host.values()), **host}
    return RunDraw(seed, runtime_s, joules, float(in_metric))


def _deviations(random: np.random.Generator) -> Floats:
    """Draw four uncorrelated deviations, each of mean 0 and standard deviation 1.

    They are normal, truncated where two of them jointly exceed MOST_NORMAL, and then scaled.
    """
    half = 0.5 * assumptions.MOST_NORMAL**2
    deviation = math.sqrt(1 - half * math.exp(-half) / -math.expm1(-half))
    pairs = np.empty((0, 2))
    while len(pairs) < 2:
        drawn = random.standard_normal((8, 2))
        pairs = np.concatenate((pairs, drawn[np.hypot(*drawn.T) <= assumptions.MOST_NORMAL]))
    return np.asarray(pairs[:2].ravel() / deviation)


# --- stages and powers ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A stage, in s from the run's start; in its first `first_batch_s` GPUs wait for a batch."""

    name: str
    epoch: int | None
    start_s: float
    seconds: float
    first_batch_s: float = 0.0

    @property
    def end_s(self) -> float:
        """End in s from the run's start."""
        return self.start_s + self.seconds


def schedule(spec: RunSpec, runtime_s: float) -> tuple[Stage, ...]:
    """Divide a run's time into stages: start-up, those of each epoch with a checkpoint, shutdown."""
    training = assumptions.of_training(spec)
    start_s = min(assumptions.STARTUP_S, assumptions.MOST_OF_RUN * runtime_s)
    shutdown_s = min(assumptions.SHUTDOWN_S, assumptions.MOST_OF_RUN * runtime_s)
    epoch_s = (runtime_s - start_s - shutdown_s) / spec.epochs
    checkpoint_s = min(training.checkpoint_s, assumptions.MOST_OF_RUN * epoch_s)
    # The rest of an epoch is divided by how many samples pass in each of its stages.
    train, validate = spec.dataset_samples, spec.validation_samples
    weights = {"train": assumptions.TRAIN_WEIGHT, "validate": assumptions.OTHER_VALIDATION}
    if train and validate:
        weights["validate"] = assumptions.EVALUATE_WEIGHT * (validate / train)
    if spec.model == "resnet50" and spec.protocol == "paper":
        weights["evaluate_train"] = assumptions.EVALUATE_WEIGHT
    unit_s = (epoch_s - checkpoint_s) / sum(weights.values())
    pieces: list[tuple[str, int | None, float]] = [("startup", None, start_s)]
    for epoch in range(spec.epochs):
        pieces += [(name, epoch, weight * unit_s) for name, weight in weights.items()]
        pieces.append(("checkpoint", epoch + 1, checkpoint_s))
    batch_s = training.first_batch_s * spec.local_batch_size
    stages, now = [], 0.0
    for name, number, seconds in [*pieces, ("shutdown", None, shutdown_s)]:
        waits_s = min(batch_s, assumptions.MOST_OF_STAGE * seconds) if name in WORKING else 0.0
        stages.append(Stage(name, number, now, seconds, waits_s))
        now += seconds
    return tuple(stages)


@dataclass(frozen=True, eq=False)
class Course:
    """A device's mean power: constant from each of `start_s` to the next, and to `end_s`; arrays (k,)."""

    start_s: Floats
    watts: Floats
    works: NDArray[np.bool_]
    idle_w: float
    end_s: float

    @classmethod
    def solve(cls, kind: str, joules: float, idle_w: float, stages: Sequence[Stage]) -> Course:
        """Find the power at which a device of a kind uses `joules` in stages."""
        levels = assumptions.LEVELS[kind]
        rows: list[tuple[float, float, bool]] = []
        for stage in stages:
            if stage.first_batch_s:
                rows.append((stage.start_s, levels[assumptions.FIRST_BATCH], False))
            above = levels.get(stage.name, assumptions.OTHER_LEVEL)
            rows.append((stage.start_s + stage.first_batch_s, above, stage.name in WORKING))
        start, relative, works = (np.array(column) for column in zip(*rows, strict=True))
        end_s = stages[-1].end_s
        idle_w = min(idle_w, assumptions.IDLE_OF_MEAN * joules / end_s)
        above_w = (joules - idle_w * end_s) / float(relative @ np.diff(start, append=end_s))
        return cls(start, idle_w + above_w * relative, works, idle_w, end_s)

    def at(self, time_s: Floats) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Power in W, and whether the device works, at any times."""
        row = np.searchsorted(self.start_s, time_s, side="right") - 1
        return self.watts.astype(np.float32)[row], self.works[row]

    def joules(self, time_s: Floats) -> Floats:
        """Energy in J from the start until any times up to the end, and a second more."""
        ends = np.append(self.start_s, self.end_s + 1.0)
        energy = np.concatenate(([0.0], np.cumsum(self.watts * np.diff(ends))))
        return np.interp(time_s, ends, energy)

    def means(self, time_s: Floats, over_s: float) -> NDArray[np.float32]:
        """Mean power in W over the time before each of any times; at 0 the power then."""
        before = np.maximum(time_s - over_s, 0.0)
        seconds, joules = time_s - before, self.joules(time_s) - self.joules(before)
        means = np.divide(joules, seconds, out=self.at(time_s)[0].astype(float), where=seconds > 0)
        return means.astype(np.float32)
