"""Energy of a run: its recordings and stage events to traces and energy tables.

The accounted window of a node is [first, last sample] of all its sensors, or the run's own time if that is
known. If two segments overlap on a node, the first keeps the time. A flag is about a segment, one of its
nodes, or a device kind of that; `stage_short` is about a stage.

The journal is the record of a run of ours: the samples of perun's sensors, as they were taken. A node without
a journal is read from perun's HDF5. Of a run that another tool recorded, its files are the record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object
from scalewatt.energies import checks
from scalewatt.energies.node import (
    MAX_UNCOVERED,
    UNUSED_GPU,
    KindEnergy,
    Node,
    list_sensors,
    node_kinds,
    node_window,
)
from scalewatt.energies.stages import (
    STAGE_TYPE,
    STAGES,
    UNATTRIBUTED,
    Window,
    interval_at,
    seconds_outside,
    segment_events,
    tile_window,
)
from scalewatt.energies.tables import Accounts, Collected, tables
from scalewatt.energies.traces import Traces, write_traces
from scalewatt.provenance.rank_placement import held_gpus
from scalewatt.recordings.block import Block, Recording
from scalewatt.recordings.detect import join_recordings, list_copies, read_foreign
from scalewatt.recordings.journal import journal_files, read_journal
from scalewatt.recordings.perun_file import read_perun_file
from scalewatt.recordings.stage_log import EVALUATIONS
from scalewatt.recordings.stages import read_stages
from scalewatt.recordings.telemetry import read_telemetry
from scalewatt.recordings.terms import ALL_KINDS, NODE, Flag, flag

CLOCK_SHARE = 0.5
"""Share of a sampling period from which on a clock's offset is flagged."""
_DISCARDING = ("killed", "failed", "refused")
"""Outcomes of a segment that lose the work since its last checkpoint."""
_SEGMENT_FILE = re.compile(r"^(?:failed_)?segment-(\d+)\.(?:hdf5|.+\.csv|.+\.recording)$")


# --- runs and their files --------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A run's spec, stages and window, in addition to its recordings."""

    folder: Path
    spec: Mapping[str, Any]
    """Content of its spec.json, as far as there is one."""
    powers: Mapping[str, Any]
    provenance: Mapping[str, Any]
    events: pa.Table | None

    @classmethod
    def of(
        cls, folder: Path, powers: Mapping[str, Any], spec: Mapping[str, Any] | None = None
    ) -> Run:
        """Read a run folder, by default its spec.json too; InputError for a damaged file."""
        paths = (folder / "spec.json", folder / "provenance.json")
        read, provenance = (read_json_object(p) if p.exists() else {} for p in paths)
        events = folder / "events.parquet"
        stages = read_stages(events, unended=True) if events.exists() else None
        return cls(folder, read if spec is None else spec, powers, provenance, stages)

    @property
    def recordings(self) -> Path:
        """Folder of its recordings."""
        return find_recordings(self.folder)

    @property
    def segments(self) -> dict[int, dict[str, Any]]:
        """Records of the segments, by number."""
        return {int(row["segment"]): row for row in self.provenance.get("segments") or []}

    def hosts_of(self, segment: int) -> list[str]:
        """Names of a segment's hosts, where its ranks are recorded, else of the run's."""
        ranks = self.segments.get(segment, {}).get("ranks") or []
        hosts = [rank["host"] for rank in ranks] or self.provenance.get("hostnames") or []
        return list(dict.fromkeys(hosts))

    def used_gpus(
        self, node: str, gpus: Iterable[tuple[int, str]], segment: int
    ) -> list[int] | None:
        """Indices of the GPUs that a segment held on a node; None if not recorded.

        None, too, if it ended before it noted them while others did; of a run whose segments note no ranks,
        those that it noted as a whole. They are identified by uuid where the `gpus` (index, uuid) have one,
        else by index.
        """
        if self.provenance.get("torch_device") == "cpu":
            return []
        held = self.provenance
        if any(row.get("ranks") for row in self.segments.values()):
            held = held_gpus(self.segments.get(segment, {}).get("ranks") or [])
        indices, uuids = ((held.get(key) or {}).get(node) for key in ("gpus", "gpu_uuids"))
        known = sorted({index for index, uuid in gpus if uuid and uuid in (uuids or ())})
        return known if uuids and len(known) == len(uuids) else indices


