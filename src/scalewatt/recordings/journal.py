"""Reading the journals that the sampler writes sample by sample.

A journal is a file of records (`record_file`) with the header {"journal": JOURNAL_VERSION, "host",
"sampling_period_s", "fields", "sensors": {name: {"device_kind", "device_index", "unit", "mag",
"valid_max", "uuid", "device_name"}}}, which describes one field per sensor. A sensor that the header
does not describe is known by its name, as perun 1.0.0 gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.recordings.record_file import even_clock, last_record_s, read_records
from scalewatt.recordings.series import (
    DEVICE_KINDS,
    NO_INDEX,
    QUANTITIES,
    Flag,
    Recording,
    SensorSeries,
    by_node,
    flag,
    in_order_of_time,
    index_in_name,
    number_devices,
    origin_stated,
)

JOURNAL_VERSION = 3
CLOCK_JUMP_S = 1.0
_BEGINNING = b'{"journal"'
_NO_SENSORS = ("t", "mono", "crc32")

# Sensor name -> device kind, unit, magnitude of the raw value (perun 1.0.0).
_KNOWN = (
    (re.compile(r"CUDA:\d+_POWER$"), ("gpu", "W", 1e-3)),
    (re.compile(r"ROCM:[^_]+_POWER$"), ("gpu", "W", 1.0)),
    (re.compile(r"cpu_\d+_package.*$"), ("cpu", "J", 1e-6)),
    (re.compile(r"ram_\d+_dram.*$"), ("ram", "J", 1e-6)),
    (re.compile(r"cpu_power_socket_\d+_hwmon.*$"), ("cpu", "W", 1e-6)),
    (re.compile(r"CPU_(?:USAGE|BUSY)\w*$"), ("cpu", "%", 1.0)),
)


def read_journal(paths: Iterable[Path | str] | Path | str, first: int = 0) -> Recording:
    """Read the journals of one segment; several of one host are joined in order of time.

    `first` is the record that each file is read from, counted from the end where negative. Times are
    unix seconds. A torn end is left out; other damaged records are left out and counted as
    `damaged`, one file of several with `unreadable`. Raises InputError if none holds a
    sample.
    """
    files = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    parts: dict[tuple[str, str], list[SensorSeries]] = {}
    problems: list[Flag] = []
    periods: list[float] = []
    errors: list[InputError] = []
    for path in files:
        try:
            series, period_s, flags = _read(path, first)
        except InputError as error:
            errors.append(error)
            continue
        problems += flags
        periods += [period_s] if period_s else []
        for one in series:
            parts.setdefault((one.node, one.sensor), []).append(one)
    source = ", ".join(str(path) for path in files)
    if errors and not parts:
        raise errors[0]
    problems += [flag("unreadable", None, str(error)) for error in errors]
    if not parts:
        raise InputError(f"{source}: no samples; expected a journal of at least one record")
    return Recording(
        nodes=by_node(number_devices([_joined(part) for part in parts.values()])),
        t0_known=True,
        sampling_period_s=max(periods, default=None),
        source=source,
        problems=tuple(problems),
    )


def is_journal(path: Path | str) -> bool:
    """Return True if a file's content begins like a journal."""
    try:
        with open(path, "rb") as handle:
            return handle.read(len(_BEGINNING)) == _BEGINNING
    except OSError:
        return False


def last_sample_s(path: Path | str) -> float | None:
    """Return the unix time of a journal's last intact sample; None without one, whatever the file.

    Only the end of the file is read.
    """
    try:
        return last_record_s(Path(path))
    except (OSError, InputError):
        return None


def _read(path: Path, first: int) -> tuple[list[SensorSeries], float | None, list[Flag]]:
    """Return the series of one file, its sampling period in s, and its flags."""
    records = read_records(path, first)
    header = records.header
    if header.get("journal") != JOURNAL_VERSION:
        raise InputError(f"{path}: is no journal of format {JOURNAL_VERSION}")
    flags = []
    if records.damaged:
        detail = f"{records.damaged} unreadable samples of {path.name} are left out"
        flags.append(flag("damaged", None, detail))
    time_s, jump_s = even_clock(records.column("t"), records.column("mono"))
    if jump_s > CLOCK_JUMP_S:
        detail = f"{path.name}: the wall clock moved by {jump_s:.1f} s against the monotonic one"
        flags.append(flag("clock", None, detail))
    series = []
    names = [name for name in records.rows.dtype.names or () if name not in _NO_SENSORS]
    for sensor in names if time_s.size else ():
        if (described := _described(header["sensors"].get(sensor), sensor)) is None:
            continue
        mag, empty = described
        values = records.column(sensor) * mag
        if empty.quantity == "utilisation":
            values /= 100.0
        origin = origin_stated(header)
        series.append(
            replace(empty, node=header["host"], time_s=time_s, values=values, origin=origin)
        )
    return series, header.get("sampling_period_s"), flags


def _described(facts: dict[str, Any] | None, sensor: str) -> tuple[float, SensorSeries] | None:
    """Return the magnitude of a sensor's raw values, and its series without samples.

    None for a sensor that energy does not need.
    """
    index = index_in_name(sensor)
    if facts is None:
        known = next((facts for pattern, facts in _KNOWN if pattern.match(sensor)), None)
        if known is None:
            return None
        facts = dict(zip(("device_kind", "unit", "mag"), known, strict=True))
    kind, quantity = facts["device_kind"], QUANTITIES.get(facts["unit"])
    if (
        kind not in DEVICE_KINDS
        or quantity is None
        or (quantity == "utilisation" and kind == "ram")
    ):
        return None
    mag = float(facts.get("mag", 1.0))
    top = float(facts.get("valid_max") or 0.0) * mag or None
    return mag, SensorSeries(
        node="",
        sensor=sensor,
        device_kind=kind,
        device_index=facts.get("device_index", NO_INDEX if index is None else index),
        quantity=quantity,
        time_s=np.zeros(0),
        values=np.zeros(0),
        valid_max=top if quantity == "counter" else None,
        limit_w=top if quantity == "power" else None,
        uuid=facts.get("uuid"),
    )


def _joined(parts: list[SensorSeries]) -> SensorSeries:
    """Join the series of one sensor from several journals, sorted by time."""
    facts: dict[str, Any] = {
        name: next((found for part in parts if (found := getattr(part, name))), None)
        for name in ("valid_max", "limit_w", "uuid")
    }
    return replace(in_order_of_time(parts), **facts)
