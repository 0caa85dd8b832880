"""Powers that a recording's GPUs cannot have: the wrong unit, device or number of GPUs, most likely."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scalewatt.energies.integrate import validate
from scalewatt.recordings.series import SensorSeries
from scalewatt.recordings.transition import to_blocks

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


def gpu_powers(host: str, series: Iterable[SensorSeries]) -> list[GpuPower]:
    """Return the mean power of each GPU of a host whose power or energy was recorded, each once."""
    found: dict[int, GpuPower] = {}
    for one in series:
        if one.device_kind == "gpu" and (mean_w := _mean_w(one)) is not None:
            first = found.setdefault(one.device_index, GpuPower(host, one.device_index, mean_w))
            if first.limit_w is None:
                found[one.device_index] = replace(first, limit_w=one.limit_w)
    return list(found.values())


def _mean_w(series: SensorSeries) -> float | None:
    """Return the mean of all samples of a power; of a counter that of what is known of its energy."""
    if series.quantity == "power":
        values = series.values[np.isfinite(series.values)]
        return float(values.mean()) if values.size else None
    if series.quantity != "counter" or series.totals:
        return None
    curve = validate(to_blocks([series])[0], 0).curve
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
