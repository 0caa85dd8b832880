"""Energy of a run: its recordings and stage events to traces and energy tables.

The accounted window of a node is [first, last sample] of all its sensors, or the run's own time if that is
known. If two segments overlap on a node, the earlier one keeps the time. A flag is about a segment, one of
its nodes, or a device kind of that; `stage_short` is about a stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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
    not_held_flags,
    perun_checks,
    settings_seen,
    slurm_check,
    state_flags,
    telemetry_table,
    uneven_flags,
)
from scalewatt.energies.node import (
    UNUSED_GPU,
    KindEnergy,
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
from scalewatt.recordings.block import Block
from scalewatt.recordings.node_names import nodes_by_name
from scalewatt.recordings.stage_log import EVALUATIONS
from scalewatt.recordings.terms import ALL_KINDS, NODE, Flag, flag, gpu_quantity

_DISCARDING = {"killed": "was killed", "failed": "failed", "refused": "refused its input"}
"""Labels of the outcomes of a segment that lose the work since its last checkpoint."""

Event = dict[str, Any]


@dataclass(frozen=True, eq=False)
class _Counted:
    """What has been counted of a run so far."""

    rows: Collected = field(default_factory=Collected)
    ends: dict[str, float] = field(default_factory=dict)
    """Until when each node's time has been counted."""
    gpus: dict[str, tuple[str, Window]] = field(default_factory=dict)
    """Node of each GPU's uuid, and when it was recorded there."""
    settings: list[dict[str, Any]] = field(default_factory=list)
    """What the devices showed of the clocks and limits that the run asked for."""


@dataclass(frozen=True, eq=False)
class _Node:
    """One node in one segment, before it is accounted for."""

    recording: NodeRecording
    window: Window
    """The time that counts."""
    recorded: Window
    clock: NodeClock
    held: list[int] | None
    """GPUs that the run held; None if that is not recorded."""

    @property
    def name(self) -> str:
        return self.recording.node

    @property
    def length_s(self) -> float:
        return self.window[1] - self.window[0]

    @property
    def overlap_s(self) -> float:
        """How much of its recording an earlier segment has counted."""
        return self.window[0] - self.recorded[0]


def account(run: Run, traces: Traces | None = None) -> Accounts:
    """Account for one run; `traces` gets its samples node by node."""
    counted = _Counted()
    numbers, idle = run_segments(run)
    for number in idle:
        detail = f"segment {number} ended during start-up; nothing was recorded of it and nothing is counted"
        counted.rows.flag([flag("segment_lost", None, detail)], number)
    for number in _by_time(run, numbers):
        with open_segment(run.recordings, number) as segment:
            _add_segment(counted, run, segment, segment_events(run.events, number), traces)
    return _tables(counted, run)


def account_segment(
    run: Run, segment: Segment, events: list[Event], traces: Traces | None = None
) -> Accounts:
    """Account for what is the only segment of a run."""
    counted = _Counted()
    _add_segment(counted, run, segment, events, traces)
    return _tables(counted, run)


def _tables(counted: _Counted, run: Run) -> Accounts:
    for number, node, not_held in not_held_flags(counted.settings):
        counted.rows.flag([not_held], number, node)
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


def run_segments(run: Run) -> tuple[list[int], list[int]]:
    """Numbers of all segments with content, and of those without.

    A start that failed before the first sample and the first update has nothing to account for.
    """
    started = segment_numbers(run.recordings)
    numbers = {int(each["segment"]) for each in run.provenance.get("segments") or []} | started
    if run.events is not None:
        named = run.events.filter(pc.is_valid(run.events["segment"]))
        numbers |= set(named["segment"].to_pylist())
        worked = named.filter(pc.not_equal(named["stage"], "startup"))
        started = started | set(worked["segment"].to_pylist())
    if not started:
        return sorted(numbers) or [0], []
    return sorted(started), sorted(numbers - started)


def _by_time(run: Run, numbers: Sequence[int]) -> list[int]:
    """Numbers of segments in the order of their start, as far as that is known."""
    if len(numbers) < 2:
        return list(numbers)
    starts = {n: run.segment(n).get("started_s") for n in numbers}
    if None in starts.values():
        starts = {n: _first_sample_s(run, n) for n in numbers}
    return sorted(numbers, key=lambda n: (starts[n], n))


def _first_sample_s(run: Run, number: int) -> float:
    """Time of a segment's first sample; infinite if none has a known time."""
    with open_segment(run.recordings, number) as segment:
        nodes = (segment.node(host) for host in segment.hosts)
        windows = (node_window(node.blocks) for node in nodes if node.clock_known)
        return min((window[0] for window in windows if window is not None), default=np.inf)


