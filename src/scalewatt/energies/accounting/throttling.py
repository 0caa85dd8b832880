"""Telemetry of a node: its table, and the flags of GPUs that were slowed down or kept no wanted clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scalewatt.energies.accounting.energy_schema import TELEMETRY_SCHEMA
from scalewatt.energies.accounting.segment_recordings import NodeRecording
from scalewatt.energies.integration.rated_power import node_utilisation
from scalewatt.energies.integration.stage_intervals import StageIntervals, seconds_where
from scalewatt.recordings.series import Flag, SensorSeries, flag
from scalewatt.recordings.telemetry import TelemetrySeries

SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""NVML's clock event reasons that slow a GPU down from outside."""
POWER_CAP = 0x04
CLOCK_NOT_HELD = "clock_not_held"
"""Flag of a run whose clock was not the one it asked for."""
LIMIT_NOT_HELD = "limit_not_held"
"""Flag of a run whose power limit was not the one it asked for."""
NOT_HELD_SHARE = 0.05
"""Of the training's time; beyond it a run did not have the clock or limit that it asked for."""
Window = tuple[float, float]


def clock_flags(
    recording: NodeRecording,
    held: Sequence[int] | None,
    intervals: StageIntervals,
    window: Window,
    point: Mapping[str, float],
) -> list[Flag]:
    """Return the flags of a node's GPUs and clocks; `point`: the clocks and limit that were asked for."""
    telemetry = recording.telemetry
    spans = intervals.spans_of(("train",)) or [window]
    return [
        *state_flags(telemetry, held, window, "gpu_power_limit_w" in point),
        *operating_point_flags(telemetry, held, point, spans, recording.node),
    ]


def state_flags(
    telemetry: Iterable[TelemetrySeries],
    held: Sequence[int] | None,
    window: Window,
    limit_is_wanted: bool = False,
) -> list[Flag]:
    """Return the flags `throttled` and `power_capped` of the GPUs that the run held (None: all).

    Where a power limit was asked for, working at it is what was wanted, and no flag.
    """
    flags = []
    for one in telemetry:
        if one.quantity != "throttle_reasons" or (
            held is not None and one.device_index not in held
        ):
            continue
        reasons = np.nan_to_num(one.values).astype(np.int64)
        slow = {
            word: seconds_where(one.time_s, reasons & bit != 0, window)
            for bit, word in SLOWDOWNS.items()
        }
        capped = seconds_where(one.time_s, reasons & POWER_CAP != 0, window)
        device = f"{one.node}: GPU {one.device_index}"
        length = window[1] - window[0]
        if any(slow.values()):
            words = ", ".join(f"{word} {s:.0f} s" for word, s in slow.items() if s)
            flags.append(flag("throttled", None, f"{device}: {words} of {length:.0f} s"))
        if capped and not limit_is_wanted:
            detail = f"{device}: at its power limit for {capped:.0f} s of {length:.0f} s"
            flags.append(flag("power_capped", None, detail))
    return flags


@dataclass(frozen=True)
class _Watched:
    """How a lever shows in the telemetry."""

    quantity: str
    code: str
    unit: str
    least: float
    """Of what a value may differ from the one asked for, in its unit."""
    share: float
    """Of the value asked for, likewise."""
    only_above: bool = False

    def tolerance(self, asked: float) -> float:
        """Return by how much a value may differ from the one asked for."""
        return max(self.least, self.share * asked)


WATCHED = {
    "gpu_clock_mhz": _Watched("clock_sm", CLOCK_NOT_HELD, "MHz", 15.0, 0.02),
    "gpu_power_limit_w": _Watched("power_limit", LIMIT_NOT_HELD, "W", 1.0, 0.01),
    # CPUs that wait run slower, whatever was asked for.
    "cpu_clock_mhz": _Watched("cpu_clock", CLOCK_NOT_HELD, "MHz", 50.0, 0.02, only_above=True),
}


def operating_point_flags(
    telemetry: Sequence[TelemetrySeries],
    held: Sequence[int] | None,
    point: Mapping[str, float],
    spans: Sequence[Window],
    node: str,
) -> list[Flag]:
    """Return the flags of levers that were not held for over 5 % of the training, or not recorded.

    `held`: the GPUs that the run held (None: all); `spans`: start and end of what counts, in unix s.
    GPUs count while they have work: an idle one lowers its clock.
    """
    flags = []
    for lever, asked in point.items():
        watched = WATCHED[lever]
        found = [
            one
            for one in telemetry
            if one.quantity == watched.quantity
            and (one.device_kind != "gpu" or held is None or one.device_index in held)
            and _seconds(one.time_s, np.isfinite(one.values), spans) > 0
        ]
        if not found or _unseen(held, found, telemetry, spans):
            detail = f"{node}: nothing recorded says whether {asked:g} {watched.unit} were held"
            flags.append(flag("operating_point_unknown", None, detail))
        allows_capping = "gpu_power_limit_w" in point
        for one in found:
            deviation = _deviation(one, telemetry, watched, asked, spans, allows_capping)
            if deviation is not None:
                flags.append(flag(watched.code, None, deviation))
    return flags


