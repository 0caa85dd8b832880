"""Whether a run had the clocks and the power limit that it asked for, by the telemetry of its nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalewatt.energies.stages import StageIntervals, seconds_where
from scalewatt.recordings.series import Flag, flag
from scalewatt.recordings.telemetry import TelemetrySeries

SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""NVML's clock event reasons that slow a GPU down from outside."""
POWER_CAP = 0x04
NOT_HELD_SHARE = 0.05
"""Of the training's time; beyond it a run did not have the clock or limit that it asked for."""
Window = tuple[float, float]


@dataclass(frozen=True)
class _Watched:
    """How a lever shows in the telemetry."""

    quantity: str
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
    "gpu_clock_mhz": _Watched("clock_sm", "MHz", 15.0, 0.02),
    "gpu_power_limit_w": _Watched("power_limit", "W", 1.0, 0.01),
    # CPUs that wait run slower, whatever was asked for.
    "cpu_clock_mhz": _Watched("cpu_clock", "MHz", 50.0, 0.02, only_above=True),
}


@dataclass(frozen=True)
class SeenOfLever:
    """What one device of a node showed of one lever, over the training of one segment."""

    segment: int
    node: str
    lever: str
    device: str
    asked: float
    whole_s: float
    """For how long it was seen at work."""
    outside_s: float
    """For how much of that it was not at the value asked for."""
    outside: float
    """Its mean value then; NaN where it was never outside."""
    causes: Mapping[str, float]
    """NVML's reasons then, with their seconds."""


def seen_of_levers(
    telemetry: Sequence[TelemetrySeries],
    held: Sequence[int] | None,
    point: Mapping[str, float],
    intervals: StageIntervals,
    window: Window,
    node: str,
    segment: int,
) -> tuple[list[SeenOfLever], list[Flag]]:
    """Return what the devices of a node showed of each lever of `point`, and flags for what nothing did.

    `held`: the GPUs that the run held (None: all). The training counts; without stages the `window`.
    GPUs count while they have work: an idle one lowers its clock.
    """
    spans = intervals.spans_of(("train",)) or [window]
    seen, flags = [], []
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
        for one in found:
            outside, masks = _outside(one, telemetry, watched, asked, "gpu_power_limit_w" in point)
            counted = _counted(one, telemetry)
            outside &= counted
            words = {**SLOWDOWNS, POWER_CAP: "power limit"}
            causes = {
                word: _seconds(one.time_s, outside & (masks & bit != 0), spans)
                for bit, word in words.items()
            }
            device = f"GPU {one.device_index}" if one.device_kind == "gpu" else "CPUs"
            mean = float(np.mean(one.values[outside])) if outside.any() else float("nan")
            whole_s, outside_s = (_seconds(one.time_s, w, spans) for w in (counted, outside))
            times = (whole_s, outside_s, mean, causes)
            seen.append(SeenOfLever(segment, node, lever, device, asked, *times))
    return seen, flags


def not_held_flags(seen: Sequence[SeenOfLever]) -> Iterator[tuple[int, str, Flag]]:
    """Yield (segment, node, flag) for each lever that the run did not have for over 5 % of its training.

    A segment counts by its device that was outside for longest: all ranks wait for the slowest one.
    """
    for lever in dict.fromkeys(one.lever for one in seen):
        of_lever = [one for one in seen if one.lever == lever]
        by_segment: dict[int, list[SeenOfLever]] = defaultdict(list)
        for one in of_lever:
            by_segment[one.segment].append(one)
        whole_s = sum(max(one.whole_s for one in group) for group in by_segment.values())
        outside_s = sum(max(one.outside_s for one in group) for group in by_segment.values())
        if outside_s > NOT_HELD_SHARE * whole_s:
            for one in of_lever:
                if one.outside_s > NOT_HELD_SHARE * one.whole_s:
                    yield one.segment, one.node, flag("not_held", None, _detail(one))


def _detail(one: SeenOfLever) -> str:
    unit = WATCHED[one.lever].unit
    causes = ", ".join(f"{word} {seconds:.0f} s" for word, seconds in one.causes.items() if seconds)
    return (
        f"{one.node}: {one.device}: {one.outside:.0f} {unit} for {one.outside_s:.0f} s of "
        f"{one.whole_s:.0f} s, where {one.asked:g} were asked for"
        + (f" ({causes})" if causes else "")
    )


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


def _outside(
    one: TelemetrySeries,
    telemetry: Sequence[TelemetrySeries],
    watched: _Watched,
    asked: float,
    allows_capping: bool,
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which readings are not the value asked for, and NVML's reasons at each reading."""
    tolerance = watched.tolerance(asked)
    above, below = one.values > asked + tolerance, one.values < asked - tolerance
    outside = above if watched.only_above else above | below
    reasons = _same_times(telemetry, one, "throttle_reasons")
    masks = np.zeros(one.time_s.shape, np.int64)
    if reasons is not None and one.quantity == "clock_sm":
        masks = np.nan_to_num(reasons).astype(np.int64)
    if allows_capping:
        outside = outside & ~(below & (masks & POWER_CAP != 0))
    return outside, masks


def _same_times(
    telemetry: Iterable[TelemetrySeries], one: TelemetrySeries, quantity: str
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
