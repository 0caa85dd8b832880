"""How far training had come for what energy and time: the metric after each epoch of each run.

Energy and time count from the start of the run. An epoch's are all that was used on it, what a
killed segment lost and did again included; what belongs to no epoch is where its segment stands:
start-up and staging before the segment's epochs, the rest after them. What a stage used outside of
all epochs although it has some comes before the first epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.run_spec import read_spec
from scalewatt.energies.tables import BOUNDS, EPOCHS_SCHEMA, EnergyTotals, known_sum
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.figures.breakdown_table import counted_repeats
from scalewatt.results.figures.figure_schema import COPIED, LEARNING
from scalewatt.results.tables.estimates import ORIGINS
from scalewatt.results.tables.frames import frame_of, records
from scalewatt.results.tables.read_table import read_checked
from scalewatt.results.tables.run_row import RunFiles, read_energy, read_history
from scalewatt.results.tables.scaling import lines_of

Row = dict[str, Any]

_BEFORE = ("startup", "stage_data")
"""Stages outside of all epochs that come before a segment's epochs; the others come after."""
_ENERGIES = ("energy_kwh", "energy_kwh_estimate_low", "energy_kwh_estimate_high")


@dataclass(frozen=True)
class Usage:
    """A run's use of energy or time, in its own unit; unknown parts are null."""

    epochs: dict[int, float | None]
    before: dict[int, float]
    """By segment, ahead of its epochs."""
    after: dict[int, float]
    """By segment, behind its epochs."""


def learning(
    definition: dict[str, Any], configurations: pd.DataFrame, results: Path
) -> pd.DataFrame:
    """Return one row per run and epoch, under the first series that has the configuration."""
    rows: list[Row] = []
    repeats = counted_repeats(definition)
    chosen = lines_of(definition["series"], configurations).drop_duplicates("configuration")
    copied = ("series", "label", *COPIED, "metric_name", "metric_goal")
    heads = [
        {"figure": definition["figure"], "repeat": repeat, **{name: own[name] for name in copied}}
        for own in records(chosen)
        for repeat in repeats[own["configuration"]]
    ]
    files = [RunFiles(results, head["configuration"], head["repeat"]) for head in heads]
    # A curve is the mean over repeats: energies of unlike origin or scope have none.
    unlike = set(chosen["configuration"][chosen["energy_unlike"].notna()])
    no_energy = dict.fromkeys(_ENERGIES)
    for head, epochs in zip(heads, map(run_epochs, files), strict=True):
        known = no_energy if head["configuration"] in unlike else {}
        rows += [head | epoch | known for epoch in epochs]
    return frame_of(rows, LEARNING)


def run_epochs(files: RunFiles) -> list[Row]:
    """Epoch, metric, and energy and time since the run's start at the end of each epoch of a run."""
    spec = read_spec(files.folder / "spec.json")
    with_staging = spec.protocol != "paper"
    totals = EnergyTotals(read_energy(files), with_staging)
    history = read_history(files.folder / "history.parquet")
    scope = totals.scope
    parts = [
        row
        for row in read_checked(files.epochs, EPOCHS_SCHEMA).to_pylist()
        if row["device_kind"] in scope and (with_staging or row["stage"] != "stage_data")
    ]
    times = _times(totals, parts, spec.nodes)
    seconds = cumulated(history, times) if times else _clocked(history, files, with_staging)
    energies = cumulated(history, _energies(totals, parts))
    bounds = [cumulated(history, _bounds(totals, parts, name)) for name in BOUNDS]
    return [
        {
            "epoch": row["epoch"],
            "metric": row["metric"],
            "energy_kwh": _kwh(joules),
            "time_h": None if seconds is None else seconds / 3600,
            "energy_kwh_estimate_low": _kwh(low),
            "energy_kwh_estimate_high": _kwh(high),
        }
        for row, joules, seconds, low, high in zip(history, energies, seconds, *bounds, strict=True)
    ]


def cumulated(history: Sequence[Row], usage: Usage | None) -> list[float | None]:
    """Return the use from the run's start to the end of each epoch of its history.

    Null throughout where it is not known, or the recording does not say which epoch was when. All
    of it where the history has a single row and no epoch was marked, as of a registered run.
    """
    if usage is not None and len(history) == 1 and not usage.epochs:
        return [sum(usage.before.values()) + sum(usage.after.values())]
    if usage is None or any(usage.epochs.get(row["epoch"]) is None for row in history):
        return [None] * len(history)
    so_far = 0.0
    ends: list[float | None] = []
    before, after = dict(usage.before), dict(usage.after)
    for row in history:
        so_far += sum(before.pop(s) for s in sorted(before) if s <= row["segment"])
        so_far += sum(after.pop(s) for s in sorted(after) if s < row["segment"])
        so_far += usage.epochs[row["epoch"]] or 0.0
        ends.append(so_far)
    return ends


