"""Faults in simulated runs: lost nodes and sensors, shorter jobs, counters that wrap often.

The true energy is the same with and without a fault of the recording.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from campaign_files import replaced

from scalewatt.campaign.cluster import Cluster
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.files import read_json, write_json
from scalewatt.recordings.journal import beside, journal_files, last_sample_s
from scalewatt.recordings.terms import Floats
from scalewatt.run_files.record import segment_name
from scalewatt.scaling.model.kind_model import KindModel
from scalewatt.scaling.simulation.sensors import (
    Nodes,
    NodeSamples,
    Periods,
    Samples,
)
from scalewatt.scaling.simulation.simulate_run import write_run
from scalewatt.scaling.simulation.simulated_run import Simulation, simulation
from scalewatt.scaling.simulation.stage_schedule import Segment, Stage

_TORN_BYTES = 7


@dataclass(frozen=True)
class SensorLoss:
    """One sensor says nothing true from a time on; `device`, `node`, `segment` count from 0."""

    kind: str = "gpu"
    device: int = 0
    node: int = 0
    segment: int = 0
    at: float = 0.5
    """From when on, as part of the segment's time."""
    seconds: float | None = None
    """For how long; None: to the segment's end."""
    reads: str = "zero"
    """zero: as perun notes a failed read, of power and counters; nothing: there is no sample."""


@dataclass(frozen=True)
class NodeLoss:
    """A node dies: its segment ends, all since its last checkpoint is done again in the next one."""

    at: float = 0.5
    """As part of the time of the run, as it is without this loss."""
    node: int = 0
    leaves: str = "journals"
    """journals: of all nodes; others: all but the dead node's; nothing: no recording at all; torn:
    all journals beside a file of perun's that cannot be read."""
    unsynced_s: float = 0.0
    """What the dead node's journal lacks at its end."""


@dataclass(frozen=True)
class TimeLimit:
    """Each job is told to stop after so many minutes of training, so the run has more segments."""

    minutes: float = 60.0


@dataclass(frozen=True)
class CounterWrap:
    """Counters of a smaller range, which wrap often; the file states it."""

    range_j: float = 5000.0
    kind: str = "all"
    """cpu, ram, or all."""
    period_s: float | None = None
    """Another sampling period, which all sensors have: so wraps can lie between two samples."""


Fault = SensorLoss | NodeLoss | TimeLimit | CounterWrap


@dataclass(frozen=True)
class _KilledSegment(Segment):
    """A segment that ends with a node, whatever it was doing."""

    loss: NodeLoss = NodeLoss()

    @property
    def outcome(self) -> str:
        """As a provenance states it."""
        return "killed"


@dataclass(frozen=True)
class _FaultyNodes(Nodes):
    """Nodes whose sensors fail."""

    faults: tuple[Fault, ...] = ()

    def sampled(self, segment: Segment) -> Iterator[NodeSamples]:
        """What was sampled in a segment, node by node."""
        return disturbed(super().sampled(segment), segment.number, self.faults)


@dataclass(frozen=True)
class _FaultySimulation(Simulation):
    """A run that loses nodes."""

    def discarded(self, segment: Segment) -> tuple[float, float]:
        """Of a killed segment all since its last checkpoint is lost."""
        if isinstance(segment, _KilledSegment):
            return _saved_s(segment, segment.seconds), segment.seconds
        return super().discarded(segment)


def simulate_with_faults(
    spec: RunSpec,
    cluster: Cluster,
    model: tuple[KindModel, Path],
    faults: Sequence[Fault],
    folder: Path,
) -> dict[str, Any]:
    """Write the run folder of a run that these faults befall; return its truth.

    `model`: the one of its kind, and its file.
    """
    limits = [one.minutes for one in faults if isinstance(one, TimeLimit)]
    if limits:
        device = replaced(cluster.devices[spec.device], time_limit_min=limits[0])
        devices = {**cluster.devices, device.name: device}
        cluster = replaced(cluster, devices=devices, stop_warning_s=0)
    whole = simulation(spec, cluster, model[0])
    periods = [one.period_s for one in faults if isinstance(one, CounterWrap) and one.period_s]
    if periods:
        whole = replace(whole, nodes=replace(whole.nodes, periods=Periods(periods[0], periods[0])))
    losses = [one for one in faults if isinstance(one, NodeLoss)]
    nodes = _FaultyNodes(**vars(whole.nodes), faults=tuple(faults))
    segments = tuple(with_node_losses(whole.segments, losses))
    one = _FaultySimulation(**{**vars(whole), "nodes": nodes, "segments": segments})
    write_run(one, folder, model[1])
    _end_killed_segments(one, folder)
    return truth_of(one, whole.nodes)


