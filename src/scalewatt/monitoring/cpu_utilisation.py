"""A perun backend: the busy share of all of a node's cores.

perun 1.0.0's own per-core figures are zero for all cores but the one read first in a sample,
because each of them asks psutil for the time since the last question.
"""

from __future__ import annotations

import numpy as np
import psutil
from perun.backend import available_backends
from perun.backend.backend import Backend
from perun.data_model.measurement_type import Magnitude, MetricMetaData, Unit
from perun.data_model.sensor import DeviceType, Sensor

SENSOR = "CPU_BUSY"


class BusyShare:
    """Percent of all cores' time spent busy since the last question."""

    def __init__(self) -> None:
        self._busy, self._total = self._times()

    @staticmethod
    def _times() -> tuple[float, float]:
        times = psutil.cpu_times()
        # Linux counts guest time within user time.
        total = sum(times) - getattr(times, "guest", 0) - getattr(times, "guest_nice", 0)
        return total - times.idle - getattr(times, "iowait", 0), total

    def __call__(self) -> np.float32:
        busy, total = self._times()
        spent = total - self._total
        share = 100 * (busy - self._busy) / spent if spent > 0 else 0.0
        self._busy, self._total = busy, total
        return np.float32(min(max(share, 0.0), 100.0))


class CpuBusyBackend(Backend):
    """One sensor per node: CPU_BUSY in percent."""

    id = "cpu_busy"
    name = "CPU_BUSY"
    description = "Busy share of all cores, from psutil.cpu_times"

    def setup(self) -> None:
        """Describe the source."""
        self._metadata = {"source": f"psutil {psutil.__version__}, cpu_times"}

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def availableSensors(self) -> dict[str, tuple]:
        """Return the one sensor."""
        return {SENSOR: (self.id, DeviceType.CPU, Unit.PERCENT)}

    def getSensors(self, deviceList: set[str]) -> list[Sensor]:
        """Return the one sensor, if it is asked for."""
        if SENSOR not in deviceList:
            return []
        kind = MetricMetaData(
            Unit.PERCENT,
            Magnitude.ONE,
            np.dtype("float32"),
            np.float32(0),
            np.float32(100),
            np.float32(-1),
        )
        return [Sensor(SENSOR, DeviceType.CPU, dict(self._metadata), kind, BusyShare())]


def register() -> None:
    """Make perun know the backend; to be called before perun lists its sensors."""
    available_backends["CpuBusyBackend"] = CpuBusyBackend
