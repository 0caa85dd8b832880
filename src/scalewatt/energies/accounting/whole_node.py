"""Whole nodes by their own meters: a scope beside gpu, cpu and ram.

A node's meter counts all of the node, so its energy is never added to that of the node's parts, but
compared with their sum: what it has beyond that is drawn by fans, boards, drives and network cards, or
lost in the power supplies, and by parts without a sensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from scalewatt.energies.accounting.cross_checks import (
    MAX_DIFFERENCE,
    METERS,
    NODE_METER,
    SHORTEST_S,
    CrossCheck,
    tolerance_of,
)
from scalewatt.energies.accounting.node_energy import (
    MAX_UNCOVERED,
    UNUSED_GPU,
    KindEnergy,
    Window,
)
from scalewatt.energies.accounting.segment_recordings import NodeRecording
from scalewatt.energies.integrate import GAP_PERIODS, validate
from scalewatt.recordings.series import (
    DEVICE_KINDS,
    MEASURED,
    NODE,
    Flag,
    SensorSeries,
    flag,
)
from scalewatt.recordings.telemetry import TelemetrySeries
from scalewatt.recordings.transition import to_blocks


def meter_series(recording: NodeRecording) -> list[SensorSeries]:
    """Return the readings of the node's meter that our sampler recorded, as series of kind `node`.

    A reading that failed is none; how long it is missing shows in the times between the others.
    """
    metered = (one for one in recording.telemetry if one.quantity in METERS)
    found = [_series(recording.node, one) for one in metered]
    return [one for one in found if one.time_s.size]


def _series(node: str, one: TelemetrySeries) -> SensorSeries:
    known = np.isfinite(one.values)
    return SensorSeries(
        node=node,
        sensor=one.quantity,
        device_kind=NODE,
        device_index=one.device_index,
        quantity="power",
        time_s=one.time_s[known],
        values=one.values[known],
    )


def meter_checks(
    recording: NodeRecording, kinds: Sequence[KindEnergy], window: Window
) -> list[CrossCheck]:
    """Compare each meter of a node with the sum of what its parts were measured to use.

    A meter that was not read over enough of the window has no energy here. Of the parts only those
    count whose energy is measured and known; without any there is nothing to compare with.
    """
    found = [_meter_check(one, kinds, window) for one in meter_series(recording)]
    own = next((kind for kind in kinds if kind.device_kind == NODE and kind.series), None)
    if own is not None and not found:  # a meter that another tool recorded
        scope, parts_j = _parts(kinds, window)
        energy_j = own.recorded_j(window) if own.known else None
        place = (recording.node, NODE, None, NODE_METER, window[1] - window[0])
        found = [CrossCheck(*place, energy_j, parts_j, MAX_DIFFERENCE, scope)] if scope else []
    return found


def _meter_check(meter: SensorSeries, kinds: Sequence[KindEnergy], window: Window) -> CrossCheck:
    span, energy_j = _between_readings(meter, window)
    scope, parts_j = _parts(kinds, span)
    tolerance = MAX_DIFFERENCE
    if meter.values.size > 1:
        tolerance = tolerance_of(meter.values)
    place = (meter.node, NODE, 0, METERS[meter.sensor], span[1] - span[0])
    return CrossCheck(*place, energy_j, parts_j, tolerance, scope)


def _between_readings(series: SensorSeries, window: Window) -> tuple[Window, float | None]:
    """Return from when to when a source was read in a window, and its energy.

    None where more than MAX_UNCOVERED of that time is without a known power, or where so much of the
    window lies before its first reading and after its last, three of its steps apart.
    """
    inside = series.time_s[(series.time_s >= window[0]) & (series.time_s <= window[1])]
    if inside.size < 2 or inside[-1] - inside[0] < SHORTEST_S:
        return window, None
    span = float(inside[0]), float(inside[-1])
    curve = validate(to_blocks([series])[0], 0).curve
    length_s, of_window_s = span[1] - span[0], window[1] - window[0]
    outside_s = of_window_s - length_s
    late = outside_s > max(
        MAX_UNCOVERED * of_window_s, GAP_PERIODS * float(np.median(np.diff(inside)))
    )
    if late or curve.covered_s(*span) < (1 - MAX_UNCOVERED) * length_s:
        return span, None
    return span, float(curve.between(*span))


def _parts(kinds: Sequence[KindEnergy], span: Window) -> tuple[str | None, float | None]:
    """Return which kinds of a node's devices were measured, and their energy; None without any."""
    known = {kind.device_kind: kind for kind in kinds if kind.origin == MEASURED and kind.known}
    unused = any(kind.device_kind == UNUSED_GPU for kind in kinds)
    if unused and UNUSED_GPU not in known:
        known.pop("gpu", None)  # the meter counts all of the node's GPUs
    scope = "+".join(kind for kind in DEVICE_KINDS if kind in known)
    if not scope:
        return None, None
    return scope, sum(known[k].recorded_j(span) for k in (*DEVICE_KINDS, UNUSED_GPU) if k in known)


def _common_window(windows: Iterable[Window]) -> Window | None:
    """Return from when to when any node was recorded; None without one."""
    found = list(windows)
    if not found:
        return None
    return min(begin for begin, _ in found), max(end for _, end in found)


def uneven_flags(nodes: Mapping[str, Window]) -> list[Flag]:
    """Flag each node whose recording covers less of the time from the first node's begin to the last's end.

    A node counts from its first to its last sample, so where no stages tell how long the run was,
    nothing else says that energy may be missing. Up to MAX_UNCOVERED of that time is no flag.
    """
    if (common := _common_window(nodes.values())) is None:
        return []
    length_s = common[1] - common[0]
    flags = []
    for node, (begin, end) in nodes.items():
        missing_s = length_s - (end - begin)
        if missing_s > MAX_UNCOVERED * length_s:
            detail = (
                f"{node}: recorded for {end - begin:.1f} s of the {length_s:.1f} s that the nodes were, and "
                "without stages it is not known whether it was at work in the rest, which does not count"
            )
            flags.append(flag("recording_short", None, detail))
    return flags
