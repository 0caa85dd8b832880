"""Reading the journals that the sampler writes sample by sample.

Formats 2 and 3 are files of records (`record_file`), 3 with a checksum of the header: {"journal": 3,
"host", "sampling_period_s", "fields", "sensors": {name: {"device_kind", "device_index", "unit",
"mag", "valid_max", "uuid", "device_name"}}} describes one field per sensor. Format 1 is JSON lines
{"t": unix s, "mono": s, "<host>_<sensor>": raw value, …}, with or without a first line {"journal":
1, …}. A sensor that the header does not describe is known by its name, as perun 1.0.0 gives it. A header that
contradicts itself, a sensor's name or what there is in units and magnitudes is refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import printable
from scalewatt.recordings.record_file import even_clock, last_record_s, read_records
from scalewatt.recordings.series import (
    DEVICE_KINDS,
    LATEST_S,
    MAGNITUDES,
    NO_INDEX,
    QUANTITIES,
    Flag,
    Floats,
    Recording,
    SensorSeries,
    by_node,
    finite_number,
    flag,
    in_order_of_time,
    index_in_name,
    number_devices,
    origin_stated,
)

CLOCK_JUMP_S = 1.0
_RECORDS, _NEWEST = 2, 3
_CHECKSUM = "crc32"
_TAIL_BYTES = 1 << 16
_MOST_DEVICES = 1 << 16
_BEGINNINGS = (b'{"t"', b'{"journal"', b'{"mono"')

# Sensor name -> device kind, unit, magnitude of the raw value (perun 1.0.0).
_KNOWN = (
    (re.compile(r"CUDA:\d+_POWER$"), ("gpu", "W", 1e-3)),
    (re.compile(r"ROCM:[^_]+_POWER$"), ("gpu", "W", 1.0)),
    (re.compile(r"cpu_\d+_package.*$"), ("cpu", "J", 1e-6)),
    (re.compile(r"ram_\d+_dram.*$"), ("ram", "J", 1e-6)),
    (re.compile(r"cpu_power_socket_\d+_hwmon.*$"), ("cpu", "W", 1e-6)),
    (re.compile(r"CPU_(?:USAGE|BUSY)\w*$"), ("cpu", "%", 1.0)),
)
_KEY = re.compile(
    r"^(?P<host>.+?)_(?P<sensor>(?:CUDA:|ROCM:|cpu_\d|ram_\d|cpu_power_|CPU_|RAM_|DISK_|NET_).*)$"
)


@dataclass(frozen=True, eq=False)
class _Content:
    """The content of one journal, in either format; raw values with NaN where missing."""

    host: str | None
    period_s: float | None
    sensors: dict[str, Any]
    wall: Floats
    mono: Floats
    columns: dict[str, Floats]
    damaged: int
    origin: str
    is_records: bool


def read_journal(paths: Iterable[Path | str] | Path | str, first: int = 0) -> Recording:
    """Read the journals of one segment; several of one host are joined in order of time.

    `first` is the record that each file of records is read from, counted from the end where
    negative; JSON lines are read whole. Times are unix seconds. A torn end is left out; other
    unreadable samples are left out and counted as `journal_damaged`, one file of several with
    `journal_unreadable`. Raises InputError if none holds a sample.
    """
    files = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    parts: dict[tuple[str, str], list[SensorSeries]] = {}
    problems: list[Flag] = []
    periods = []
    errors: list[InputError] = []
    for path in files:
        try:
            content = _read(path, first)
            found, damaged = _series(content, path)
        except InputError as error:
            errors.append(error)
            continue
        problems += damaged
        if content.period_s:
            periods.append(content.period_s)
        for one in found:
            parts.setdefault((one.node, one.sensor), []).append(one)
    source = ", ".join(str(path) for path in files)
    if errors and not parts:
        raise errors[0]
    problems += [flag("journal_unreadable", None, str(error)) for error in errors]
    if not parts:
        raise InputError(
            f"{source}: no samples; expected a journal, which is records or JSON lines "
            '{"t": …, "<host>_<sensor>"}'
        )
    return Recording(
        nodes=by_node(number_devices([_joined(part) for part in parts.values()])),
        t0_known=True,
        sampling_period_s=max(periods) if periods else None,
        source=source,
        problems=tuple(problems),
    )


def is_journal(path: Path | str) -> bool:
    """Return True if a file's content begins like a journal."""
    try:
        with open(path, "rb") as handle:
            begin = handle.read(64)
    except OSError:
        return False
    return begin.lstrip().startswith(_BEGINNINGS)


