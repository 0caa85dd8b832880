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
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewatt.recordings.block import Block, select, sensor_frame
from scalewatt.recordings.terms import ESTIMATED, Flag, Floats, flag

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


def node_utilisation(blocks: Sequence[Block]) -> tuple[Block | None, list[Flag]]:
    """Utilisation (0..1) of all cores of one node as a block of one sensor, from the best there is.

    Our own `CPU_BUSY` or perun's `CPU_USAGE` mean all cores. `CPU_USAGE_n` is core n: the mean of
    those recorded stands in, flagged, because perun 1.0.0 records core 0 only by default, and with
    more cores resets psutil's clock between them, so that only the first is right.
    """
    loads = [select(block, is_load_of(block.sensors, "cpu")) for block in blocks]
    loads = [block for block in loads if len(block.sensors)]
    for name in ("CPU_BUSY", "^CPU_USAGE$"):
        for block in loads:
            if (whole := block.sensors["name"].str.contains(name)).any():
                return select(block, [int(np.argmax(whole))]), []
    if not loads:
        return None, []
    first = loads[0]
    mean = Block(first.node, first.time_s, first.values.mean(axis=1)[:, None], first.sensors[:1])
    if (count := len(first.sensors)) == 1:
        detail = "the only utilisation is that of one core, taken for all"
    else:
        detail = f"utilisation is the mean of {count} cores read one after another"
    return mean, [flag("assumed", first.sensors["name"][0] if count == 1 else None, detail)]


def is_load_of(sensors: pd.DataFrame, kind: str) -> NDArray[np.bool_]:
    """Mark the sensors of a kind's utilisation."""
    found = (sensors["kind"] == kind) & (sensors["quantity"] == "utilisation")
    return found.to_numpy(dtype=np.bool_)


def cpu_power_w(load: Floats, cpu: Mapping[str, Any]) -> tuple[Floats, Floats, Floats]:
    """Power of a socket in W, and the ends of its interval, at loads of 0..1; all of any one shape.

    `cpu` = {"rated_w"}: the TDP; or {"load_w"}: measured points of load in % and W; and in both
    cases perhaps {"factor"}, which is the user's and replaces the interval.
    """
    low: Any = 1 / FACTOR
    high: Any = FACTOR
    if cpu.get("load_w"):
        power, low, high = _on_curve(load, np.asarray(cpu["load_w"], dtype=np.float64))
    else:
        power = TDP_SHARE * float(cpu["rated_w"]) * (IDLE_SHARE + (1 - IDLE_SHARE) * load)
    if cpu.get("factor"):
        low, high = 1 / cpu["factor"], cpu["factor"]
    return power, power * low, power * high


def _on_curve(load: Floats, points: Floats) -> tuple[Floats, Floats, Floats]:
    """Power in W between measured points, and both ends of its interval as factors.

    Outside of the points the nearest one's power stands in; beyond NEAR_ENDS with the interval of no curve
    at all.
    """
    at, watts = points[:, 0] / 100, points[:, 1]
    gap = np.diff(at)[np.clip(np.searchsorted(at, load) - 1, 0, at.size - 2)]
    outside = (load < at[0] - NEAR_ENDS) | (load > at[-1] + NEAR_ENDS)
    low, high = (
        np.where(outside, apart, np.where(gap > WIDE_GAP_LOAD, wide, usual))
        for apart, wide, usual in zip((1 / FACTOR, FACTOR), WIDE_GAP, CURVE, strict=True)
    )
    return np.interp(load, at, watts), low, high


def estimated_cpu(utilisation: Block, cpu: Mapping[str, Any]) -> Block:
    """Power of all sockets of a node, `cpu["sockets"]` times `cpu_power_w`, by the load of its cores."""
    power, low, high = (int(cpu["sockets"]) * w for w in cpu_power_w(_share(utilisation), cpu))
    return _estimate(utilisation, (power, low, high), index=0)


def estimated_gpus(utilisation: Block, gpu: Mapping[str, Any]) -> Block:
    """Power of GPUs: idle + utilisation · (rated - idle); `gpu` = {idle_w, rated_w}.

    NVML's utilisation says for how long any kernel ran, not how much of the GPU it used.
    """
    idle, rated = float(gpu["idle_w"]), float(gpu["rated_w"])
    power = idle + _share(utilisation) * (rated - idle)
    return _estimate(utilisation, _within_factor(power, gpu))


def estimated_ram(like: Block, ram: Mapping[str, Any]) -> Block:
    """Constant memory power of a node at the times of `like`; `ram` = {"power_w"}."""
    power = np.full((like.time_s.size, 1), float(ram["power_w"]))
    sensors = sensor_frame([{"name": "rated_power", "kind": "ram"}])
    memory = Block(like.node, like.time_s, power, sensors)
    return _estimate(memory, _within_factor(power, ram))


def _within_factor(power_w: Floats, part: Mapping[str, Any]) -> tuple[Floats, Floats, Floats]:
    factor = float(part.get("factor") or FACTOR)
    return power_w, power_w / factor, power_w * factor


def _estimate(like: Block, power_w: tuple[Floats, Floats, Floats], **changed: Any) -> Block:
    """Block of estimated powers in W, with both ends of their intervals, of the sensors of `like`."""
    power, *ends = (np.asfortranarray(w) for w in power_w)
    sensors = like.sensors.assign(quantity="power", origin=ESTIMATED, **changed)
    return Block(like.node, like.time_s, power, sensors, (ends[0], ends[1]))


def _share(utilisation: Block) -> Floats:
    # Above 1 is rounding of the counters behind it, not more than the rated power. Below 0 it is not
    # idle but unknown.
    load = utilisation.values
    return np.where(load < 0, np.nan, np.minimum(load, 1.0))