def _add_segment(
    counted: _Counted,
    run: Run,
    segment: Segment,
    events: list[Event],
    traces: Traces | None,
) -> None:
    """Account for one segment: its rows, telemetry and cross-checks, and its samples to `traces`."""
    number, rows = segment.number, counted.rows
    flags = [each for each in segment.flags if each.get("node") is None]
    for each in segment.flags:
        if each.get("node") is not None:
            rows.flag([each], number, each["node"], each.get("kind"))
    if not events:
        flags.append(flag("no_events", None, f"segment {number} has no stage events"))
    span = _discarded_span(run, number, events)
    nodes = []
    lost_s, parts_j = [0.0], []
    for node in _nodes(counted, run, segment):
        # Without its samples, so that memory is that of a node or two.
        nodes.append(replace(node, recording=replace(node.recording, blocks=[], telemetry=[])))
        lost, joules = _add_node(
            counted, run, number, node, node.clock.events(events), span, traces
        )
        if node.length_s > 0 or not node.overlap_s > 0:
            lost_s.append(lost)
            parts_j.append(joules)
    if not events and all(node.recording.clock_known for node in nodes):
        flags += uneven_flags({node.name: node.window for node in nodes})
    flags += _outcome_flags(run, number, max(lost_s))
    absent, of_hosts = _missing_hosts(run, [node.name for node in nodes], segment)
    recorded_s = max((node.length_s for node in nodes), default=0.0)
    for name in absent:
        seconds, _ = stage_seconds(_unrecorded(events, recorded_s))
        for kind in (*ALL_KINDS, UNUSED_GPU):
            part = {"segment": number, "node": name, "device_kind": kind, "coverage": 0.0}
            length = {"seconds": float(seconds["duration_s"].sum()), "recorded": False}
            rows.add({**part, **length}, nothing(seconds))
    whole = slurm_check(segment.slurm, None if absent else known_sum(parts_j), recorded_s)
    rows.cross_checks.extend({"segment": number, **row} for row in whole)
    rows.flag([*flags, *of_hosts, *cross_check_flags(whole, "node")], number)


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
    if run.segment(number).get("outcome") not in _DISCARDING:
        later = _evaluated_after(run, number)
        lost = [e for e in events if (e["stage"], e["epoch"]) in later]
        begins, ends = ([float(e[key]) for e in lost] for key in ("start_s", "end_s"))
        return (min(begins), max(ends)) if lost else (0.0, 0.0)
    saved = [float(e["end_s"]) for e in events[:-1] if e["stage"] == "checkpoint"]
    return max(saved, default=float("-inf")), float("inf")


def _evaluated_after(run: Run, number: int) -> set[tuple[str, int]]:
    """Stage and epoch of the evaluations in the segments after this one."""
    if run.events is None:
        return set()
    later = run.events.filter(pc.greater(run.events["segment"], number)).to_pylist()
    return {
        (row["stage"], row["epoch"])
        for row in later
        if row["stage"] in EVALUATIONS and row["epoch"] is not None
    }


def _missing_hosts(
    run: Run, recorded: Sequence[str], segment: Segment
) -> tuple[list[str], list[Flag]]:
    """Nodes without a sample, by name if one is known."""
    expected = run.spec.nodes or len(segment.hosts)
    hosts = run.hosts_of(segment.number)
    nodes = nodes_by_name(segment.hosts, hosts)
    known = {nodes[host] for host in recorded}
    named = list(dict.fromkeys(nodes[h] for h in (*segment.hosts, *hosts) if nodes[h] not in known))
    if len(recorded) > expected:
        detail = f"{len(recorded)} hosts recorded, {expected} expected: {', '.join(recorded)}"
        return [], [flag("device_count", None, detail)]
    count = expected - len(recorded)
    missing = named[:count] + [f"unknown-{i}" for i in range(1, count - len(named[:count]) + 1)]
    if not missing:
        return [], []
    if not recorded:
        detail = f"segment {segment.number}: no sample in a readable HDF5 or journal"
        return missing, [flag("not_recorded", None, detail)]
    detail = f"{len(recorded)} of {expected} hosts recorded; missing: {', '.join(missing)}"
    return missing, [flag("not_recorded", None, detail)]


def _unrecorded(events: list[Event], others_s: float) -> StageIntervals:
    """Stages of a node that nothing was recorded of, by the events.

    Without events it had as much time as the others of the segment (`others_s`).
    """
    ended = [e for e in events if e["end_s"] != float("inf")]
    window = (0.0, others_s)
    if ended:
        window = float(ended[0]["start_s"]), max(float(e["end_s"]) for e in ended)
    return tile_window(ended, window)[0]


# --- nodes ----------------------------------------------------------------------------------------


