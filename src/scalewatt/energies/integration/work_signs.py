"""What else was recorded of a device's work, which tells a steady device from a sensor that stands still.

A repeated power is impossible where the device's energy counter had another mean power meanwhile, or,
without a counter, where its load or clock changed: a sensor that tells milliwatts shows that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from scalewatt.recordings.series import Floats, SensorSeries
from scalewatt.recordings.telemetry import TelemetrySeries

# A counter is read every few seconds, and lags: only the inside of a stretch is compared.
MARGIN_S = 5.0
# By so much a counter's mean power may differ, of which NVML says that it is exact to 5 %.
COUNTER_SHARE, COUNTER_W = 0.1, 5.0
# Changes of load (of 1) and of clock (of the highest) that move the power by more than milliwatts.
LOAD_CHANGE, CLOCK_CHANGE = 0.2, 0.1


@dataclass(frozen=True, eq=False)
class WorkSign:
    """A counter in J, or a load or clock whose `change` says that work did: values (n,) at times (n,)."""

    time_s: Floats
    values: Floats
    change: float | None = None
    """None of a counter."""

    def contradicts(self, begin_s: float, end_s: float, power_w: float) -> bool | None:
        """Return True if the device cannot have drawn one power; None if nothing can be said."""
        inside = (self.time_s >= begin_s + MARGIN_S) & (self.time_s <= end_s - MARGIN_S)
        inside &= np.isfinite(self.values)
        values, time_s = self.values[inside], self.time_s[inside]
        if values.size < 2 or time_s[-1] - time_s[0] < (end_s - begin_s) / 2:
            return None
        if self.change is not None:
            return bool(np.ptp(values) >= self.change)
        used = values[-1] - values[0]
        if used < 0:
            return None
        mean = used / (time_s[-1] - time_s[0])
        return bool(abs(mean - power_w) > max(COUNTER_SHARE * power_w, COUNTER_W))


def work_went_on(
    signs: Sequence[WorkSign], begin_s: float, end_s: float, power_w: float
) -> bool | None:
    """Return True if a device cannot have drawn one power, False if its counter says that it did.

    None if neither is known. Where there is a counter, it decides.
    """
    counters = [sign for sign in signs if sign.change is None]
    others = [sign for sign in signs if sign.change is not None]
    said = [sign.contradicts(begin_s, end_s, power_w) for sign in counters]
    if any(one is not None for one in said):
        return any(said)
    return any(sign.contradicts(begin_s, end_s, power_w) for sign in others) or None


def signs_of(
    series: SensorSeries,
    beside: Iterable[SensorSeries],
    telemetry: Iterable[TelemetrySeries],
) -> tuple[WorkSign, ...]:
    """Return what a node's recording says of the work of the device behind a series of power.

    `beside` are the node's other series: a GPU's own load, or that of all CPUs.
    """
    signs = []
    for one in beside:
        same = one.device_kind == series.device_kind and one.quantity == "utilisation"
        if same and (series.device_kind == "cpu" or one.device_index == series.device_index):
            signs.append(WorkSign(one.time_s, one.values, LOAD_CHANGE))
    for other in telemetry:
        if (other.device_kind, other.device_index) != (series.device_kind, series.device_index):
            continue
        if other.quantity == "energy_total":
            signs.append(WorkSign(other.time_s, other.values))
        elif other.quantity == "clock_sm" and other.values.size:
            highest = float(np.nanmax(np.append(other.values, 0.0)))
            signs.append(WorkSign(other.time_s, other.values, max(CLOCK_CHANGE * highest, 1.0)))
    return tuple(signs)
