"""A simulated run's folder: the files that a training would have published, and the truth beside."""

from __future__ import annotations

import hashlib
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.campaign.model import Cluster, Device
from scalewatt.campaign.spec import read_spec, spec_sha256
from scalewatt.energy.publish import EVENTS_SCHEMA
from scalewatt.files import write_json, write_table, write_text
from scalewatt.scaling.calibrate import KindModel
from scalewatt.scaling.kind import kind_of_spec
from scalewatt.scaling.load import load_of_spec
from scalewatt.scaling.model_file import read_model
from scalewatt.scaling.predict import warnings_of
from scalewatt.scaling.simulate import by_hand
from scalewatt.scaling.simulate.draw import RunDraw, draw_run
from scalewatt.scaling.simulate.learning import PUBLISHED, curve, final_metric
from scalewatt.scaling.simulate.power import levels_of
from scalewatt.scaling.simulate.recording import Recorder
from scalewatt.scaling.simulate.schedule import EVALUATIONS, Segment, segments_of
from scalewatt.scaling.simulate.sensors import Nodes, Periods
from scalewatt.training.history import history_table

BEGUN_S = 946_684_800.0
"""Unix time at which every simulated run begins: 2000-01-01, which no measured run has."""
BETWEEN_S = 3600.0
"""How long a further segment waits for its job."""
TRUTH = "truth.json"
"""What the simulator knows and nobody but tests may read."""


@dataclass(frozen=True)
class Simulation:
    """A run as it is simulated."""

    spec: Mapping[str, Any]
    model: KindModel
    draw: RunDraw
    nodes: Nodes
    segments: tuple[Segment, ...]

    def started_s(self, segment: Segment) -> float:
        """Unix time at which a segment begins."""
        before = self.segments[: segment.number]
        return BEGUN_S + sum(one.seconds + BETWEEN_S for one in before)


def simulation(spec: Mapping[str, Any], cluster: Cluster, model: KindModel) -> Simulation:
    """What happens in a run; InputError where the model has no energy or no segment makes progress."""
    device = cluster.devices[spec["device"]]
    draw = draw_run(spec, model, device)
    (in_one_go,) = segments_of(spec, draw.runtime_s)
    segments = tuple(segments_of(spec, draw.runtime_s, _limit_s(cluster, device)))
    levels = levels_of(spec, device, draw, in_one_go)
    nodes = Nodes(spec, device, draw, levels, _periods(spec, cluster))
    return Simulation(spec, model, draw, nodes, segments)


def _limit_s(cluster: Cluster, device: Device) -> float | None:
    """How long a job trains until it is told to stop."""
    limit = device.time_limit_min
    return None if limit is None else limit * 60.0 - cluster.stop_warning_s


def _periods(spec: Mapping[str, Any], cluster: Cluster) -> Periods:
    own = float(spec["sampling_period_s"] or 1.0)
    usual = float(cluster.simulate.get("sampling_period_s", own))
    return Periods(usual, min(own, usual), float(cluster.simulate.get("fine_start_s", 0.0)))


def simulate_run(spec_path: Path, out: Path, cluster: Cluster, model_path: Path) -> None:
    """Write the run folder of a spec as a training would leave it; the provenance comes last.

    InputError where the model does not know the run's kind.
    """
    spec = read_spec(spec_path)
    model = read_model(model_path).of(kind_of_spec(spec))
    one = simulation(spec, cluster, model)
    recordings = out / "perun"
    shutil.rmtree(recordings, ignore_errors=True)
    recordings.mkdir(parents=True)
    truth = [_record(one, segment, recordings) for segment in one.segments]
    write_table(history_table(_history(one)), out / "history.parquet")
    write_table(pa.Table.from_pylist(list(_events(one)), EVENTS_SCHEMA), out / "events.parquet")
    write_json(out / TRUTH, _truth(one, truth))
    write_text(out / "train.log", _log(one, model_path))
    write_json(out / "provenance.json", _provenance(one, cluster, model_path))


def _record(one: Simulation, segment: Segment, folder: Path) -> dict[str, dict[str, float]]:
    recorder = Recorder(
        folder,
        segment.number,
        one.started_s(segment),
        one.nodes.periods.usual_s,
        one.spec["ranks_per_node"],
    )
    return recorder.write(one.nodes.sampled(segment))


def _events(one: Simulation) -> Iterator[dict[str, Any]]:
    for segment in one.segments:
        started_s = one.started_s(segment)
        for stage in segment.stages:
            yield {
                "segment": segment.number,
                "stage": stage.name,
                "epoch": stage.epoch,
                "start_s": started_s + stage.start_s,
                "end_s": started_s + stage.end_s,
            }