def _nodes(counted: _Counted, run: Run, segment: Segment) -> Iterator[_Node]:
    """Read the nodes of a segment that have samples, and say what of their time counts."""
    number, ends = segment.number, counted.ends
    noted = run.segment(number).get("clock_offsets") or ()
    nodes = nodes_by_name(segment.hosts, ends, (str(each["host"]) for each in noted))
    earlier = {nodes[host]: host for host in ends}
    offsets: dict[str, list[Event]] = {}
    for each in noted:
        offsets.setdefault(nodes[str(each["host"])], []).append(each)
    for host in segment.hosts:
        recording = segment.node(host)
        recorded = node_window(recording.blocks)
        flags = (*recording.flags, *_shared_gpu_flags(counted, recording))
        recording = replace(recording, flags=flags)
        if recorded is None:
            counted.rows.flag(recording.flags, number, host)
            continue
        begin, window = recorded[0], recorded
        if recording.clock_known:
            key = earlier.get(nodes[host], host)
            end = ends.get(key, begin)
            begin = min(max(begin, end), recorded[1])
            ends[key] = max(recorded[1], end)
            window = _counted_window(recorded, run.window)
            later = begin > recorded[0]
            begin = min(max(begin, window[0]), window[1]) if later else window[0]
        gpus = ((s.row.index, s.row.uuid) for s in sensors_of(recording.blocks))
        held = run.used_gpus(host, gpus, number, segment.hosts)
        of_node = offsets.get(nodes[host], ()) if recording.clock_known else ()
        clock = NodeClock.of(host, of_node, segment.flags)
        yield _Node(recording, (begin, window[1]), window, clock, held)


def _counted_window(recorded: Window, told: Window) -> Window:
    """Time of a node that counts: the run's, if that is known, else what was recorded.

    Without length if nothing was recorded in the run's time.
    """
    if not np.isfinite(told).all():
        return recorded
    if recorded[1] <= told[0] or told[1] <= recorded[0]:
        return recorded[0], recorded[0]
    return told


def _shared_gpu_flags(counted: _Counted, recording: NodeRecording) -> list[Flag]:
    """Flag a node whose GPUs, by their uuid, another node had at the same time: one machine by two names?

    They count for both: a sampler names its own machine's devices. Files of other tools are joined before.
    """
    others: dict[str, None] = {}
    for block in (block for block in recording.blocks if block.time_s.size):
        span = float(block.time_s.min()), float(block.time_s.max())
        for uuid in block.sensors["uuid"]:
            if other := _known_at(counted.gpus, uuid, block.node, span):
                others[other] = None
            elif uuid:
                counted.gpus[uuid] = block.node, span
    if not others:
        return []
    names = ", ".join(others)
    detail = f"{recording.node}: its GPUs are those of {names}, by their uuid; they count for both"
    return [flag("duplicate", None, detail)]


def _known_at(
    gpus: dict[str, tuple[str, Window]], uuid: str, node: str, span: Window
) -> str | None:
    """Other node that had a GPU in a span of time; None without."""
    other, (begin, end) = gpus.get(uuid, (node, span))
    return other if other != node and begin < span[1] and span[0] < end else None


def _add_node(
    counted: _Counted,
    run: Run,
    number: int,
    node: _Node,
    events: list[Event],
    span: Window,
    traces: Traces | None,
) -> tuple[float, float | None]:
    """Account for a node; seconds of lost work in it, and what its parts were measured to use in J.

    `span` of the work of the segment was lost, by the clock of rank 0.
    """
    rows, recording, window = counted.rows, node.recording, node.window
    intervals, of_stages = tile_window(events, window)
    flags = [*recording.flags, *of_stages, *_window_flags(node)]
    period_s = recording.period_s or run.spec.sampling_period_s or 1.0
    flags += node.clock.flags(period_s)
    apart = run.uncounted_stages
    outside_s = seconds_outside(
        [event for event in events if event["stage"] not in apart], node.recorded, period_s
    )
    if outside_s:
        none = " and none within it: are the times of both right, and their zones?"
        only = none if set(intervals.stage) == {UNATTRIBUTED} else ""
        detail = f"{node.name}: {outside_s:.1f} s of the run lie outside of the recording{only}"
        flags.append(flag("recording_short", None, detail))
    kinds = _kinds(run, node, intervals, outside_s)
    seen = _settings(run, node, intervals)
    counted.settings.extend({"segment": number, **row} for row in seen[0])
    telemetry = recording.telemetry
    flags += state_flags(telemetry, node.held, window, "gpu_power_limit_w" in run.operating_point)
    rows.flag([*flags, *seen[1]], number, node.name)
    if node.length_s <= 0 and node.overlap_s > 0:
        return 0.0, None
    checks = [*gpu_checks(telemetry, kinds, window), *perun_checks(recording.perun_j, kinds)]
    checks += meter_checks(node.name, telemetry, kinds, window)
    rows.flag(cross_check_flags(checks, "node"), number, node.name)
    rows.cross_checks.extend({"segment": number, **row} for row in checks)
    rows.telemetry.append(telemetry_table(recording.blocks, telemetry, number))
    lost = node.clock.of_node(span[0]), node.clock.of_node(span[1])
    extended = _with_outside(intervals) if outside_s else intervals
    for kind in sorted(kinds, key=lambda kind: kind.device_kind):
        spans = extended if kind.devices else intervals
        part = kind.part(number, spans, outside_s)
        rows.add(part, kind.pieces(spans, lost, outside_s), kind.described)
        flags = [*kind.flags, *cross_check_flags(checks, kind.device_kind)]
        rows.flag(flags, number, node.name, kind.device_kind)
    if all(kind.device_kind != NODE for kind in kinds):
        meter = replace(kinds[0], device_kind=NODE, devices=(), count=0, coverage=None)
        rows.add(meter.part(number, intervals, outside_s), meter.pieces(intervals, lost), [])
    if traces is not None:
        _trace(traces, number, node, kinds, intervals)
    return float(np.sum(intervals.within(*lost).seconds)), measured_j(kinds, window)