def last_sample_s(path: Path | str) -> float | None:
    """Return the unix time of a journal's last intact sample; None without one, whatever the file.

    Only the end of the file is read.
    """
    path = Path(path)
    try:
        if _version(path) >= _RECORDS:
            return last_record_s(path)
        with open(path, "rb") as handle:
            handle.seek(max(os.fstat(handle.fileno()).st_size - _TAIL_BYTES, 0))
            lines = handle.read().split(b"\n")
    except (OSError, InputError):
        return None
    for line in reversed(lines):
        value = _json(line)
        if isinstance(value, dict) and (time_s := finite_number(value.get("t"))) is not None:
            return time_s
    return None


def _version(path: Path) -> int:
    """Return the format that a journal's header states; 1 without one."""
    try:
        with open(path, "rb") as handle:
            header = _json(handle.readline(1 << 20))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}); expected a journal") from error
    version = header.get("journal", 1) if isinstance(header, dict) else 1
    if version not in range(1, _NEWEST + 1) or isinstance(version, bool):
        raise InputError(f"{path}: is a journal of format {version}; expected 1 to {_NEWEST}")
    return int(version)


def _read(path: Path, first: int) -> _Content:
    is_records = _version(path) >= _RECORDS
    if is_records:
        records = read_records(path, first)
        header, damaged = records.header, records.damaged
        if not isinstance(header.get("host"), str):
            raise InputError(f'{path}: its header names no host; expected "host": "…"')
        names = [name for name in records.rows.dtype.names or () if name != _CHECKSUM]
        columns = {name: records.column(name) for name in names}
    else:
        header, columns, damaged = _lines(path)
    sensors, host = header.get("sensors"), header.get("host")
    return _Content(
        host=printable(host) if isinstance(host, str) else None,
        period_s=finite_number(header.get("sampling_period_s")),
        sensors=sensors if isinstance(sensors, dict) else {},
        wall=columns.pop("t"),
        mono=columns.pop("mono"),
        columns=columns,
        damaged=damaged,
        origin=origin_stated(header),
        is_records=is_records,
    )


def _lines(path: Path) -> tuple[dict[str, Any], dict[str, Floats], int]:
    """Return header, columns and number of unreadable lines, a torn last one not counted."""
    lines = path.read_bytes().split(b"\n")
    while lines and not lines[-1].strip(b" \r\0"):
        lines.pop()
    header: dict[str, Any] = {}
    samples = []
    bad = []
    for number, line in enumerate(lines):
        value = _json(line)
        if isinstance(value, dict) and "journal" in value:
            header = value
        elif isinstance(value, dict) and _is_time(value.get("t")):
            samples.append(value)
        else:
            bad.append(number)
    torn = bool(bad) and bad[-1] == len(lines) - 1
    keys = dict.fromkeys(("t", "mono", *(key for sample in samples for key in sample)))
    keys.pop(_CHECKSUM, None)
    return header, {key: _column(samples, key) for key in keys}, len(bad) - torn


def _is_time(value: Any) -> bool:
    seconds = finite_number(value)
    return seconds is not None and abs(seconds) < LATEST_S


def _series(content: _Content, path: Path) -> tuple[list[SensorSeries], list[Flag]]:
    problems = []
    if content.damaged:
        detail = f"{content.damaged} unreadable samples of {path.name} are left out"
        problems.append(flag("journal_damaged", None, detail))
    time_s, jump = even_clock(content.wall, content.mono)
    if jump > CLOCK_JUMP_S:
        detail = f"{path.name}: the wall clock moved by {jump:.1f} s against the monotonic one"
        problems.append(flag("clock_jump", None, detail))
    series = []
    found = {key: _split(key, content.host) for key in content.columns}
    held = {*found, *(sensor for _, sensor in found.values())}
    lost = next((name for name in content.sensors if name not in held), None)
    if lost is not None and time_s.size:
        detail = f"its header describes {lost!r}, of which it has no samples"
        if content.is_records:  # a record has a field for each sensor
            raise InputError(f"{path}: {detail}")
        problems.append(flag("unreadable_sensor", lost, f"{path.name}: {detail}"))
    for key, raw in content.columns.items() if time_s.size else ():
        node, sensor = found[key]
        try:
            one = _described(content.sensors.get(key) or content.sensors.get(sensor), sensor)
        except ValueError as error:
            raise InputError(f"{path}: its header says of {sensor!r} {error}") from error
        if node is not None and one is not None:
            mag, described = one
            values = raw * mag / (100.0 if described.quantity == "utilisation" else 1.0)
            series.append(
                replace(described, node=node, time_s=time_s, values=values, origin=content.origin)
            )
    return series, problems