@dataclass(frozen=True, eq=False)
class Segment:
    """Recordings of one segment; a node is read, when it is asked for, from the first that has it."""

    number: int
    recordings: Sequence[Recording]
    telemetry: Sequence[Block] = ()
    flags: tuple[Flag, ...] = ()
    alone: bool = False
    """True if there is nothing but one file, so that damage in it is an error."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Nodes of all files, sorted."""
        return tuple(sorted({name for recording in self.recordings for name in recording.nodes}))

    def node(self, host: str) -> Node:
        """Read one node; it has no blocks if no file has a sample of it."""
        node, flags = Node(host, []), list[Flag]()
        for source in (recording for recording in self.recordings if host in recording.nodes):
            try:
                node = _node_of(source, host)
            except InputError as error:
                if self.alone:
                    raise
                flags.append(flag("unreadable", None, str(error)))
            if node.blocks:
                break
        stated = (recording.perun_j.get(host, {}) for recording in self.recordings)
        return replace(
            node,
            flags=(*flags, *node.flags),
            telemetry=[block for block in self.telemetry if block.node == host],
            perun_j={kind: joules for kinds in stated for kind, joules in kinds.items()},
        )


def _node_of(source: Recording, host: str) -> Node:
    """Blocks of a node, in unix seconds as far as its clock is known."""
    blocks = source.nodes[host]
    # A sensor that could not be read is a block without samples: of a device uncovered.
    if not any(block.time_s.size for block in blocks):
        return Node(host, [], source.period_s)
    if source.clock_known:
        flags = tuple(f for block in blocks for f in block.flags if f["device"] is None)
        return Node(host, blocks, source.period_s, flags=flags)
    try:
        start_s, is_known = datetime.fromisoformat(source.started or "").timestamp(), True
        detail = f"{host}: no journal; times count from perun's start {source.started} (local time)"
    except ValueError:
        start_s, is_known = 0.0, False
        detail = f"{host}: nothing states when it began, so that it has no stages"
    clock = flag("time_assumed", None, detail)
    blocks = [replace(block, time_s=block.time_s + start_s) for block in blocks]
    return Node(host, blocks, source.period_s, flags=(clock,), clock_known=is_known)


def segment_numbers(folder: Path) -> set[int]:
    """Numbers of the segments that have a recording in `folder`."""
    paths = folder.iterdir() if folder.is_dir() else ()
    matches = (_SEGMENT_FILE.match(path.name) for path in paths)
    return {int(match.group(1)) for match in matches if match}


def read_segment(folder: Path, number: int) -> Segment:
    """Read what a segment left in `folder`; what cannot be read is a flag."""
    stem = f"segment-{number:03d}"
    readers: list[Callable[[], Recording]] = []
    if journals := journal_files(folder).get(number):
        readers.append(partial(read_journal, [*journals.values()]))
    # perun renames the file of a program that failed.
    named = (folder / f"{stem}.hdf5", folder / f"failed_{stem}.hdf5")
    if path := next((path for path in named if path.exists()), None):
        asked = path.with_name(f"{path.name}.json")  # of a registered file
        part = read_json_object(asked) if asked.exists() else {}
        names = [part.get(key) for key in ("run", "round", "time_zone")]
        readers.append(partial(read_perun_file, path, *names))
    if not readers and (copies := list_copies(folder, number)):
        readers.append(lambda: join_recordings([read_foreign(*copy) for copy in copies]))
    recordings: list[Recording] = []
    telemetry, flags = read_telemetry(sorted(folder.glob(f"{stem}.*.telemetry.csv")))
    for read in readers:
        try:
            recordings.append(read())
            flags += recordings[-1].flags
        except InputError as error:
            flags.append(flag("unreadable", None, str(error)))
    return Segment(number, recordings, telemetry, tuple(flags))


def find_recordings(folder: Path) -> Path:
    """Folder of a run's recordings: perun/, or else the run folder."""
    perun = folder / "perun"
    return perun if perun.is_dir() else folder


# --- accounts -------------------------------------------------------------------------------------