def _with_outside(intervals: StageIntervals) -> StageIntervals:
    """Intervals after a first one without length, `unattributed`, for what lies outside of them."""
    rows = zip(*(column.tolist() for column in vars(intervals).values()), strict=True)
    begin_s = float(intervals.start_s[0])
    return StageIntervals.of([(UNATTRIBUTED, None, begin_s, begin_s), *rows])


def _trace(
    traces: Traces, number: int, node: _Node, kinds: Sequence[KindEnergy], intervals: StageIntervals
) -> None:
    """Write the samples of the sensors that count of a node, those of a block together."""
    ordered = sorted(kinds, key=lambda kind: kind.device_kind)
    counted = [(kind.device_kind, device) for kind in ordered for device in kind.devices]
    for block in {id(device.block): device.block for _, device in counted}.values():
        names, devices = zip(*((k, d) for k, d in counted if d.block is block), strict=True)
        sensors = block.sensors.iloc[[d.column for d in devices]].assign(kind=names)
        powers, flags = zip(
            *((d.validated.power_w, d.validated.sample_flags) for d in devices), strict=True
        )
        stages = intervals.codes_at(block.time_s)
        traces.add(number, node.name, block.time_s, powers, sensors, flags, stages, node.clock)


def _window_flags(node: _Node) -> Iterator[Flag]:
    if node.overlap_s > 0:
        detail = f"{node.name}: {node.overlap_s:.1f} s were recorded by an earlier segment too"
        yield flag("overlap", None, f"{detail}; they count once")
    if (blind_s := node.recording.unwatched_s(node.window)) > 0:
        detail = f"{node.name}: concurrent runs could not be detected for {blind_s:.1f} s"
        yield flag("concurrent_runs_unknown", None, detail)


def _kinds(run: Run, node: _Node, intervals: StageIntervals, outside_s: float) -> list[KindEnergy]:
    """Energies of a node's device kinds."""
    recording, held, model = node.recording, node.held, run.provenance.get("device_name")
    blocks = [_with_samples(block, model) for block in recording.blocks]
    expected = run.spec.ranks_per_node if held is None else len(held)
    kinds = node_kinds(
        node.name,
        [*blocks, *gpu_loads(recording.telemetry), *node_meters(recording.telemetry)],
        powers=run.powers,
        period_s=recording.period_s or run.spec.sampling_period_s,
        used_gpus=held,
        expected_gpus=expected if run.gpus_per_node is None else run.gpus_per_node,
        has_gpus=bool(run.gpus_per_node),
        lost_s=outside_s,
        window=node.window,
        uncounted=intervals.spans_of(run.uncounted_stages),
        model=model,
    )
    shared_s = max(run.shared_s(node.name, node.window), recording.shared_s(node.window))
    if shared_s <= 0:
        return kinds
    own_gpus = held is not None and not run.shares_gpus(node.name, held, node.window)
    return shared_kinds(kinds, shared_s, recording.met, own_gpus)


def _with_samples(block: Block, model: str | None) -> Block:
    """Say what the samples of GPUs' power stand for, by the GPU's name, if the block does not."""
    sensors = block.sensors
    unknown = (
        (sensors["kind"] == "gpu") & (sensors["quantity"] == "power") & (sensors["samples"] == "")
    )
    if not unknown.any():
        return block
    names = sensors["device"].where(sensors["device"] != "", model or "")
    known = names.map(lambda name: gpu_quantity(name) or "")
    return replace(block, sensors=sensors.assign(samples=sensors["samples"].where(~unknown, known)))


def _settings(
    run: Run, node: _Node, intervals: StageIntervals
) -> tuple[list[dict[str, Any]], list[Flag]]:
    point, telemetry = run.operating_point, node.recording.telemetry
    return settings_seen(telemetry, node.held, point, intervals, node.window, node.name)
