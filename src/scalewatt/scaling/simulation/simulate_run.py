"""A simulated run's folder: the files that a training would have published, and the truth beside."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.campaign.campaign_types import Cluster, Device
from scalewatt.campaign.run_spec import read_spec, spec_sha256
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_json, write_table, write_text
from scalewatt.common.redaction import Redaction
from scalewatt.provenance.versions import made_with
from scalewatt.recordings.journal import last_sample_s
from scalewatt.recordings.stage_files import EVENTS_SCHEMA
from scalewatt.recordings.stage_log import EVALUATIONS
from scalewatt.run_files.work_directory import segment_name
from scalewatt.scaling.model.kind_model import KindModel
from scalewatt.scaling.model.model_file import read_model
from scalewatt.scaling.model.predict import TOTAL, warnings_of
from scalewatt.scaling.model.training_kind import kind_of_spec
from scalewatt.scaling.model.workload_size import load_of_spec
from scalewatt.scaling.simulation import assumptions as by_hand
from scalewatt.scaling.simulation.fault_effects import (
    check_places,
    disturbed,
    joules_between,
    leave,
)
from scalewatt.scaling.simulation.faults import (
    CounterWrap,
    Fault,
    NodeLoss,
    TimeLimit,
    check_together,
    of_kind,
)
from scalewatt.scaling.simulation.learning_curves import PUBLISHED, curve, final_metric
from scalewatt.scaling.simulation.node_loss import Cut, in_vain, with_node_losses
from scalewatt.scaling.simulation.overwrite_guard import check_replaceable
from scalewatt.scaling.simulation.power_profile import levels_of
from scalewatt.scaling.simulation.run_sample import RunDraw, draw_run
from scalewatt.scaling.simulation.sensors import Nodes, NodeSamples, Periods
from scalewatt.scaling.simulation.stage_schedule import Segment, segments_of
from scalewatt.scaling.simulation.write_recording import Recorder
from scalewatt.training.history import history_table

BEGUN_S = 946_684_800.0
"""Unix time at which every simulated run begins: 2000-01-01, which no measured run has."""
TRUTH = "truth.json"
"""What the simulator knows and nobody but tests may read."""


@dataclass(frozen=True)
class Simulation:
    """A run as it is simulated."""

    spec: Mapping[str, Any]
    model: KindModel
    draw: RunDraw
    nodes: Nodes
    cuts: tuple[Cut, ...]
    faults: tuple[Fault, ...] = ()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Its segments, in order."""
        return tuple(cut.segment for cut in self.cuts)

    def started_s(self, segment: Segment) -> float:
        """Unix time at which a segment begins."""
        before = self.segments[: segment.number]
        return BEGUN_S + sum(one.seconds + by_hand.BETWEEN_S for one in before)


def simulation(
    spec: Mapping[str, Any],
    cluster: Cluster,
    model: KindModel,
    faults: Sequence[Fault] = (),
    is_scaled: bool = True,
) -> Simulation:
    """What happens in a run. Not `is_scaled`: its GPUs' samples are as a real sensor's, their integral too.

    InputError where the cluster's nodes are not as wide as the spec's, the model has no energy, no
    segment makes progress, or a fault has no place.
    """
    check_together(faults)
    device = cluster.devices[spec["device"]]
    _check_nodes(spec, device, cluster)
    draw = draw_run(spec, model, device)
    (in_one_go,) = segments_of(spec, draw.runtime_s)
    segments = segments_of(spec, draw.runtime_s, _limit_s(cluster, device, faults))
    cuts = with_node_losses(segments, of_kind(faults, NodeLoss))
    levels = levels_of(spec, device, draw, in_one_go)
    nodes = Nodes(spec, device, draw, levels, _periods(spec, cluster, faults), is_scaled)
    sockets = int(device.cpu["sockets"])
    counts = {"gpu": device.gpus_per_node, "cpu": sockets, "ram": sockets}
    sensors = {kind: n for kind, n in counts.items() if getattr(levels, kind) is not None}
    check_places(faults, len(cuts), spec["nodes"], sensors)
    return Simulation(spec, model, draw, nodes, tuple(cuts), tuple(faults))


