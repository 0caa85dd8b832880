"""The rows of a run's energy tables, as its nodes are accounted for."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from scalewatt.energy.node import MAX_UNCOVERED, KindEnergy, Window
from scalewatt.energy.samples import DEVICE_KINDS, Flag
from scalewatt.energy.stages import STAGES, StageIntervals, tile_window
from scalewatt.energy.tables import (
    CONDITIONS_SCHEMA,
    ENERGY_SCHEMA,
    EPOCHS_SCHEMA,
    SECOND_OPINIONS_SCHEMA,
    Accounts,
)


class Known:
    """Decides, over all nodes and segments of a run, which device kinds' energy may be stated.

    Up to MAX_UNCOVERED of a kind's device seconds may be without a known power. A kind is unknown
    where a node's is altogether, or where another run was measured beside.
    """

    def __init__(self) -> None:
        self._unknown: set[str] = set()
        self._device_s: dict[str, float] = {}
        self._covered_s: dict[str, float] = {}

    def add(self, kind: KindEnergy) -> None:
        """Take one node in one segment into account."""
        name = kind.device_kind
        if kind.shared or (kind.coverage is not None and not kind.series):
            self._unknown.add(name)
        self._device_s[name] = self._device_s.get(name, 0.0) + kind.device_s
        covered = (kind.coverage or 0.0) * kind.device_s
        self._covered_s[name] = self._covered_s.get(name, 0.0) + covered

    def lose(self, device_kind: str) -> None:
        """Note a kind of a node that nothing was recorded of."""
        self._unknown.add(device_kind)
        self._device_s.setdefault(device_kind, 0.0)

    def coverage(self, device_kind: str) -> float:
        """Share of the kind's device seconds with a known power."""
        device_s = self._device_s.get(device_kind, 0.0)
        return self._covered_s.get(device_kind, 0.0) / device_s if device_s > 0 else 0.0

    def enough(self, device_kind: str) -> bool:
        """Whether enough is covered to state what was recorded of the kind."""
        return self.coverage(device_kind) >= 1 - MAX_UNCOVERED

    def __call__(self, device_kind: str) -> bool:
        """Whether the kind's energy over all nodes and segments may be stated."""
        return self.enough(device_kind) and device_kind not in self._unknown


