"""Energy of a run: its recordings and stage events to traces and energy tables.

The accounted window of a node is [first, last sample] of all its sensors, or the run's own time if that is
known. If two segments overlap on a node, the earlier one keeps the time. A flag is about a segment, one of
its nodes, or a device kind of that; `stage_short` is about a stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from scalewatt.common.rated_powers import check_rated_powers
from scalewatt.energies.checks import (
    cross_check_flags,
    gpu_checks,
    gpu_loads,
    measured_j,
    meter_checks,
    node_meters,
    perun_checks,
    setting_flags,
    slurm_check,
    state_flags,
    telemetry_table,
    uneven_flags,
)
from scalewatt.energies.node import (
    UNUSED_GPU,
    KindEnergy,
    NodeFacts,
    Window,
    node_kinds,
    node_window,
    sensors_of,
    shared_kinds,
    stage_seconds,
)
from scalewatt.energies.node_clock import NodeClock
from scalewatt.energies.run_inputs import Run, read_planned_run
from scalewatt.energies.segments import NodeRecording, Segment, open_segment, segment_numbers
from scalewatt.energies.stages import (
    UNATTRIBUTED,
    StageIntervals,
    seconds_outside,
    segment_events,
    tile_window,
)
from scalewatt.energies.tables import Accounts, Collected, known_sum, nothing, tables
from scalewatt.energies.traces import Traces, write_traces
from scalewatt.recordings.node_names import nodes_by_name, same_node
from scalewatt.recordings.stage_log import EVALUATIONS
from scalewatt.recordings.terms import ALL_KINDS, NODE, Flag, flag

_DISCARDING = {"killed": "was killed", "failed": "failed", "refused": "refused its input"}
"""Labels of the outcomes of a segment that lose the work since its last checkpoint."""

Event = dict[str, Any]


@dataclass(frozen=True, eq=False)
class _Counted:
    """A run, and what has been counted of it so far."""

    run: Run
    traces: Traces | None = None
    rows: Collected = field(default_factory=Collected)
    ends: dict[str, float] = field(default_factory=dict)
    """Until when each node's time has been counted."""


@dataclass(frozen=True, eq=False)
class _Node:
    """One node in one segment, before it is accounted for."""

    segment: int
    recording: NodeRecording
    window: Window
    """The time that counts."""
    whole: Window
    """That time together with what an earlier segment has counted."""
    clock: NodeClock
    held: list[int] | None
    """GPUs that the run held; None if that is not recorded."""
    period_s: float

    @property
    def name(self) -> str:
        return self.recording.node

    @property
    def overlap_s(self) -> float:
        """Seconds of its recording that an earlier segment has counted."""
        return self.window[0] - self.whole[0]


class _NodeSums(NamedTuple):
    """What a segment needs of a node that was accounted for."""

    name: str
    window: Window
    clock_known: bool
    lost_s: float = 0.0
    """Seconds of work that was lost."""
    measured_j: float | None = 0.0
    """Energy of its parts; None if that was not measured."""

    @property
    def length_s(self) -> float:
        return self.window[1] - self.window[0]


def account(run: Run, traces: Traces | None = None) -> Accounts:
    """Account for one run; `traces` gets its samples node by node."""
    counted = _Counted(run, traces)
    numbers, idle = _segments(run)
    for number in idle:
        detail = f"segment {number} ended during start-up; nothing was recorded of it and nothing is counted"
        counted.rows.flag([flag("segment_lost", None, detail)], number)
    for number in numbers:
        with open_segment(run.recordings, number) as segment:
            _add_segment(counted, segment, segment_events(run.events, number))
    return tables(counted.rows, run.spec.configuration, run.spec.repeat)


def account_segment(
    run: Run, segment: Segment, events: list[Event], traces: Traces | None = None
) -> Accounts:
    """Account for what is the only segment of a run."""
    counted = _Counted(run, traces)
    _add_segment(counted, segment, events)
    return tables(counted.rows, run.spec.configuration, run.spec.repeat)


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
    check_rated_powers(powers, "--powers")
    spec = read_planned_run(spec_path)
    run = Run.of(run_dir, spec, powers)
    with write_traces(traces_path, configuration=spec.configuration, repeat=spec.repeat) as traces:
        accounts = account(run, traces)
    accounts.write(energy_path)


# --- segments -------------------------------------------------------------------------------------


