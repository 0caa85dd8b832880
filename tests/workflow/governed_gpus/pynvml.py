"""GPUs that stand in for NVML's, whose power follows the clock that `nvidia-smi` beside this file set.

GOVERNED_GPUS is the folder of their settings. The law: `power_w`, and a training as fast as its clock.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import socket
from pathlib import Path
from types import SimpleNamespace

_spec = importlib.util.spec_from_file_location(
    "failing_nvml", Path(__file__).parents[1] / "failing_nvml" / "pynvml.py"
)
assert _spec is not None and _spec.loader is not None
_failing = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_failing)
globals().update(
    {name: value for name, value in vars(_failing).items() if name[:4].lower() == "nvml"}
)

DEFAULT_MHZ, DEFAULT_W = 1410.0, 400.0
_FOLDER = Path(os.environ["GOVERNED_GPUS"])
_HOST = socket.gethostname()
_JITTER = itertools.cycle((-500, 500))
"""In mW, around the law: a sensor that stands still would be a faulty one."""


def power_w(clock_mhz: float) -> float:
    """Return the power of a GPU at a clock."""
    return 80.0 + 300.0 * (clock_mhz / DEFAULT_MHZ) ** 2.4


def _setting(index: int, name: str, default: float) -> float:
    try:
        return float((_FOLDER / f"{_HOST}-{index}-{name}").read_text(encoding="ascii"))
    except FileNotFoundError:
        return default


def clock_mhz(index: int) -> float:
    """Return a GPU's clock."""
    return _setting(index, "clock", DEFAULT_MHZ)


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    return round(1000 * power_w(clock_mhz(handle))) + next(_JITTER)


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:
    return round(clock_mhz(handle))


def nvmlDeviceGetEnforcedPowerLimit(handle: int) -> int:
    return round(1000 * _setting(handle, "limit", DEFAULT_W))


def nvmlDeviceGetPowerManagementDefaultLimit(handle: int) -> int:
    return round(1000 * DEFAULT_W)


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    return SimpleNamespace(gpu=100, memory=10)


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: int) -> int:
    return 0x02  # the clock that was set
