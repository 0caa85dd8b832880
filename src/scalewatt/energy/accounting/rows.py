"""The rows of a run's energy tables, as its nodes are accounted for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from scalewatt.energy.accounting.energy_schema import (
    CROSS_CHECKS_SCHEMA,
    DEVICES_SCHEMA,
    ENERGY_SCHEMA,
    EPOCHS_SCHEMA,
    FLAGS_SCHEMA,
    TELEMETRY_SCHEMA,
    Accounts,
)
from scalewatt.energy.accounting.node_energy import MAX_UNCOVERED, KindEnergy, Window
from scalewatt.energy.accounting.run_inputs import Planned
from scalewatt.energy.integration.stage_intervals import (
    STAGES,
    UNATTRIBUTED,
    StageIntervals,
)
from scalewatt.recordings.series import (
    DEVICE_KINDS,
    Flag,
    Floats,
    flag,
)

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class _Device:
    """One device of a part, without its samples; k intervals."""

    index: int
    sensor: str
    uuid: str | None
    recorded_j: Floats
    """Energy in each interval, (k,)."""
    covered_s: Floats
    """Seconds of each interval with a known power, (k,)."""
    samples: Mapping[str, int]
    """Number of samples by stage."""


@dataclass(frozen=True, eq=False)
class _Part:
    """One device kind of one node in one segment, without its samples."""

    segment: int
    node: str
    device_kind: str
    intervals: StageIntervals
    recorded_j: Floats | None = None
    """What was recorded in each interval; None without a sensor or an estimate."""
    discarded_j: Floats | None = None
    """The part of it that was lost work."""
    measured: tuple[_Device, ...] = ()
    """The devices with a power."""
    devices: int | None = None
    origin: str | None = None
    coverage: float | None = 0.0
    device_s: float = 0.0
    shared: bool = False
    unrecorded_s: float = 0.0
    period_s: float = 0.0
    """What its samples resolve in time; 0 without any."""
    flags: tuple[Flag, ...] = ()

    @property
    def sensors(self) -> int:
        """Return how many devices have a power."""
        return len(self.measured)


class EnergyRows:
    """Collects what nodes used, then states it per segment, node, device kind and stage.

    What may be stated is decided over the whole run: up to MAX_UNCOVERED of the device seconds of
    a kind may be without a known power.
    """

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._unrecorded: list[tuple[int, str, StageIntervals]] = []
        self._flags: dict[int, dict[str | None, list[Flag]]] = {}

    def add(
        self,
        segment: int,
        kind: KindEnergy,
        intervals: StageIntervals,
        lost: Window,
        unrecorded_s: float,
        flags: Sequence[Flag],
    ) -> None:
        """Add one device kind of one node with its own flags; what it did in the span `lost` was lost.

        `unrecorded_s`: how long the run was at work outside of the recording.
        """
        devices = _devices(kind, intervals)
        recorded_j = [one.recorded_j for one in devices]
        self._parts.append(
            _Part(
                segment,
                kind.node,
                kind.device_kind,
                intervals,
                recorded_j=np.sum(recorded_j, axis=0) if devices else None,
                discarded_j=kind.intervals_j(intervals.within(*lost)) if kind.series else None,
                measured=devices,
                devices=kind.devices,
                origin=kind.origin,
                coverage=kind.coverage,
                device_s=kind.device_s,
                shared=kind.shared,
                unrecorded_s=unrecorded_s,
                period_s=kind.period_s,
                flags=tuple(flags),
            )
        )

    def add_unrecorded(self, segment: int, node: str, intervals: StageIntervals) -> None:
        """Add a node that nothing was recorded of; its time is that of the events."""
        self._unrecorded.append((segment, node, intervals))

    def add_flags(self, flags: Sequence[Flag], segment: int, node: str | None = None) -> None:
        """Add flags of a segment, or of one of its nodes."""
        self._flags.setdefault(segment, {}).setdefault(node, []).extend(flags)

    def tables(self, spec: Planned, telemetry: list[pa.Table], cross_checks: list[Row]) -> Accounts:
        """Return the tables of the run of `spec`."""
        run = {"configuration": spec.configuration, "repeat": spec.repeat}
        parts = self._in_order()
        stated = _Stated(parts)

        def table(rows: Iterable[Row], schema: pa.Schema) -> pa.Table:
            return pa.Table.from_pylist([run | row for row in rows], schema=schema)

        return Accounts(
            energy=table((row for part in parts for row in _rows(part, stated)), ENERGY_SCHEMA),
            epochs=table(_epoch_rows(parts, stated), EPOCHS_SCHEMA),
            devices=table(
                (row for part in parts for row in _device_rows(part, stated)), DEVICES_SCHEMA
            ),
            flags=table(self._flag_rows(parts, stated), FLAGS_SCHEMA),
            telemetry=pa.concat_tables([TELEMETRY_SCHEMA.empty_table(), *telemetry]),
            cross_checks=table(cross_checks, CROSS_CHECKS_SCHEMA),
        )

    def _in_order(self) -> list[_Part]:
        """Return all parts, with those of unrecorded nodes, in the order of the rows.

        Their kinds are those of the run's other nodes, all three where there is no other.
        """
        present = {part.device_kind for part in self._parts if part.sensors}
        missing = [
            _Part(segment, node, kind, intervals)
            for segment, node, intervals in self._unrecorded
            for kind in DEVICE_KINDS
            if kind in present or not present
        ]
        parts = [*self._parts, *missing]
        order = {s: i for i, s in enumerate(dict.fromkeys(part.segment for part in parts))}
        return sorted(parts, key=lambda part: (order[part.segment], part.node, part.device_kind))

    def _flag_rows(self, parts: Sequence[_Part], stated: _Stated) -> Iterator[Row]:
        """Yield the flags in the order of the parts: of a segment, of its nodes, of their device kinds."""
        order = dict.fromkeys(part.segment for part in parts)
        left = {segment: dict(nodes) for segment, nodes in self._flags.items()}

        def of(segment: int, *nodes: str | None) -> Iterator[Row]:
            for node in nodes:
                for one in left.get(segment, {}).pop(node, []):
                    yield _flag_row(one, segment, node)

        for segment in [s for s in left if s not in order]:
            yield from of(segment, *left[segment])
        for segment in order:
            own = [part for part in parts if part.segment == segment]
            recorded = {part.node for part in own}
            yield from of(segment, None, *(n for n in left.get(segment, {}) if n not in recorded))
            for part in own:
                yield from of(segment, part.node)
                for one in _own_flags(part, stated):
                    yield _flag_row(one, segment, part.node, part.device_kind)
                for stage, one in _short_flags(part).items():
                    yield _flag_row(one, segment, part.node, part.device_kind, stage)


class _Stated:
    """What may be stated of each device kind of a run, by what is known of all its parts."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        kinds = {part.device_kind for part in parts}
        self._sensors = {
            kind: max(part.sensors for part in parts if part.device_kind == kind) for kind in kinds
        }
        recorded = [part for part in parts if part.sensors]
        self.coverage = {kind: self._covered(kind, parts) for kind in kinds}
        self._recorded = {kind: self._covered(kind, recorded) for kind in kinds}

    def is_absent(self, part: _Part) -> bool:
        """Return True if a part's kind is out of the run's scope: no node has anything of it."""
        return part.coverage is None and not self._sensors[part.device_kind]

    def is_missing(self, part: _Part) -> bool:
        """Return True if a node lacks a kind that others of the run have."""
        return part.coverage is None and not self.is_absent(part)

    def is_known(self, part: _Part) -> bool:
        """Return True if the energy of a part may be stated, whatever is unknown of other nodes."""
        if part.shared or not part.sensors:
            return False
        return self._recorded[part.device_kind] >= 1 - MAX_UNCOVERED

    def _covered(self, device_kind: str, parts: Sequence[_Part]) -> float:
        """Return the share of a kind's device seconds with a known power."""
        covered_s = device_s = 0.0
        for part in parts:
            if part.device_kind != device_kind or self.is_absent(part):
                continue
            if part.sensors:
                device_s += part.device_s
                covered_s += (part.coverage or 0.0) * part.device_s
            else:
                seconds = float(part.intervals.seconds.sum())
                device_s += seconds * max(self._sensors[device_kind], 1)
        return covered_s / device_s if device_s > 0 else 0.0


