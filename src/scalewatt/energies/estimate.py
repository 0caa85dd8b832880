"""Power where a node has no power sensor, from utilisation and the cluster file, with its interval.

A CPU's power at a load is 0.74 · TDP · (0.1 + 0.9 · load). By five recordings of four CPU models (RAPL
powers at steps of load: CodeCarbon, data/hardware/cpu_load_profiling, MIT), each left out in turn of what
the interval was made from, the power of another machine lies within × or ÷ 5.4 of that (95 %, Student's t;
tests/unit/test_cpu_power_data.py). Three measured points of the machine's curve narrow it to 0.77 to 1.28
times the interpolated power. The error is the machine's, the same in all runs: it averages out over nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scalewatt.recordings.block import Block, select, sensor_frame
from scalewatt.recordings.terms import ESTIMATED, Floats

TDP_SHARE, IDLE_SHARE = 0.74, 0.1
"""What a CPU draws at full load, of its TDP; and idle, of that."""
FACTOR = 5.4
"""An estimate lies within × or ÷ this of the true power. It is known of CPUs alone: GPUs and memory get the
same, as no data support less."""
CURVE = (0.77, 1.28)
"""True power over that interpolated between measured points: −22 to +30 % of all points of the data."""
WIDE_GAP = (0.38, 1.57)
"""The same where the points on both sides are over WIDE_GAP_LOAD apart, as 10 and 100 %."""
WIDE_GAP_LOAD = 0.6
NEAR_ENDS = 0.05
"""Loads this far beyond the first and the last point of a curve have its interval: busy shares of a machine
that does nothing, or all that it can, read a few points of % apart."""


def node_utilisation(blocks: Sequence[Block]) -> Block | None:
    """Utilisation (0..1) of all cores of a node: the sampler's CPU_BUSY, or else perun's CPU_USAGE."""
    for name in ("CPU_BUSY", "CPU_USAGE"):
        for block in loads_of(blocks, "cpu"):
            if (is_whole := block.sensors["name"] == name).any():
                return select(block, is_whole.to_numpy())
    return None


def loads_of(blocks: Sequence[Block], kind: str) -> list[Block]:
    """Select the utilisation of a kind's devices from the blocks that have it."""
    wanted = (kind, "utilisation")
    columns = [[(row.kind, row.quantity) == wanted for row in block.rows] for block in blocks]
    pairs = zip(blocks, columns, strict=True)
    return [select(block, np.array(mask)) for block, mask in pairs if any(mask)]


def cpu_power_w(load: Floats, cpu: Mapping[str, Any]) -> tuple[Floats, Floats, Floats]:
    """Power of a socket in W, and the ends of its interval, at loads of 0..1; all of any one shape.

    `cpu` = {"rated_w"}: the TDP; or {"load_w"}: measured points of load in % and W; and in both
    cases perhaps {"factor"}, which is the user's and replaces the interval.
    """
    if cpu.get("load_w"):
        powers = _on_curve(load, np.asarray(cpu["load_w"], dtype=np.float64))
    else:
        share = TDP_SHARE * (IDLE_SHARE + (1 - IDLE_SHARE) * load)
        powers = _within(share * float(cpu["rated_w"]), FACTOR)
    return _within(powers[0], cpu["factor"]) if cpu.get("factor") else powers


def _on_curve(load: Floats, points: Floats) -> tuple[Floats, Floats, Floats]:
    """Power in W between measured points, and both ends of its interval.

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
    power_w = np.interp(load, at, watts)
    return power_w, power_w * low, power_w * high


def estimated_cpu(utilisation: Block, cpu: Mapping[str, Any]) -> Block:
    """Power of all sockets of a node, `cpu["sockets"]` times `cpu_power_w`, by the load of its cores."""
    powers = (int(cpu["sockets"]) * w for w in cpu_power_w(_share(utilisation), cpu))
    return _estimate(replace(utilisation, sensors=utilisation.sensors.assign(index=0)), *powers)


def estimated_gpus(utilisation: Block, gpu: Mapping[str, Any]) -> Block:
    """Power of GPUs: idle + utilisation · (rated - idle); `gpu` = {idle_w, rated_w}.

    NVML's utilisation states for how long any kernel ran, not how much of the GPU it used.
    """
    idle_w, rated_w = float(gpu["idle_w"]), float(gpu["rated_w"])
    power_w = idle_w + _share(utilisation) * (rated_w - idle_w)
    return _estimate(utilisation, *_within(power_w, gpu.get("factor") or FACTOR))


def estimated_ram(like: Block, ram: Mapping[str, Any]) -> Block:
    """Constant memory power of a node at the times of `like`; `ram` = {"power_w"}."""
    power_w = np.full((like.time_s.size, 1), float(ram["power_w"]))
    memory = replace(like, sensors=sensor_frame([{"name": "rated_power", "kind": "ram"}]))
    return _estimate(memory, *_within(power_w, ram.get("factor") or FACTOR))


def _share(utilisation: Block) -> Floats:
    # Above 1 is rounding of the counters behind it, not more than the rated power. Below 0 it is not
    # idle but unknown.
    return np.where(utilisation.values < 0, np.nan, np.minimum(utilisation.values, 1.0))


def _within(power_w: Floats, factor: float) -> tuple[Floats, Floats, Floats]:
    return power_w, power_w / factor, power_w * factor


def _estimate(like: Block, power_w: Floats, low_w: Floats, high_w: Floats) -> Block:
    """Block of estimated powers in W and the ends of their intervals, of the sensors of `like`."""
    power_w, low_w, high_w = map(np.asfortranarray, (power_w, low_w, high_w))
    sensors = like.sensors.assign(quantity="power", origin=ESTIMATED)
    return Block(like.node, like.time_s, power_w, sensors, (low_w, high_w))
