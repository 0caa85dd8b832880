"""Power where a node has no power sensor, from utilisation and the cluster file, with its interval.

A CPU's power at a load is 0.74 · TDP · (0.1 + 0.9 · load). By five recordings of four CPU models (RAPL
powers at steps of load: CodeCarbon, data/hardware/cpu_load_profiling, MIT), each left out in turn of what
the interval was made from, the power of another machine lies within × or ÷ 5.4 of that (95 %, Student's t;
tests/unit/test_cpu_power_data.py). The error is the machine's, the same in all runs: it averages out over
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scalewatt.recordings.block import Block, select, sensor_frame
from scalewatt.recordings.terms import ESTIMATED

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
    if kind == "ram":  # whatever the load
        idle_w = full_w = float(rated["power_w"])
        longest = max(blocks, key=lambda block: block.time_s.size, default=None)
        sensors = sensor_frame([{"name": "rated_power", "kind": "ram"}])
        loads = [
            longest and replace(longest, values=np.ones((longest.time_s.size, 1)), sensors=sensors)
        ]
    elif kind == "gpu":
        idle_w, full_w = float(rated["idle_w"]), float(rated["rated_w"])
        loads = [*_loads_of(blocks, "gpu")]
    else:
        full_w = int(rated["sockets"]) * TDP_SHARE * float(rated["rated_w"])
        idle_w = IDLE_SHARE * full_w
        load = node_utilisation(blocks)
        loads = [load and replace(load, sensors=load.sensors.assign(index=0))]

    factor, estimated = float(rated.get("factor") or FACTOR), []
    for load in (load for load in loads if load is not None):
        # Above 1 is rounding of the counters behind it, not more than the rated power. Below 0 it is not
        # idle but unknown.
        share = np.where(load.values < 0, np.nan, np.minimum(load.values, 1.0))
        power_w = np.asfortranarray(idle_w + share * (full_w - idle_w))
        sensors = load.sensors.assign(quantity="power", origin=ESTIMATED, factor=factor)
        estimated.append(Block(load.node, load.time_s, power_w, sensors))
    return estimated


def node_utilisation(blocks: Sequence[Block]) -> Block | None:
    """Utilisation (0..1) of all cores of a node: the sampler's CPU_BUSY, or else perun's CPU_USAGE."""
    for name in ("CPU_BUSY", "CPU_USAGE"):
        for block in _loads_of(blocks, "cpu"):
            if (is_whole := block.sensors["name"] == name).any():
                return select(block, is_whole.to_numpy())
    return None


def _loads_of(blocks: Sequence[Block], kind: str) -> Iterator[Block]:
    """Select the utilisation of a kind's devices from the blocks that have it."""
    for block in blocks:
        sensors = block.sensors
        mask = ((sensors["kind"] == kind) & (sensors["quantity"] == "utilisation")).to_numpy()
        if mask.any():
            yield select(block, mask)
