"""GPUs in place of NVML's, whose power follows the clock GOVERNED_MHZ of the process that asks.

A host with a file <host>-ignores in the folder GOVERNED_GPUS stays at the default clock. The law: `power_w`,
and a training as fast as its clock.
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


def clock_mhz() -> float:
    """Return the GPUs' clock."""
    ignores = (_FOLDER / f"{_HOST}-ignores").exists()
    return DEFAULT_MHZ if ignores else float(os.environ.get("GOVERNED_MHZ", DEFAULT_MHZ))


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    return round(1000 * power_w(clock_mhz())) + next(_JITTER)


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:
    return round(clock_mhz())


def nvmlDeviceGetEnforcedPowerLimit(handle: int) -> int:
    return round(1000 * DEFAULT_W)


def nvmlDeviceGetPowerManagementDefaultLimit(handle: int) -> int:
    return round(1000 * DEFAULT_W)


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    return SimpleNamespace(gpu=100, memory=10)


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: int) -> int:
    return 0x02  # the clock that was set
