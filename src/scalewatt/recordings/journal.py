"""The journal, the record of our own runs: each sample of a node on disk as it is taken.

    segment-000.<host>.csv            t,mono,<sensor>,…: unix s, monotonic s, the sensors' raw numbers
    segment-000.<host>.sensors.json   what the columns are; written before the first line
    segment-000.<host>.telemetry.csv  the same of what is read less often (`telemetry`)

An empty cell is a missing sample; a last line without its end is torn, and dropped. The JSON has `host`,
`sampling_period_s`, `simulated` where a model made the numbers, and by column of the journal (`sensors`) and
of telemetry (`telemetry`) {kind, index, unit, mag (of the raw numbers), valid_max (raw), uuid, device_name}.
"""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pc
from numpy.typing import NDArray

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object, write_json
from scalewatt.recordings.block import Block, LazyNodes, Recording, median, sensor_frame
from scalewatt.recordings.terms import DEVICE_KINDS, QUANTITIES, Flag, Floats, flag, origin_stated

STAMPS = ("t", "mono")
CLOCK_JUMP_S = 1.0
TELEMETRY, SENSORS = ".telemetry.csv", ".sensors.json"
_JOURNAL = re.compile(r"segment-(\d+)\.(.+)\.csv")
_is_cell = re.compile(rb"(?:-?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)?").fullmatch
_END_BYTES = 1 << 16


# --- names of files -------------------------------------------------------------------------------


def journal_files(folder: Path) -> dict[int, dict[str, Path]]:
    """Journals in a folder of recordings, by segment and by the host in the file's name."""
    files: dict[int, dict[str, Path]] = {}
    for path in sorted(folder.glob("segment-*.csv")):
        match = _JOURNAL.fullmatch(path.name)
        if match and not path.name.endswith(TELEMETRY):
            files.setdefault(int(match[1]), {})[match[2]] = path
    return files


def beside(path: Path, suffix: str) -> Path:
    """Name of another file of the same node, as of `.sensors.json` or `.telemetry.csv`."""
    stem = path.name.removesuffix(TELEMETRY).removesuffix(".csv")
    return path.with_name(stem + suffix)


def is_journal(path: Path) -> bool:
    """True if a file has the description of a journal's columns beside it."""
    is_telemetry = path.name.endswith(TELEMETRY)
    return path.suffix == ".csv" and not is_telemetry and beside(path, SENSORS).exists()


# --- writing --------------------------------------------------------------------------------------


class LineWriter:
    """Appends lines to a new file, which appears with the first; a line that fails leaves no trace.

    Each line is one unbuffered write, so it survives the death of every process. It is not synced, which
    may take seconds on a network's file system and would hold up sampling: should the node itself fail,
    its last lines may be lost.
    """

    def __init__(self, path: Path, columns: Iterable[str]) -> None:
        self._path, self._heading = path, ",".join((*STAMPS, *columns)) + "\n"
        self._file: int | None = None
        self._size = 0

    def append(self, t: float, mono: float, values: Sequence[Any]) -> None:
        """Write one line; what is not a finite number is missing. OSError, as on a full disk."""
        line = ",".join(map(_cell, (t, mono, *values))) + "\n"
        if self._file is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._file = os.open(self._path, flags, 0o644)
        data = (line if self._size else self._heading + line).encode()
        if os.write(self._file, data) < len(data):  # the disk is full: take the torn line back
            os.ftruncate(self._file, self._size)
            raise OSError(errno.ENOSPC, "no space left for a line")
        self._size += len(data)


def _cell(value: Any) -> str:
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, float):
        return repr(number) if math.isfinite(number) else ""
    return str(number) if type(number) is int else ""


def write_journal(
    path: Path,
    about: Mapping[str, Any],
    t: Floats,
    mono: Floats,
    columns: Mapping[str, NDArray[Any] | pa.Array],
) -> None:
    """Write a whole journal and what its columns are; columns (n,), null or NaN where missing."""
    write_json(beside(path, SENSORS), about)
    arrays = [pa.array(c, from_pandas=True) for c in (t, mono, *columns.values())]
    table = pa.table(dict(zip((*STAMPS, *columns), arrays, strict=True)))
    with open(path, "xb") as file:
        file.write(",".join(table.column_names).encode() + b"\n")
        pc.write_csv(table, file, pc.WriteOptions(include_header=False))


# --- reading --------------------------------------------------------------------------------------


def read_journal(files: Iterable[Path]) -> Recording:
    """Read the journals of one segment, a node when it is asked for: a block, times in unix s.

    If there are several files, those without a sample are flagged (`unreadable`). Lines that are not
    numbers are left out and counted (`damaged`, a flag of the block). Raises InputError if none holds a
    sample, or two are of one node.
    """
    nodes: dict[str, Path] = {}
    periods: list[float] = []
    errors: list[InputError] = []
    for path in (files := [*files]):
        try:
            about = _read_description(path)
            lines: list[bytes] = []
            with suppress(FileNotFoundError), open(path, "rb") as file:
                lines = [*islice(file, 2)]
            if not (len(lines) == 2 and lines[1].endswith(b"\n")):
                raise InputError(f"{path}: no samples; expected at least one line of numbers")
        except InputError as error:
            errors.append(error)
            continue
        if about["host"] in nodes:
            raise InputError(f"{path}: second journal of node {about['host']} in one segment")
        nodes[about["host"]] = path
        periods += [about["sampling_period_s"]] if about.get("sampling_period_s") else []
    if not nodes:
        raise errors[0] if errors else InputError("no journal; expected at least one")
    return Recording(
        nodes=LazyNodes({node: partial(_read, path) for node, path in sorted(nodes.items())}),
        clock_known=True,
        period_s=max(periods, default=None),
        source=", ".join(map(str, files)),
        flags=tuple(flag("unreadable", None, str(error)) for error in errors),
    )