def _segments(run: Run) -> tuple[list[int], list[int]]:
    """Numbers of all segments with content, in the order of their start, and of those without.

    A start that failed before the first sample and the first update has nothing to account for.
    """
    started = segment_numbers(run.recordings)
    numbers = {int(row["segment"]) for row in run.provenance.get("segments") or []} | started
    if run.events is not None:
        named = run.events.filter(pc.is_valid(run.events["segment"]))
        numbers |= set(named["segment"].to_pylist())
        started |= set(named.filter(pc.not_equal(named["stage"], "startup"))["segment"].to_pylist())
    idle = sorted(numbers - started) if started else []
    numbers = started or numbers or {0}
    starts_s = {number: _start_s(run, number) for number in numbers if len(numbers) > 1}
    return sorted(numbers, key=lambda number: (starts_s.get(number), number)), idle


def _start_s(run: Run, number: int) -> float:
    """Start of a segment, or else its first sample; infinite if neither has a known time."""
    if (started_s := run.segment(number).get("started_s")) is not None:
        return float(started_s)
    with open_segment(run.recordings, number) as segment:
        nodes = (segment.node(host) for host in segment.hosts)
        windows = (node_window(node.blocks) for node in nodes if node.clock_known)
        return min((window[0] for window in windows if window is not None), default=np.inf)


def _add_segment(counted: _Counted, segment: Segment, events: list[Event]) -> None:
    """Account for the nodes of a segment one by one, and for what concerns all of them."""
    run, number, rows = counted.run, segment.number, counted.rows
    for each in segment.flags:
        rows.flag([each], number, each.get("node"), each.get("kind"))
    lost = _discarded_span(run, number, events)
    nodes = [_add_node(counted, node, events, lost) for node in _nodes(counted, segment)]
    flags = [] if events else [flag("no_events", None, f"segment {number} has no stage events")]
    if not events and all(node.clock_known for node in nodes):
        flags += uneven_flags({node.name: node.window for node in nodes})
    flags += _outcome_flags(run, number, max((node.lost_s for node in nodes), default=0.0))
    missing, of_hosts = _missing_hosts(run, [node.name for node in nodes], segment)
    length_s = max((node.length_s for node in nodes), default=0.0)
    _add_unrecorded(rows, number, missing, events, length_s)
    whole_j = None if missing else known_sum(node.measured_j for node in nodes)
    checks = slurm_check(segment.slurm, whole_j, length_s)
    rows.cross_checks.extend({"segment": number, **row} for row in checks)
    rows.flag([*flags, *of_hosts, *cross_check_flags(checks, NODE)], number)


def _outcome_flags(run: Run, number: int, lost_s: float) -> list[Flag]:
    """Flag a segment that did not end as it should; `lost_s` of its work were lost."""
    ended = run.segment(number)
    if ended.get("outcome") == "monitor_lost":
        detail = f"segment {number} stopped at a checkpoint, because it was not recorded any more"
        return [flag("segment_lost", None, f"{detail}: {ended.get('detail')}")]
    if how := _DISCARDING.get(str(ended.get("outcome"))):
        lost = f"{lost_s:.1f} s of its work were lost and done again"
        detail = f"segment {number} {how}; {lost if lost_s else 'what it lost is not known'}"
        return [flag("segment_lost", None, detail)]
    return []


def _discarded_span(run: Run, number: int, events: list[Event]) -> Window:
    """From when to when the work of a segment was lost: since its last checkpoint.

    Of a segment that stopped within an evaluation: the evaluations of that epoch, which a later
    segment did again. That time and its energy are in the run's totals.
    """
    if run.segment(number).get("outcome") in _DISCARDING:
        saved = [float(e["end_s"]) for e in events[:-1] if e["stage"] == "checkpoint"]
        return max(saved, default=-np.inf), np.inf
    later: set[tuple[str, int]] = set()
    if run.events is not None:
        rows = run.events.filter(pc.greater(run.events["segment"], number)).to_pylist()
        later = {(row["stage"], row["epoch"]) for row in rows if row["epoch"] is not None}
    again = [e for e in events if e["stage"] in EVALUATIONS and (e["stage"], e["epoch"]) in later]
    if not again:
        return 0.0, 0.0
    return min(float(e["start_s"]) for e in again), max(float(e["end_s"]) for e in again)


def _missing_hosts(
    run: Run, recorded: Sequence[str], segment: Segment
) -> tuple[list[str], list[Flag]]:
    """Nodes without a sample, by name if one is known."""
    expected = run.spec.nodes or len(segment.hosts)
    if len(recorded) > expected:
        detail = f"{len(recorded)} hosts recorded, {expected} expected: {', '.join(recorded)}"
        return [], [flag("device_count", None, detail)]
    hosts = run.hosts_of(segment.number)
    nodes = nodes_by_name(segment.hosts, hosts)
    names = dict.fromkeys(nodes[host] for host in (*segment.hosts, *hosts))
    known = [name for name in names if name not in {nodes[host] for host in recorded}]
    unknown = (f"unknown-{i}" for i in range(1, expected + 1))
    missing = [*known, *unknown][: expected - len(recorded)]
    if not missing:
        return [], []
    detail = f"segment {segment.number}: no sample in a readable HDF5 or journal"
    if recorded:
        detail = f"{len(recorded)} of {expected} hosts recorded; missing: {', '.join(missing)}"
    return missing, [flag("not_recorded", None, detail)]