class EnergyRows:
    """Collects rows per segment, node, device kind and stage, and sums per epoch."""

    def __init__(self) -> None:
        self._known = Known()
        self._rows: list[dict[str, Any]] = []
        self._epochs: dict[tuple[int | None, str, str], dict[str, Any]] = {}

    def add(
        self,
        segment: int,
        kind: KindEnergy,
        intervals: StageIntervals,
        lost: Window,
        flags: list[Flag],
    ) -> None:
        """Add one device kind of one node; what it did in the span `lost` was done in vain."""
        recorded = kind.intervals_j(intervals)
        seconds = intervals.by_stage(intervals.seconds)
        energies = intervals.by_stage(recorded)
        discarded = intervals.by_stage(kind.intervals_j(intervals.within(*lost)))
        self._known.add(kind)
        for stage, length in seconds.items():
            self._rows.append(
                {
                    "segment": segment,
                    "node": kind.node,
                    "device_kind": kind.device_kind,
                    "devices": kind.devices,
                    "stage": stage,
                    "duration_s": length,
                    "recorded_j": energies[stage] if kind.series else None,
                    "discarded_j": discarded[stage] if kind.series else None,
                    "energy_origin": kind.origin,
                    "absent": kind.coverage is None,
                    "unknown": kind.shared or not kind.series,
                    "flags": list(flags),
                }
            )
        self._add_epochs(kind, intervals.by_epoch(intervals.seconds), intervals.by_epoch(recorded))

    def _add_epochs(
        self,
        kind: KindEnergy,
        seconds: dict[tuple[int | None, str], float],
        energies: dict[tuple[int | None, str], float],
    ) -> None:
        if kind.coverage is None:  # absent: out of the run's scope
            return
        for (epoch, stage), length in seconds.items():
            key = epoch, stage, kind.device_kind
            row = self._epochs.setdefault(key, {"node_s": 0.0, "energy_j": 0.0, "origins": set()})
            row["node_s"] += length
            row["energy_j"] += energies[epoch, stage]
            row["origins"].add(kind.origin)

    def add_unrecorded(self, segment: int, node: str, events: list[dict[str, Any]]) -> None:
        """Add a node that nothing was recorded of: seconds by the events, energy unknown.

        Its kinds are those of the segment's other nodes, all three where there is no other.
        """
        ended = [e for e in events if e["end_s"] != float("inf")]
        window = (0.0, 0.0)
        if ended:
            window = float(ended[0]["start_s"]), max(float(e["end_s"]) for e in ended)
        intervals, _ = tile_window(ended, window)
        present = {
            row["device_kind"]
            for row in self._rows
            if row["segment"] == segment and row["energy_origin"] is not None
        }
        unknown = ("devices", "recorded_j", "discarded_j", "energy_origin")
        for kind in DEVICE_KINDS:
            if present and kind not in present:
                continue
            self._known.lose(kind)
            for stage, length in intervals.by_stage(intervals.seconds).items():
                self._rows.append(
                    dict.fromkeys(unknown)
                    | {
                        "segment": segment,
                        "node": node,
                        "device_kind": kind,
                        "stage": stage,
                        "duration_s": length,
                        "absent": False,
                        "unknown": True,
                        "flags": [],
                    }
                )
            for (epoch, stage), length in intervals.by_epoch(intervals.seconds).items():
                row = self._epochs.setdefault(
                    (epoch, stage, kind), {"node_s": 0.0, "energy_j": 0.0, "origins": set()}
                )
                row["node_s"] += length

    def flag_segment(self, segment: int, flags: list[Flag]) -> None:
        """Put flags in front of those of all rows of a segment."""
        for row in self._rows:
            if row["segment"] == segment:
                row["flags"] = [*flags, *row["flags"]]

    def tables(
        self, spec: dict[str, Any], states: list[pa.Table], opinions: list[dict[str, Any]]
    ) -> Accounts:
        """Return the tables of the run of `spec`."""
        run = {"configuration": spec["configuration"], "repeat": spec["repeat"]}
        order = {s: i for i, s in enumerate(dict.fromkeys(r["segment"] for r in self._rows))}
        rows = sorted(
            self._rows,
            key=lambda row: (
                order[row["segment"]],
                row["node"],
                row["device_kind"],
                STAGES.index(row["stage"]),
            ),
        )
        energy = [run | self._stated(row) for row in rows]
        epochs = [
            run
            | {"epoch": epoch, "stage": stage, "device_kind": kind}
            | row
            | {"energy_j": row["energy_j"] if self._known(kind) else None}
            | {"energy_origin": _origin(row["origins"])}
            for (epoch, stage, kind), row in sorted(self._epochs.items(), key=_epoch_order)
        ]
        return Accounts(
            energy=pa.Table.from_pylist(energy, schema=ENERGY_SCHEMA),
            epochs=pa.Table.from_pylist(epochs, schema=EPOCHS_SCHEMA),
            conditions=pa.concat_tables([CONDITIONS_SCHEMA.empty_table(), *states]),
            second_opinions=pa.Table.from_pylist(
                [run | row for row in opinions], schema=SECOND_OPINIONS_SCHEMA
            ),
        )

    def _stated(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row with what may be stated of it."""
        kind, absent = row["device_kind"], row["absent"]
        known = self._known.enough(kind) and not row["unknown"]
        return row | {
            "energy_j": row["recorded_j"] if known else None,
            "discarded_j": row["discarded_j"] if known else None,
            "coverage": None if absent else self._known.coverage(kind),
            "flags": json.dumps(row["flags"], ensure_ascii=False),
        }


def _epoch_order(item: tuple[tuple[int | None, str, str], Any]) -> tuple[int, int, str]:
    epoch, stage, kind = item[0]
    return -1 if epoch is None else epoch, STAGES.index(stage), kind


def _origin(origins: set[str | None]) -> str | None:
    known = origins - {None}
    return known.pop() if len(known) == 1 else ("mixed" if known else None)
