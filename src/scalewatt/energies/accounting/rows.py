"""The rows of a run's energy tables, as its nodes are accounted for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from scalewatt.energies.accounting.duplicates import Originals, duplicate_flags
from scalewatt.energies.accounting.energy_schema import (
    CROSS_CHECKS_SCHEMA,
    DEVICES_SCHEMA,
    ENERGY_SCHEMA,
    EPOCHS_SCHEMA,
    FLAGS_SCHEMA,
    TELEMETRY_SCHEMA,
    Accounts,
)
from scalewatt.energies.accounting.epoch_rows import EpochParts, StatedEpochs, epoch_rows
from scalewatt.energies.accounting.node_energy import (
    LEAST_OF_A_NODE,
    MAX_UNCOVERED,
    KindEnergy,
    Window,
)
from scalewatt.energies.accounting.run_inputs import Planned
from scalewatt.energies.stages import STAGES, UNATTRIBUTED, StageIntervals
from scalewatt.recordings.series import DEVICE_KINDS, NODE, Flag, Floats, flag

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class _Part:
    """One device kind of one node in one segment: its rows, before it is known what may be stated."""

    segment: int
    kind: KindEnergy
    """Without its samples."""
    sensors: int
    """How many devices have a power."""
    seconds: float
    stages: list[Row]
    epochs: EpochParts
    devices: list[Row]
    """One row per device and stage."""
    flags: tuple[Flag, ...] = ()
    short: dict[str, float] = field(default_factory=dict)
    """Stages that the samples do not resolve, with the mean length in s of their pieces."""

    @property
    def place(self) -> Row:
        """Return the columns that all of its rows share."""
        kind = self.kind
        return {"segment": self.segment, "node": kind.node, "device_kind": kind.device_kind}


class EnergyRows:
    """Collects what nodes used, then states it per segment, node, device kind and stage.

    What may be stated is decided over the whole run: up to MAX_UNCOVERED of the device seconds of a kind
    may be without a known power, of one node or of all together, and what they can have cost is in its
    interval. But a node that lacks more than LEAST_OF_A_NODE leaves was not recorded.
    """

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._recorded: dict[tuple[int, str], tuple[StageIntervals, float]] = {}
        """The time of each node in each segment, and how long it was at work outside of it."""
        self._unrecorded: list[tuple[int, str, StageIntervals]] = []
        self._flags: dict[int, dict[str | None, list[Flag]]] = {}
        self.ends: dict[str, float] = {}
        """Until when each node's time has been counted."""
        self._originals = Originals()
        self.telemetry: list[pa.Table] = []
        self.cross_checks: list[Row] = []

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
        copies = [self._originals.original_of(segment, one) for one in kind.series]
        part = _part(segment, kind, intervals, lost, unrecorded_s, tuple(flags), copies)
        self._parts.append(part)
        self._recorded[segment, kind.node] = intervals, unrecorded_s

    def add_unrecorded(self, segment: int, node: str, intervals: StageIntervals) -> None:
        """Add a node that nothing was recorded of; its time is that of the events."""
        self._unrecorded.append((segment, node, intervals))

    def add_flags(self, flags: Sequence[Flag], segment: int, node: str | None = None) -> None:
        """Add flags of a segment, or of one of its nodes."""
        self._flags.setdefault(segment, {}).setdefault(node, []).extend(flags)

    def tables(self, spec: Planned) -> Accounts:
        """Return the tables of the run of `spec`."""
        run = {"configuration": spec.configuration, "repeat": spec.repeat}
        parts = self._in_order()
        stated = _Stated(parts)
        for segment, one in duplicate_flags(
            row | part.place for part in parts for row in part.devices
        ):
            self.add_flags([one], segment)

        def table(rows: Iterable[Row], schema: pa.Schema) -> pa.Table:
            return pa.Table.from_pylist([run | row for row in rows], schema=schema)

        return Accounts(
            energy=table(stated.rows(parts, "stages"), ENERGY_SCHEMA),
            epochs=table(epoch_rows(stated.epochs(parts)), EPOCHS_SCHEMA),
            devices=table(stated.rows(parts, "devices"), DEVICES_SCHEMA),
            flags=table(self._flag_rows(parts, stated), FLAGS_SCHEMA),
            telemetry=pa.concat_tables([TELEMETRY_SCHEMA.empty_table(), *self.telemetry]),
            cross_checks=table(self.cross_checks, CROSS_CHECKS_SCHEMA),
        )

    def _in_order(self) -> list[_Part]:
        """Return all parts, with those of unrecorded nodes and missing meters, in the order of the rows.

        The kinds of unrecorded nodes are those of the run's other nodes, all three where there is no other.
        """
        present = {part.kind.device_kind for part in self._parts if part.sensors}
        missing = [
            _part(segment, KindEnergy(node, kind, (), (), None, None, 0.0, ()), intervals)
            for segment, node, intervals in self._unrecorded
            for kind in (*DEVICE_KINDS, NODE)
            if kind in present or (not present and kind != NODE)
        ]
        parts = [*self._parts, *(self._without_meters() if NODE in present else ()), *missing]
        order = {s: i for i, s in enumerate(dict.fromkeys(part.segment for part in parts))}
        return sorted(
            parts, key=lambda part: (order[part.segment], part.kind.node, part.kind.device_kind)
        )

    def _without_meters(self) -> Iterator[_Part]:
        """Yield the missing whole of each recorded node without a meter."""
        metered = {(p.segment, p.kind.node) for p in self._parts if p.kind.device_kind == NODE}
        for (segment, node), (intervals, unrecorded_s) in self._recorded.items():
            if (segment, node) not in metered:
                nothing = KindEnergy(node, NODE, (), (), 0, None, None, ())
                yield _part(segment, nothing, intervals, unrecorded_s=unrecorded_s)

    def _flag_rows(self, parts: Sequence[_Part], stated: _Stated) -> Iterator[Row]:
        """Yield the flags in the order of the parts: of a segment, of its nodes, of their device kinds."""
        order = dict.fromkeys(part.segment for part in parts)
        left = {segment: dict(nodes) for segment, nodes in self._flags.items()}

        def of(segment: int, *nodes: str | None) -> Iterator[Row]:
            for node in nodes:
                for one in left.get(segment, {}).pop(node, []):
                    yield _flag_row(one, {"segment": segment, "node": node})

        for segment in [s for s in left if s not in order]:
            yield from of(segment, *left[segment])
        for segment in order:
            own = [part for part in parts if part.segment == segment]
            recorded = {part.kind.node for part in own}
            yield from of(segment, None, *(n for n in left.get(segment, {}) if n not in recorded))
            for part in own:
                yield from of(segment, part.kind.node)
                for one in _own_flags(part, stated):
                    yield _flag_row(one, part.place)
                for stage, one in _short_flags(part).items():
                    yield _flag_row(one, {**part.place, "stage": stage})