def _add_unrecorded(
    rows: Collected, number: int, names: Iterable[str], events: list[Event], others_s: float
) -> None:
    """Add nodes that nothing was recorded of, with the stages of the events.

    Without events they had as much time as the others of the segment (`others_s`).
    """
    ended = [event for event in events if event["end_s"] != np.inf]
    window = (0.0, others_s)
    if ended:
        window = float(ended[0]["start_s"]), max(float(event["end_s"]) for event in ended)
    seconds, _ = stage_seconds(tile_window(ended, window)[0])
    same = {"segment": number, "coverage": 0.0, "recorded": False, "seconds": window[1] - window[0]}
    for name in names:
        for kind in (*ALL_KINDS, UNUSED_GPU):
            rows.add({"node": name, "device_kind": kind, **same}, nothing(seconds))


# --- nodes ----------------------------------------------------------------------------------------


def _nodes(counted: _Counted, segment: Segment) -> Iterator[_Node]:
    """Read the nodes of a segment that have samples, and say what of their time counts."""
    run, number, ends = counted.run, segment.number, counted.ends
    noted = run.segment(number).get("clock_offsets") or ()
    nodes = nodes_by_name(segment.hosts, ends, (str(row["host"]) for row in noted))
    earlier = {nodes[host]: host for host in ends}
    hosts = run.hosts_of(number)
    rank_0 = same_node(hosts[0], segment.hosts) if hosts else None
    flags: list[Flag] = []
    # Rank 0's node first: offsets are to its clock, and correct no node if that was set.
    for host in sorted(segment.hosts, key=lambda host: host != rank_0):
        recording = segment.node(host)
        flags += recording.flags if host == rank_0 else ()
        recorded = node_window(recording.blocks)
        if recorded is None:
            counted.rows.flag(recording.flags, number, host)
            continue
        window, whole, offsets = recorded, recorded, []
        if recording.clock_known:
            key = earlier.get(nodes[host], host)
            counted_s = min(ends.get(key, -np.inf), recorded[1])
            ends[key] = max(ends.get(key, -np.inf), recorded[1])
            window = whole = run.window_of(recorded)
            if counted_s > recorded[0]:
                window = float(np.clip(counted_s, *whole)), whole[1]
            offsets = [row for row in noted if nodes[str(row["host"])] == nodes[host]]
        gpus = ((s.row.index, s.row.uuid) for s in sensors_of(recording.blocks))
        held = run.used_gpus(host, gpus, number, segment.hosts)
        clock = NodeClock.of(host, offsets, [*flags, *recording.flags])
        period_s = recording.period_s or run.spec.sampling_period_s or 1.0
        yield _Node(number, recording, window, whole, clock, held, period_s)


def _add_node(counted: _Counted, node: _Node, events: list[Event], lost: Window) -> _NodeSums:
    """Account for a node: its flags, cross-checks and telemetry, and its pieces by device kind.

    `events` and the span `lost`, whose work was lost, are by the clock of rank 0.
    """
    run, rows, recording, window = counted.run, counted.rows, node.recording, node.window
    events = node.clock.events(events)
    lost = node.clock.of_node(lost[0]), node.clock.of_node(lost[1])
    intervals, of_stages = tile_window(events, window)
    working = [event for event in events if event["stage"] not in run.uncounted_stages]
    outside_s = seconds_outside(working, node.whole, node.period_s)
    rows.flag([*recording.flags, *of_stages], node.segment, node.name)
    rows.flag(_node_flags(node, intervals, outside_s), node.segment, node.name)
    kinds = _kinds(run, node, intervals, outside_s)
    point, telemetry = run.operating_point, recording.telemetry
    training = intervals.spans_of(("train",)) or [window]
    of_states = state_flags(telemetry, node.held, window, "gpu_power_limit_w" in point)
    of_settings = setting_flags(telemetry, node.held, point, training, node.name)
    rows.flag([*of_states, *of_settings], node.segment, node.name)
    sums = _NodeSums(node.name, window, recording.clock_known)
    if window[1] <= window[0] and node.overlap_s > 0:
        return sums
    checks = [*gpu_checks(telemetry, kinds, window), *perun_checks(recording.perun_j, kinds)]
    checks += meter_checks(kinds, window)
    rows.flag(cross_check_flags(checks, NODE), node.segment, node.name)
    rows.cross_checks.extend({"segment": node.segment, **row} for row in checks)
    rows.telemetry.append(telemetry_table(recording.blocks, telemetry, node.segment))
    extended = _with_outside(intervals) if outside_s else intervals
    for kind in kinds:
        spans = extended if kind.devices else intervals
        part = kind.part(node.segment, spans, outside_s)
        rows.add(part, kind.pieces(spans, lost, outside_s), kind.described)
        flags = [*kind.flags, *cross_check_flags(checks, kind.device_kind)]
        rows.flag(flags, node.segment, node.name, kind.device_kind)
    if all(kind.device_kind != NODE for kind in kinds):  # others may have a meter
        meter = KindEnergy(node.name, NODE, None, ())
        part = meter.part(node.segment, intervals, outside_s)
        rows.add(part, meter.pieces(intervals, lost))
    if counted.traces is not None:
        _trace(counted.traces, node, kinds, intervals)
    lost_s = float(np.sum(intervals.within(*lost).seconds))
    return sums._replace(lost_s=lost_s, measured_j=measured_j(kinds, window))


