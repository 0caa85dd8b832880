"""Faults in simulated runs: lost nodes and sensors, counters that wrap often; and the true energy with them.

The truth is the integral of the power that was simulated: the same with and without a fault of the recording.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.common.files import read_json, write_json
from scalewatt.recordings.journal import beside, journal_files, last_stamps
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.run_files.record import segment_name
from scalewatt.scaling.simulation.simulate import (
    Course,
    NodeSamples,
    Simulation,
    Stage,
    averaged_s,
    gpu_shares,
    sample_nodes,
    write_run,
    write_samples,
)

BETWEEN_S = 3600.0
"""Time between two segments."""


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
class CounterWrap:
    """Counters of a smaller range, which wrap often; the file states it."""

    range_j: float = 5000.0
    kind: str = "all"
    """cpu, ram, or all."""


Fault = SensorLoss | NodeLoss | CounterWrap


@dataclass
class Truth:
    """What a run really used."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """Energy in J by segment, host, kind and stage."""
    discarded: list[dict[str, float]] = field(default_factory=list)
    """Energy in J by kind, of each node in each segment that was killed, since its last checkpoint."""
    runtime_s: float = 0.0

    def joules(self, *by: str) -> pd.Series:
        """Energies by the named columns."""
        return pd.DataFrame(self.rows).groupby([*by])["joules"].sum()

    def add(self, run: Simulation, segment: int = 0) -> None:
        """Add what a run, or a segment of one, uses."""
        edges = np.array([stage.start_s for stage in run.stages] + [run.stages[-1].end_s])
        names = [stage.name for stage in run.stages]
        sockets = float(run.device.cpu["sockets"])
        for host, shares in zip(
            run.hosts, gpu_shares(run).reshape(run.spec.nodes, -1), strict=True
        ):
            for kind, course in run.courses.items():
                devices = shares.sum() if kind == "gpu" else sockets
                joules = devices * pd.Series(np.diff(course.joules(edges))).groupby(names).sum()
                self._add(segment, host, kind, joules)
            if idle := run.device.gpus_per_node - shares.size:
                self._add(segment, host, "unused_gpu", {"": idle * run.gpu_w["idle_w"] * edges[-1]})
        self.runtime_s += edges[-1]

    def _add(self, segment: int, host: str, kind: str, joules: Any) -> None:
        node_key = {"segment": segment, "host": host, "kind": kind}
        self.rows += [{**node_key, "stage": stage, "joules": j} for stage, j in joules.items()]


@dataclass(frozen=True)
class Segment:
    """A part of a run, in stages from its own start; `loss` is what ended it early."""

    stages: tuple[Stage, ...]
    loss: NodeLoss | None = None

    @property
    def seconds(self) -> float:
        return self.stages[-1].end_s

    def saved_s(self, until_s: float) -> float:
        """Seconds from its start to the end of its last whole checkpoint before a time, or 0."""
        ends = [stage.end_s for stage in self.stages if stage.name == "checkpoint"]
        return max((end for end in ends if end < until_s), default=0.0)


def simulate_with_faults(
    run: Simulation, faults: Sequence[Fault], folder: Path, model: Path
) -> Truth:
    """Write the folder of a run that these faults befall; return its truth. `model`: the file."""
    write_run(run, folder, model)
    provenance, recordings = read_json(folder / "provenance.json"), folder / "perun"
    shutil.rmtree(recordings)
    (recordings / "new").mkdir(parents=True)
    (whole,) = provenance.pop("segments")
    truth, segments, events = Truth(), [], []
    begun_s = run.begun_s
    losses = [fault for fault in faults if isinstance(fault, NodeLoss)]
    for number, segment in enumerate(split(run.stages, losses)):
        part = replace(
            run,
            begun_s=begun_s,
            stages=segment.stages,
            courses={k: _recut(c, run.stages, segment.stages) for k, c in run.courses.items()},
        )
        truth.add(part, number)
        for number_of_node, node in enumerate(sample_nodes(part)):
            if segment.loss:
                since_s = segment.saved_s(segment.seconds)
                truth.discarded.append(joules_between(part, node, since_s, segment.seconds))
            write_samples(part, disturbed(node, number, number_of_node, faults), recordings / "new")
        for path in (recordings / "new").iterdir():
            path.rename(recordings / path.name.replace(segment_name(0), segment_name(number)))
        events += [
            (number, s.name, s.epoch, begun_s + s.start_s, begun_s + s.end_s)
            for s in segment.stages
        ]
        segments.append({**whole, "segment": number, "started_s": begun_s})
        segments[-1]["ended_s"] = begun_s + segment.seconds
        if segment.loss:
            _leave(recordings, number, segment.loss, run.hosts)
            segments[-1] |= {"ended_s": None, "outcome": "killed"}
            # Nobody wrote the last stage's end down: what is known of it is the last sample.
            left = journal_files(recordings).get(number, {}).values()
            *stage, start_s, _ = events[-1]
            seen = [stamps[0] for journal in left if (stamps := last_stamps(journal))]
            events[-1] = (*stage, start_s, max([start_s, *seen]))
        begun_s += segment.seconds + BETWEEN_S
    (recordings / "new").rmdir()
    rows = [dict(zip(EVENTS_SCHEMA.names, event, strict=True)) for event in events]
    pq.write_table(pa.Table.from_pylist(rows, EVENTS_SCHEMA), folder / "events.parquet")
    write_json(folder / "provenance.json", {**provenance, "segments": segments})
    return truth


# --- segments -------------------------------------------------------------------------------------


def split(stages: tuple[Stage, ...], losses: Sequence[NodeLoss]) -> list[Segment]:
    """The segments of a run that loses nodes one after the other."""
    segments = [Segment(stages)]
    for loss in losses:
        left = loss.at * sum(segment.seconds for segment in segments)
        at_segment = 0
        while left > segments[at_segment].seconds and at_segment + 1 < len(segments):
            left -= segments[at_segment].seconds
            at_segment += 1
        before = segments[at_segment]
        # What was not saved is done again after a new start.
        again = [before.stages[0]]
        for stage in before.stages[1:]:
            if stage.start_s >= before.saved_s(left):
                again.append(replace(stage, start_s=again[-1].end_s))
        *done, last = (stage for stage in before.stages if stage.start_s < left)
        seconds = min(last.seconds, left - last.start_s)
        waits_s = min(last.first_batch_s, seconds)
        done.append(replace(last, seconds=seconds, first_batch_s=waits_s))
        segments[at_segment : at_segment + 1] = [
            Segment(tuple(done), loss),
            Segment(tuple(again), before.loss),
        ]
    return segments


def _recut(course: Course, whole: Sequence[Stage], stages: Sequence[Stage]) -> Course:
    """The power of a device in other stages: in each what it is in the run's of that name."""
    like = {stage.name: stage for stage in reversed(whole)}
    rows = []
    for stage in stages:
        same = like[stage.name]
        for waits_s in {0.0, same.first_batch_s}:
            rows.append((stage.start_s + min(waits_s, stage.seconds), same.start_s + waits_s))
    start, at = np.array(sorted(rows)).T
    watts, works = course.at(at)
    exact = course.watts[np.abs(course.watts[:, None] - watts).argmin(axis=0)]
    return replace(course, start_s=start, watts=exact, works=works, end_s=stages[-1].end_s)


