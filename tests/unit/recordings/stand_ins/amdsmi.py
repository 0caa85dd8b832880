"""Two stand-in AMD GPUs whose powers are waves, for perun's own ROCm backend."""

from __future__ import annotations

from enum import Enum
from typing import Any

import waves


class AmdSmiException(Exception):
    """AMD SMI's error."""


class AmdSmiInitFlags(Enum):
    """What is to be watched."""

    INIT_AMD_GPUS = 2


class AmdSmiMemoryType(Enum):
    """Kinds of memory."""

    VRAM = 0


def amdsmi_init(flag: AmdSmiInitFlags) -> None: ...
def amdsmi_shut_down() -> None: ...
def amdsmi_get_lib_version() -> dict[str, int]:
    return {"year": 25, "major": 1, "minor": 0}


def amdsmi_get_processor_handles() -> list[int]:
    return list(range(len(waves.AMD_GPUS)))


def amdsmi_get_gpu_device_uuid(handle: int) -> str:
    return waves.AMD_UUIDS[handle]


def amdsmi_get_gpu_board_info(handle: int) -> dict[str, str]:
    return {"product_name": "Stand-in AMD"}


def amdsmi_get_power_info(handle: int) -> dict[str, Any]:
    t = waves.now()
    waves.note_read(f"ROCM:{amdsmi_get_gpu_device_uuid(handle)}_POWER", t)
    watts = round(waves.host_wave(waves.AMD_GPUS[handle]).power_w(t))
    return {"average_socket_power": watts, "power_limit": 560 * 10**6}


def amdsmi_get_gpu_memory_usage(handle: int, kind: AmdSmiMemoryType) -> int:
    return 1 << 30


def amdsmi_get_gpu_memory_total(handle: int, kind: AmdSmiMemoryType) -> int:
    return 64 << 30
