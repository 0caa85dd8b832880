"""Whole nodes by their own meters, and the switches between nodes: scopes beside gpu, cpu and ram.

A node's meter counts all of the node, so its energy is never added to that of the node's parts. The
switches are outside of every node, and are added to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scalewatt.energies.accounting.cross_checks import METERS, CrossCheck, log_rule_check
from scalewatt.energies.accounting.node_clock import NodeClock
from scalewatt.energies.accounting.node_energy import KindEnergy, Window, whole_kind
from scalewatt.energies.accounting.rows import EnergyRows
from scalewatt.energies.accounting.run_inputs import Run
from scalewatt.energies.accounting.segment_recordings import NodeRecording, Segment
from scalewatt.energies.accounting.trace_writer import TraceSink
from scalewatt.energies.integration.stage_intervals import tile_window
from scalewatt.recordings.series import ESTIMATED, NETWORK, NODE, SensorSeries


def meter_series(recording: NodeRecording) -> list[SensorSeries]:
    """Return the readings of the node's meters that our sampler recorded, as series of kind `node`.

    A reading that failed is none; how long it is missing shows in the times between the others.
    """
    found = []
    for one in recording.telemetry:
        known = np.isfinite(one.values)
        if one.quantity in METERS and known.any():
            found.append(
                SensorSeries(
                    node=recording.node,
                    sensor=one.quantity,
                    device_kind=NODE,
                    device_index=0,
                    quantity="counter" if one.unit == "J" else "power",
                    time_s=one.time_s[known],
                    values=one.values[known],
                )
            )
    return found


def _switch_energy(series: SensorSeries, window: Window) -> KindEnergy:
    """Return what a switch used in a window; one value alone is an estimate that holds for all of it."""
    if series.origin == ESTIMATED and series.time_s.size == 1:
        watts = np.repeat(series.values, 2)
        series = replace(series, time_s=np.array(window), values=watts)
    return whole_kind(series.node, NETWORK, [series], window)


def _common_window(windows: Iterable[Window]) -> Window | None:
    """Return from when to when any node was recorded; None without one."""
    found = list(windows)
    if not found:
        return None
    return min(begin for begin, _ in found), max(end for _, end in found)


def rule_checks(run: Run, kinds: Sequence[KindEnergy], window: Window) -> list[CrossCheck]:
    """Compare meters with the rule of their field, where one is known and the run's window was told."""
    run_s = run.window[1] - run.window[0]
    return [check for kind in kinds for check in log_rule_check(kind, window, run_s)]


def add_switches(
    run: Run,
    segment: Segment,
    events: list[dict[str, Any]],
    nodes: Mapping[str, Window],
    rows: EnergyRows,
    traces: TraceSink | None,
) -> None:
    """Add what the switches between the nodes used while any of the nodes was recorded."""
    if (window := _common_window(nodes.values())) is None:
        return
    for one in sorted(segment.network, key=lambda series: (series.node, series.sensor)):
        clock = NodeClock.of(one.node, (), ())
        kind = _switch_energy(one, window)
        intervals, _ = tile_window(events, window)
        rows.add(segment.number, kind, intervals, (0.0, 0.0), 0.0, kind.flags)
        rows.cross_checks += [c.row(segment.number) for c in rule_checks(run, [kind], window)]
        if traces is not None:
            traces.add(segment.number, kind, intervals, clock)
