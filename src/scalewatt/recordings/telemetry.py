"""Telemetry: temperatures, clocks, throttling, loads, and other sources of energy for cross-checks.

A line is written every TELEMETRY_PERIOD_S. Columns are `<quantity>:<device>`, in the units below. A source
that does not work when it is first asked is left out.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.recordings.block import Block, sensor_frame
from scalewatt.recordings.journal import TELEMETRY, LineWriter, beside, even_clock, read_table
from scalewatt.recordings.terms import Flag, Floats, flag

TELEMETRY_PERIOD_S = 5.0
HWMON = Path("/sys/class/hwmon")
CPUS = Path("/sys/devices/system/cpu")
POWER_METERS = {"power_meter", "acpi_power_meter", "power_meter-acpi"}
GROUP_VARIABLE = "SCALEWATT_SAMPLERS"
"""Environment variable that names a group: samplers of another group are not seen."""
_SOCKETS = Path("/proc/net/unix")


# --- other samplers on this node ------------------------------------------------------------------
# Every live sampler holds a socket with an abstract name of its host; the kernel removes it with its process.
# Samplers that state another host name are not seen, nor are those of a container with its own network.


def announce_sampler(host: str) -> socket.socket | None:
    """Socket that announces this process as a sampler of a host while it is open; None if refused."""
    try:
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        mark.bind(f"\0{_prefix(host)}{os.urandom(6).hex()}")
    except OSError:
        return None
    return mark


def count_samplers(host: str) -> int | None:
    """Count the live samplers of a host; None if sockets cannot be listed."""
    try:
        return _SOCKETS.read_text(errors="replace").count(f" @{_prefix(host)}")
    except OSError:
        return None


def _prefix(host: str) -> str:
    group = f"{os.environ.get(GROUP_VARIABLE, '')}\0{host}".encode()
    return f"scalewatt-sampler/{hashlib.sha256(group).hexdigest()[:12]}/"


# --- sources --------------------------------------------------------------------------------------


GPU_QUANTITIES: tuple[tuple[str, str, Callable[[Any, Any], float | None]], ...] = (
    ("temperature", "°C", lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, 0)),
    ("clock_sm", "MHz", lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, 1)),
    ("clock_memory", "MHz", lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, 2)),
    ("throttle_reasons", "", lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),
    ("power_limit", "W", lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) * 1e-3),
    ("gpu_utilisation", "%", lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
    ("memory_utilisation", "%", lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).memory),
    ("memory_used", "B", lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used),
    ("energy_total", "J", lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) * 1e-3),
)
"""Quantities that NVML is asked for of each GPU, and their units. `power_limit` is the limit in force,
`energy_total` a counter that starts anywhere."""
QUANTITIES = {name: ("gpu", unit) for name, unit, _ in GPU_QUANTITIES} | {
    "cpu_clock": ("node", "MHz"),
    "node_power_hwmon": ("node", "W"),
    "concurrent_samplers": ("node", ""),
}
"""Kind of device and unit of each quantity. `cpu_clock`: of the fastest CPU that the sampler may use."""


Reader = Callable[[], float | None]
"""Reader of a quantity of a device; it gives None if it has no answer, and may raise."""


def _value(read: Reader) -> float | None:
    """Reading now; None for whatever a driver's binding raises."""
    try:
        value = read()
    except Exception:
        return None
    return round(value, 3) if isinstance(value, float) else value


def working_sources(count_others: Reader) -> dict[str, Reader]:
    """Readers of what works on this node, and of the number of concurrent samplers in any case, by column."""
    sources: dict[str, Reader] = {}
    with suppress(Exception):  # no NVML, or no GPU: there is nothing to read
        import pynvml

        def read(index: int, call: Callable[[Any, Any], float | None]) -> float | None:
            return call(pynvml, pynvml.nvmlDeviceGetHandleByIndex(index))

        pynvml.nvmlInit()
        gpus = range(pynvml.nvmlDeviceGetCount())
        for quantity, _, call in GPU_QUANTITIES:
            sources |= {f"{quantity}:{index}": partial(read, index, call) for index in gpus}
    read_clock = cpu_clock(CPUS, os.sched_getaffinity(0))
    of_node = {"cpu_clock:0": read_clock, "node_power_hwmon:0": power_meter(HWMON)}
    sources |= {column: read for column, read in of_node.items() if read}
    working = {column: read for column, read in sources.items() if _value(read) is not None}
    return {**working, "concurrent_samplers:0": count_others}