def _unseen(
    held: Sequence[int] | None,
    found: Sequence[TelemetrySeries],
    telemetry: Sequence[TelemetrySeries],
    spans: Sequence[Window],
) -> bool:
    """Return True if a held GPU has no reading that counts; not of what is the node's."""
    if found[0].device_kind != "gpu":
        return False
    seen = {
        one.device_index
        for one in found
        if _seconds(one.time_s, _counted(one, telemetry), spans) > 0
    }
    return bool((set(held) if held is not None else {one.device_index for one in found}) - seen)


def _counted(one: TelemetrySeries, telemetry: Sequence[TelemetrySeries]) -> NDArray[np.bool_]:
    """Return which readings count: those of a clock only while the GPU has work."""
    counted = np.isfinite(one.values)
    busy = _same_times(telemetry, one, "gpu_utilisation")
    if busy is not None and one.quantity == "clock_sm":
        counted &= ~(busy == 0)
    return counted


def _deviation(
    one: TelemetrySeries,
    telemetry: Sequence[TelemetrySeries],
    watched: _Watched,
    asked: float,
    spans: Sequence[Window],
    allows_capping: bool,
) -> str | None:
    """Return how long a device was not at the value asked for, and why; None if it was."""
    counted = _counted(one, telemetry)
    tolerance = watched.tolerance(asked)
    above, below = one.values > asked + tolerance, one.values < asked - tolerance
    outside = above if watched.only_above else above | below
    reasons = _same_times(telemetry, one, "throttle_reasons")
    masks = np.zeros(one.time_s.shape, np.int64)
    if reasons is not None and one.quantity == "clock_sm":
        masks = np.nan_to_num(reasons).astype(np.int64)
    if allows_capping:
        outside = outside & ~(below & (masks & POWER_CAP != 0))
    outside = outside & counted
    whole_s, outside_s = (_seconds(one.time_s, which, spans) for which in (counted, outside))
    if whole_s == 0 or outside_s <= NOT_HELD_SHARE * whole_s:
        return None
    words = {**SLOWDOWNS, POWER_CAP: "power limit"}
    causes = [
        f"{word} {seconds:.0f} s"
        for bit, word in words.items()
        if (seconds := _seconds(one.time_s, outside & (masks & bit != 0), spans))
    ]
    seen = float(np.mean(one.values[outside]))
    device = f"GPU {one.device_index}" if one.device_kind == "gpu" else "CPUs"
    return (
        f"{one.node}: {device}: {seen:.0f} {watched.unit} for {outside_s:.0f} s of {whole_s:.0f} s, where "
        f"{asked:g} were asked for" + (f" ({', '.join(causes)})" if causes else "")
    )


def _same_times(
    telemetry: Sequence[TelemetrySeries], one: TelemetrySeries, quantity: str
) -> NDArray[np.float64] | None:
    """Return another quantity of the same device, read at the same times; None without one."""
    for other in telemetry:
        same = (other.device_kind, other.device_index) == (one.device_kind, one.device_index)
        if same and other.quantity == quantity and np.array_equal(other.time_s, one.time_s):
            return other.values
    return None


def _seconds(
    time_s: NDArray[np.float64], holds: NDArray[np.bool_], spans: Sequence[Window]
) -> float:
    return sum(seconds_where(time_s, holds, span) for span in spans)


def gpu_utilisation(recording: NodeRecording) -> list[SensorSeries]:
    """Return the load of the GPUs (0..1) as series, to estimate from where power is unknown."""
    return [
        SensorSeries(
            node=one.node,
            sensor=f"GPU {one.device_index} utilisation",
            device_kind="gpu",
            device_index=one.device_index,
            quantity="utilisation",
            time_s=one.time_s,
            values=one.values / 100.0,
        )
        for one in recording.telemetry
        if one.quantity == "gpu_utilisation"
    ]


def telemetry_table(recording: NodeRecording, segment: int) -> pa.Table:
    """Return the rows of TELEMETRY_SCHEMA of one node: its telemetry, and its CPUs' load."""
    found = list(recording.telemetry)
    load, _ = node_utilisation(recording.series)
    if load is not None:
        cpu = ("cpu", 0, "cpu_utilisation", "%")
        found.append(TelemetrySeries(recording.node, *cpu, load.time_s, 100 * load.values))
    return pa.concat_tables([TELEMETRY_SCHEMA.empty_table(), *(_rows(c, segment) for c in found)])


def _rows(series: TelemetrySeries, segment: int) -> pa.Table:
    times = pa.array(np.rint(series.time_s * 1e6).astype(np.int64))
    same = {**vars(series), "segment": segment}
    columns = {
        field.name: pa.array([same[field.name]] * len(times), field.type)
        for field in TELEMETRY_SCHEMA
        if field.name in same
    }
    columns["time"] = times.view(TELEMETRY_SCHEMA.field("time").type)
    columns["value"] = pa.array(series.values, from_pandas=True)
    names = TELEMETRY_SCHEMA.names
    return pa.Table.from_arrays([columns[name] for name in names], schema=TELEMETRY_SCHEMA)
