"""The energy of a run: perun's files, journals and stage events to traces and energy tables.

Per segment perun's HDF5 is the record; where it cannot be read, or lacks a host, the journals
stand in (`from_journal`). The accounted window of a node is [first, last sample] of all its
sensors; nothing is extrapolated. A kind without sensor or estimate has rows with null energy and
the flag `absent` (outside of the run's scope); null energy with any other flag means that energy
was used and is not known. The flags of a row are those of its segment, node and device kind, the
same in each of its stages; `coverage` likewise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scalewatt.energy.journal import read_journal
from scalewatt.energy.node import KindEnergy, Window, node_kinds, node_window
from scalewatt.energy.perun_file import read_perun_file
from scalewatt.energy.samples import DEVICE_KINDS, Flag, Recording, by_node, flag, short_name
from scalewatt.energy.stages import (
    STAGES,
    StageIntervals,
    on_wall_clock,
    segment_events,
    tile_window,
)
from scalewatt.energy.tables import ENERGY_SCHEMA, TRACES_SCHEMA, TraceRows
from scalewatt.errors import InputError
from scalewatt.files import read_json, write_table

__all__ = ["ENERGY_SCHEMA", "TRACES_SCHEMA", "account", "write_energy"]

JOURNAL_TOLERANCE = 0.005
# Sampling periods between the stages' first and last stamp that may lie outside of a node's
# recording: a sampler's last sample is up to a period old when it is stopped.
LOST_PERIODS = 3

_SEGMENT_FILE = re.compile(r"^(?:failed_)?segment-(\d+)\.(?:hdf5|.+\.journal)$")
_OPEN_STAGES = ("startup", "shutdown")


@dataclass(frozen=True)
class _Run:
    spec: dict[str, Any]
    powers: dict[str, Any]
    provenance: dict[str, Any]
    folder: Path

    @property
    def hostnames(self) -> list[str]:
        return list(dict.fromkeys(self.provenance.get("hostnames") or []))

    def used_gpus(self, node: str) -> list[int] | None:
        """Return the indices of the GPUs that the run held on a node; None where not recorded."""
        if self.provenance.get("torch_device") == "cpu":
            return []
        for host, indices in (self.provenance.get("gpus") or {}).items():
            if short_name(host) == short_name(node):
                return [int(index) for index in indices]
        return None


@dataclass(frozen=True, eq=False)
class _Segment:
    number: int
    recording: Recording | None
    journal: Recording | None
    from_journal: frozenset[str]
    flags: tuple[Flag, ...]


def account(
    run_dir: Path, spec: dict[str, Any], powers: dict[str, Any]
) -> tuple[pa.Table, pa.Table]:
    """Return the tables of TRACES_SCHEMA and ENERGY_SCHEMA of one run folder.

    `powers` = {"cpu", "gpu", "ram"}: the rated powers used where nothing was measured, or None.
    Traces are sorted by time, node and device. Raises InputError for a damaged events table.
    """
    run_dir = Path(run_dir)
    provenance = run_dir / "provenance.json"
    run = _Run(
        spec, powers, read_json(provenance) if provenance.exists() else {}, run_dir / "perun"
    )
    events = _events(run_dir / "events.parquet")
    traces = TraceRows(spec["configuration"], spec["repeat"])
    rows: list[dict[str, Any]] = []
    numbers, idle = _segments(run, events)
    for number in numbers:
        segment = _read_segment(run.folder, number)
        segment = replace(segment, flags=(*segment.flags, *idle))
        rows += _segment_rows(run, segment, segment_events(events, number), traces)
    return traces.table(), pa.Table.from_pylist(rows, schema=ENERGY_SCHEMA)


def write_energy(
    run_dir: Path,
    spec_path: Path,
    powers: dict[str, Any],
    traces_path: Path,
    energy_path: Path,
) -> None:
    """Account for one run folder and write both tables as Parquet."""
    traces, energy = account(run_dir, read_json(spec_path), powers)
    write_table(traces, traces_path)
    write_table(energy, energy_path)


def _events(path: Path) -> pa.Table | None:
    if not path.exists():
        return None
    try:
        return pq.read_table(path, columns=["segment", "stage", "epoch", "start_s", "end_s"])
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{path}: cannot be read ({error}); expected segment, stage, epoch, start_s, end_s"
        ) from error


def _segments(run: _Run, events: pa.Table | None) -> tuple[list[int], list[Flag]]:
    """Return the numbers of all segments, and flags for those that ended during start-up.

    A start that failed before the first sample and the first update has nothing to account for.
    """
    numbers = {int(one["segment"]) for one in run.provenance.get("segments") or []}
    started: set[int] = set()
    if events is not None:
        numbers |= set(events["segment"].to_pylist())
        started |= set(
            events.filter(pc.not_equal(events["stage"], "startup"))["segment"].to_pylist()
        )
    if run.folder.is_dir():
        found = (_SEGMENT_FILE.match(path.name) for path in run.folder.iterdir())
        recorded = {int(match.group(1)) for match in found if match}
        numbers |= recorded
        started |= recorded
    if not started:
        return sorted(numbers) or [0], []
    detail = "segment {} ended during start-up; nothing was recorded of it and nothing is counted"
    idle = sorted(numbers - started)
    return sorted(started), [flag("segment_not_started", None, detail.format(n)) for n in idle]


def _read_segment(folder: Path, number: int) -> _Segment:
    """Read what a segment left, all of it on the wall clock."""
    stem = f"segment-{number:03d}"
    flags: list[Flag] = []
    journal = hdf5 = None
    journals = sorted(folder.glob(f"{stem}.*.journal"))
    if journals:
        try:
            journal = read_journal(journals)
        except InputError as error:
            flags.append(flag("journal_unreadable", None, str(error)))
    # perun renames the file of a program that failed.
    paths = [folder / f"{stem}.hdf5", folder / f"failed_{stem}.hdf5"]
    for path in [path for path in paths if path.exists()][:1]:
        try:
            hdf5, doubts = on_wall_clock(read_perun_file(path), journal)
            flags += [*hdf5.problems, *doubts]
        except InputError as error:
            flags.append(flag("hdf5_unreadable", None, str(error)))
    if journal is not None:
        flags += journal.problems
        journal = _with_ranges(journal, hdf5)
    recording, borrowed = _joined(hdf5, journal)
    return _Segment(number, recording, journal, borrowed, tuple(flags))


def _with_ranges(journal: Recording, hdf5: Recording | None) -> Recording:
    """Give the journal's counters the range that perun's file states for them."""
    if hdf5 is None:
        return journal
    ranges = {(s.node, s.sensor): s.valid_max for s in hdf5.series}
    nodes = by_node(
        s if s.valid_max else replace(s, valid_max=ranges.get((s.node, s.sensor)))
        for s in journal.series
    )
    return replace(journal, nodes=nodes)


def _joined(
    hdf5: Recording | None, journal: Recording | None
) -> tuple[Recording | None, frozenset[str]]:
    """Return perun's recording with the hosts that only the journals have, and those hosts."""
    if hdf5 is None:
        return journal, frozenset(journal.hosts if journal else ())
    if journal is None:
        return hdf5, frozenset()
    recorded = {s.node for s in hdf5.series}
    missing = frozenset(host for host in journal.hosts if host not in recorded)
    series = hdf5.series + tuple(s for s in journal.series if s.node in missing)
    return replace(hdf5, nodes=by_node(series)), missing