def cpu_clock(root: Path, cpus: Iterable[int]) -> Callable[[], float] | None:
    """Reader of the fastest clock of some CPUs in MHz, as the scaling driver states it (files in kHz)."""
    files = [root / f"cpu{cpu}" / "cpufreq" / "scaling_cur_freq" for cpu in sorted(cpus)]
    files = [file for file in files if file.exists()]
    return (lambda: max(int(file.read_text()) for file in files) * 1e-3) if files else None


def power_meter(root: Path) -> Callable[[], float] | None:
    """Reader of the node's power meter among the hwmon chips in W, if there is one (files in µW)."""
    names = ("power1_average", "power1_input")
    files = [file for name in names for file in sorted(root.glob(f"hwmon*/{name}"))]
    meters = [f for f in files if (f.parent / "name").read_text().strip() in POWER_METERS]
    return (lambda: int(meters[0].read_text()) * 1e-6) if meters else None


# --- writing --------------------------------------------------------------------------------------


class TelemetryWriter:
    """Records all sources to `<stem>.telemetry.csv` whenever it is time."""

    def __init__(self, path: Path, sources: Mapping[str, Reader]) -> None:
        self._sources = sources
        self.sensors: dict[str, dict[str, Any]] = {}
        """Description of its columns for `.sensors.json`."""
        for column in sources:
            quantity, _, index = column.partition(":")
            kind, unit = QUANTITIES[quantity]
            facts = {"quantity": quantity, "kind": kind, "index": int(index), "unit": unit}
            self.sensors[column] = facts
        self._lines = LineWriter(beside(path, TELEMETRY), self.sensors)
        self._last_s = -np.inf

    def sample(self) -> None:
        """Write a line if one is due, with every sample of power; OSError where it cannot be written."""
        started_s = time.monotonic()
        if started_s - self._last_s < TELEMETRY_PERIOD_S:
            return
        self._last_s = started_s
        values = [_value(read) for read in self._sources.values()]
        self._lines.append(time.time(), time.monotonic(), values)


# --- reading --------------------------------------------------------------------------------------


def read_telemetry(paths: Iterable[Path]) -> tuple[list[Block], list[Flag]]:
    """Read files of telemetry: a block each.

    A file that cannot be read is left out with a flag: telemetry never withholds energy.
    """
    blocks: list[Block] = []
    flags: list[Flag] = []
    for path in paths:
        try:
            about, table, damage = read_table(path)
        except InputError as error:
            flags.append(flag("unreadable", None, str(error)))
            continue
        flags += damage
        time_s, _ = even_clock(table["t"].to_numpy(), table["mono"].to_numpy())
        sensors: Mapping[str, Any] = about["telemetry"]
        frame = sensor_frame([{"name": name, **facts} for name, facts in sensors.items()])
        values = table.reindex(columns=[*sensors]).to_numpy()
        blocks.append(Block(about["host"], time_s, values, frame))
    return blocks, flags


def readings(
    telemetry: Iterable[Block], *quantities: str, gpus: Sequence[int] | None = None
) -> Iterator[tuple[Block, Any, Floats]]:
    """Yield block, row of its sensors and values, (n,), of each column of telemetry of some quantities.

    Of GPUs only those of some indices (None: all).
    """
    for block in telemetry:
        for row, values in zip(block.rows, block.values.T, strict=True):
            is_held = gpus is None or row.kind != "gpu" or row.index in gpus
            if row.quantity in quantities and is_held:
                yield block, row, values