def _part(
    segment: int,
    kind: KindEnergy,
    intervals: StageIntervals,
    lost: Window = (0.0, 0.0),
    unrecorded_s: float = 0.0,
    flags: tuple[Flag, ...] = (),
    copies: Sequence[str | None] = (),
) -> _Part:
    """Return the rows of a device kind, of which `recorded_j` and `discarded_j` are null without a power.

    What it can have used in the time `unrecorded_s` is `unattributed`.
    """
    if kind.series and unrecorded_s and intervals.start_s.size:
        rows = zip(*(v.tolist() for v in vars(intervals).values()), strict=True)
        begin_s = float(intervals.start_s[0])
        intervals = StageIntervals.of([(UNATTRIBUTED, None, begin_s, begin_s), *rows])
    found = {"duration_s": intervals.seconds}
    each = kind.intervals_j(intervals, unrecorded_s)
    if kind.series:
        found |= zip(
            ("recorded_j", "low_j", "high_j"), (one.sum(axis=0) for one in each), strict=True
        )
        if kind.lacking:
            expected_s = intervals.seconds.copy()
            expected_s[:1] += unrecorded_s
            found["high_j"] += kind.lacking_w * expected_s
        found["discarded_j"] = np.zeros(intervals.start_s.size)
        if lost[0] < lost[1]:
            found["discarded_j"] = kind.intervals_j(intervals.within(*lost))[0].sum(axis=0)
    short = intervals.short_stages(kind.period_s)
    by_stage = {name: intervals.by_stage(values) for name, values in found.items()}
    same = {"devices": kind.devices, "unrecorded_s": unrecorded_s}
    return _Part(
        segment,
        replace(kind, series=(), validated=(), bounds=()),
        len(kind.series),
        float(intervals.seconds.sum()),
        stages=[
            {
                **same,
                "stage": stage,
                **{name: values[stage] for name, values in by_stage.items()},
                "short": stage in short,
            }
            for stage in sorted(by_stage["duration_s"], key=STAGES.index)
        ],
        epochs=EpochParts.of(intervals, found, kind.period_s),
        devices=list(_devices(kind, intervals, each, copies)),
        flags=flags,
        short=short,
    )