def _split(key: str, host: str | None) -> tuple[str | None, str]:
    """Return host and sensor: records name the sensor alone, JSON lines the host before it."""
    if host is not None and key.startswith(f"{host}_"):
        return host, key.removeprefix(f"{host}_")
    found = _KEY.match(key)
    return (found["host"], found["sensor"]) if found else (host, key)


def _described(declared: Any, sensor: str) -> tuple[float, SensorSeries] | None:
    """Return the magnitude of a sensor's raw values, and its series without samples; None for one of no use.

    What is declared counts only if its unit and magnitude can be read. ValueError, with what it says
    and what is allowed, if it cannot be true.
    """
    index = index_in_name(sensor)
    index = NO_INDEX if index is None else index

    def empty(kind: str, index: int, quantity: str) -> SensorSeries:
        return SensorSeries("", sensor, kind, index, quantity, np.zeros(0), np.zeros(0))

    known = next((facts for pattern, facts in _KNOWN if pattern.match(sensor)), None)
    if isinstance(declared, dict) and _is_readable(declared):
        kind, unit = declared.get("device_kind"), declared["unit"]
        quantity = QUANTITIES.get(unit)
        _check_declared(declared, known)
        if kind not in DEVICE_KINDS or quantity is None:
            return None
        if quantity == "utilisation" and kind == "ram":
            return None
        mag, uuid = finite_number(declared.get("mag", 1.0)) or 1.0, declared.get("uuid")
        top = (finite_number(declared.get("valid_max")) or 0.0) * mag or None
        return mag, replace(
            empty(kind, _index(declared.get("device_index"), index), quantity),
            valid_max=top if quantity == "counter" else None,
            limit_w=top if quantity == "power" else None,
            uuid=uuid if isinstance(uuid, str) else None,
        )
    if known is None:
        return None
    kind, unit, mag = known
    return mag, empty(kind, index, QUANTITIES[unit])


def _check_declared(declared: dict[str, Any], known: tuple[str, str, float] | None) -> None:
    """Raise ValueError if what a header says of a sensor contradicts its name, or what there is."""
    kind, unit, mag = declared.get("device_kind"), declared["unit"], declared.get("mag")
    if unit in ("W", "J") and kind not in DEVICE_KINDS:
        raise ValueError(f"'device_kind': {kind!r}; allowed: {', '.join(DEVICE_KINDS)}")
    if mag is not None and float(mag) not in MAGNITUDES:
        raise ValueError(f"'mag': {mag!r}; allowed: a power of ten that perun knows, such as 0.001")
    if known is None:
        return
    units = ("W", "J") if known[1] in ("W", "J") else (known[1],)
    if kind != known[0] or unit not in units:
        raise ValueError(f"{unit!r} of a {kind!r}; allowed by its name: {known[1]} of a {known[0]}")


def _is_readable(declared: dict[str, Any]) -> bool:
    mag = declared.get("mag")
    return isinstance(declared.get("unit"), str) and (mag is None or finite_number(mag) is not None)


def _index(stated: Any, named: int) -> int:
    """Return a device's index as the header states it, else as its name does."""
    number = finite_number(stated)
    if number is None or not number.is_integer() or not NO_INDEX <= number < _MOST_DEVICES:
        return named
    return int(number)


def _joined(parts: list[SensorSeries]) -> SensorSeries:
    """Join the series of one sensor from several journals, sorted by time."""
    facts: dict[str, Any] = {
        name: next((found for part in parts if (found := getattr(part, name))), None)
        for name in ("valid_max", "limit_w", "uuid")
    }
    return replace(in_order_of_time(parts), **facts)


def _column(samples: list[dict[str, Any]], key: str) -> Floats:
    values = (finite_number(sample.get(key)) for sample in samples)
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
