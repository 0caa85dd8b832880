"""Simulate a run: one draw of the scaling model, its stages and powers, and the files of a training.

A device's power is constant within a stage, but for the time in which GPUs wait for the first batch. It
follows from the run's energy, which is its exact integral over the run: a counter counts it, and samples of a
power sensor are scaled to it.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, Device
from scalewatt.campaign.run_spec import RunSpec, read_spec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import csv_rows, file_sha256, write_json, write_table, write_text
from scalewatt.common.project_files import project_path
from scalewatt.common.redaction import Redaction
from scalewatt.provenance.rank_placement import held_gpus
from scalewatt.provenance.versions import made_with, package_versions
from scalewatt.recordings.journal import write_journal
from scalewatt.recordings.stage_log import EVALUATIONS
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.recordings.terms import MEAN_OVER_S, MOVING_MEAN, SIMULATED_KEY, Floats, gpu_fact
from scalewatt.results.tables.published import FULL_SAMPLES, REFERENCE
from scalewatt.run_files.inventory import json_object
from scalewatt.run_files.record import FINISHED, segment_name
from scalewatt.scaling.model import KindModel, energy_columns, load_of_spec, time_columns
from scalewatt.scaling.predict import ScalingModel, extrapolation_warnings, read_model
from scalewatt.scaling.simulation import assumptions
from scalewatt.training.history import history_table

SEED = 7
"""The seed of all simulations: with a spec's hash it gives the run's own seed."""
BEGUN_S = 946_684_800.0
"""Unix time at which every simulated run begins: 2000-01-01, which no measured run has."""
WORKING = ("train", *EVALUATIONS)
"""Stages in which devices compute."""
_JITTER_S = 0.002
_LEAST_STEP = 0.25
"""Part of a period: the last sample but one is left out if the last would follow sooner."""
_COUNTERS = {"cpu": "cpu_{0}_package-{0}", "ram": "ram_{0}_dram"}
_UNKNOWN = (
    *("dataset_sha256", "nodes", "software", "perun", "environment_variables", "precision_used"),
    *("metric_persistence", "metric_climatology", "parameters"),
)
"""Keys of a training's provenance that are null."""


class RunDraw(NamedTuple):
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
        """Idle and rated power of its GPUs in W; 0 if the cluster file states none."""
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
    """Raise InputError if a run of the campaign cannot be simulated."""
    for id_ in campaign.configurations:
        simulation(run_spec(campaign, id_, 1), cluster, model)


# --- time and energy ------------------------------------------------------------------------------


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
    in_time, in_energy, in_metric, _ = deviations.tolist()
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
    return RunDraw(seed, runtime_s, {"gpu": energy_j - sum(host.values()), **host}, in_metric)


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


# --- learning curves ------------------------------------------------------------------------------


class Final(NamedTuple):
    """The metric at the end of a configuration's trainings, without the scatter of repeats."""

    name: str
    value: float
    source: str
    """PUBLISHED or ASSUMED."""


PUBLISHED, ASSUMED = "published", "assumed"


def final_metric(spec: RunSpec) -> Final:
    """Metric at the end of a spec's runs: of ResNet50 a published error, or between two published ones."""
    samples, gbs = spec.dataset_samples, spec.global_batch_size
    if spec.model == "fourcastnet":
        doublings = math.log2(max(gbs / 4, 1))
        slight = min(doublings, assumptions.SLIGHT_DOUBLINGS)
        rise = assumptions.SLIGHT * slight + assumptions.STEEP * (doublings - slight)
        return Final("z500_rmse_m2_s2", assumptions.FORECAST[spec.phase] * (1 + rise), ASSUMED)
    if spec.model != "resnet50" or samples is None:
        name = spec.settings.get("metric_name") or "metric"
        return Final(name, assumptions.OTHER_METRIC, ASSUMED)
    name, full = "top1_error_percent", FULL_SAMPLES["resnet50"]
    published = {
        int(row["global_batch_size"]): float(row["metric_value"])
        for row in csv_rows(REFERENCE).values()
        if row["metric_name"] == name and int(row["dataset_samples"]) == full
    }
    errors = dict(sorted({**assumptions.TOP1_ERRORS, **published}.items()))
    value = float(np.interp(math.log2(gbs), np.log2([*errors]), [*errors.values()]))
    if samples == full and gbs in published:
        return Final(name, value, PUBLISHED)
    halvings = max(math.log2(full / samples), 0.0)
    worse = value + assumptions.ERROR_PER_HALVING * halvings
    return Final(name, min(worse, assumptions.WORST_ERROR), ASSUMED)


