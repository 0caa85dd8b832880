"""The energy of a run: perun's files, journals and stage events to traces and energy tables.

The accounted window of a node is [first, last sample] of all its sensors, or the run's own time where
that was told; nothing is extrapolated. Where two segments overlap on a node, the earlier one keeps the
time. A kind that no node has a sensor or an estimate of has rows with null energy and the flag `absent`
(outside of the run's scope); null energy with any other flag means that energy was used and is not known:
what was recorded of it stands in `recorded_j`. A flag is about a segment, one of its nodes, or a device
kind of that; `stage_short` is about a stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from scalewatt.common.rated_powers import check_rated_powers
from scalewatt.energies.accounting.cross_checks import (
    compared_with_journal,
    cross_check_flags,
    gpu_cross_checks,
    measured_j,
    slurm_cross_check,
)
from scalewatt.energies.accounting.energy_schema import Accounts
from scalewatt.energies.accounting.node_clock import NodeClock
from scalewatt.energies.accounting.node_energy import (
    KindEnergy,
    Window,
    against_perun,
    node_kinds,
    node_window,
    shared_kinds,
)
from scalewatt.energies.accounting.rows import EnergyRows
from scalewatt.energies.accounting.run_inputs import Run, read_planned_run
from scalewatt.energies.accounting.segment_recordings import (
    NodeRecording,
    Segment,
    open_segment,
    segment_numbers,
)
from scalewatt.energies.accounting.throttling import gpu_utilisation, state_flags, telemetry_table
from scalewatt.energies.accounting.totals import known_sum
from scalewatt.energies.accounting.whole_node import (
    meter_checks,
    meter_series,
    uneven_flags,
)
from scalewatt.energies.integration.operating_point import (
    SeenOfLever,
    not_held_flags,
    seen_of_levers,
)
from scalewatt.energies.stages import (
    UNATTRIBUTED,
    StageIntervals,
    seconds_outside,
    segment_events,
    tile_window,
)
from scalewatt.energies.traces import Traces, write_traces
from scalewatt.recordings.series import Flag, flag, nodes_by_name, with_sample_quantity
from scalewatt.recordings.stage_log import EVALUATIONS
from scalewatt.recordings.transition import to_blocks

_DISCARDING = {"killed": "was killed", "failed": "failed", "refused": "refused its input"}
"""Labels of the outcomes of a segment that lose the work since its last checkpoint."""

Event = dict[str, Any]


@dataclass(frozen=True, eq=False)
class NodeAccount:
    """One node in one segment: its device kinds over its window, cut into stages."""

    node: str
    window: Window
    intervals: StageIntervals
    kinds: tuple[KindEnergy, ...]
    recording: NodeRecording
    clock: NodeClock
    flags: tuple[Flag, ...]
    """Flags of all device kinds of the node; each kind has flags of its own."""
    unrecorded_s: float = 0.0
    """How long the run was at work on it outside of the recording."""
    overlaps: bool = False
    """True if an earlier segment has counted a part of its recording."""
    levers: tuple[SeenOfLever, ...] = ()

    @property
    def length_s(self) -> float:
        """Return the length of the window in s."""
        return self.window[1] - self.window[0]


def account(run: Run, traces: Traces | None = None) -> Accounts:
    """Account for one run; `traces` gets its samples node by node."""
    rows = EnergyRows()
    numbers, idle = run_segments(run)
    for number in idle:
        detail = f"segment {number} ended during start-up; nothing was recorded of it and nothing is counted"
        rows.add_flags([flag("segment_lost", None, detail)], number)
    levers: list[SeenOfLever] = []
    for number in _by_time(run, numbers):
        with open_segment(run.recordings, number) as segment:
            events = segment_events(run.events, number)
            levers += account_segment(run, segment, events, rows, traces)
    for number, node, one in not_held_flags(levers):
        rows.add_flags([one], number, node)
    return rows.tables(run.spec)


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


def run_segments(run: Run) -> tuple[list[int], list[int]]:
    """Return the numbers of all segments with content, and of those without.

    A start that failed before the first sample and the first update has nothing to account for.
    """
    noted = {int(one["segment"]): one for one in run.provenance.get("segments") or []}
    recorded = segment_numbers(run.recordings)
    numbers, started = set(noted) | recorded, set(recorded)
    if run.events is not None:
        named = run.events.filter(pc.is_valid(run.events["segment"]))
        numbers |= set(named["segment"].to_pylist())
        worked = named.filter(pc.not_equal(named["stage"], "startup"))
        started |= set(worked["segment"].to_pylist())
    if not started:
        return sorted(numbers) or [0], []
    return sorted(started), sorted(numbers - started)


def _by_time(run: Run, numbers: Sequence[int]) -> list[int]:
    """Return the numbers of segments in the order of their start, as far as that is known."""
    if len(numbers) < 2:
        return list(numbers)
    starts = {n: run.segment(n).get("started_s") for n in numbers}
    if None in starts.values():
        starts = {n: _first_sample_s(run, n) for n in numbers}
    return sorted(numbers, key=lambda n: (starts[n], n))


def _first_sample_s(run: Run, number: int) -> float:
    """Return the time of a segment's first sample; infinite where none has a known time."""
    with open_segment(run.recordings, number) as segment:
        nodes = (segment.node(host) for host in segment.hosts)
        windows = (node_window(node.series) for node in nodes if node.clock_known)
        return min((window[0] for window in windows if window is not None), default=np.inf)