def _energies(totals: EnergyTotals, parts: Sequence[Row]) -> Usage | None:
    """Return energies in J, of all kinds in scope; None if the run's energy is unknown."""
    if totals.total_j is None:
        return None
    of_kinds = records(totals.in_scope)
    return _usage(parts, of_kinds, "energy_j", lambda row: row["energy_j"], 1.0)


def _bounds(totals: EnergyTotals, parts: Sequence[Row], name: str) -> Usage | None:
    """Return the lower or upper ends in J (`name`, one of BOUNDS) of estimated energies, as if all their
    errors had the same sign; None if nothing is estimated, or an interval is not known."""
    if totals.origin not in ORIGINS or totals.joules(column=name) is None:
        return None
    of_kinds = records(totals.in_scope)
    return _usage(parts, of_kinds, name, lambda row: row[name], 1.0)


def _kwh(joules: float | None) -> float | None:
    return None if joules is None else joules / J_PER_KWH


def _times(totals: EnergyTotals, parts: Sequence[Row], nodes: int) -> Usage | None:
    """Return times in s, mean over nodes, of the first kind in scope: a node's kinds have the same time."""
    kind = next(iter(totals.scope), None)
    if kind is None:
        return None
    of_kind = [row for row in parts if row["device_kind"] == kind]
    rows = records(totals.of_kind(kind))
    usage = _usage(of_kind, rows, "node_s", lambda row: row["duration_s"], 1.0 / nodes)
    for segment, seconds in _unrecorded(rows).items():
        usage.after[segment] = usage.after.get(segment, 0.0) + seconds
    return usage


def _usage(
    parts: Sequence[Row],
    by_segment: Iterable[Row],
    name: str,
    value: Callable[[Row], float | None],
    factor: float,
) -> Usage:
    """Sum up `name` of the epochs' rows, and `value` of the segments' rows outside of all epochs."""
    by_epoch: dict[int, list[float | None]] = {}
    for part in parts:
        if part["epoch"] is not None:
            by_epoch.setdefault(part["epoch"], []).append(part[name])
    totals = {epoch: known_sum(values) for epoch, values in by_epoch.items()}
    epochs = {e: None if total is None else total * factor for e, total in totals.items()}
    outside = {r["stage"] for r in parts if r["epoch"] is None}
    inside = {r["stage"] for r in parts if r["epoch"] is not None}
    both = [r[name] or 0.0 for r in parts if r["epoch"] is None and r["stage"] in inside]
    # Of a stage in both, no table says in which segment it was outside of epochs.
    usage = Usage(epochs, {0: sum(both) * factor} if both else {}, {})
    for row in by_segment:
        if row["stage"] in outside - inside:
            place = usage.before if row["stage"] in _BEFORE else usage.after
            known = (value(row) or 0.0) * factor
            place[row["segment"]] = place.get(row["segment"], 0.0) + known
    return usage


def _clocked(history: Sequence[Row], files: RunFiles, with_staging: bool) -> list[float | None]:
    """Seconds to the end of each epoch by the stages' events, for a run without any power or estimate."""
    events = read_checked(files.folder / "events.parquet", EVENTS_SCHEMA).to_pylist()
    counted = [one for one in events if with_staging or one["stage"] != "stage_data"]
    return [_seconds_until(row, counted) for row in history]


def _seconds_until(row: Row, events: Sequence[Row]) -> float | None:
    ends = [
        one["end_s"]
        for one in events
        if (one["segment"], one["epoch"]) == (row["segment"], row["epoch"])
        and one["stage"] != "checkpoint"
    ]
    if not ends:
        return None
    return sum(
        min(one["end_s"], max(ends)) - one["start_s"]
        for one in events
        if one["segment"] < row["segment"]
        or (one["segment"] == row["segment"] and one["start_s"] < max(ends))
    )


def _unrecorded(rows: Iterable[Row]) -> dict[int, float]:
    """Return the longest unrecorded time of a node, by segment."""
    found: dict[int, float] = {}
    for row in rows:
        seconds = row["unrecorded_s"] or 0.0
        found[row["segment"]] = max(found.get(row["segment"], 0.0), seconds)
    return found
