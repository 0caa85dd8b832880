"""Reading the journals that the sampler writes sample by sample.

JSON lines {"t": unix s, "mono": s, "<host>_<sensor>": raw value, …}. A first line {"journal": 1, …}
may say what the sensors are; without it their names do, as perun 1.0.0 gives them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.energy.samples import (
    DEVICE_KINDS,
    NO_INDEX,
    QUANTITIES,
    Flag,
    Floats,
    Recording,
    SensorSeries,
    by_node,
    flag,
    index_in_name,
    number_devices,
)
from scalewatt.errors import InputError

CLOCK_JUMP_S = 1.0

# Sensor name -> device kind, unit, magnitude of the raw value (perun 1.0.0).
_KNOWN = (
    (re.compile(r"CUDA:\d+_POWER$"), "gpu", "W", 1e-3),
    (re.compile(r"ROCM:[^_]+_POWER$"), "gpu", "W", 1.0),
    (re.compile(r"cpu_\d+_package.*$"), "cpu", "J", 1e-6),
    (re.compile(r"ram_\d+_dram.*$"), "ram", "J", 1e-6),
    (re.compile(r"cpu_power_socket_\d+_hwmon.*$"), "cpu", "W", 1e-6),
    (re.compile(r"CPU_(?:USAGE|BUSY)\w*$"), "cpu", "%", 1.0),
)
_KEY = re.compile(
    r"^(?P<host>.+?)_(?P<sensor>(?:CUDA:|ROCM:|cpu_\d|ram_\d|cpu_power_|CPU_|RAM_|DISK_|NET_).*)$"
)


@dataclass(frozen=True)
class _Lines:
    host: str | None
    period_s: float | None
    sensors: dict[str, dict[str, Any]]
    samples: list[dict[str, Any]]
    damaged: int


def read_journal(paths: Iterable[Path | str] | Path | str) -> Recording:
    """Read the journals of one segment; several of one host are joined in order of time.

    Times are unix seconds. A torn last line is left out; another unreadable line is left out and
    counted as `journal_damaged`. Raises InputError where a file cannot be read or none holds a
    sample.
    """
    files = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    parts: dict[tuple[str, str], list[SensorSeries]] = {}
    problems: list[Flag] = []
    periods = []
    for path in files:
        lines = _parse(path)
        found, doubts = _series(lines, path)
        problems += doubts
        if lines.period_s:
            periods.append(lines.period_s)
        for one in found:
            parts.setdefault((one.node, one.sensor), []).append(one)
    source = ", ".join(str(path) for path in files)
    if not parts:
        raise InputError(f'{source}: no samples; expected JSON lines {{"t": …, "<host>_<sensor>"}}')
    return Recording(
        nodes=by_node(number_devices([_joined(part) for part in parts.values()])),
        t0_known=True,
        sampling_period_s=max(periods) if periods else None,
        source=source,
        problems=tuple(problems),
    )


def _parse(path: Path) -> _Lines:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}); expected a journal") from error
    while lines and not lines[-1].strip(b" \r\0"):
        lines.pop()
    header: dict[str, Any] = {}
    samples = []
    bad = []
    for number, line in enumerate(lines):
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if isinstance(value, dict) and "journal" in value:
            header = value
        elif isinstance(value, dict) and _is_number(value.get("t")):
            samples.append(value)
        else:
            bad.append(number)
    torn = bool(bad) and bad[-1] == len(lines) - 1
    sensors = header.get("sensors")
    period = header.get("sampling_period_s")
    return _Lines(
        host=header.get("host"),
        period_s=_number(period),
        sensors=sensors if isinstance(sensors, dict) else {},
        samples=samples,
        damaged=len(bad) - torn,
    )


def _series(lines: _Lines, path: Path) -> tuple[list[SensorSeries], list[Flag]]:
    problems = []
    if lines.damaged:
        detail = f"{lines.damaged} unreadable lines of {path.name} are left out"
        problems.append(flag("journal_damaged", None, detail))
    time_s, jump = _clock(lines.samples)
    if jump > CLOCK_JUMP_S:
        detail = f"{path.name}: the wall clock moved by {jump:.1f} s against the monotonic one"
        problems.append(flag("clock_jump", None, detail))
    keys = dict.fromkeys(key for sample in lines.samples for key in sample)
    series = []
    for key in keys:
        if key in ("t", "mono"):
            continue
        node, sensor = _split(key, lines.host)
        facts = _facts(lines.sensors.get(key) or lines.sensors.get(sensor), sensor)
        if node is not None and facts is not None:
            raw = _column(lines.samples, key)
            series.append(_one(node, sensor, facts, time_s, raw))
    return series, problems


def _clock(samples: list[dict[str, Any]]) -> tuple[Floats, float]:
    """Return unix times that run as evenly as the monotonic clock, and the wall clock's jump in s.

    The monotonic stamps are shifted to the wall clock by the median difference, so a clock that is
    set during the run makes no energy.
    """
    wall, mono = _column(samples, "t"), _column(samples, "mono")
    if wall.size == 0 or not np.isfinite(mono).all() or np.any(np.diff(mono) <= 0):
        return wall, 0.0
    shift = wall - mono
    return mono + np.median(shift), float(np.ptp(shift))


def _split(key: str, host: str | None) -> tuple[str | None, str]:
    if host is not None and key.startswith(f"{host}_"):
        return host, key.removeprefix(f"{host}_")
    found = _KEY.match(key)
    return (found["host"], found["sensor"]) if found else (None, key)


def _facts(declared: Any, sensor: str) -> tuple[str, str, float, float | None] | None:
    """Return device kind, quantity, magnitude, raw maximum; None for a sensor of no use here."""
    if isinstance(declared, dict):
        kind, quantity = declared.get("device_kind"), QUANTITIES.get(declared.get("unit", ""))
        if kind not in DEVICE_KINDS or quantity is None:
            return None
        mag = declared.get("mag", 1.0)
        if quantity == "utilisation" and kind == "ram":
            return None
        return kind, quantity, float(mag), _number(declared.get("valid_max"))
    for pattern, kind, unit, mag in _KNOWN:
        if pattern.match(sensor):
            return kind, QUANTITIES[unit], mag, None
    return None


def _one(
    node: str, sensor: str, facts: tuple[str, str, float, float | None], time_s: Floats, raw: Floats
) -> SensorSeries:
    kind, quantity, mag, top = facts
    index = index_in_name(sensor)
    return SensorSeries(
        node=node,
        sensor=sensor,
        device_kind=kind,
        device_index=NO_INDEX if index is None else index,
        quantity=quantity,
        time_s=time_s,
        values=raw * mag / (100.0 if quantity == "utilisation" else 1.0),
        valid_max=top * mag if top and quantity == "counter" else None,
        limit_w=top * mag if top and quantity == "power" else None,
    )


def _joined(parts: list[SensorSeries]) -> SensorSeries:
    """Join the series of one sensor from several journals, sorted by time."""
    if len(parts) == 1:
        return parts[0]
    time_s = np.concatenate([part.time_s for part in parts])
    order = np.argsort(time_s, kind="stable")
    first = parts[0]
    return SensorSeries(
        first.node,
        first.sensor,
        first.device_kind,
        first.device_index,
        first.quantity,
        time_s[order],
        np.concatenate([part.values for part in parts])[order],
        next((part.valid_max for part in parts if part.valid_max), None),
        next((part.limit_w for part in parts if part.limit_w), None),
    )


def _column(samples: list[dict[str, Any]], key: str) -> Floats:
    values = (sample.get(key) for sample in samples)
    return np.array([v if _is_number(v) else np.nan for v in values], dtype=np.float64)


def _number(value: Any) -> float | None:
    return float(value) if _is_number(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