def _devices(kind: KindEnergy, intervals: StageIntervals) -> tuple[_Device, ...]:
    """Return what each device of a kind used in each interval."""
    samples: dict[int, dict[str, int]] = {}  # the sensors of a node share their times
    found = []
    for series, curve in zip(kind.series, kind.curves, strict=True):
        key = id(series.time_s)
        if key not in samples:
            samples[key] = intervals.samples_by_stage(series.time_s)
        covered_s = curve.covered_s(intervals.start_s, intervals.end_s)
        found.append(
            _Device(
                series.device_index,
                series.sensor,
                series.uuid,
                intervals.energy_j(curve),
                covered_s,
                samples[key],
            )
        )
    return tuple(found)


def _rows(part: _Part, stated: _Stated) -> list[Row]:
    """Return the rows of ENERGY_SCHEMA of a part, without the run's name."""
    known, intervals = stated.is_known(part), part.intervals
    seconds = intervals.by_stage(intervals.seconds)
    short = intervals.short_stages(part.period_s)
    recorded = {} if part.recorded_j is None else intervals.by_stage(part.recorded_j)
    discarded = {} if part.discarded_j is None else intervals.by_stage(part.discarded_j)
    same = {
        "segment": part.segment,
        "node": part.node,
        "device_kind": part.device_kind,
        "devices": part.devices,
        "unrecorded_s": part.unrecorded_s,
        "energy_origin": part.origin,
        "coverage": None if stated.is_absent(part) else stated.coverage[part.device_kind],
    }
    return [
        {
            "stage": stage,
            "duration_s": seconds[stage],
            "energy_j": recorded[stage] if known else None,
            "recorded_j": recorded.get(stage),
            "discarded_j": discarded[stage] if known else None,
            **same,
            "short": stage in short,
        }
        for stage in sorted(seconds, key=STAGES.index)
    ]