def truth_of(one: Simulation, healthy: Nodes) -> dict[str, Any]:
    """The true time and energies of a run by segment, node, device kind and stage, and what was lost.

    `healthy`: its nodes with sensors that find all of what segments worked in vain.
    """
    return {
        "runtime_s": sum(segment.seconds for segment in one.segments),
        "in_one_go": {"runtime_s": one.draw.runtime_s, "joules": dict(one.draw.joules)},
        "segments": [_true_segment(one, healthy, segment) for segment in one.segments],
    }


def _true_segment(one: Simulation, nodes: Nodes, segment: Segment) -> dict[str, Any]:
    courses, held = nodes.courses(segment), nodes.held_gpus
    idle_gpus = nodes.device.gpus_per_node - held if held else 0
    joules: dict[str, dict[str, float]] = {}
    stages: dict[str, dict[str, dict[str, float]]] = {}
    for number, host in enumerate(nodes.hosts):
        shares = nodes.shares()[number * held : (number + 1) * held]
        devices = {kind: float(nodes.device.cpu["sockets"]) for kind in courses}
        devices |= {"gpu": float(shares.sum())} if held else {}
        joules[host] = {kind: devices[kind] * own.total_j for kind, own in courses.items()}
        if idle_gpus:
            idle_j = nodes.idle_w(courses["gpu"]) * segment.seconds
            joules[host]["unused_gpu"] = idle_gpus * idle_j
        stages[host] = {
            kind: {name: devices[kind] * j for name, j in own.stage_joules.items()}
            for kind, own in courses.items()
        }
    begin_s, end_s = one.discarded(segment)
    discarded = {}
    if end_s > begin_s:
        for node in nodes.sampled(segment):
            discarded[node.host] = joules_between(node, begin_s, end_s, held)
    return {
        "segment": segment.number,
        "seconds": segment.seconds,
        "joules": joules,
        "stage_joules": stages,
        "discarded_s": end_s - begin_s,
        "discarded_joules": discarded,
    }


def joules_between(
    node: NodeSamples, begin_s: float, end_s: float, held_gpus: int
) -> dict[str, float]:
    """The energy in J by device kind that a node's sensors find in a part of a segment."""
    found: dict[str, float] = {}
    for sensor in node.sensors:
        held = sensor.device_kind != "gpu" or sensor.device_index < held_gpus
        used = np.interp([begin_s, end_s], *_joules(sensor, node.time_s))
        kind = sensor.device_kind if held else "unused_gpu"
        found[kind] = found.get(kind, 0.0) + float(used[1] - used[0])
    return found


def _joules(sensor: Samples, time_s: Floats) -> tuple[Floats, Floats]:
    """Times, and the energy until then from any origin; a mean is at the middle of its time."""
    if sensor.counted_uj is not None:
        return time_s, np.asarray(sensor.counted_uj * 1e-6)
    watts, half_s = sensor.raw * 1e-3, sensor.over_s / 2
    steps = 0.5 * (watts[1:] + watts[:-1]) * np.diff(time_s)
    joules = np.concatenate(([0.0], np.cumsum(steps), [half_s * watts[-1]]))
    joules[-1] += joules[-2]
    return np.append(time_s - half_s, time_s[-1]), joules


def _end_killed_segments(one: Simulation, folder: Path) -> None:
    """Leave of killed segments what nodes that die leave: files, events and a provenance without ends."""
    provenance = read_json(folder / "provenance.json")
    table = pq.read_table(folder / "events.parquet")
    events = table.to_pylist()
    for segment in one.segments:
        if not isinstance(segment, _KilledSegment):
            continue
        _leave(folder / "perun", segment, one.nodes.hosts)
        provenance["segments"][segment.number]["ended_s"] = None
        # Nobody wrote the last stage's end down: what is known of it is the last sample.
        journals = journal_files(folder / "perun").get(segment.number, {})
        seen = (last_sample_s(journal) for journal in journals.values())
        last = next(row for row in reversed(events) if row["segment"] == segment.number)
        last["end_s"] = max([last["start_s"], *(s for s in seen if s is not None)])
    pq.write_table(pa.Table.from_pylist(events, table.schema), folder / "events.parquet")
    write_json(folder / "provenance.json", provenance)


# Segments


def with_node_losses(segments: Sequence[Segment], losses: Sequence[NodeLoss]) -> list[Segment]:
    """The segments of a run that loses nodes one after the other."""
    found = list(segments)
    for loss in losses:
        left = loss.at * sum(one.seconds for one in found)
        place = 0
        while left > found[place].seconds and place + 1 < len(found):
            left -= found[place].seconds
            place += 1
        before = found[place]
        rest = _remaining(before, _saved_s(before, left))
        again = [] if rest is None else [rest]
        found[place : place + 1] = [_killed(before, left, loss), *again]
    return [replace(one, number=number) for number, one in enumerate(found)]


