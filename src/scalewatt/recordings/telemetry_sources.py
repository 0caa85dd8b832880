"""Where telemetry comes from: NVML, the node's power meter, and the other samplers of the node.

A source that does not work when it is first asked is left out, but for the other samplers: where they
could not be seen, a quality flag says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

HWMON = Path("/sys/class/hwmon")
CPUS = Path("/sys/devices/system/cpu")
POWER_METERS = {"power_meter", "acpi_power_meter", "power_meter-acpi"}

_POWER_AVERAGE, _POWER_INSTANT = 185, 186
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
# By the number of NVML's value types: double; unsigned int, long, long long; long long, int; short.
_VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

Reading = Sequence[float | None]


@dataclass(frozen=True)
class Source:
    """One query of a device, which gives some quantities; None if it has no answer."""

    quantities: tuple[str, ...]
    device_index: int
    read: Callable[[], Reading]


def working_sources(count_others: Callable[[], float | None]) -> list[Source]:
    """Return the sources that work on this node, and the number of concurrent samplers in any case."""
    others = Source(("concurrent_samplers",), 0, lambda: (count_others(),))
    found = (
        *_nvml_sources(),
        *cpu_clock_sources(CPUS, os.sched_getaffinity(0)),
        *hwmon_sources(HWMON),
    )
    return [*filter(_works, found), others]


def _works(source: Source) -> bool:
    try:
        return any(value is not None for value in source.read())
    except Exception:  # whatever a driver's binding raises: not supported here
        return False


def _nvml_sources() -> Iterator[Source]:
    try:
        import pynvml

        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except Exception:  # no NVML, or no GPU: there is nothing to read
        return
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except Exception:  # a lost GPU
            continue
        for quantities, read in _nvml_questions(pynvml, handle):
            yield Source(quantities, index, read)


def _nvml_questions(
    nvml: Any, handle: Any
) -> Iterator[tuple[tuple[str, ...], Callable[[], Reading]]]:
    """Yield what is asked of one GPU, in the quantities' units; a missing function raises."""

    def temperature() -> Reading:
        return (nvml.nvmlDeviceGetTemperature(handle, 0),)

    def clock(kind: int) -> Callable[[], Reading]:
        return lambda: (nvml.nvmlDeviceGetClockInfo(handle, kind),)

    def throttling() -> Reading:
        try:
            reasons = int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        except Exception:  # a binding or a driver that knows only the older name
            reasons = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        # Reasons that NVML may add one day share the last bit.
        return ((reasons & 0x7FFF) | (0x8000 if reasons >> 15 else 0),)

    def limit() -> Reading:
        return (nvml.nvmlDeviceGetEnforcedPowerLimit(handle) * 1e-3,)

    def utilisation() -> Reading:
        rates = nvml.nvmlDeviceGetUtilizationRates(handle)
        return rates.gpu, rates.memory

    def memory() -> Reading:
        return (nvml.nvmlDeviceGetMemoryInfo(handle).used,)

    def energy() -> Reading:
        return (nvml.nvmlDeviceGetTotalEnergyConsumption(handle) * 1e-3,)

    def powers() -> Reading:
        answers = nvml.nvmlDeviceGetFieldValues(handle, [_POWER_INSTANT, _POWER_AVERAGE])
        return [_field_value(answer) for answer in answers]

    yield ("temperature",), temperature
    yield ("clock_sm",), clock(_CLOCK_SM)
    yield ("clock_memory",), clock(_CLOCK_MEMORY)
    yield ("throttle_reasons",), throttling
    yield ("power_limit",), limit
    yield ("gpu_utilisation", "memory_utilisation"), utilisation
    yield ("memory_used",), memory
    yield ("energy_total",), energy
    yield ("power_instant", "power_average"), powers


def _field_value(answer: Any) -> float | None:
    """Return mW as W; None if NVML says that it has none."""
    if answer.nvmlReturn != 0 or not 0 <= answer.valueType < len(_VALUE_FIELDS):
        return None
    return float(getattr(answer.value, _VALUE_FIELDS[answer.valueType])) * 1e-3


def cpu_clock_sources(root: Path, cpus: Iterable[int]) -> list[Source]:
    """Return the clock of the fastest of some CPUs, as the scaling driver tells it (files in kHz)."""
    files = [root / f"cpu{cpu}" / "cpufreq" / "scaling_cur_freq" for cpu in sorted(cpus)]
    files = [file for file in files if file.exists()]
    if not files:
        return []
    return [
        Source(
            ("cpu_clock",),
            0,
            lambda: (max(int(file.read_text()) for file in files) * 1e-3,),
        )
    ]


def hwmon_sources(root: Path) -> list[Source]:
    """Return the node's power meter among the hwmon chips, if there is one (files in µW)."""
    for chip in sorted(root.glob("hwmon*")):
        try:
            known = (chip / "name").read_text().strip() in POWER_METERS
        except OSError:
            continue
        for name in ("power1_average", "power1_input"):
            file = chip / name
            if known and file.exists():
                return [Source(("node_power_hwmon",), 0, partial(_microwatts, file))]
    return []


def _microwatts(file: Path) -> Reading:
    return (int(file.read_text()) * 1e-6,)
