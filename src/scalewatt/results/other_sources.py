"""The same energies by other sources: all runs' cross-checks, summed over the nodes and segments of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from scalewatt.energies.checks import METERS, NODE_METER
from scalewatt.energies.tables import CROSS_CHECKS_SCHEMA, known_sum
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.columns import schema
from scalewatt.results.tables.frames import frame_of, records
from scalewatt.results.tables.read_table import read_checked
from scalewatt.results.tables.run_row import RunFiles

Row = dict[str, Any]

CROSS_CHECKS = schema("cross_checks")
"""One row per run, source and device kind."""
_KEYS = ("configuration", "repeat", "source", "device_kind")
_RUN = ("campaign", "configuration", "model", "device", "gpus", "nodes", "repeat")


def cross_checks_of(runs: pd.DataFrame, files: Iterable[RunFiles]) -> pd.DataFrame:
    """Return the table CROSS_CHECKS of runs (a table RUNS) from their energy tables.

    InputError if a run's table is damaged.
    """
    rows: list[Row] = []
    for one in files:
        path = one.energy.with_name(f"{one.repeat}.cross-checks.parquet")
        if path.is_file():
            rows += read_checked(path, CROSS_CHECKS_SCHEMA).to_pylist()
    named = {(run["configuration"], run["repeat"]): run for run in records(runs[list(_RUN)])}
    groups: dict[tuple[Any, ...], list[Row]] = {}
    segments: dict[tuple[Any, ...], set[int]] = {}
    for row in rows:
        run = row["configuration"], row["repeat"]
        if run in named:
            groups.setdefault(tuple(row[key] for key in _KEYS), []).append(row)
            segments.setdefault(run, set()).add(row["segment"])
    found = [
        {
            **named[key[0], key[1]],
            **dict(zip(_KEYS, key, strict=True)),
            **sums_of(own, named[key[0], key[1]]["nodes"] or 0, segments[key[:2]]),
        }
        for key, own in groups.items()
    ]
    return frame_of(found, CROSS_CHECKS)


def sums_of(rows: Sequence[Row], nodes: int, segments: Iterable[int]) -> Row:
    """Return the sums of one source's rows over the nodes and segments of a run.

    The energy is null if that of one row is, or if a meter of nodes is not on all nodes in all segments;
    what was recorded also where it is of other device kinds on one node than on another.
    """
    energy_j = known_sum(row["energy_j"] for row in rows)
    if rows[0]["source"] in (*METERS.values(), NODE_METER) and not _is_everywhere(
        rows, nodes, segments
    ):
        energy_j = None
    scopes = {row["recorded_scope"] for row in rows}
    recorded_j = known_sum(row["recorded_j"] for row in rows) if len(scopes) == 1 else None
    extra_w = None
    node_s = sum(row["duration_s"] for row in rows)
    if None not in (*scopes, energy_j, recorded_j) and node_s > 0:
        extra_w = ((energy_j or 0.0) - (recorded_j or 0.0)) / node_s
    return {
        "checks": len(rows),
        "duration_s": max(row["duration_s"] for row in rows),
        "energy_kwh": _kwh(energy_j),
        "recorded_kwh": _kwh(recorded_j),
        "difference": energy_j / recorded_j - 1 if energy_j is not None and recorded_j else None,
        "recorded_scope": scopes.pop() if recorded_j is not None else None,
        "extra_w": extra_w,
    }


def _is_everywhere(rows: Sequence[Row], nodes: int, segments: Iterable[int]) -> bool:
    places = {(row["segment"], row["node"]) for row in rows}
    return all(sum(s == segment for s, _ in places) >= nodes for segment in segments)


def _kwh(joules: float | None) -> float | None:
    return None if joules is None else joules / J_PER_KWH