def learning_curve(spec: RunSpec, draw: RunDraw) -> Floats:
    """Metric after each epoch, (epochs,); before the first it is worse, whichever direction is better."""
    deviation = assumptions.of_training(spec).metric_sd * draw.metric_deviation
    end = final_metric(spec).value * (1 + deviation)
    first = max(assumptions.FIRST_METRIC.get(spec.model, 2 * end), end)
    if spec.settings.get("metric_goal") == "max":
        first = 0.0
    done = np.arange(1, spec.epochs + 1) / spec.epochs
    least = math.exp(-assumptions.LEARNING_SPEED)
    left = (np.exp(-assumptions.LEARNING_SPEED * done) - least) / (1 - least)
    noise = draw.random(3).standard_normal(done.size) * assumptions.METRIC_NOISE
    return np.asarray(end + (first - end) * left * (1 + noise))


# --- sensors --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NodeSamples:
    """Samples of one node as a journal has them: whole mW of GPUs, µJ of counters."""

    host: str
    time_s: Floats
    """From the run's start, (n,)."""
    sensors: dict[str, dict[str, Any]]
    """Kind, index, unit, mag, valid_max, uuid of each, by name."""
    raw: dict[str, NDArray[Any]]
    """Whole numbers (n,) by the sensor's name."""


def write_samples(run: Simulation, node: NodeSamples, folder: Path) -> None:
    """Write the journal of a node."""
    about = {
        "host": node.host,
        "sampling_period_s": run.period_s,
        SIMULATED_KEY: True,
        "sensors": node.sensors,
        "telemetry": {},
    }
    path = folder / f"{segment_name(0)}.{node.host}.csv"
    write_journal(path, about, run.begun_s + node.time_s, node.time_s, node.raw)


def sample_nodes(run: Simulation) -> Iterator[NodeSamples]:
    """Yield what is sampled in a run, node by node."""
    shares = gpu_shares(run).reshape(run.spec.nodes, -1)
    for number, host in enumerate(run.hosts):
        random = run.draw.random(1, 0, number)
        time_s = _sample_times(run, random)
        node = NodeSamples(host, time_s, {}, {})
        _add_gpus(node, run, shares[number], random)
        for kind in ("cpu", "ram"):
            if kind in run.courses:
                _add_counters(node, run, kind, random)
        yield node


def gpu_shares(run: Simulation) -> Floats:
    """Energy of each of the run's GPUs relative to their mean."""
    shares = 1 + assumptions.DEVICE_SPREAD * run.draw.random(2).standard_normal(run.spec.gpus)
    return shares / shares.mean()


def _sample_times(run: Simulation, random: np.random.Generator) -> Floats:
    """Times of all samples of a node, from 0 to the end; whole float32, as perun takes them."""
    seconds = run.stages[-1].end_s
    until = min(run.fine_start_s, seconds)
    fine = np.arange(0.0, until, run.fine_period_s)
    inner = np.concatenate((fine, np.arange(until, seconds, run.period_s)))[1:]
    inner += random.uniform(-_JITTER_S, _JITTER_S, inner.size)
    last_step = run.period_s if seconds > until else run.fine_period_s
    inner = inner[inner < seconds - _LEAST_STEP * last_step]
    return np.concatenate(([0.0], inner, [seconds])).astype(np.float32).astype(np.float64)


def _add_gpus(
    node: NodeSamples, run: Simulation, shares: Floats, random: np.random.Generator
) -> None:
    """Add a node's GPUs: those that the run uses, and the idle others."""
    time_s, over_s, course = node.time_s, averaged_s(run.spec), run.courses["gpu"]
    read = _read_power(run.spec, course, time_s, shares.size, random)
    watts = scaled(read, time_s, course.joules(np.array([course.end_s])) * shares, over_s)
    if idle := run.device.gpus_per_node - shares.size:
        steady = _noise((idle, time_s.size), assumptions.UNUSED_NOISE, random)
        joules = np.full(idle, run.gpu_w["idle_w"] * time_s[-1])
        watts = np.concatenate((watts, scaled(steady, time_s, joules, over_s)))
    top = round(1000 * max(run.gpu_w["rated_w"], float(watts.max())))
    milliwatts = np.rint(watts * 1000).astype(np.uint32)
    for index, uuid in enumerate(run.uuids(node.host)):
        name = f"CUDA:{index}_POWER"
        about = {"kind": "gpu", "index": index, "unit": "W", "mag": 1e-3, "valid_max": top}
        node.sensors[name] = {**about, "uuid": uuid}
        node.raw[name] = milliwatts[index]


