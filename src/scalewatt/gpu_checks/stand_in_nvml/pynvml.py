"""GPUs that stand in for NVML's, and begin to fail as the driver reports it.

SCALEWATT_FAULTS names each GPU's fault, as `unknown_error,zero_power`; they begin once the file
SCALEWATT_FAULTS_BEGIN exists. SCALEWATT_FAULTS_UUIDS are the GPUs' uuids, if a real one is meant.
"""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_CLOCK_GRAPHICS = 1, 2, 0
UNKNOWN_ERROR, ZERO_POWER, LOST = "unknown_error", "zero_power", "lost"
FAULTS = os.environ.get("SCALEWATT_FAULTS", "").split(",")
BEGIN = os.environ.get("SCALEWATT_FAULTS_BEGIN", "")
_UUIDS = [word for word in os.environ.get("SCALEWATT_FAULTS_UUIDS", "").split(",") if word]
_MILLIWATTS = 300_000


class NVMLError(Exception):
    """NVML's error."""


class NVMLError_Uninitialized(NVMLError):
    """NVML's error before nvmlInit."""


class NVMLError_NotSupported(NVMLError):
    """NVML's error for what a GPU does not have."""


class NVMLError_Unknown(NVMLError):
    """NVML's error for what the driver cannot explain."""


class NVMLError_GpuIsLost(NVMLError):
    """NVML's error for a GPU that has fallen off the bus."""


def _fault(index: int) -> str | None:
    return FAULTS[index] if BEGIN and os.path.exists(BEGIN) else None


def _asked(index: int) -> int:
    if _fault(index) == LOST:
        raise NVMLError_GpuIsLost("GPU is lost")
    return index


def nvmlInit() -> None: ...
def nvmlShutdown() -> None: ...
def nvmlSystemGetCudaDriverVersion() -> int:
    return 12060


def nvmlSystemGetDriverVersion() -> str:
    return "stand-in"


def nvmlDeviceGetCount() -> int:
    return len(FAULTS)


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return _asked(index)


def nvmlDeviceGetHandleByUUID(uuid: str) -> int:
    for index in range(len(FAULTS)):
        if _uuid(index) == uuid:
            return _asked(index)
    raise NVMLError("Not Found")


def nvmlDeviceGetIndex(handle: int) -> int:
    return _asked(handle)


def nvmlDeviceGetUUID(handle: int) -> str:
    return _uuid(_asked(handle))


def _uuid(index: int) -> str:
    return _UUIDS[index] if index < len(_UUIDS) else f"GPU-00000000-0000-0000-0000-{index:012d}"


def nvmlDeviceGetName(handle: int) -> str:
    _asked(handle)
    return "Stand-in GPU"


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    fault = _fault(_asked(handle))
    if fault == UNKNOWN_ERROR:
        raise NVMLError_Unknown("Unknown Error")
    # Never twice the same: a power that stands still is a fault of its own.
    return 0 if fault == ZERO_POWER else _MILLIWATTS + time.monotonic_ns() // 1000 % 5000


def nvmlDeviceGetPowerManagementDefaultLimit(handle: int) -> int:
    _asked(handle)
    return 700_000


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    _asked(handle)
    return SimpleNamespace(used=1 << 30, total=80 << 30)


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:
    _asked(handle)
    return 1593 if kind == NVML_CLOCK_MEM else 1410


def nvmlDeviceGetMaxClockInfo(handle: int, kind: int) -> int:
    _asked(handle)
    return 2000