def _segment_rows(
    run: _Run, segment: _Segment, events: list[dict[str, object]], traces: TraceRows
) -> list[dict[str, Any]]:
    recording = segment.recording
    windows = {
        host: window
        for host in (recording.hosts if recording else ())
        if recording is not None and (window := node_window(recording.nodes[host])) is not None
    }
    flags = list(segment.flags)
    if not events:
        flags.append(flag("no_events", None, f"segment {segment.number} has no stage events"))
    absent, doubts = _missing_hosts(run, list(windows), segment.number)
    flags += doubts
    rows: list[dict[str, Any]] = []
    for node, window in windows.items():
        assert recording is not None
        rows += _node_rows(run, segment, recording, node, window, events, flags, traces)
    present = {row["device_kind"] for row in rows if row["energy_origin"] is not None}
    for node in absent:
        rows += _null_rows(run, segment.number, node, events, present, flags)
    return sorted(
        rows, key=lambda row: (row["node"], row["device_kind"], STAGES.index(row["stage"]))
    )


def _missing_hosts(
    run: _Run, recorded: Sequence[str], segment: int
) -> tuple[list[str], list[Flag]]:
    """Return the nodes without a recording, by name where one is known."""
    expected = int(run.spec["nodes"])
    known = {short_name(host) for host in recorded}
    named = [host for host in run.hostnames if short_name(host) not in known]
    if len(recorded) > expected:
        detail = f"{len(recorded)} hosts recorded, {expected} expected: {', '.join(recorded)}"
        return [], [flag("extra_host", None, detail)]
    count = expected - len(recorded)
    missing = named[:count] + [f"unknown-{i}" for i in range(1, count - len(named[:count]) + 1)]
    if not missing:
        return [], []
    if not recorded:
        detail = f"segment {segment}: neither a readable HDF5 nor a journal"
        return missing, [flag("segment_unrecorded", None, detail)]
    detail = f"{len(recorded)} of {expected} hosts recorded; missing: {', '.join(missing)}"
    return missing, [flag("missing_host", None, detail)]