def averaged_s(spec: RunSpec) -> float:
    """Time before a sample over which the sensor of the run's GPUs averages; 0: instantaneous."""
    return MEAN_OVER_S if gpu_fact(spec.device, "samples") == MOVING_MEAN else 0.0


def _read_power(
    spec: RunSpec, course: Course, time_s: Floats, devices: int, random: np.random.Generator
) -> NDArray[np.float32]:
    """Read power (devices, n) in W as a real sensor does; its mean over time is the course's."""
    shape = devices, time_s.size
    if over_s := averaged_s(spec):
        return course.means(time_s, over_s) * _noise(shape, assumptions.AVERAGED_NOISE, random)
    watts, works = course.at(time_s)
    # A GPU that waits for data is nearly idle; the more it draws otherwise.
    waits, low = assumptions.waits(spec), assumptions.WAIT_LEVEL
    waiting = random.random(shape, dtype=np.float32) < waits
    part = np.where(waiting, np.float32(low), np.float32((1 - waits * low) / (1 - waits)))
    samples = np.where(works, course.idle_w + (watts - course.idle_w) * part, watts)
    return samples * _noise(shape, assumptions.NOISE, random)


def _noise(
    shape: tuple[int, int], deviation: float, random: np.random.Generator
) -> NDArray[np.float32]:
    """Draw factors around 1."""
    factors = random.standard_normal(shape, dtype=np.float32)
    factors *= deviation
    factors += 1
    return np.maximum(factors, assumptions.LEAST_NOISE, out=factors)


def scaled(
    samples: NDArray[np.float32], time_s: Floats, joules: Floats, over_s: float = 0.0
) -> Floats:
    """Scale samples (devices, n) in W so that their integral over time is `joules` (devices,).

    That is the trapezoid over them. Means over the `over_s` before them are the powers in the middle of these
    times: half of it is left out at the beginning, and the last one holds to the end.
    """
    energy = _from_zero(np.diff(time_s) * (samples[:, 1:] + samples[:, :-1]) / 2)
    begin = [np.interp(time_s[0] + over_s / 2, time_s, device) for device in energy]
    integral = energy[:, -1] - begin + over_s / 2 * samples[:, -1]
    return samples * (joules / integral)[:, None]


def _from_zero(steps: Floats) -> Floats:
    """Sum up steps (devices, n - 1) from 0 on, (devices, n)."""
    return np.pad(np.cumsum(steps, axis=1), ((0, 0), (1, 0)))


def _add_counters(
    node: NodeSamples, run: Simulation, kind: str, random: np.random.Generator
) -> None:
    """Add one counter per socket; it begins anywhere in its range, and wraps."""
    sockets = int(run.device.cpu["sockets"])
    top = assumptions.counter_range_uj(kind, run.device)
    # The mean power between two samples varies; over the whole time it is the course's.
    steps = np.diff(run.courses[kind].joules(node.time_s))
    noisy = _from_zero(steps * _noise((sockets, steps.size), assumptions.AVERAGED_NOISE, random))
    counts = np.rint(noisy * (steps.sum() / noisy[:, -1])[:, None] * 1e6).astype(np.uint64)
    for socket, begin in enumerate(random.integers(1, top, sockets)):
        name = _COUNTERS[kind].format(socket)
        about = {"kind": kind, "index": socket, "unit": "J", "mag": 1e-6, "valid_max": top}
        node.sensors[name] = about
        # A counter is never 0 but for a failed read.
        node.raw[name] = np.maximum((counts[socket] + np.uint64(begin)) % np.uint64(top), 1)


# --- the folder -----------------------------------------------------------------------------------


