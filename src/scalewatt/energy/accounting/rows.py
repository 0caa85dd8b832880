"""The rows of a run's energy tables, as its nodes are accounted for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from scalewatt.energy.accounting.energy_schema import (
    CONDITIONS_SCHEMA,
    ENERGY_SCHEMA,
    EPOCHS_SCHEMA,
    SECOND_OPINIONS_SCHEMA,
    Accounts,
)
from scalewatt.energy.accounting.node_energy import MAX_UNCOVERED, KindEnergy, Window
from scalewatt.energy.integration.stage_intervals import STAGES, StageIntervals
from scalewatt.recordings.series import DEVICE_KINDS, Flag, Floats, flag


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
    """The part of it that was done in vain."""
    devices: int | None = None
    sensors: int = 0
    origin: str | None = None
    coverage: float | None = 0.0
    device_s: float = 0.0
    shared: bool = False
    unrecorded_s: float = 0.0
    period_s: float = 0.0
    """What its samples resolve in time; 0 without any."""
    flags: tuple[Flag, ...] = ()


class EnergyRows:
    """Collects what nodes used, then states it per segment, node, device kind and stage.

    What may be stated is decided over the whole run: up to MAX_UNCOVERED of the device seconds of
    a kind may be without a known power.
    """

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._unrecorded: list[tuple[int, str, StageIntervals]] = []
        self._flags: dict[int, list[Flag]] = {}

    def add(
        self,
        segment: int,
        kind: KindEnergy,
        intervals: StageIntervals,
        lost: Window,
        unrecorded_s: float,
        flags: Sequence[Flag],
    ) -> None:
        """Add one device kind of one node; what it did in the span `lost` was done in vain.

        `unrecorded_s`: how long the run was at work outside of the recording.
        """
        self._parts.append(
            _Part(
                segment,
                kind.node,
                kind.device_kind,
                intervals,
                recorded_j=kind.intervals_j(intervals) if kind.series else None,
                discarded_j=kind.intervals_j(intervals.within(*lost)) if kind.series else None,
                devices=kind.devices,
                sensors=len(kind.series),
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

    def flag_segment(self, segment: int, flags: Sequence[Flag]) -> None:
        """Add flags to all rows of a segment; of a segment without rows, to those of the run."""
        self._flags.setdefault(segment, []).extend(flags)

    def tables(
        self, spec: dict[str, Any], states: list[pa.Table], opinions: list[dict[str, Any]]
    ) -> Accounts:
        """Return the tables of the run of `spec`."""
        run = {"configuration": spec.get("configuration"), "repeat": spec.get("repeat")}
        parts = self._in_order()
        stated = _Stated(parts)
        flags = self._flags_by_segment({part.segment for part in parts})
        rows = [run | row for part in parts for row in _rows(part, stated, flags[part.segment])]
        epochs = [run | row for row in _epoch_rows(parts, stated)]
        return Accounts(
            energy=pa.Table.from_pylist(rows, schema=ENERGY_SCHEMA),
            epochs=pa.Table.from_pylist(epochs, schema=EPOCHS_SCHEMA),
            conditions=pa.concat_tables([CONDITIONS_SCHEMA.empty_table(), *states]),
            second_opinions=pa.Table.from_pylist(
                [run | row for row in opinions], schema=SECOND_OPINIONS_SCHEMA
            ),
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

    def _flags_by_segment(self, segments: set[int]) -> dict[int, list[Flag]]:
        """Return the flags of each segment that has rows; those of others go to all of them."""
        others = [f for s, flags in self._flags.items() if s not in segments for f in flags]
        return {segment: [*others, *self._flags.get(segment, [])] for segment in segments}


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
        """Whether a part's kind is out of the run's scope: no node has anything of it."""
        return part.coverage is None and not self._sensors[part.device_kind]

    def is_missing(self, part: _Part) -> bool:
        """Whether a node lacks a kind that others of the run have."""
        return part.coverage is None and not self.is_absent(part)

    def is_known(self, part: _Part) -> bool:
        """Whether the energy of a part may be stated, whatever is unknown of other nodes."""
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


def _rows(part: _Part, stated: _Stated, flags: Sequence[Flag]) -> list[dict[str, Any]]:
    """Return the rows of ENERGY_SCHEMA of a part, without the run's name."""
    known, intervals = stated.is_known(part), part.intervals
    seconds = intervals.by_stage(intervals.seconds)
    short = intervals.short_stages(part.period_s)
    own = [*flags, *_own_flags(part, stated)]
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
            "flags": json.dumps(
                [*own, *_short_flags(stage, short, part.period_s)], ensure_ascii=False
            ),
        }
        for stage in sorted(seconds, key=STAGES.index)
    ]


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def _short_flags(stage: str, short: Mapping[str, float], period_s: float) -> list[Flag]:
    if stage not in short:
        return []
    detail = (
        f"{stage}: {_seconds(short[stage])} at a time in the mean, known to {_seconds(period_s)}: its "
        "short pieces cannot be told in energy from the stages around them"
    )
    return [flag("stage_short", None, detail)]


def _own_flags(part: _Part, stated: _Stated) -> list[Flag]:
    if not stated.is_missing(part):
        return list(part.flags)
    detail = f"{part.node}: no {part.device_kind} sensor, but other nodes of the run have one"
    others = [one for one in part.flags if one["code"] != "absent"]
    return [*others, flag("kind_missing", None, detail)]


def _epoch_rows(parts: Sequence[_Part], stated: _Stated) -> list[dict[str, Any]]:
    """Return the rows of EPOCHS_SCHEMA, without the run's name."""
    sums: dict[tuple[int | None, str, str], dict[str, Any]] = {}
    for part in parts:
        if stated.is_absent(part):
            continue
        nothing = np.zeros(part.intervals.start_s.shape)
        recorded = nothing if part.recorded_j is None else part.recorded_j
        energies = part.intervals.by_epoch(recorded)
        short = part.intervals.short_epochs(part.period_s)
        for (epoch, stage), seconds in part.intervals.by_epoch(part.intervals.seconds).items():
            row = sums.setdefault(
                (epoch, stage, part.device_kind),
                {"node_s": 0.0, "energy_j": 0.0, "known": True, "short": False, "origins": set()},
            )
            row["node_s"] += seconds
            row["energy_j"] += energies[epoch, stage]
            row["known"] &= stated.is_known(part)
            row["short"] |= (epoch, stage) in short
            row["origins"].add(part.origin)
    return [
        {
            "epoch": epoch,
            "stage": stage,
            "device_kind": kind,
            "node_s": row["node_s"],
            "energy_j": row["energy_j"] if row["known"] else None,
            "short": row["short"],
            "energy_origin": _origin(row["origins"]),
        }
        for (epoch, stage, kind), row in sorted(sums.items(), key=_epoch_order)
    ]


def _epoch_order(item: tuple[tuple[int | None, str, str], Any]) -> tuple[int, int, str]:
    epoch, stage, kind = item[0]
    return -1 if epoch is None else epoch, STAGES.index(stage), kind


def _origin(origins: set[str | None]) -> str | None:
    known = origins - {None}
    return known.pop() if len(known) == 1 else ("mixed" if known else None)