def _saved_s(segment: Segment, until_s: float) -> float:
    """Seconds from a segment's start to the end of its last whole checkpoint before a time, or 0."""
    ends = [one.end_s for one in segment.stages if one.name == "checkpoint"]
    return max((end for end in ends if end < until_s), default=0.0)


def _killed(segment: Segment, at_s: float, loss: NodeLoss) -> _KilledSegment:
    """A segment that ends at a time; one that is killed twice ends by what killed it first."""
    *stages, last = (one for one in segment.stages if one.start_s < at_s)
    seconds = min(last.seconds, at_s - last.start_s)
    last = replace(last, seconds=seconds, dip_s=min(last.dip_s, seconds))
    return _KilledSegment(segment.number, (*stages, last), finished=False, loss=loss)


def _remaining(segment: Segment, from_s: float) -> Segment | None:
    """A segment that does again what one did after a checkpoint; None where nothing is to do."""
    start = segment.stages[0]
    todo = [one for one in segment.stages[1:] if one.start_s >= from_s]
    stopped = segment.outcome == "stopped"
    if stopped and [one.name for one in todo] == ["shutdown"]:
        return None
    stages: list[Stage] = [start]
    for one in todo:
        stages.append(replace(one, start_s=stages[-1].end_s))
    return replace(segment, stages=tuple(stages))


# Samples and files


def disturbed(
    sampled: Iterable[NodeSamples], segment: int, faults: Sequence[Fault]
) -> Iterator[NodeSamples]:
    """The samples of a segment's nodes as sensors with these faults give them."""
    for number, node in enumerate(sampled):
        sensors = []
        for sensor in node.sensors:
            for one in faults:
                if isinstance(one, CounterWrap):
                    sensor = _with_range(sensor, one)
            for one in faults:
                place = (segment, number, sensor.device_kind, sensor.device_index)
                if isinstance(one, SensorLoss) and place == (
                    *(one.segment, one.node, one.kind, one.device),
                ):
                    sensor = _lost(sensor, one, node.time_s)
            sensors.append(sensor)
        yield replace(node, sensors=tuple(sensors))


def _with_range(sensor: Samples, wrap: CounterWrap) -> Samples:
    """The same counter, which wraps as asked for."""
    if not sensor.is_counter or wrap.kind not in ("all", sensor.device_kind):
        return sensor
    range_uj = round(wrap.range_j * 1e6)
    return sensor.with_range(range_uj, int(sensor.raw[0]) % range_uj)


def _lost(sensor: Samples, loss: SensorLoss, time_s: Floats) -> Samples:
    """The same sensor, which fails for a time."""
    begin_s = loss.at * time_s[-1]
    end_s = math.inf if loss.seconds is None else begin_s + loss.seconds
    failing = (time_s >= begin_s) & (time_s <= end_s)
    if loss.reads == "zero":
        return replace(sensor, raw=np.where(failing, sensor.raw.dtype.type(0), sensor.raw))
    kept = ~failing if sensor.kept is None else sensor.kept & ~failing
    return replace(sensor, kept=kept)


def _leave(folder: Path, segment: _KilledSegment, hosts: Sequence[str]) -> None:
    """Take away of a segment's files what the loss of a node does not leave."""
    loss, name = segment.loss, segment_name(segment.number)
    record = folder / f"{name}.hdf5"
    if loss.leaves == "torn":
        with open(record, "r+b") as file:
            file.truncate(record.stat().st_size // 2)
    else:
        record.unlink()
    journals = {host: folder / f"{name}.{host}.csv" for host in hosts}
    own = journals[hosts[loss.node]]
    if loss.leaves in ("journals", "torn"):
        _tear(own, loss.unsynced_s)
    elif loss.leaves == "others":
        _delete(own)
    else:
        for journal in journals.values():
            _delete(journal)


def _tear(journal: Path, lost_s: float) -> None:
    """Cut the last seconds off a journal; what follows is the beginning of a record."""
    heading, *lines = journal.read_bytes().splitlines(keepends=True)
    mono = [float(line.split(b",")[1]) for line in lines]
    kept = [line for line, at in zip(lines, mono, strict=True) if at <= mono[-1] - lost_s]
    journal.write_bytes(heading + b"".join(kept) + b"\0" * _TORN_BYTES)


def _delete(journal: Path) -> None:
    journal.unlink()
    beside(journal, ".sensors.json").unlink()