def account_segment(
    run: Run,
    segment: Segment,
    events: list[Event],
    rows: EnergyRows,
    traces: Traces | None = None,
) -> list[SeenOfLever]:
    """Account for one segment: add its rows, telemetry and cross-checks, and its samples to `traces`.

    Returns what its devices showed of the clocks and the power limit that the run asked for.
    """
    levers: list[SeenOfLever] = []
    flags = list(segment.flags)
    if not events:
        flags.append(flag("no_events", None, f"segment {segment.number} has no stage events"))
    recorded_s, lost_s = 0.0, 0.0
    of_parts: list[float | None] = []
    lost = _discarded_span(run, segment.number, events)
    nodes: dict[str, Window] = {}
    clocks_known = True
    for one in _node_accounts(run, segment, events, rows):
        nodes[one.node] = one.window
        clocks_known &= one.recording.clock_known
        rows.add_flags(one.flags, segment.number, one.node)
        levers += one.levers
        if one.length_s <= 0 and one.overlaps:
            continue
        checks = gpu_cross_checks(one.recording, one.kinds, one.window)
        checks += meter_checks(one.recording, one.kinds, one.window)
        rows.add_flags(cross_check_flags(checks, "node"), segment.number, one.node)
        recorded_s = max(recorded_s, one.length_s)
        discarded = one.clock.of_node(lost[0]), one.clock.of_node(lost[1])
        lost_s = max(lost_s, float(np.sum(one.intervals.within(*discarded).seconds)))
        for kind in sorted(one.kinds, key=lambda kind: kind.device_kind):
            own = [*kind.flags, *cross_check_flags(checks, kind.device_kind)]
            rows.add(segment.number, kind, one.intervals, discarded, one.unrecorded_s, own)
        if traces is not None:
            _trace(traces, segment.number, one)
        of_parts.append(measured_j(one.kinds, one.window))
        rows.cross_checks += [one.row(segment.number) for one in checks]
        rows.telemetry.append(telemetry_table(one.recording, segment.number))
    if not events and clocks_known:
        flags += uneven_flags(nodes)
    flags += _outcome_flags(run, segment.number, lost_s)
    absent, of_hosts = _missing_hosts(run, list(nodes), segment)
    flags += of_hosts
    for node in absent:
        rows.add_unrecorded(segment.number, node, _unrecorded(events, recorded_s))
    whole = slurm_cross_check(segment.slurm, None if absent else known_sum(of_parts), recorded_s)
    if whole is not None:
        rows.cross_checks.append(whole.row(segment.number))
        flags += cross_check_flags([whole], "node")
    rows.add_flags(flags, segment.number)
    return levers


def _trace(traces: Traces, segment: int, node: NodeAccount) -> None:
    """Write the samples of the sensors that count of a node, those that share their times together."""
    blocks: dict[int, list[Any]] = {}
    for kind in sorted(node.kinds, key=lambda kind: kind.device_kind):
        for series, validated in zip(kind.series, kind.validated, strict=True):
            blocks.setdefault(id(series.time_s), []).append((kind.device_kind, series, validated))
    for members in blocks.values():
        time_s = members[0][1].time_s
        frames = [to_blocks([one])[0].sensors.assign(kind=kind) for kind, one, _ in members]
        powers, flags = zip(*((v.power_w, v.sample_flags) for *_, v in members), strict=True)
        stages = node.intervals.codes_at(time_s)
        sensors = pd.concat(frames, ignore_index=True)
        traces.add(segment, node.node, time_s, powers, sensors, flags, stages, node.clock)


def _outcome_flags(run: Run, number: int, lost_s: float) -> list[Flag]:
    """Return a flag for a segment that did not end as it should; `lost_s` of its work were lost."""
    ended = run.segment(number)
    if ended.get("outcome") == "monitor_lost":
        detail = f"segment {number} stopped at a checkpoint, because it was not recorded any more"
        return [flag("segment_lost", None, f"{detail}: {ended.get('detail')}")]
    if how := _DISCARDING.get(str(ended.get("outcome"))):
        lost = f"{lost_s:.1f} s of its work were lost and done again"
        detail = f"segment {number} {how}; {lost if lost_s else 'what it lost is not known'}"
        return [flag("segment_lost", None, detail)]
    return []


