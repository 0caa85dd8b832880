"""Power where a node has no power sensor, from utilisation and the cluster file, with its interval.

A CPU's power at a load is 0.74 · TDP · (0.1 + 0.9 · load). Held against five recordings of four CPU
models (RAPL powers at steps of load, 12 to 285 W: CodeCarbon, data/hardware/cpu_load_profiling, MIT),
each left out in turn of what the interval was made from, the power of a machine and load that were not
seen lies within × or ÷ 5.4 of that (95 %, Student's t over the machines; tests/unit/test_cpu_power_data.py).
Three measured points of the machine's own curve narrow it to 0.77 to 1.28 times the interpolated power.

The error is the machine's, not the sample's: it is the same in all runs at the same load, and averages out
over nothing. What it is at another load is not known either, as curves bend to both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scalewatt.recordings.series import Flag, Floats, SensorSeries, flag

TDP_SHARE, IDLE_SHARE = 0.74, 0.1
"""What a CPU draws at full load, of its TDP; and idle, of that."""
FACTOR = 5.4
"""An estimate lies within × or ÷ this of the true power. It is known of CPUs alone. Of GPUs and memory
there are no such data: they get the same, as nothing supports less."""
CURVE = (0.77, 1.28)
"""True power over that interpolated between measured points: −22 to +30 % of all points of the data."""
WIDE_GAP = (0.38, 1.57)
"""The same where the points on both sides are over WIDE_GAP_LOAD apart, as 10 and 100 %."""
WIDE_GAP_LOAD = 0.6
# Busy shares of a machine that does nothing, or all that it can, read a few points of % apart: a probe's
# last point may be at 97.5 % where a run has 98 %. So near, a load is that of the nearest point. A choice.
NEAR_ENDS = 0.05
"""Loads this far beyond the first and the last point of a curve have its interval."""


@dataclass(frozen=True, eq=False)
class _Estimate:
    """Power of one device in W at each sample, shape (n,), with the ends of its interval."""

    power_w: Floats
    low_w: Floats
    high_w: Floats

    def of(self, series: SensorSeries, devices: int = 1, **changed: Any) -> SensorSeries:
        """Return a series of so many devices, at the times of `series`."""
        return replace(
            series,
            quantity="power",
            values=devices * self.power_w,
            bounds_w=(devices * self.low_w, devices * self.high_w),
            origin="estimated",
            **changed,
        )


def node_utilisation(
    series: Sequence[SensorSeries],
) -> tuple[SensorSeries | None, list[Flag]]:
    """Return the utilisation of all cores of one node (0..1) from the best series there is.

    Our own `CPU_BUSY` or perun's `CPU_USAGE` mean all cores. `CPU_USAGE_n` is core n: the mean of
    those recorded stands in, flagged, because perun 1.0.0 records core 0 only by default, and with
    more cores resets psutil's clock between them, so that only the first is right.
    """
    found = [s for s in series if s.device_kind == "cpu" and s.quantity == "utilisation"]
    for wanted in (lambda s: "CPU_BUSY" in s.sensor, lambda s: s.sensor == "CPU_USAGE"):
        best = [s for s in found if wanted(s)]
        if best:
            return best[0], []
    if not found:
        return None, []
    if len(found) == 1:
        detail = "the only utilisation is that of one core, taken for all"
        return found[0], [flag("assumed", found[0].sensor, detail)]
    same = [s for s in found if s.time_s.size == found[0].time_s.size]
    mean = np.mean([s.values for s in same], axis=0)
    detail = f"utilisation is the mean of {len(same)} cores read one after another"
    return replace(found[0], values=mean), [flag("assumed", None, detail)]


def cpu_power_w(load: Floats, cpu: Mapping[str, Any]) -> tuple[Floats, Floats, Floats]:
    """Return power of a socket in W, and the ends of its interval, at loads of 0..1, each of shape (n,).

    `cpu` = {"rated_w"}: the TDP; or {"load_w"}: measured points of load in % and W; and in both
    cases perhaps {"factor"}, which is the user's and replaces the interval.
    """
    if cpu.get("load_w"):
        power, ends = _on_curve(load, np.asarray(cpu["load_w"], dtype=np.float64))
    else:
        power = TDP_SHARE * float(cpu["rated_w"]) * (IDLE_SHARE + (1 - IDLE_SHARE) * load)
        ends = np.full((2, load.size), [[1 / FACTOR], [FACTOR]])
    if cpu.get("factor"):
        ends = np.array([[1 / cpu["factor"]], [cpu["factor"]]])
    return power, power * ends[0], power * ends[1]


def _on_curve(load: Floats, points: Floats) -> tuple[Floats, Floats]:
    """Return power between measured points, (n,), and the ends of its interval as factors, (2, n).

    Outside of the points the nearest one's power stands in; beyond NEAR_ENDS with the interval of no curve
    at all.
    """
    at, watts = points[:, 0] / 100, points[:, 1]
    gap = np.diff(at)[np.clip(np.searchsorted(at, load) - 1, 0, at.size - 2)]
    outside = (load < at[0] - NEAR_ENDS) | (load > at[-1] + NEAR_ENDS)
    ends = [
        np.where(outside, apart, np.where(gap > WIDE_GAP_LOAD, wide, usual))
        for apart, wide, usual in zip((1 / FACTOR, FACTOR), WIDE_GAP, CURVE, strict=True)
    ]
    return np.interp(load, at, watts), np.array(ends)


def estimated_cpu(utilisation: SensorSeries, cpu: Mapping[str, Any]) -> SensorSeries:
    """Return the power of all sockets of a node, `cpu["sockets"]` times `cpu_power_w`."""
    found = _Estimate(*cpu_power_w(_share(utilisation), cpu))
    return found.of(utilisation, int(cpu["sockets"]), device_index=0)


def estimated_gpu(utilisation: SensorSeries, gpu: Mapping[str, Any]) -> SensorSeries:
    """Return one GPU's power: idle + utilisation · (rated - idle); `gpu` = {idle_w, rated_w}.

    NVML's utilisation says for how long any kernel ran, not how much of the GPU it used.
    """
    idle, rated = float(gpu["idle_w"]), float(gpu["rated_w"])
    return _within_factor(idle + _share(utilisation) * (rated - idle), gpu).of(utilisation)


def estimated_ram(like: SensorSeries, ram: Mapping[str, Any]) -> SensorSeries:
    """Return a node's constant memory power at the times of `like`; `ram` = {"power_w"}."""
    series = SensorSeries(
        node=like.node,
        sensor="rated_power",
        device_kind="ram",
        device_index=0,
        quantity="power",
        time_s=like.time_s,
        values=like.time_s,
    )
    return _within_factor(np.full(like.time_s.shape, float(ram["power_w"])), ram).of(series)


def _within_factor(power_w: Floats, part: Mapping[str, Any]) -> _Estimate:
    factor = float(part.get("factor") or FACTOR)
    return _Estimate(power_w, power_w / factor, power_w * factor)


def _share(utilisation: SensorSeries) -> Floats:
    # Above 1 is rounding of the counters behind it, not more than the rated power. Below 0 it is not
    # idle but unknown.
    return np.where(utilisation.values < 0, np.nan, np.minimum(utilisation.values, 1.0))