def _devices(
    kind: KindEnergy,
    intervals: StageIntervals,
    each: tuple[Floats, Floats, Floats],
    copies: Sequence[str | None],
) -> Iterator[Row]:
    """Yield what each device of a kind used in each stage; `copies`: what each repeats, or None.

    `each`: what was recorded of each device in each interval, with its ends.
    """
    seconds = intervals.by_stage(intervals.seconds)
    samples: dict[int, dict[str, int]] = {}  # the sensors of a node share their times
    together = zip(kind.series, kind.curves, copies, *each, strict=True)
    for series, curve, copy_of, *energies in together:
        if (key := id(series.time_s)) not in samples:
            of_stages = np.bincount(intervals.codes_at(series.time_s), minlength=len(STAGES))
            samples[key] = dict(zip(STAGES, of_stages.tolist(), strict=True))
        counts = samples[key]
        recorded, low, high = map(intervals.by_stage, energies)
        covered = intervals.by_stage(intervals.covered_s(curve))
        outside = {UNATTRIBUTED} if counts[UNATTRIBUTED] else set()
        for stage in sorted({*seconds, *outside}, key=STAGES.index):
            recorded_j, covered_s = recorded.get(stage, 0.0), covered.get(stage, 0.0)
            yield {
                "device_index": series.device_index,
                "sensor": series.sensor,
                "uuid": series.uuid,
                "stage": stage,
                "duration_s": seconds.get(stage, 0.0),
                "covered_s": covered_s,
                "recorded_j": recorded_j,
                "low_j": low.get(stage, 0.0),
                "high_j": high.get(stage, 0.0),
                "mean_power_w": recorded_j / covered_s if covered_s > 0 else None,
                "samples": counts[stage],
                "copy_of": copy_of,
            }