def _device_rows(part: _Part, stated: _Stated) -> Iterator[Row]:
    """Yield the rows of DEVICES_SCHEMA of a part, without the run's name."""
    known, intervals = stated.is_known(part), part.intervals
    seconds = intervals.by_stage(intervals.seconds)
    for one in part.measured:
        recorded = intervals.by_stage(one.recorded_j)
        covered = intervals.by_stage(one.covered_s)
        outside = {UNATTRIBUTED} if one.samples[UNATTRIBUTED] else set()
        for stage in sorted({*seconds, *outside}, key=STAGES.index):
            recorded_j, covered_s = recorded.get(stage, 0.0), covered.get(stage, 0.0)
            yield {
                "segment": part.segment,
                "node": part.node,
                "device_kind": part.device_kind,
                "device_index": one.index,
                "sensor": one.sensor,
                "uuid": one.uuid,
                "stage": stage,
                "duration_s": seconds.get(stage, 0.0),
                "covered_s": covered_s,
                "energy_j": recorded_j if known else None,
                "recorded_j": recorded_j,
                "mean_power_w": recorded_j / covered_s if covered_s > 0 else None,
                "samples": one.samples[stage],
                "energy_origin": part.origin,
            }


def _flag_row(
    one: Flag,
    segment: int,
    node: str | None,
    device_kind: str | None = None,
    stage: str | None = None,
) -> Row:
    """Return a row of FLAGS_SCHEMA, without the run's name."""
    return {
        "segment": segment,
        "node": node,
        "device_kind": device_kind,
        "stage": stage,
        "code": one["code"],
        "sensor": one["device"],
        "detail": one["detail"],
    }


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def _short_flags(part: _Part) -> dict[str, Flag]:
    """Return a flag for each stage of a part whose energy cannot be resolved."""
    short, resolved = part.intervals.short_stages(part.period_s), _seconds(part.period_s)
    detail = (
        f"{{}}: pieces of {{}} on average, resolved to {resolved}: "
        "their energy cannot be separated from that of the stages around them"
    )
    return {
        stage: flag("stage_short", None, detail.format(stage, _seconds(short[stage])))
        for stage in sorted(short, key=STAGES.index)
    }


def _own_flags(part: _Part, stated: _Stated) -> list[Flag]:
    if not stated.is_missing(part):
        return list(part.flags)
    detail = f"{part.node}: no {part.device_kind} sensor, but other nodes of the run have one"
    others = [one for one in part.flags if one["code"] != "absent"]
    return [*others, flag("kind_missing", None, detail)]


def _epoch_rows(parts: Sequence[_Part], stated: _Stated) -> list[Row]:
    """Return the rows of EPOCHS_SCHEMA, without the run's name, outside of all epochs first."""
    import pandas as pd

    rows = []
    for part in parts:
        if stated.is_absent(part):
            continue
        nothing = np.zeros(part.intervals.start_s.shape)
        energies = part.intervals.by_epoch(nothing if part.recorded_j is None else part.recorded_j)
        short, known = part.intervals.short_epochs(part.period_s), stated.is_known(part)
        for (epoch, stage), seconds in part.intervals.by_epoch(part.intervals.seconds).items():
            key = -1 if epoch is None else epoch, STAGES.index(stage), part.device_kind
            is_short = (epoch, stage) in short
            rows.append((*key, seconds, energies[epoch, stage], known, is_short, part.origin or ""))
    keys = ["epoch", "stage", "device_kind"]
    names = [*keys, "node_s", "energy_j", "known", "short", "origin"]
    sums: Row = {"node_s": "sum", "energy_j": "sum", "known": "all", "short": "any", "origin": set}
    found = pd.DataFrame(rows, columns=names).groupby(keys).agg(sums).reset_index()
    return [
        {
            "epoch": None if row["epoch"] < 0 else row["epoch"],
            "stage": STAGES[row["stage"]],
            "device_kind": row["device_kind"],
            "node_s": row["node_s"],
            "energy_j": row["energy_j"] if row["known"] else None,
            "short": row["short"],
            "energy_origin": _origin(row["origin"]),
        }
        for row in found.to_dict("records")
    ]


def _origin(origins: set[str]) -> str | None:
    known = origins - {""}
    return known.pop() if len(known) == 1 else ("mixed" if known else None)
