"""Stand-in GPUs of 300 W, as many as SCALEWATT_FAULTS names faults, which fail as a driver reports it.

SCALEWATT_FAULTS names each GPU's fault, as `unknown_error,zero_power`, or nothing; they begin once the file
SCALEWATT_FAULTS_BEGIN exists.
"""

from __future__ import annotations

import os
import runpy
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

UNKNOWN_ERROR, ZERO_POWER, LOST = "unknown_error", "zero_power", "lost"
FAULTS = os.environ.get("SCALEWATT_FAULTS", "").split(",")
BEGIN = os.environ.get("SCALEWATT_FAULTS_BEGIN", "")
_MILLIWATTS = 300_000
_OLD = ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFieldValues")
"""What these GPUs do not have."""

_sound = runpy.run_path(str(Path(__file__).parents[1] / "stand_in_nvml" / "pynvml.py"))
NVMLError = _sound["NVMLError"]


class NVMLError_Unknown(NVMLError):
    """NVML's error for what the driver cannot explain."""


class NVMLError_GpuIsLost(NVMLError):
    """NVML's error for a GPU that has fallen off the bus."""


def _fault(index: int) -> str | None:
    return FAULTS[index] if BEGIN and os.path.exists(BEGIN) else None


def _unless_lost(question: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(question)
    def asked(index: int, *args: Any) -> Any:
        if _fault(index) == LOST:
            raise NVMLError_GpuIsLost("GPU is lost")
        return question(index, *args)

    return asked


def _power(index: int) -> int:
    fault = _fault(index)
    if fault == UNKNOWN_ERROR:
        raise NVMLError_Unknown("Unknown Error")
    # Never twice the same: a power that stands still is a fault of its own.
    return 0 if fault == ZERO_POWER else _MILLIWATTS - 500 + time.monotonic_ns() // 1000 % 1000


globals().update(
    {
        name: _unless_lost(value) if name.startswith("nvmlDeviceGet") else value
        for name, value in _sound.items()
        if name.lower().startswith("nvml") and name not in _OLD
    }
)
nvmlDeviceGetPowerUsage = _unless_lost(_power)


def nvmlDeviceGetCount() -> int:
    return len(FAULTS)
