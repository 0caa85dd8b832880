"""Powers that a recording's GPUs cannot have: the wrong unit, device or number of GPUs, most likely."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scalewatt.energies.integrate import validate
from scalewatt.recordings.block import Block

READING_ERROR = 0.05
"""NVML's own: readings are within 5 % of the power drawn (documentation of nvmlDeviceGetPowerUsage)."""
LEAST_W = 1.0
"""No GPU that trains draws less on average; a reading in kW as W is below it."""


@dataclass(frozen=True)
class GpuPower:
    """The mean power of one GPU over its recording, in W."""

    host: str
    index: int
    mean_w: float
    limit_w: float | None = None
    """Its power limit, where the recording states it."""

    @property
    def name(self) -> str:
        """Return how a message names it."""
        return f"GPU {self.index} of {self.host}"


def gpu_powers(host: str, blocks: Iterable[Block]) -> list[GpuPower]:
    """Mean power of each GPU of a host whose power or energy was recorded, each once."""
    powers: dict[int, GpuPower] = {}
    for block in blocks:
        for column, sensor in enumerate(block.sensors.to_dict("records")):
            if sensor["kind"] != "gpu" or (mean_w := _mean_w(block, column)) is None:
                continue
            first = powers.setdefault(sensor["index"], GpuPower(host, sensor["index"], mean_w))
            if first.limit_w is None and np.isfinite(sensor["limit_w"]):
                powers[sensor["index"]] = replace(first, limit_w=float(sensor["limit_w"]))
    return list(powers.values())


def _mean_w(block: Block, column: int) -> float | None:
    """Mean of all samples of a power in W; of a counter that of what is known of its energy."""
    sensor, values = block.sensors.iloc[column], block.values[:, column]
    if sensor["quantity"] == "power":
        known = values[np.isfinite(values)]
        return float(known.mean()) if known.size else None
    if sensor["quantity"] != "counter" or sensor["totals"]:
        return None
    curve = validate(block, column).curve
    if curve.time_s.size == 0 or not curve.cumulated_s[-1] > 0:
        return None
    return float(curve.energy_j[-1] / curve.cumulated_s[-1])


def implausible(
    powers: Sequence[GpuPower],
    held: Mapping[str, Sequence[int]] | None,
    limits_w: Mapping[str, float],
) -> list[str]:
    """Return a sentence for each GPU of a run whose mean power it cannot have.

    `held`: the run's GPUs by host; None: all. `limits_w`: further limits in W by where they come from.
    """
    own = [one for one in powers if held is None or one.index in held.get(one.host, ())]
    return [text for one in own if (text := _problem(one, limits_w)) is not None]


def _problem(one: GpuPower, limits_w: Mapping[str, float]) -> str | None:
    if one.mean_w < LEAST_W:
        return (
            f"{one.name} drew {one.mean_w:.3g} W on average, which no GPU does that trains; expected "
            "powers in W"
        )
    stated = {} if one.limit_w is None else {"its limit in the recording": one.limit_w}
    for source, limit_w in {**stated, **limits_w}.items():
        if one.mean_w > (1 + READING_ERROR) * limit_w:
            return (
                f"{one.name} drew {one.mean_w:.4g} W on average, more than {limit_w:g} W, {source}; "
                "expected powers in W, and the device that was used"
            )
    return None
