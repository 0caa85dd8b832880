"""Two stand-in GPUs whose powers are waves, for perun's own NVML backend."""

from __future__ import annotations

from types import SimpleNamespace

import waves

NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM = 0, 1, 2


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
    return len(waves.GPUS)


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetUUID(handle: int) -> str:
    return f"GPU-stand-in-{handle}"


def nvmlDeviceGetName(handle: int) -> str:
    return "Stand-in GPU"


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    t = waves.now()
    waves.note_read(f"CUDA:{handle}_POWER", t)
    return round(1000 * waves.host_wave(waves.GPUS[handle]).power_w(t))


def nvmlDeviceGetPowerManagementDefaultLimit(handle: int) -> int:
    return 400_000


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(used=1 << 30, total=40 << 30)


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:
    return 1000


def nvmlDeviceGetMaxClockInfo(handle: int, kind: int) -> int:
    return 2000
