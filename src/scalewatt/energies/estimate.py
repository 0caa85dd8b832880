"""Power where a node has no power sensor, from utilisation and the cluster file, with its interval.

A CPU's power at a load is 0.74 · TDP · (0.1 + 0.9 · load). By five recordings of four CPU models (RAPL
powers at steps of load: CodeCarbon, data/hardware/cpu_load_profiling, MIT), each left out in turn of what
the interval was made from, the power of another machine lies within × or ÷ 5.4 of that (95 %, Student's t;
tests/unit/test_cpu_power_data.py). The error is the machine's, the same in all runs: it averages out over
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scalewatt.recordings.block import Block, select, sensor_frame
from scalewatt.recordings.terms import ESTIMATED, Floats

TDP_SHARE, IDLE_SHARE = 0.74, 0.1
"""Share of its TDP that a CPU draws at full load, and share of that when idle."""
FACTOR = 5.4
"""An estimate lies within × or ÷ this of the true power, if no other factor is given. It is known of CPUs
alone: GPUs and memory get the same, as no data support less."""


def estimates(kind: str, blocks: Sequence[Block], rated: Mapping[str, Any]) -> list[Block]:
    """Estimated powers of the devices of a kind, from their rated powers and the load of a node.

    `rated` of CPUs: {"sockets", "rated_w"}, of GPUs {"idle_w", "rated_w"}, of memory {"power_w"}; and perhaps
    {"factor"}. NVML's utilisation states for how long any kernel ran, not how much of the GPU it used.
    """
    if kind == "ram":
        longest = max(blocks, key=lambda block: block.time_s.size, default=None)
        if longest is None:
            return []
        power_w = np.full((longest.time_s.size, 1), float(rated["power_w"]))
        memory = replace(longest, sensors=sensor_frame([{"name": "rated_power", "kind": "ram"}]))
        return [_estimate(memory, power_w, rated)]
    if kind == "gpu":
        idle_w, most_w = float(rated["idle_w"]), float(rated["rated_w"])
        loads = loads_of(blocks, "gpu")
        return [_estimate(b, idle_w + _share(b) * (most_w - idle_w), rated) for b in loads]
    load = node_utilisation(blocks)
    if load is None:
        return []
    cores = replace(load, sensors=load.sensors.assign(index=0))
    return [_estimate(cores, int(rated["sockets"]) * cpu_power_w(_share(load), rated), rated)]


def cpu_power_w(load: Floats, cpu: Mapping[str, Any]) -> Floats:
    """Power of a socket in W at loads of 0..1; `cpu` = {"rated_w"}, its TDP."""
    return TDP_SHARE * float(cpu["rated_w"]) * (IDLE_SHARE + (1 - IDLE_SHARE) * load)


def node_utilisation(blocks: Sequence[Block]) -> Block | None:
    """Utilisation (0..1) of all cores of a node: the sampler's CPU_BUSY, or else perun's CPU_USAGE."""
    for name in ("CPU_BUSY", "CPU_USAGE"):
        for block in loads_of(blocks, "cpu"):
            if (is_whole := block.sensors["name"] == name).any():
                return select(block, is_whole.to_numpy())
    return None


def loads_of(blocks: Sequence[Block], kind: str) -> list[Block]:
    """Select the utilisation of a kind's devices from the blocks that have it."""
    masks = [
        ((b.sensors["kind"] == kind) & (b.sensors["quantity"] == "utilisation")).to_numpy()
        for b in blocks
    ]
    return [select(block, mask) for block, mask in zip(blocks, masks, strict=True) if mask.any()]


def _share(utilisation: Block) -> Floats:
    # Above 1 is rounding of the counters behind it, not more than the rated power. Below 0 it is not
    # idle but unknown.
    return np.where(utilisation.values < 0, np.nan, np.minimum(utilisation.values, 1.0))


def _estimate(like: Block, power_w: Floats, rated: Mapping[str, Any]) -> Block:
    """Block of estimated powers in W, of the sensors of `like`."""
    factor = float(rated.get("factor") or FACTOR)
    sensors = like.sensors.assign(quantity="power", origin=ESTIMATED, factor=factor)
    return Block(like.node, like.time_s, np.asfortranarray(power_w), sensors)