def _check_nodes(spec: Mapping[str, Any], device: Device, cluster: Cluster) -> None:
    """InputError where the cluster would not hold the run on nodes as the spec has them."""
    gpus, width = spec["gpus"], device.gpus_per_node
    if (spec["nodes"], spec["ranks_per_node"]) != (-(-gpus // width), min(gpus, width)):
        raise InputError(
            f"{spec['configuration']}: has {spec['ranks_per_node']} ranks on each of {spec['nodes']} "
            f"nodes, but on the cluster '{cluster.name}' nodes of {device.name} have {width} GPUs; make "
            "the spec with this cluster, or name the one that it was made with"
        )


def _limit_s(cluster: Cluster, device: Device, faults: Sequence[Fault]) -> float | None:
    """How long a job trains until it is told to stop."""
    for asked in of_kind(faults, TimeLimit):
        return asked.minutes * 60.0
    limit = device.time_limit_min
    return None if limit is None else limit * 60.0 - cluster.stop_warning_s


def _periods(spec: Mapping[str, Any], cluster: Cluster, faults: Sequence[Fault]) -> Periods:
    for asked in of_kind(faults, CounterWrap):
        if asked.period_s is not None:
            return Periods(asked.period_s, asked.period_s)
    own = float(spec["sampling_period_s"] or 1.0)
    usual = float(cluster.simulate.get("sampling_period_s", own))
    return Periods(usual, min(own, usual), float(cluster.simulate.get("fine_start_s", 0.0)))


def simulate_run(
    spec_path: Path,
    out: Path,
    cluster: Cluster,
    model_path: Path,
    faults: Sequence[Fault] = (),
    is_scaled: bool = True,
) -> None:
    """Write the run folder of a spec as a training would leave it; the provenance comes last.

    `faults` befall it; `is_scaled` as of `simulation`. InputError where the model does not know the
    run's kind, or the folder holds what was measured.
    """
    check_replaceable(out)
    spec = read_spec(spec_path)
    model = read_model(model_path).of(kind_of_spec(spec))
    one = simulation(spec, cluster, model, faults, is_scaled)
    recordings = out / "perun"
    (out / "provenance.json").unlink(missing_ok=True)
    shutil.rmtree(recordings, ignore_errors=True)
    recordings.mkdir(parents=True)
    truth = [_record(one, cut, recordings) for cut in one.cuts]
    write_table(history_table(_history(one)), out / "history.parquet")
    write_table(
        pa.Table.from_pylist(list(_events(one, recordings)), EVENTS_SCHEMA), out / "events.parquet"
    )
    write_json(out / TRUTH, _truth(one, truth))
    write_text(out / "train.log", _log(one, model_path))
    write_json(out / "provenance.json", _provenance(one, model_path))


def _record(one: Simulation, cut: Cut, folder: Path) -> dict[str, Any]:
    """Write a segment's recordings; return its truth."""
    segment, nodes = cut.segment, one.nodes
    vain: dict[str, dict[str, float]] = {}
    begin_s, end_s = in_vain(one.segments, segment)

    def sampled() -> Iterator[NodeSamples]:
        for node in nodes.sampled(segment):
            if end_s > begin_s:
                vain[node.host] = joules_between(node, begin_s, end_s, nodes.held_gpus)
            yield node

    recorder = Recorder(
        folder,
        segment.number,
        one.started_s(segment),
        nodes.periods.usual_s,
        one.spec["ranks_per_node"],
    )
    true = recorder.write(disturbed(sampled(), segment.number, one.faults))
    if cut.loss is not None:
        leave(folder, segment.number, nodes.hosts, cut.loss)
    return {
        "segment": segment.number,
        "seconds": segment.seconds,
        **true,
        "discarded_s": end_s - begin_s,
        "discarded_joules": vain,
    }


def _events(one: Simulation, recordings: Path) -> Iterator[dict[str, Any]]:
    for segment in one.segments:
        started_s = one.started_s(segment)
        for stage in segment.stages:
            end_s = started_s + stage.end_s
            if segment.killed and stage is segment.stages[-1]:
                # Nobody wrote its end down: what is known of it is the last sample.
                journals = recordings.glob(f"{segment_name(segment.number)}.*.journal")
                seen = (last_sample_s(journal) for journal in journals)
                end_s = max((s for s in seen if s is not None), default=0.0)
                end_s = max(end_s, started_s + stage.start_s)
            yield {
                "segment": segment.number,
                "stage": stage.name,
                "epoch": stage.epoch,
                "start_s": started_s + stage.start_s,
                "end_s": end_s,
            }


def _history(one: Simulation) -> list[dict[str, Any]]:
    """One row an epoch. What is not known of a run that was never made is null."""
    spec = one.spec
    names = ("train", *EVALUATIONS)
    seconds = [dict.fromkeys(names, 0.0) for _ in range(spec["epochs"])]
    ended = [0] * spec["epochs"]
    for segment in one.segments:
        lost_s = in_vain(one.segments, segment)[0] if segment.killed else segment.seconds
        for stage in segment.stages:
            if stage.name not in names or stage.epoch is None or stage.start_s >= lost_s:
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


def _truth(one: Simulation, segments: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The true time and energies, in one go and in the segments that were recorded."""
    return {
        "runtime_s": sum(segment.seconds for segment in one.segments),
        "in_one_go": {"runtime_s": one.draw.runtime_s, "joules": dict(one.draw.joules)},
        "segments": list(segments),
    }


_ENDS = {
    "finished": "finished",
    "stopped": "stopped at the wall limit",
    "killed": "killed by the loss of a node",
}


def _log(one: Simulation, model_path: Path) -> str:
    spec = one.spec
    lines = [
        f"{spec['configuration']} repeat {spec['repeat']}: simulated with {model_path}, not trained",
        *(
            f"segment {segment.number}: {segment.seconds:.0f} s, {_ENDS[segment.outcome]}"
            for segment in one.segments
        ),
        *(f"fault: {fault}" for fault in one.faults),
    ]
    return "\n".join(lines) + "\n"


def _provenance(one: Simulation, model_path: Path) -> dict[str, Any]:
    spec, nodes = one.spec, one.nodes
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
        "device_name": f"{spec['device']} (simulated)",
        "packages_of": "the simulator",
        "packages": _versions(),
        **made_with(),
        **dict.fromkeys(("nodes", "software", "perun", "environment_variables")),
        "precision_used": None,
        "metric_name": final.name,
        "metric_goal": spec["settings"].get("metric_goal") or "min",
        "metric_persistence": None,
        "metric_climatology": None,
        "parameters": None,
        "segments": [_segment(one, segment) for segment in one.segments],
        "simulated": {
            "model": Redaction.of(os.environ).text(str(model_path)),
            "model_sha256": hashlib.sha256(model_path.read_bytes()).hexdigest(),
            "kind": one.model.kind.name,
            "assumed": one.model.assumed,
            "warnings": warnings_of(one.model, load_of_spec(spec)),
            "seed": one.draw.seed,
            "sampling_period_s": nodes.periods.usual_s,
            "fine_start_s": nodes.periods.until_s,
            "spec_sampling_period_s": spec["sampling_period_s"],
            "faults": [str(fault) for fault in one.faults],
            "metric": final.as_json(),
            "by_hand": _by_hand(one.model, final.source),
        },
    }


def _by_hand(model: KindModel, metric_source: str) -> dict[str, str]:
    """What of a run was put in by hand: not what the model or a published error says of it."""
    known = {"device_shares": TOTAL not in model.energy, "metric": metric_source == PUBLISHED}
    return {name: text for name, text in by_hand.SUBJECTS.items() if not known.get(name)}


def _segment(one: Simulation, segment: Segment) -> dict[str, Any]:
    nodes, started_s = one.nodes, one.started_s(segment)
    each = one.spec["ranks_per_node"]
    places = [(host, index) for host in nodes.hosts for index in range(each)]
    uuids = {host: nodes.uuids(host) for host in nodes.hosts} if nodes.held_gpus else {}
    return {
        "segment": segment.number,
        "started_s": started_s,
        "ended_s": None if segment.killed else started_s + segment.seconds,
        "outcome": segment.outcome,
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