def _read(path: Path) -> list[Block]:
    about, frame, flags = read_table(path)
    if frame.empty:
        raise InputError(f"{path}: no samples; expected at least one line of numbers")
    time_s, jump_s = even_clock(frame["t"].to_numpy(), frame["mono"].to_numpy())
    if jump_s > CLOCK_JUMP_S:
        detail = f"{path.name}: the wall clock moved by {jump_s:.1f} s against the monotonic one"
        flags.append(flag("clock", None, detail))
    sensors, factors = described_sensors(about)
    values = np.full((len(frame), len(factors)), np.nan, order="F")
    for i, (name, factor) in enumerate(zip(sensors["name"], factors, strict=True)):
        if name in frame:
            np.multiply(frame[name], factor, out=values[:, i])
    return [Block(about["host"], time_s, values, sensors, flags=tuple(flags))]


def described_sensors(about: Mapping[str, Any]) -> tuple[pd.DataFrame, list[float]]:
    """Sensors of power, energy and load, by kind and index, and the factors of their raw values.

    `about` is what a journal's JSON says.
    """
    rows: list[dict[str, Any]] = []
    for name, facts in about["sensors"].items():
        if not is_of_use(facts):
            continue
        quantity, mag = QUANTITIES[facts["unit"]], float(facts.get("mag", 1.0))
        top = float(facts.get("valid_max") or np.nan) * mag
        tops = {"counter": {"range_j": top}, "power": {"limit_w": top}}
        row = {key: facts.get(key) or "" for key in ("kind", "uuid")}
        row |= {"name": name, "index": facts["index"], "quantity": quantity}
        row |= {"origin": origin_stated(about), **tops.get(quantity, {})}
        rows.append({**row, "factor": mag / 100 if quantity == "utilisation" else mag})
    rows.sort(key=lambda row: (row["kind"], row["index"], row["name"]))
    return sensor_frame(rows), [row["factor"] for row in rows]


def is_of_use(facts: Mapping[str, Any]) -> bool:
    """True for a sensor that energy needs, by its kind and unit."""
    kind, quantity = facts["kind"], QUANTITIES.get(facts["unit"])
    return kind in DEVICE_KINDS and quantity is not None and (kind, facts["unit"]) != ("ram", "%")


def _read_description(path: Path) -> dict[str, Any]:
    """Read what the columns of a journal or of telemetry are."""
    return read_json_object(beside(path, SENSORS), "host", "sensors", "telemetry")


def read_table(path: Path) -> tuple[dict[str, Any], pd.DataFrame, list[Flag]]:
    """Read the description and the cells of a journal or of telemetry, as float64, and flag its damage."""
    about, content = _read_description(path), path.read_bytes()
    whole = memoryview(content)[: content.rfind(b"\n") + 1]
    heading = content[: content.find(b"\n")].decode(errors="replace").rstrip("\r")
    columns = heading.split(",")
    if columns[:2] != [*STAMPS] or "\ufffd" in heading:
        raise InputError(f"{path}: is not a journal; expected a file with the heading t,mono,…")
    options = pc.ConvertOptions(column_types=dict.fromkeys(columns, pa.float64()), null_values=[""])
    try:
        table = pc.read_csv(pa.BufferReader(whole), convert_options=options)
        return about, table.to_pandas(split_blocks=True), []
    except pa.ArrowInvalid:  # some cells are no numbers, or some lines are not whole
        lines = [line.split(b",") for line in bytes(whole).splitlines()[1:]]
    cells = [row for row in lines if len(row) == len(columns) and all(map(_is_cell, row))]
    detail = f"{path.name}: {len(lines) - len(cells)} lines that are not numbers are left out"
    numbers = pd.DataFrame(cells, columns=columns).replace(b"", np.nan).astype(np.float64)
    return about, numbers, [flag("damaged", None, detail)]


def even_clock(wall: Floats, mono: Floats) -> tuple[Floats, float]:
    """Give unix times that run as evenly as the monotonic clock, and the wall clock's jump in s.

    The monotonic stamps are shifted to the wall clock by the median difference, so a clock that is
    set during the run makes no energy.
    """
    shift = (wall - mono)[np.isfinite(wall)]
    if shift.size == 0 or not np.isfinite(mono).all() or np.any(np.diff(mono) <= 0):
        return wall, 0.0
    return mono + median(shift), float(np.ptp(shift))


def last_stamps(path: Path | str) -> tuple[float, float] | None:
    """Unix and monotonic time in s of a journal's last whole line; None without one, whatever the file.

    Only the end of the file is read.
    """
    try:
        with open(path, "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _END_BYTES, 0))
            t, mono, *_ = file.read().split(b"\n")[-2].split(b",")
        return float(t), float(mono)
    except (OSError, ValueError, IndexError):
        return None