def _node_accounts(
    run: Run, segment: Segment, events: list[Event], rows: EnergyRows
) -> Iterator[NodeAccount]:
    """Account for the nodes of a segment that have samples, one after the other."""
    noted = run.segment(segment.number).get("clock_offsets") or ()
    nodes = nodes_by_name(segment.hosts, rows.ends, (str(one["host"]) for one in noted))
    earlier = {nodes[host]: host for host in rows.ends}
    offsets: dict[str, list[Event]] = {}
    for one in noted:
        offsets.setdefault(nodes[str(one["host"])], []).append(one)
    for host in segment.hosts:
        key = earlier.get(nodes[host], host)
        recording = segment.node(host)
        window = node_window(recording.series)
        if window is None:
            rows.add_flags(recording.flags, segment.number, recording.node)
            continue
        begin = window[0]
        if recording.clock_known:
            end = rows.ends.get(key, begin)
            begin = min(max(begin, end), window[1])
            rows.ends[key] = max(window[1], end)
            first, window = window[0], _counted(window, run.window)
            begin = min(max(begin, window[0]), window[1]) if begin > first else window[0]
        held = run.used_gpus(recording.node, recording.series, segment.number, segment.hosts)
        of_node = offsets.get(nodes[host], ()) if recording.clock_known else ()
        clock = NodeClock.of(recording.node, of_node, segment.flags)
        yield _account_node(run, recording, events, clock, window, begin, held, segment.number)


def _counted(recorded: Window, told: Window) -> Window:
    """Return the time of a node that counts: the run's, where that was told, else what was recorded.

    Without length where nothing was recorded in the run's time.
    """
    if not np.isfinite(told).all():
        return recorded
    if recorded[1] <= told[0] or told[1] <= recorded[0]:
        return recorded[0], recorded[0]
    return told


def _account_node(
    run: Run,
    recording: NodeRecording,
    events: list[Event],
    clock: NodeClock,
    recorded: Window,
    begin: float,
    held: list[int] | None,
    segment: int,
) -> NodeAccount:
    """Account for a node and its `held` GPUs from `begin` to the end of what was `recorded`."""
    node, window = recording.node, (begin, recorded[1])
    events = clock.events(events)
    intervals, of_stages = tile_window(events, window)
    flags = [*recording.flags, *of_stages]
    if begin > recorded[0]:
        detail = f"{node}: {begin - recorded[0]:.1f} s were recorded by an earlier segment too"
        flags.append(flag("overlap", None, f"{detail}; they count once"))
    period_s = recording.period_s or run.spec.sampling_period_s
    flags += clock.flags(period_s or 1.0)
    apart = run.uncounted_stages
    counted = [event for event in events if event["stage"] not in apart]
    lost_s = seconds_outside(counted, recorded, period_s or 1.0)
    if lost_s:
        none = " and none within it: are the times of both right, and their zones?"
        only = none if set(intervals.stage) == {UNATTRIBUTED} else ""
        detail = f"{node}: {lost_s:.1f} s of the run lie outside of the recording{only}"
        flags.append(flag("recording_short", None, detail))
    expected = run.spec.ranks_per_node if held is None else len(held)
    facts: dict[str, Any] = {
        "powers": run.powers,
        "period_s": period_s,
        "used_gpus": held,
        "expected_gpus": expected if run.gpus_per_node is None else run.gpus_per_node,
        "has_gpus": bool(run.gpus_per_node),
        "lost_s": lost_s,
        "window": window,
        "uncounted": intervals.spans_of(apart),
    }
    of_gpus = partial(with_sample_quantity, device_name=run.provenance.get("device_name"))
    sensors, journal = (map(of_gpus, own) for own in (recording.series, recording.journal))
    series = [*sensors, *gpu_utilisation(recording), *meter_series(recording)]
    kinds = against_perun(node_kinds(node, series, **facts))
    if recording.journal:
        kinds = compared_with_journal(kinds, node_kinds(node, [*journal], **facts), window)
    shared_s = max(run.shared_s(node, window), recording.shared_s(window))
    if shared_s > 0:
        own_gpus = held is not None and not run.shares_gpus(node, held, window)
        kinds = shared_kinds(kinds, shared_s, recording.met, own_gpus)
    if (blind_s := recording.unwatched_s(window)) > 0:
        detail = f"{node}: concurrent runs could not be detected for {blind_s:.1f} s"
        flags.append(flag("concurrent_runs_unknown", None, detail))
    point, telemetry = run.operating_point, recording.telemetry
    flags += state_flags(telemetry, held, window, "gpu_power_limit_w" in point)
    levers, unseen = seen_of_levers(telemetry, held, point, intervals, window, node, segment)
    known = (node, window, intervals, tuple(kinds), recording, clock, (*flags, *unseen))
    return NodeAccount(*known, lost_s, begin > recorded[0], tuple(levers))


def _discarded_span(run: Run, number: int, events: list[Event]) -> Window:
    """Return from when to when the work of a segment was lost: since its last checkpoint.

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
    """Return stage and epoch of the evaluations in the segments after this one."""
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
    """Return the nodes without a sample, by name where one is known."""
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
    """Return the stages of a node that nothing was recorded of, as the events tell them.

    Without events it had as much time as the others of the segment (`others_s`).
    """
    ended = [e for e in events if e["end_s"] != float("inf")]
    window = (0.0, others_s)
    if ended:
        window = float(ended[0]["start_s"]), max(float(e["end_s"]) for e in ended)
    return tile_window(ended, window)[0]