def simulate_run(spec_path: Path, out: Path, cluster: Cluster, model_path: Path) -> None:
    """Write the run folder of a spec as a training would leave it.

    InputError if the model cannot predict the run, or the folder holds more than its spec and what a
    simulation has written.
    """
    held = {path.name for path in out.glob("*")} - {"spec.json"}
    if held and not json_object(out / "provenance.json").get("simulated"):
        raise InputError(
            f"{out}: holds what is not known to be simulated; expected nothing but spec.json"
        )
    write_run(simulation(read_spec(spec_path), cluster, read_model(model_path)), out, model_path)


def write_run(run: Simulation, out: Path, model_path: Path) -> None:
    """Write the files of a simulated run; the provenance comes last."""
    recordings = out / "perun"
    out.mkdir(parents=True, exist_ok=True)
    (out / "provenance.json").unlink(missing_ok=True)
    shutil.rmtree(recordings, ignore_errors=True)
    recordings.mkdir()
    for node in sample_nodes(run):
        write_samples(run, node, recordings)
    write_table(history_table(_history(run)), out / "history.parquet")
    events = [
        (0, s.name, s.epoch, run.begun_s + s.start_s, run.begun_s + s.end_s) for s in run.stages
    ]
    rows = [dict(zip(EVENTS_SCHEMA.names, event, strict=True)) for event in events]
    write_table(pa.Table.from_pylist(rows, EVENTS_SCHEMA), out / "events.parquet")
    model = project_path(model_path)
    write_text(out / "train.log", f"{run.spec.name}: simulated with {model}, not trained\n")
    write_json(out / "provenance.json", _provenance(run, model_path))


def _history(run: Simulation) -> list[dict[str, Any]]:
    """Rows of the history, one an epoch; all take the same time. What is unknown is null."""
    samples = run.spec.samples_per_epoch
    assert samples is not None  # drawing the run has refused one whose samples are not known
    seconds = dict.fromkeys((f"{name}_s" for name in WORKING), 0.0)
    seconds |= {f"{stage.name}_s": stage.seconds for stage in run.stages if stage.epoch == 0}
    each = {
        "segment": 0,
        "samples": samples,
        "updates": run.spec.updates_per_epoch,
        "epoch_s": sum(seconds.values()),
        **seconds,
        "throughput_samples_per_s": samples / seconds["train_s"],
    }
    metrics = learning_curve(run.spec, run.draw)
    return [{"epoch": e, "metric": float(metric), **each} for e, metric in enumerate(metrics)]


def _provenance(run: Simulation, model_path: Path) -> dict[str, Any]:
    spec, load, final = run.spec, load_of_spec(run.spec), final_metric(run.spec)
    gpus = [
        {"host": host, "gpu": index, "gpu_uuid": uuid}
        for host in run.hosts
        for index, uuid in enumerate(run.uuids(host)[: spec.ranks_per_node])
    ]
    ranks = [{"rank": rank, **gpu} for rank, gpu in enumerate(gpus)]
    segment = {
        **{"segment": 0, "outcome": FINISHED, "job": None, "code": None, "ranks": ranks},
        "started_s": run.begun_s,
        "ended_s": run.begun_s + run.stages[-1].end_s,
    }
    return {
        "spec_sha256": spec.sha256,
        "hostnames": run.hosts,
        **held_gpus(ranks),
        "torch_device": "cuda",
        "device_name": f"{spec.device} (simulated)",
        "packages_of": "the simulator",
        "packages": package_versions(("scalewatt", "numpy", "pyarrow")),
        **made_with(),
        **dict.fromkeys(_UNKNOWN),
        "metric_name": final.name,
        "metric_goal": spec.settings.get("metric_goal") or "min",
        "segments": [segment],
        "simulated": {
            "model": Redaction.of(os.environ).text(str(project_path(model_path))),
            "model_sha256": file_sha256(model_path),
            "kind": run.model.kind.name,
            "assumed": run.model.assumed,
            "calibrated": run.model.assumed is None
            and load in {point.load for point in run.model.points},
            "warnings": extrapolation_warnings(run.model, load),
            "seed": run.draw.seed,
            "sampling_period_s": run.period_s,
            "spec_sampling_period_s": spec.sampling_period_s,
            "metric": {"name": final.name, "source": final.source},
        },
    }
