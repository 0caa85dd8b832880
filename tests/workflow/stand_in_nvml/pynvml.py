"""Four stand-in GPUs at a constant 100, 200, 150 and 250 W, for perun's own NVML backend and ours.

The total energy is that of these powers since this machine started. GPU 1 is throttled in the
second half of each 20 s; GPU 3 states neither total energy nor field values, as old ones do.
A question to a GPU takes STAND_IN_NVML_MS milliseconds of processor time (environment; else none).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_CLOCK_GRAPHICS = 1, 2, 0
MILLIWATTS = (100_000, 200_000, 150_000, 250_000)
OLD_GPU = 3
THROTTLED_GPU = 1
SW_POWER_CAP = 4
_POWER_AVERAGE, _POWER_INSTANT = 185, 186
_UNSIGNED_INT, _NOT_SUPPORTED = 1, 3


class NVMLError(Exception):
    """NVML's error."""


class NVMLError_Uninitialized(NVMLError):
    """NVML's error before nvmlInit."""


class NVMLError_NotSupported(NVMLError):
    """NVML's error for what a GPU does not have."""


def nvmlInit() -> None: ...
def nvmlShutdown() -> None: ...
def nvmlSystemGetCudaDriverVersion() -> int:
    return 12060


def nvmlSystemGetDriverVersion() -> str:
    return "stand-in"


def nvmlDeviceGetCount() -> int:
    return len(MILLIWATTS)


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetIndex(handle: int) -> int:
    return handle


def nvmlDeviceGetUUID(handle: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{handle:012d}"


def nvmlDeviceGetName(handle: int) -> str:
    return "Stand-in GPU"


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    return MILLIWATTS[handle]


def nvmlDeviceGetPowerManagementDefaultLimit(handle: int) -> int:
    return 400_000


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(used=1 << 30, total=40 << 30)


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:
    return 1593 if kind == NVML_CLOCK_MEM else 1410


def nvmlDeviceGetMaxClockInfo(handle: int, kind: int) -> int:
    return 2000


def nvmlDeviceGetTemperature(handle: int, sensor: int) -> int:
    return 50 + handle


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: int) -> int:
    throttled = handle == THROTTLED_GPU and time.time() % 20 >= 10
    return SW_POWER_CAP if throttled else 0


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    return SimpleNamespace(gpu=90 + handle, memory=40 + handle)


def nvmlDeviceGetTotalEnergyConsumption(handle: int) -> int:
    if handle == OLD_GPU:
        raise NVMLError_NotSupported("Not Supported")
    return int(MILLIWATTS[handle] * time.monotonic())


def nvmlDeviceGetFieldValues(handle: int, fields: list[int]) -> list[SimpleNamespace]:
    failed = _NOT_SUPPORTED if handle == OLD_GPU else 0
    milliwatts = {_POWER_AVERAGE: MILLIWATTS[handle], _POWER_INSTANT: MILLIWATTS[handle] + 1000}
    return [
        SimpleNamespace(
            fieldId=field,
            nvmlReturn=failed,
            valueType=_UNSIGNED_INT,
            value=SimpleNamespace(uiVal=milliwatts[field]),
        )
        for field in fields
    ]


def _slow(question: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    @wraps(question)
    def asked(*args: Any) -> Any:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        return question(*args)

    return asked


if _seconds := 1e-3 * float(os.environ.get("STAND_IN_NVML_MS", "0")):
    for _name in [name for name in globals() if name.startswith("nvmlDeviceGet")]:
        globals()[_name] = _slow(globals()[_name], _seconds)
