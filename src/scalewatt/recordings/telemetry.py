"""Telemetry: temperatures, clocks, throttling, loads, and other sources of energy for cross-checks.

A record every TELEMETRY_PERIOD_S, or rarer where reading takes long: it takes at most 0.1 % of one
core's time, up to a record every TELEMETRY_PERIOD_LIMIT_S, which it may cost whatever it does. The
file is one of records (`records`); its fields are quantities, with one value for each device that
`sensors` lists.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.recordings.record_file import Field, RecordWriter, even_clock, read_records
from scalewatt.recordings.series import Flag, Floats, flag, in_order_of_time
from scalewatt.recordings.telemetry_sources import Source

TELEMETRY_PERIOD_S = 5.0
TELEMETRY_PERIOD_LIMIT_S = 60.0
TELEMETRY_VERSION = 2
_COST_SHARE = 1e-3


@dataclass(frozen=True)
class _Kind:
    device_kind: str
    unit: str
    mag: float
    dtype: str


# Small, since all this comes out of the same hundred bytes a sample.
QUANTITIES = {
    "temperature": _Kind("gpu", "°C", 1.0, "<u1"),
    "clock_sm": _Kind("gpu", "MHz", 1.0, "<u2"),
    "clock_memory": _Kind("gpu", "MHz", 1.0, "<u2"),
    "throttle_reasons": _Kind("gpu", "", 1.0, "<u2"),
    "power_limit": _Kind("gpu", "W", 0.1, "<u2"),
    "gpu_utilisation": _Kind("gpu", "%", 1.0, "<u1"),
    "memory_utilisation": _Kind("gpu", "%", 1.0, "<u1"),
    "memory_used": _Kind("gpu", "B", 1048576.0, "<u4"),
    "energy_total": _Kind("gpu", "J", 1e-3, "<u8"),
    "power_instant": _Kind("gpu", "W", 0.1, "<u2"),
    "power_average": _Kind("gpu", "W", 0.1, "<u2"),
    "cpu_clock": _Kind("node", "MHz", 1.0, "<u2"),
    "node_power_hwmon": _Kind("node", "W", 1.0, "<u2"),
    "concurrent_samplers": _Kind("node", "", 1.0, "<u1"),
}
"""Quantity -> whose, unit, and how it is stored. `throttle_reasons` is NVML's bit mask, `power_limit` the
one in force, `cpu_clock` that of the fastest CPU that the sampler may use.

`concurrent_samplers` is always recorded, and missing where others could not have been seen.
"""


@dataclass(frozen=True, eq=False)
class TelemetrySeries:
    """One quantity of one device: values in `unit` (n,), NaN where missing; times in unix s (n,).

    `device_kind` is gpu or node. `energy_total` is a counter in J that starts anywhere.
    """

    node: str
    device_kind: str
    device_index: int
    quantity: str
    unit: str
    time_s: Floats
    values: Floats


class TelemetryWriter:
    """Records all sources to `<stem>.telemetry` whenever it is time. Never raises."""

    def __init__(
        self, folder: Path, stem: str, facts: dict[str, Any], sources: Sequence[Source]
    ) -> None:
        self._sources = sources
        self._costs: deque[float] = deque(maxlen=5)
        self._last_s = -np.inf
        found: dict[str, list[int]] = {}
        for source in sources:
            for quantity in source.quantities:
                found.setdefault(quantity, []).append(source.device_index)
        self._devices = {quantity: found[quantity] for quantity in QUANTITIES if quantity in found}
        sensors = {
            quantity: {
                "device_kind": QUANTITIES[quantity].device_kind,
                "device_index": devices,
                "unit": QUANTITIES[quantity].unit,
                "mag": QUANTITIES[quantity].mag,
            }
            for quantity, devices in self._devices.items()
        }
        fields = [Field(q, QUANTITIES[q].dtype, len(d)) for q, d in self._devices.items()]
        header = {"telemetry": TELEMETRY_VERSION, **facts, "sensors": sensors}
        self._writer = RecordWriter(folder, stem, "telemetry", header, fields)

    def _interval_s(self) -> float:
        """Return the seconds from one record to the next, by what the last ones cost."""
        stretched = statistics.fmean(self._costs) / _COST_SHARE if self._costs else 0.0
        return min(max(TELEMETRY_PERIOD_S, stretched), TELEMETRY_PERIOD_LIMIT_S)

    @property
    def error(self) -> OSError | None:
        """Why the last record that could not be written could not."""
        return self._writer.error

    def sample(self) -> bool:
        """Write a record if one is due, with every sample of power; False if it could not be written."""
        started = time.monotonic()
        if started - self._last_s < self._interval_s():
            return True
        self._last_s = started
        readings = self._read()
        values = [readings.get((q, d)) for q, devices in self._devices.items() for d in devices]
        written = self._writer.append(time.time(), time.monotonic(), values)
        self._costs.append(time.monotonic() - started)
        return written

    def _read(self) -> dict[tuple[str, int], float]:
        """Return raw values by quantity and device; a source that fails leaves its own out."""
        found: dict[tuple[str, int], float] = {}
        for source in self._sources:
            try:
                for quantity, value in zip(source.quantities, source.read(), strict=True):
                    if value is not None:
                        found[quantity, source.device_index] = value / QUANTITIES[quantity].mag
            except Exception:  # whatever a driver's binding raises: missing this time
                continue
        return found


def telemetry_files(folder: Path, stem: str) -> list[Path]:
    """Return the files of telemetry whose names begin with `stem`."""
    return sorted(folder.glob(f"{stem}.telemetry"))


def read_telemetry(
    paths: Iterable[Path | str] | Path | str,
) -> tuple[list[TelemetrySeries], list[Flag]]:
    """Read files of telemetry; those of one host are joined in order of time.

    A file that cannot be read is left out with the flag `unreadable`, records that
    cannot with `damaged`: telemetry never withholds energy.
    """
    files = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    parts: dict[tuple[str, str, int, str], list[TelemetrySeries]] = {}
    flags: list[Flag] = []
    for path in files:
        try:
            found, damaged = _read_file(path)
        except InputError as error:
            flags.append(flag("unreadable", None, str(error)))
            continue
        if damaged:
            detail = f"{damaged} unreadable records of {path.name} are left out"
            flags.append(flag("damaged", None, detail))
        for one in found:
            key = (one.node, one.device_kind, one.device_index, one.quantity)
            parts.setdefault(key, []).append(one)
    return [in_order_of_time(parts[key]) for key in sorted(parts)], flags


def _read_file(path: Path) -> tuple[list[TelemetrySeries], int]:
    records = read_records(path)
    header = records.header
    if header.get("telemetry") != TELEMETRY_VERSION:
        raise InputError(f"{path}: is no telemetry of format {TELEMETRY_VERSION}")
    time_s, _ = even_clock(records.column("t"), records.column("mono"))
    series = []
    for quantity, facts in header["sensors"].items():
        devices = facts["device_index"]
        values = records.column(quantity).reshape(time_s.size, len(devices)) * facts["mag"]
        series += [
            TelemetrySeries(
                header["host"],
                facts["device_kind"],
                device,
                quantity,
                facts["unit"],
                time_s,
                values[:, i],
            )
            for i, device in enumerate(devices)
        ]
    return series, records.damaged