class _Stated:
    """The device kinds of a run whose energy can be stated, from all parts of the run."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._sensors: dict[str, int] = {}
        of_kind: dict[str, list[_Part]] = {}
        of_node: dict[tuple[str, str], list[_Part]] = {}
        for part in parts:
            kind = part.kind.device_kind
            self._sensors[kind] = max(part.sensors, self._sensors.get(kind, 0))
            of_kind.setdefault(kind, []).append(part)
            if part.sensors:
                of_node.setdefault((part.kind.node, kind), []).append(part)
        self._coverage = {kind: self._covered(own) for kind, own in of_kind.items()}
        recorded = {kind: [one for one in own if one.sensors] for kind, own in of_kind.items()}
        self._recorded = {kind: self._covered(own) for kind, own in recorded.items()}
        self._of_nodes = {place: self._covered(own) for place, own in of_node.items()}

    def rows(self, parts: Iterable[_Part], name: str) -> Iterator[Row]:
        """Yield the rows of the parts (`stages` or `devices`) with what may be stated."""
        for part in parts:
            absent, counted = self._is_absent(part), self._is_known(part)
            for row in getattr(part, name):
                known = counted and (row["stage"] != "stage_data" or part.kind.uncounted_known)
                yield {
                    **part.place,
                    **row,
                    "energy_j": row["recorded_j"] if known else None,
                    "energy_low_j": row["low_j"] if known else None,
                    "energy_high_j": row["high_j"] if known else None,
                    "discarded_j": row.get("discarded_j") if known else None,
                    "energy_origin": part.kind.origin,
                    "coverage": None if absent else self._coverage[part.kind.device_kind],
                }

    def epochs(self, parts: Iterable[_Part]) -> Iterator[StatedEpochs]:
        """Yield the epochs of the parts in the run's scope, with what may be stated."""
        for part in parts:
            if not self._is_absent(part):
                kind = part.kind
                known = part.epochs.known(self._is_known(part), kind.uncounted_known)
                yield StatedEpochs(kind.device_kind, kind.origin or "", known, part.epochs)

    def is_missing(self, part: _Part) -> bool:
        """Return True if a node lacks a kind that others of the run have."""
        return part.kind.coverage is None and not self._is_absent(part)

    def _is_absent(self, part: _Part) -> bool:
        """Return True if a part's kind is out of the run's scope: no node has anything of it."""
        return part.kind.coverage is None and not self._sensors[part.kind.device_kind]

    def _is_known(self, part: _Part) -> bool:
        """Return True if the energy of a part may be stated, whatever is unknown of other nodes."""
        kind = part.kind
        if kind.shared or not part.sensors:
            return False
        own = self._of_nodes[kind.node, kind.device_kind]
        of_all = self._recorded[kind.device_kind]
        return own >= LEAST_OF_A_NODE and max(own, of_all) >= 1 - MAX_UNCOVERED

    def _covered(self, parts: Sequence[_Part]) -> float:
        """Return the share of the device seconds of parts of one kind that have a known power."""
        covered_s = device_s = 0.0
        for part in parts:
            if self._is_absent(part):
                continue
            if part.sensors:
                device_s += part.kind.device_s
                covered_s += (part.kind.coverage or 0.0) * part.kind.device_s
            else:
                device_s += part.seconds * max(self._sensors[part.kind.device_kind], 1)
        if device_s > 0:
            return covered_s / device_s
        return max((part.kind.coverage or 0.0 for part in parts), default=0.0)


def _flag_row(one: Flag, place: Row) -> Row:
    """Return a row of FLAGS_SCHEMA, without the run's name; null what `place` does not name."""
    return {**place, "code": one["code"], "sensor": one["device"], "detail": one["detail"]}


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def _short_flags(part: _Part) -> dict[str, Flag]:
    """Return a flag for each stage of a part whose energy cannot be resolved."""
    detail = (
        f"{{}}: pieces of {{}} on average, {part.kind.device_kind} resolved to "
        f"{_seconds(part.kind.period_s)}: "
        "their energy cannot be separated from that of the stages around them"
    )
    return {
        stage: flag("stage_short", None, detail.format(stage, _seconds(part.short[stage])))
        for stage in sorted(part.short, key=STAGES.index)
    }


def _own_flags(part: _Part, stated: _Stated) -> list[Flag]:
    if not stated.is_missing(part):
        return list(part.flags)
    kind = part.kind
    detail = f"{kind.node}: no {kind.device_kind} sensor, but other nodes of the run have one"
    others = [one for one in part.flags if one["code"] != "absent"]
    return [*others, flag("not_recorded", None, detail)]