# --- samples and files ----------------------------------------------------------------------------


def joules_between(
    run: Simulation, node: NodeSamples, begin_s: float, end_s: float
) -> dict[str, float]:
    """The energy in J by device kind that a node's sensors find in a part of a segment."""
    joules: dict[str, float] = {}
    for name, facts in node.sensors.items():
        kind, raw, time_s = facts["kind"], node.raw[name], node.time_s
        if kind == "gpu":
            if facts["index"] >= run.spec.ranks_per_node:
                kind = "unused_gpu"
            # A mean is at the middle of its time.
            watts, half_s = raw * facts["mag"], averaged_s(run.spec) / 2
            time_s = np.append(time_s - half_s, time_s[-1])
            steps = np.diff(time_s) * np.append((watts[1:] + watts[:-1]) / 2, watts[-1])
        else:
            steps = np.diff(unwrapped(raw, facts["valid_max"])) * facts["mag"]
        used = np.interp([begin_s, end_s], time_s, np.append(0.0, np.cumsum(steps)))
        joules[kind] = joules.get(kind, 0.0) + float(used[1] - used[0])
    return joules


def unwrapped(raw: Any, valid_max: int) -> Any:
    """What a counter has counted since the first sample, (n,)."""
    return np.append(0, np.cumsum(np.diff(raw.astype(np.int64)) % valid_max))


def disturbed(node: NodeSamples, segment: int, number: int, faults: Sequence[Fault]) -> NodeSamples:
    """The samples of a segment's node as sensors with these faults give them."""
    sensors, raw = dict(node.sensors), dict(node.raw)
    for fault in (fault for fault in faults if isinstance(fault, CounterWrap)):
        for name, facts in sensors.items():
            if facts["kind"] == fault.kind or (fault.kind == "all" and facts["kind"] != "gpu"):
                counts = unwrapped(raw[name], facts["valid_max"])
                top = round(fault.range_j * 1e6)
                raw[name] = np.maximum((counts + int(raw[name][0]) % top) % top, 1)
                sensors[name] = {**facts, "valid_max": top}
    for fault in (fault for fault in faults if isinstance(fault, SensorLoss)):
        if (fault.segment, fault.node) != (segment, number):
            continue
        begin_s = fault.at * node.time_s[-1]
        end_s = np.inf if fault.seconds is None else begin_s + fault.seconds
        failing = (node.time_s >= begin_s) & (node.time_s <= end_s)
        for name, facts in sensors.items():
            if (facts["kind"], facts["index"]) != (fault.kind, fault.device):
                continue
            if fault.reads == "zero":
                raw[name] = np.ma.where(failing, raw[name].dtype.type(0), raw[name])
            else:
                raw[name] = np.ma.masked_where(failing, raw[name])
    return replace(node, sensors=sensors, raw=raw)


def _leave(recordings: Path, number: int, loss: NodeLoss, hosts: Sequence[str]) -> None:
    """Take away of a segment's files what the loss of a node does not leave."""
    name = segment_name(number)
    journals = {host: recordings / f"{name}.{host}.csv" for host in hosts}
    dead = hosts[loss.node]
    if loss.leaves == "torn":
        (recordings / f"{name}.hdf5").write_bytes(b"\x89HDF")
    if loss.leaves in ("journals", "torn"):
        _tear(journals[dead], loss.unsynced_s)
    for host, journal in journals.items():
        if loss.leaves == "nothing" or (loss.leaves == "others" and host == dead):
            journal.unlink()
            beside(journal, ".sensors.json").unlink()


def _tear(journal: Path, lost_s: float) -> None:
    """Cut the last seconds off a journal; what follows is the beginning of a record."""
    heading, *lines = journal.read_bytes().splitlines(keepends=True)
    mono = [float(line.split(b",")[1]) for line in lines]
    kept = [line for line, at in zip(lines, mono, strict=True) if at <= mono[-1] - lost_s]
    journal.write_bytes(heading + b"".join(kept) + b"\0" * 7)