def account(run: Run, traces: Traces | None = None) -> Accounts:
    """Account for one run; `traces` gets its samples node by node."""
    rows = Collected()
    # A start that failed before the first sample and the first update has nothing to account for.
    started = segment_numbers(run.recordings)
    numbers = {*run.segments} | started
    if run.events is not None:
        events = run.events.to_pandas().dropna(subset="segment").astype({"segment": "int64"})
        numbers |= set(events["segment"])
        started |= set(events["segment"][events["stage"] != "startup"])
    for number in sorted(numbers - started) if started else ():
        detail = f"segment {number} ended during start-up; nothing was recorded of it and nothing is counted"
        rows.flag([flag("segment_lost", None, detail)], number)
    for number in sorted(started or numbers or {0}):
        segment = read_segment(run.recordings, number)
        _add_segment(rows, run, segment, segment_events(run.events, number), traces)
    return tables(rows, run.spec.get("configuration"), run.spec.get("repeat"))


def account_segment(
    run: Run, segment: Segment, events: pd.DataFrame, traces: Traces | None = None
) -> Accounts:
    """Account for what is the only segment of a run."""
    rows = Collected()
    _add_segment(rows, run, segment, events, traces)
    return tables(rows, None, None)


def write_energy(
    run_dir: Path,
    spec_path: Path,
    powers: dict[str, Any],
    traces_path: Path,
    energy_path: Path,
) -> None:
    """Account for one run folder; write its traces, its energy table and the other tables.

    `powers` = {"cpu", "gpu", "ram"}: the rated powers used where nothing was measured, or None.
    `energy_path` = <repeat>.parquet; `Accounts.write` names the others.
    """
    run = Run.of(run_dir, powers, read_json_object(spec_path))
    names = {name: run.spec.get(name) for name in ("configuration", "repeat")}
    with write_traces(traces_path, **names) as traces:
        accounts = account(run, traces)
    accounts.write(energy_path)


# --- segments -------------------------------------------------------------------------------------


def _add_segment(
    rows: Collected, run: Run, segment: Segment, events: pd.DataFrame, traces: Traces | None
) -> None:
    """Account for the nodes of a segment one by one, and for what concerns all of them."""
    number = segment.number
    for each in segment.flags:
        rows.flag([each], number, each.get("node"), each.get("kind"))
    lost = _discarded_span(run, number, events)
    nodes = []
    for node in _read_nodes(rows, run, segment):
        kinds, intervals = _add_node(rows, run, number, node, events, lost)
        if traces is not None:
            _trace(traces, number, node, kinds, intervals)
        nodes.append(replace(node, blocks=[], telemetry=[]))

    # How it ended, and the time of the work that it lost
    flags: list[Flag] = []
    record = run.segments.get(number, {})
    outcome = record.get("outcome")
    if outcome == "monitor_lost":
        detail = f"segment {number} was not recorded any more: {record.get('detail')}"
        flags.append(flag("segment_lost", None, detail))
    elif outcome in _DISCARDING:
        spans = (np.clip(node.window, *np.add(lost, node.ahead_s)) for node in nodes)
        lost_s = max((end - begin for begin, end in spans), default=0.0)
        work = f"{lost_s:.1f} s" if lost_s else "unknown"
        detail = f"segment {number}: {outcome}; work done again: {work}"
        flags.append(flag("segment_lost", None, detail))

    # Where no stages tell how long it was, nodes that were recorded for a part of the time of all nodes
    if events.empty:
        flags.append(flag("no_events", None, f"segment {number} has no stage events"))
        known = all(node.clock_known for node in nodes)
        length_s = float(np.ptp([node.window for node in nodes])) if nodes and known else 0.0
        for node in nodes:
            if length_s - node.length_s > MAX_UNCOVERED * length_s:
                times = f"recorded for {node.length_s:.1f} s of the {length_s:.1f} s of all nodes"
                flags.append(flag("coverage", None, f"{node.name}: {times}"))
    rows.flag(flags, number)
    _add_missing(rows, run, segment, nodes, events)


def _discarded_span(run: Run, number: int, events: pd.DataFrame) -> Window:
    """From when to when the work of a segment was lost: since its last checkpoint.

    If a segment stopped within an evaluation, these are the evaluations of that epoch, which a later
    segment repeated. That time and its energy are in the run's totals.
    """
    if run.segments.get(number, {}).get("outcome") in _DISCARDING:
        saved = events[:-1].query("stage == 'checkpoint'")["end_s"]
        return max(saved, default=-np.inf), np.inf
    if run.events is None:
        return 0.0, 0.0
    later = run.events.to_pandas().query("segment > @number")[["stage", "epoch"]].dropna()
    again = events[events["stage"].isin(EVALUATIONS)].merge(later.drop_duplicates())
    return (0.0, 0.0) if again.empty else (again["start_s"].min(), again["end_s"].max())


