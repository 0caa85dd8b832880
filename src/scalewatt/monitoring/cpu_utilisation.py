"""A perun backend: the busy share of all of a node's cores.

perun 1.0.0's own per-core figures are zero for all cores but the one read first in a sample,
because each of them asks psutil for the time since the last question.
"""

from __future__ import annotations

import numpy as np
import psutil
from perun.backend.backend import Backend
from perun.data_model.measurement_type import Magnitude, MetricMetaData, Unit
from perun.data_model.sensor import DeviceType, Sensor

SENSOR = "CPU_BUSY"
_PERCENT = MetricMetaData(
    Unit.PERCENT, Magnitude.ONE, np.dtype("float32"), *map(np.float32, (0, 100, -1))
)


class CpuBusyBackend(Backend):
    """One sensor per node: CPU_BUSY, percent of all cores' time spent busy since the last question."""

    id = "cpu_busy"
    name = SENSOR
    description = "Busy share of all cores, from psutil.cpu_percent"

    def setup(self) -> None:
        """Describe the source."""
        self._metadata = {"source": f"psutil {psutil.__version__}, cpu_percent"}

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def availableSensors(self) -> dict[str, tuple]:
        """Name the sensor."""
        return {SENSOR: (self.id, DeviceType.CPU, Unit.PERCENT)}

    def getSensors(self, deviceList: set[str]) -> list[Sensor]:
        """Give the sensor, if it is asked for."""
        psutil.cpu_percent()  # from now on
        read = lambda: np.float32(psutil.cpu_percent())  # noqa: E731
        sensor = Sensor(SENSOR, DeviceType.CPU, dict(self._metadata), _PERCENT, read)
        return [sensor] if SENSOR in deviceList else []
