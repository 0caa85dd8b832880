"""Whole nodes by their own meters, and the switches between nodes: scopes beside gpu, cpu and ram.

A node's meter counts all of the node, so its energy is never added to that of the node's parts. The
switches are outside of every node, and are added to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from scalewatt.energy.accounting.cross_checks import METERS
from scalewatt.energy.accounting.node_energy import KindEnergy, Window, whole_kind
from scalewatt.energy.accounting.segment_recordings import NodeRecording
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


def switch_energy(series: SensorSeries, window: Window) -> KindEnergy:
    """Return what a switch used in a window; one value alone is an estimate that holds for all of it."""
    if series.origin == ESTIMATED and series.time_s.size == 1:
        watts = np.repeat(series.values, 2)
        series = replace(series, time_s=np.array(window), values=watts)
    return whole_kind(series.node, NETWORK, [series], window)


def common_window(windows: Iterable[Window]) -> Window | None:
    """Return from when to when any node was recorded; None without one."""
    found = list(windows)
    if not found:
        return None
    return min(begin for begin, _ in found), max(end for _, end in found)


def by_switch(series: Sequence[SensorSeries]) -> list[SensorSeries]:
    """Return the series of the switches, in the order of their names."""
    return sorted(series, key=lambda one: (one.node, one.sensor))
