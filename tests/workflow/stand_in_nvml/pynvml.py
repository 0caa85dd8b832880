"""Two stand-in GPUs at a constant 100 W and 200 W, for perun's own NVML backend."""

from __future__ import annotations

from types import SimpleNamespace

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_CLOCK_GRAPHICS = 1, 2, 0
MILLIWATTS = (100_000, 200_000)


class NVMLError(Exception):
    """NVML's error."""


class NVMLError_Uninitialized(NVMLError):
    """NVML's error before nvmlInit."""


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


def nvmlDeviceGetUUID(handle: int) -> str:
    return f"GPU-{handle}"


def nvmlDeviceGetName(handle: int) -> str:
    return "Stand-in GPU"


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    return MILLIWATTS[handle]


def nvmlDeviceGetPowerManagementDefaultLimit(handle: int) -> int:
    return 400_000


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(used=1 << 30, total=40 << 30)


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:
    return 1000


def nvmlDeviceGetMaxClockInfo(handle: int, kind: int) -> int:
    return 2000