def _add_missing(
    rows: Collected, run: Run, segment: Segment, nodes: Sequence[Node], events: pd.DataFrame
) -> None:
    """Flag nodes that are too many or without a sample, and add the latter with the stages of the events.

    Without events they had as much time as the others of the segment.
    """
    recorded = [node.name for node in nodes]
    expected = run.spec.get("nodes") or len(segment.hosts) or 1
    if len(recorded) > expected:
        detail = f"{len(recorded)} hosts recorded, {expected} expected: {', '.join(recorded)}"
        rows.flag([flag("not_recorded", None, detail)], segment.number)
        return
    known = dict.fromkeys((*segment.hosts, *run.hosts_of(segment.number)))
    unread = [name for name in known if name not in recorded]
    unknown = (f"unknown-{i}" for i in range(1, expected + 1))
    missing = [*unread, *unknown][: expected - len(recorded)]
    if missing:
        detail = f"{len(recorded)} of {expected} hosts recorded; missing: {', '.join(missing)}"
        rows.flag([flag("not_recorded", None, detail)], segment.number)

    ended = events[events["end_s"] < np.inf]
    window = (0.0, max((node.length_s for node in nodes), default=0.0))
    if not ended.empty:
        window = ended["start_s"].min(), ended["end_s"].max()
    intervals, _ = tile_window(ended, window)
    for name in missing:
        for kind in (*ALL_KINDS, UNUSED_GPU):
            rows.add(KindEnergy(name, kind, 0.0), segment.number, intervals, recorded=False)


# --- nodes ----------------------------------------------------------------------------------------


def _read_nodes(rows: Collected, run: Run, segment: Segment) -> Iterator[Node]:
    """Read the nodes of a segment that have samples, and add the part of their time that counts."""
    offsets = {
        str(row["host"]): float(row["offset_s"])
        for row in run.segments.get(segment.number, {}).get("clock_offsets") or ()
    }
    for node in _read_ahead(segment):
        recorded = node_window(node.blocks)
        if recorded is None:
            rows.flag(node.flags, segment.number, node.name)
            continue
        window, overlap_s, ahead_s = recorded, 0.0, 0.0
        if node.clock_known:
            if of_run := run.provenance.get("window"):  # of which nothing may be recorded
                begin_s, end_s = float(of_run["start_s"]), float(of_run["end_s"])
                # What lies before or after all segments belongs to the first or the last
                numbers = segment_numbers(run.recordings)
                begin_s = max(begin_s, recorded[0]) if segment.number > min(numbers) else begin_s
                end_s = min(end_s, recorded[1]) if segment.number < max(numbers) else end_s
                window = begin_s, max(begin_s, end_s)
            # Time that an earlier segment has counted
            before = rows.windows.setdefault(node.name, [])
            counted_s = max((end for begin, end in before if begin < recorded[1]), default=-np.inf)
            if (counted_s := min(counted_s, recorded[1])) > recorded[0]:
                begin_s = float(np.clip(counted_s, *window))
                window, overlap_s = (begin_s, window[1]), begin_s - window[0]
            before.append(recorded)
            ahead_s = offsets.get(node.name, 0.0)
        gpus = ((sensor.row.index, sensor.row.uuid) for sensor in list_sensors(node.blocks))
        held = run.used_gpus(node.name, gpus, segment.number)
        yield replace(
            node,
            period_s=node.period_s or run.spec.get("sampling_period_s"),
            window=window,
            overlap_s=overlap_s,
            ahead_s=ahead_s,
            powers=run.powers,
            held=held,
            expected_gpus=run.spec.get("ranks_per_node") if held is None else len(held),
            model=run.provenance.get("device_name") or "",
        )