def _history(one: Simulation) -> list[dict[str, Any]]:
    """One row an epoch. What is not known of a run that was never made is null."""
    spec = one.spec
    names = ("train", *EVALUATIONS)
    seconds = [dict.fromkeys(names, 0.0) for _ in range(spec["epochs"])]
    ended = [0] * spec["epochs"]
    for segment in one.segments:
        for stage in segment.stages:
            if stage.name not in names or stage.epoch is None:
                continue
            if stage.name in EVALUATIONS and ended[stage.epoch] != segment.number:
                seconds[stage.epoch] |= dict.fromkeys(EVALUATIONS, 0.0)  # it is made again
            seconds[stage.epoch][stage.name] += stage.seconds
            ended[stage.epoch] = segment.number
    metrics = curve(spec, one.draw)
    samples, updates = spec["samples_per_epoch"], spec["updates_per_epoch"]
    return [
        {
            "epoch": epoch,
            "segment": ended[epoch],
            "metric": float(metrics[epoch]),
            "samples": samples,
            "updates": updates,
            "epoch_s": sum(own.values()),
            **{f"{name}_s": own[name] for name in names},
            "throughput_samples_per_s": samples / own["train"],
        }
        for epoch, own in enumerate(seconds)
    ]


def _truth(one: Simulation, nodes: Sequence[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """The true time and energies, in one go and in the segments that were recorded."""
    return {
        "runtime_s": sum(segment.seconds for segment in one.segments),
        "in_one_go": {"runtime_s": one.draw.runtime_s, "joules": dict(one.draw.joules)},
        "segments": [
            {"segment": segment.number, "seconds": segment.seconds, "joules": joules}
            for segment, joules in zip(one.segments, nodes, strict=True)
        ],
    }


def _log(one: Simulation, model_path: Path) -> str:
    spec = one.spec
    lines = [
        f"{spec['configuration']} repeat {spec['repeat']}: simulated with {model_path}, not trained",
        *(
            f"segment {segment.number}: {segment.seconds:.0f} s, "
            f"{'finished' if segment.finished else 'stopped at the wall limit'}"
            for segment in one.segments
        ),
    ]
    return "\n".join(lines) + "\n"


def _provenance(one: Simulation, cluster: Cluster, model_path: Path) -> dict[str, Any]:
    spec, nodes = one.spec, one.nodes
    device = cluster.devices[spec["device"]]
    final = final_metric(spec)
    held = {host: list(range(nodes.held_gpus)) for host in nodes.hosts}
    uuids = {host: nodes.uuids(host)[: nodes.held_gpus] for host in nodes.hosts}
    return {
        "spec_sha256": spec_sha256(dict(spec)),
        "dataset_sha256": None,
        "hostnames": nodes.hosts,
        "gpus": held if nodes.held_gpus else None,
        "gpu_uuids": uuids if nodes.held_gpus else None,
        "torch_device": "cuda" if nodes.held_gpus else "cpu",
        "device_name": f"{device.description or device.name} (simulated)",
        "packages_of": "the simulator",
        "packages": _versions(),
        "precision_used": None,
        "metric_name": final.name,
        "metric_goal": spec["settings"].get("metric_goal") or "min",
        "metric_persistence": None,
        "metric_climatology": None,
        "parameters": None,
        "segments": [_segment(one, segment) for segment in one.segments],
        "simulated": {
            "model": str(model_path),
            "model_sha256": hashlib.sha256(model_path.read_bytes()).hexdigest(),
            "kind": one.model.kind.name,
            "assumed": one.model.assumed,
            "warnings": warnings_of(one.model, load_of_spec(spec)),
            "seed": one.draw.seed,
            "sampling_period_s": nodes.periods.usual_s,
            "fine_start_s": nodes.periods.until_s,
            "spec_sampling_period_s": spec["sampling_period_s"],
            "metric": final.as_json(),
            "by_hand": {
                name: text
                for name, text in by_hand.SUBJECTS.items()
                if not (name == "metric" and final.source == PUBLISHED)
            },
        },
    }


def _segment(one: Simulation, segment: Segment) -> dict[str, Any]:
    nodes, started_s = one.nodes, one.started_s(segment)
    each = one.spec["ranks_per_node"]
    places = [(host, index) for host in nodes.hosts for index in range(each)]
    uuids = {host: nodes.uuids(host) for host in nodes.hosts} if nodes.held_gpus else {}
    return {
        "segment": segment.number,
        "started_s": started_s,
        "ended_s": started_s + segment.seconds,
        "outcome": "finished" if segment.finished else "stopped",
        "job": None,
        "code": None,
        "ranks": [
            {
                "rank": rank,
                "host": host,
                "gpu": index if uuids else None,
                "gpu_uuid": uuids[host][index] if uuids else None,
            }
            for rank, (host, index) in enumerate(places)
        ],
        "allocation": None,
    }


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in ("scalewatt", "numpy", "h5py"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found