def _with_outside(intervals: StageIntervals) -> StageIntervals:
    """Intervals after a first one without length, `unattributed`, for what lies outside of them."""
    rows = zip(*(column.tolist() for column in vars(intervals).values()), strict=True)
    begin_s = float(intervals.start_s[0])
    return StageIntervals.of([(UNATTRIBUTED, None, begin_s, begin_s), *rows])


def _node_flags(node: _Node, intervals: StageIntervals, outside_s: float) -> Iterator[Flag]:
    """Flags of a node's time: overlap, concurrent runs, its clock and what lies outside."""
    if node.overlap_s > 0:
        detail = f"{node.name}: {node.overlap_s:.1f} s were recorded by an earlier segment too"
        yield flag("overlap", None, f"{detail}; they count once")
    if (blind_s := node.recording.unwatched_s(node.window)) > 0:
        detail = f"{node.name}: concurrent runs could not be detected for {blind_s:.1f} s"
        yield flag("concurrent_runs_unknown", None, detail)
    yield from node.clock.flags(node.period_s)
    if outside_s:
        none = " and none within it: are the times of both right, and their zones?"
        only = none if set(intervals.stage) == {UNATTRIBUTED} else ""
        detail = f"{node.name}: {outside_s:.1f} s of the run lie outside of the recording{only}"
        yield flag("recording_short", None, detail)


def _kinds(run: Run, node: _Node, intervals: StageIntervals, outside_s: float) -> list[KindEnergy]:
    """Energies of a node's device kinds, in the order of their names."""
    recording, held = node.recording, node.held
    expected = run.spec.ranks_per_node if held is None else len(held)
    facts = NodeFacts(
        node.name,
        node.window,
        recording.period_s or run.spec.sampling_period_s,
        run.powers,
        lost_s=outside_s,
        uncounted=intervals.spans_of(run.uncounted_stages),
        used_gpus=held,
        expected_gpus=run.gpus_per_node or expected,
        has_gpus=bool(run.gpus_per_node),
        model=run.provenance.get("device_name") or "",
    )
    telemetry = recording.telemetry
    read = [*recording.blocks, *gpu_loads(telemetry), *node_meters(telemetry)]
    kinds = node_kinds(facts, read)
    others = run.concurrent(node.name, node.window)
    shared_s = max([recording.shared_s(node.window), *(seconds for seconds, _ in others)])
    if shared_s > 0:
        gpus = [gpus for _, gpus in others]
        # Another run may hold any GPU if it is not known which.
        is_known = held is not None and all(g is not None and not {*held} & {*g} for g in gpus)
        kinds = shared_kinds(kinds, shared_s, recording.met, is_known)
    return sorted(kinds, key=lambda kind: kind.device_kind)


def _trace(
    traces: Traces, node: _Node, kinds: Sequence[KindEnergy], intervals: StageIntervals
) -> None:
    """Write the samples of the sensors that count of a node, those of a block together."""
    counted = [(kind.device_kind, device) for kind in kinds for device in kind.devices]
    for block in {id(device.block): device.block for _, device in counted}.values():
        names, devices = zip(*((k, d) for k, d in counted if d.block is block), strict=True)
        sensors = block.sensors.iloc[[d.column for d in devices]].assign(kind=names)
        powers = [device.validated.power_w for device in devices]
        flags = [device.validated.sample_flags for device in devices]
        stages = intervals.codes_at(block.time_s)
        traces.add(
            node.segment, node.name, block.time_s, powers, sensors, flags, stages, node.clock
        )