def _read_ahead(segment: Segment) -> Iterator[Node]:
    """Read the nodes, each in a thread while the node before it is accounted for."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        waiting = (thread.submit(segment.node, host) for host in segment.hosts)
        for node, _ in pairwise(chain(waiting, [None])):
            yield node.result()  # type: ignore[union-attr]


def _add_node(
    rows: Collected, run: Run, number: int, node: Node, events: pd.DataFrame, lost: Window
) -> tuple[list[KindEnergy], pd.DataFrame]:
    """Add a node's flags, cross-checks, telemetry and pieces; returns its kinds and intervals.

    `events` and the span `lost`, whose work was lost, are by the clock of rank 0.
    """
    key, window, times = (number, node.name), node.window, ["start_s", "end_s"]
    events = events if node.clock_known else events[:0]
    events = events.assign(**{name: events[name] + node.ahead_s for name in times})
    lost = lost[0] + node.ahead_s, lost[1] + node.ahead_s
    intervals, stage_flags = tile_window(events, window)
    begin_s = window[0] - node.overlap_s
    outside_s = seconds_outside(events, (begin_s, window[1]), node.period_s or 1.0)
    is_off = abs(node.ahead_s) > CLOCK_SHARE * (node.period_s or 1.0)
    overlap = f"{node.overlap_s:.1f} s were recorded by an earlier segment too; they count once"
    notes = {
        "overlap": overlap if node.overlap_s > 0 else "",
        "clock": f"offset of its clock, corrected: {node.ahead_s:+.3f} s" if is_off else "",
        "coverage": f"{outside_s:.1f} s of the run lie outside of the recording"
        if outside_s
        else "",
    }
    flags = [flag(code, None, f"{node.name}: {text}") for code, text in notes.items() if text]
    rows.flag([*node.flags, *stage_flags, *flags], *key)

    # Telemetry: loads to estimate from, the node's meter, and what it says of clocks and limits
    blocks = [*node.blocks, *checks.as_sensors(node.telemetry, checks.GPU_LOAD, *checks.METERS)]
    kinds = node_kinds(replace(node, blocks=blocks, lost_s=outside_s))
    kinds = sorted(kinds, key=lambda kind: kind.device_kind)
    # Of a registered run nothing shows whether a clock or a limit was held
    is_registered = run.spec.get("sampling_period_s") is None
    point = {} if is_registered else run.spec.get("operating_point") or {}
    rows.flag(checks.state_flags(node, "gpu_power_limit_w" in point), *key)
    if point:
        training = intervals.loc[intervals["stage"] == "train", times].itertuples(index=False)
        rows.flag(checks.setting_flags(node, point, [*training] or [window]), *key)
    if node.length_s <= 0 and node.overlap_s > 0:
        return [], intervals
    sources = checks.cross_checks(node, kinds)
    rows.cross_checks.extend({"segment": number, **row} for row in sources)

    with_outside = intervals
    if outside_s:  # it belongs to a first interval without length
        stage = pd.Categorical([UNATTRIBUTED], dtype=STAGE_TYPE)
        outside = intervals[:1].assign(stage=stage, epoch=-1, end_s=intervals["start_s"])
        with_outside = pd.concat([outside, intervals], ignore_index=True)
    for kind in kinds:
        rows.add(kind, number, with_outside if kind.devices else intervals, lost, outside_s)
        flags = [*kind.flags, *checks.cross_check_flags(sources, kind.device_kind)]
        rows.flag(flags, *key, kind.device_kind)
    if all(kind.device_kind != NODE for kind in kinds):  # others may have a meter
        rows.add(KindEnergy(node.name, NODE, None), number, intervals, lost, outside_s)
    return kinds, intervals


def _trace(
    traces: Traces,
    segment: int,
    node: Node,
    kinds: Sequence[KindEnergy],
    intervals: pd.DataFrame,
) -> None:
    """Write the samples of the sensors that count of a node, those of a block together."""
    stages = np.append(intervals["stage"].cat.codes, STAGES.index(UNATTRIBUTED)).astype(np.int8)
    counted = [(kind.device_kind, device) for kind in kinds for device in kind.devices]
    for block in {id(device.block): device.block for _, device in counted}.values():
        names, devices = zip(*((k, d) for k, d in counted if d.block is block), strict=True)
        traces.add(
            segment,
            node.name,
            block.time_s - node.ahead_s,
            [device.validated.power_w for device in devices],
            block.sensors.iloc[[d.column for d in devices]].assign(kind=names),
            stages[interval_at(intervals, block.time_s)],
        )