def _node_rows(
    run: _Run,
    segment: _Segment,
    recording: Recording,
    node: str,
    window: Window,
    events: list[dict[str, object]],
    segment_flags: list[Flag],
    traces: TraceRows,
) -> list[dict[str, Any]]:
    intervals, flags = tile_window(events, window)
    flags = [*segment_flags, *flags]
    if node in segment.from_journal:
        detail = f"{node}: perun's file has no data of this segment; the journal is used"
        flags.append(flag("from_journal", None, detail))
    lost_s = _lost_seconds(events, window, recording.sampling_period_s or 1.0)
    if lost_s:
        detail = f"{node}: {lost_s:.1f} s of the run lie outside of the recording"
        flags.append(flag("recording_short", None, detail))
    kinds = _kinds(run, recording, node, lost_s)
    if segment.journal is not None and node not in segment.from_journal:
        other = {kind.device_kind: kind for kind in _kinds(run, segment.journal, node, lost_s)}
    else:
        other = {}
    rows = []
    for kind in kinds:
        own = _disagreement(kind, other.get(kind.device_kind))
        rows += _kind_rows(run, segment.number, kind, intervals, [*flags, *kind.flags, *own])
        traces.add(segment.number, kind, recording.nodes[node], intervals)
    return rows


def _kinds(run: _Run, recording: Recording, node: str, lost_s: float) -> list[KindEnergy]:
    held = run.used_gpus(node)
    return node_kinds(
        node,
        recording.nodes.get(node, ()),
        powers=run.powers,
        period_s=recording.sampling_period_s or run.spec.get("sampling_period_s"),
        used_gpus=held,
        expected_gpus=len(held) if held is not None else int(run.spec["ranks_per_node"]),
        lost_s=lost_s,
    )


def _lost_seconds(events: list[dict[str, object]], window: Window, period_s: float) -> float:
    """Return the run's seconds outside of a recording, 0 where a late start explains them.

    Startup and shutdown do not count: the sampler runs inside of them.
    """
    inner = [e for e in events if e["stage"] not in _OPEN_STAGES and e["end_s"] != float("inf")]
    if not inner:
        return 0.0
    begin = min(float(e["start_s"]) for e in inner)  # type: ignore[arg-type]
    end = max(float(e["end_s"]) for e in inner)  # type: ignore[arg-type]
    inside = max(0.0, min(end, window[1]) - max(begin, window[0]))
    lost = (end - begin) - inside
    return lost if lost > LOST_PERIODS * period_s else 0.0


def _disagreement(record: KindEnergy, journal: KindEnergy | None) -> list[Flag]:
    """Compare perun's file with the journal where both were recording."""
    if journal is None or not record.series or not journal.series:
        return []
    if "estimated" in (record.origin, journal.origin):
        return []
    ours, theirs = node_window(record.series), node_window(journal.series)
    if ours is None or theirs is None:
        return []
    common = max(ours[0], theirs[0]), min(ours[1], theirs[1])
    a, b = record.recorded_j(common), journal.recorded_j(common)
    if common[1] > common[0] and abs(a - b) <= JOURNAL_TOLERANCE * max(a, b):
        return []
    detail = f"{record.node}: {record.device_kind} HDF5 {a:.1f} J, journal {b:.1f} J"
    return [flag("journal_disagrees", None, detail)]


def _kind_rows(
    run: _Run,
    segment: int,
    kind: KindEnergy,
    intervals: StageIntervals,
    flags: list[Flag],
) -> list[dict[str, Any]]:
    energy = kind.stage_energy_j(intervals)
    return [
        _row(run, segment, kind.node, kind.device_kind, stage, seconds, flags)
        | {
            "devices": kind.devices,
            "energy_j": energy[stage],
            "energy_origin": kind.origin,
            "coverage": kind.coverage,
        }
        for stage, seconds in intervals.seconds().items()
    ]


def _null_rows(
    run: _Run,
    segment: int,
    node: str,
    events: list[dict[str, object]],
    present: set[str],
    flags: list[Flag],
) -> list[dict[str, Any]]:
    """Return rows for a node that nothing was recorded of: seconds by the events, energy unknown.

    Its kinds are those of the other nodes, all three where there is no other.
    """
    ended = [e for e in events if e["end_s"] != float("inf")]
    window = (
        (float(ended[0]["start_s"]), max(float(e["end_s"]) for e in ended))  # type: ignore[arg-type]
        if ended
        else (0.0, 0.0)
    )
    seconds = tile_window(ended, window)[0].seconds()
    kinds = [kind for kind in DEVICE_KINDS if kind in present or not present]
    return [
        _row(run, segment, node, kind, stage, length, flags)
        | {"devices": None, "energy_j": None, "energy_origin": None, "coverage": 0.0}
        for kind in kinds
        for stage, length in seconds.items()
    ]


def _row(
    run: _Run,
    segment: int,
    node: str,
    device_kind: str,
    stage: str,
    duration_s: float,
    flags: list[Flag],
) -> dict[str, Any]:
    return {
        "configuration": run.spec["configuration"],
        "repeat": run.spec["repeat"],
        "segment": segment,
        "node": node,
        "device_kind": device_kind,
        "stage": stage,
        "duration_s": duration_s,
        "flags": json.dumps(flags, ensure_ascii=False),
    }
