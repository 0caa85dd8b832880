"""What faults do to a simulated recording: samples before they are written, files after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.recordings.record_file import read_header
from scalewatt.recordings.series import Floats
from scalewatt.run_files.work_directory import segment_name
from scalewatt.scaling.simulation.faults import (
    JOURNALS,
    NOTHING,
    OTHERS,
    TORN,
    ZERO,
    CounterWrap,
    Fault,
    NodeLoss,
    SensorLoss,
    of_kind,
)
from scalewatt.scaling.simulation.sensors import NodeSamples, Samples

_TORN_BYTES = 7


def check_places(
    faults: Sequence[Fault], segments: int, nodes: int, devices: Mapping[str, int]
) -> None:
    """InputError where a fault is asked for in a segment, node or device that the run has not.

    `devices`: how many of each kind a node has a sensor of.
    """
    for lost in of_kind(faults, NodeLoss):
        _check_place(lost, "node", lost.node, nodes)
    for loss in of_kind(faults, SensorLoss):
        _check_place(loss, "node", loss.node, nodes)
        _check_place(loss, "segment", loss.segment, segments)
        _check_place(loss, "device", loss.device, devices.get(loss.kind, 0))


def _check_place(fault: Fault, word: str, number: int, count: int) -> None:
    if number >= count:
        there = f"0 to {count - 1}" if count else "none: the run has no such sensor"
        raise InputError(f"fault {fault}: {word}={number}; allowed: {there}")


def disturbed(
    sampled: Iterable[NodeSamples], segment: int, faults: Sequence[Fault]
) -> Iterator[NodeSamples]:
    """The samples of a segment's nodes as sensors with these faults give them."""
    wraps, losses = of_kind(faults, CounterWrap), of_kind(faults, SensorLoss)
    for number, node in enumerate(sampled):
        here = [loss for loss in losses if (loss.segment, loss.node) == (segment, number)]
        sensors = []
        for sensor in node.sensors:
            for wrap in wraps:
                if sensor.is_counter and wrap.kind in ("all", sensor.device_kind):
                    range_uj = round(wrap.range_j * 1e6)
                    sensor = sensor.with_range(range_uj, int(sensor.raw[0]) % range_uj)
            for loss in here:
                if (loss.kind, loss.device) == (sensor.device_kind, sensor.device_index):
                    sensor = _lost(sensor, loss, node.time_s)
            sensors.append(sensor)
        yield replace(node, sensors=tuple(sensors))


def joules_between(
    node: NodeSamples, begin_s: float, end_s: float, held_gpus: int
) -> dict[str, float]:
    """True energy by device kind of a part of a segment; `node` as sampled without a fault."""
    found = dict.fromkeys(node.joules, 0.0)
    for sensor in node.sensors:
        held = sensor.device_kind != "gpu" or sensor.device_index < held_gpus
        used = np.interp([begin_s, end_s], node.time_s, _joules(sensor, node.time_s))
        found[sensor.device_kind if held else "unused_gpu"] += float(used[1] - used[0])
    return found


def leave(folder: Path, segment: int, hosts: Sequence[str], loss: NodeLoss) -> None:
    """Take away of a segment's files what the loss of a node does not leave."""
    name = segment_name(segment)
    record = folder / f"{name}.hdf5"
    if loss.leaves == TORN:
        with open(record, "r+b") as file:
            file.truncate(record.stat().st_size // 2)
    else:
        record.unlink()
    journals = {host: folder / f"{name}.{host}.journal" for host in hosts}
    own = journals[hosts[loss.node]]
    if loss.leaves in (JOURNALS, TORN):
        _tear(own, loss.unsynced_s)
    elif loss.leaves == OTHERS:
        own.unlink()
    elif loss.leaves == NOTHING:
        for journal in journals.values():
            journal.unlink()


def _tear(journal: Path, lost_s: float) -> None:
    """Cut the last seconds off a journal; what follows is the beginning of a record."""
    _, dtype, begin = read_header(journal)
    rows = np.fromfile(journal, dtype, offset=begin)
    kept = int(np.count_nonzero(rows["mono"] <= rows["mono"][-1] - lost_s)) if rows.size else 0
    torn = b"\0" * _TORN_BYTES
    with open(journal, "r+b") as file:
        file.seek(begin + kept * dtype.itemsize)
        file.write(torn)
        file.truncate()


def _joules(sensor: Samples, time_s: Floats) -> Floats:
    """Energy since the first sample, (n,)."""
    if sensor.counted_uj is not None:
        return np.asarray(sensor.counted_uj * 1e-6)
    watts = sensor.raw * 1e-3
    steps = 0.5 * (watts[1:] + watts[:-1]) * np.diff(time_s)
    return np.concatenate(([0.0], np.cumsum(steps)))


def _lost(sensor: Samples, loss: SensorLoss, time_s: Floats) -> Samples:
    """The same sensor, which fails for a time."""
    begin_s = loss.at * time_s[-1]
    end_s = np.inf if loss.seconds is None else begin_s + loss.seconds
    failing = (time_s >= begin_s) & (time_s <= end_s)
    if loss.reads == ZERO:
        return replace(sensor, raw=np.where(failing, sensor.raw.dtype.type(0), sensor.raw))
    kept = ~failing if sensor.kept is None else sensor.kept & ~failing
    return replace(sensor, kept=kept)
