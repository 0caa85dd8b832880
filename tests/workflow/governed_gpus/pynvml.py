"""GPUs in place of NVML's, at their default clock, whose power follows a law of it: `power_w`."""

from __future__ import annotations

import importlib.util
import itertools
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
_JITTER = itertools.cycle((-500, 500))
"""In mW, around the law: a sensor that stands still would be a faulty one."""


def power_w(clock_mhz: float) -> float:
    """Return the power of a GPU at a clock."""
    return 80.0 + 300.0 * (clock_mhz / DEFAULT_MHZ) ** 2.4


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    return round(1000 * power_w(DEFAULT_MHZ)) + next(_JITTER)


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:
    return round(DEFAULT_MHZ)


def nvmlDeviceGetEnforcedPowerLimit(handle: int) -> int:
    return round(1000 * DEFAULT_W)


def nvmlDeviceGetPowerManagementDefaultLimit(handle: int) -> int:
    return round(1000 * DEFAULT_W)


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    return SimpleNamespace(gpu=100, memory=10)


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: int) -> int:
    return 0x02  # the clock that was set
