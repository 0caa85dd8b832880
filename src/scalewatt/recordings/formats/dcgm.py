"""Output of `dcgmi dmon -e 155,156,…`: power, energy and load of GPUs, as text or with commas.

    #Entity   POWER     TOTEC
    ID        W         mJ
    GPU 0     61.230    5551899580

The headings come again every few rows, and `N/A` is a missing value. Fields are named by DCGM's short
names: POWER (155, W), TOTEC (156, mJ, a counter), POWINST (157, W), GPUTL (203, %), PMLMT (160, W); the
others are not read, nor entities that are no whole GPU. Rows have no times. Either something put them
before each line (`| ts '%.s'`, of moreutils), or the user states the period (`-d`, in ms), and where the
first row stands in time. Format: DeviceMonitor.cpp of github.com/NVIDIA/DCGM, and docs.nvidia.com.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import printable
from scalewatt.recordings.formats.format import Format, Head, Options, node_of
from scalewatt.recordings.formats.text_columns import (
    MOST_DEVICES,
    NEVER_WRAPS_J,
    as_numbers,
    described,
    groups,
    period_flag,
    read_lines,
    row_times,
    unix_times,
    with_values,
)
from scalewatt.recordings.series import (
    INSTANTANEOUS,
    Flag,
    Floats,
    Recording,
    SensorSeries,
    by_node,
)
from scalewatt.recordings.text_times import unread


@dataclass(frozen=True)
class Field:
    """What a field of DCGM's is: its quantity, and the factor to W, J or a share."""

    quantity: str
    factor: float
    samples: str | None = None
    valid_max: float | None = None


POWER, ENERGY = Field("power", 1.0), Field("counter", 1e-3, valid_max=NEVER_WRAPS_J)
INSTANT, LOAD = Field("power", 1.0, INSTANTANEOUS), Field("utilisation", 0.01)
FIELDS = {"POWER": POWER, "TOTEC": ENERGY, "POWINST": INSTANT, "GPUTL": LOAD}
LIMIT = "PMLMT"
_HEADING = re.compile(r"(.*?)#?\s*\bEntity\b[,\s]+(\S.*)", re.IGNORECASE)
_UNITS = re.compile(r".*\bI[Dd]\b[^\d]*")
_ROW = re.compile(r"(.*?)\b(GPU|GPU-I|GPU-CI|vGPU|Switch|Link|CPU|CORE)[ ,]+(\d{1,9})[,\s]+(\S.*)")
_BETWEEN = re.compile(r"[,\s]+")
_WIDE = re.compile(r"\s{2,}|\t|,")
# What DCGM stores for a missing value, of a float and of an integer, and the reasons beside it.
_BLANK = 2.0**47
_BLANK_INTEGER = 9.2e18


def without_blanks(values: Floats) -> Floats:
    """Return values, NaN for DCGM's numbers that stand for a missing one."""
    blank = ((values >= _BLANK) & (values <= _BLANK + 8)) | (values >= _BLANK_INTEGER)
    return np.where(blank, np.nan, values)


@dataclass(eq=False)
class _Table:
    """Rows of whole GPUs in the order of the file: texts by field."""

    stamps: list[str] = field(default_factory=list)
    gpus: list[int] = field(default_factory=list)
    cells: dict[str, list[str]] = field(default_factory=lambda: {n: [] for n in (*FIELDS, LIMIT)})
    known: set[str] = field(default_factory=set)
    """The fields of all headings."""
    damaged: int = 0
    parts_of_gpus: bool = False

    def add(self, stamp: str, gpu: int, places: dict[str, int], cells: Sequence[str]) -> None:
        """Add a row, of which `places` tells where the fields stand."""
        self.stamps.append(stamp.strip(" ,"))
        self.gpus.append(gpu)
        for name, column in self.cells.items():
            column.append(cells[places[name]] if name in places else "")


def read_dcgm(path: Path, options: Options) -> Recording:
    """Read one node's output. Raises InputError without GPUs, without a field that is read, or times."""
    text = read_lines(path)
    table = _table(text.lines)
    if not table.known & set(FIELDS):
        allowed = "155 (POWER), 156 (TOTEC), 157 (POWINST), 203 (GPUTL)"
        raise InputError(f"{path}: has no field that is read; record it with -e {allowed}")
    if not table.gpus:
        what = "rows of parts of GPUs only" if table.parts_of_gpus else "no row of a GPU"
        raise InputError(f"{path}: holds {what}; expected rows that begin with GPU and a number")
    gpus = np.array(table.gpus)
    time_s, flags, t0_known = _times(path, options, table.stamps, gpus)
    good = np.isfinite(time_s)
    if not good.any():
        such = unread(table.stamps, time_s)
        raise InputError(f"{path}: holds no row with a time that can be read{such}")
    series = _series(node_of(path, options), table, gpus, time_s, good)
    damaged = table.damaged + int((~good).sum())
    return Recording(
        nodes=by_node(series),
        t0_known=t0_known,
        sampling_period_s=None,
        source=str(path),
        problems=(*flags, *text.damage(damaged)),
    )


def _table(lines: Sequence[str]) -> _Table:
    table = _Table()
    names: list[str] = []
    places: dict[str, int] = {}
    for quoted in lines:
        line = quoted.replace('"', "")
        row = _ROW.match(line)
        if row is None:
            if heading := _HEADING.match(line):
                names = _BETWEEN.split(heading[2].strip(" ,\t"))
                places = {name: at for at, name in enumerate(names) if name in table.cells}
                table.known |= set(places)
            elif any(mark.isdigit() for mark in line) and not _UNITS.fullmatch(line):
                table.damaged += 1
            continue
        cells = _BETWEEN.split(row[4].rstrip(" ,\t"))
        if len(cells) != len(names):  # a text with blanks in it
            cells = [cell.strip() for cell in _WIDE.split(row[4].strip())]
        if row[2] != "GPU":
            table.parts_of_gpus = True
        elif len(cells) != len(names) or int(row[3]) >= MOST_DEVICES:
            table.damaged += 1
        else:
            table.add(row[1], int(row[3]), places, cells)
    return table


def _times(
    path: Path, options: Options, stamps: Sequence[str], gpus: np.ndarray
) -> tuple[Floats, list[Flag], bool]:
    """Return the rows' times, (n,), with flags, and whether they are unix seconds."""
    if any(stamps):
        timed = unix_times(pd.Series(stamps), options, path)
        if timed is None:
            raise InputError(
                f"{path}: '{printable(stamps[0])[:40]}' before a row is no time; expected unix seconds, or "
                "a date and a time of day"
            )
        return *timed, True
    time = described(options).get("time", {})
    if "period_s" not in time:
        raise InputError(
            f"{path}: its rows have no times; record them (dcgmi dmon … | ts '%.s'), or state the period in "
            "the YAML file of the columns (time: {period_s: 1.0, since: a time, or begin})"
        )
    start, local_flags = row_times(time, options, path)
    number = np.zeros(gpus.size)
    for _, places in groups(gpus):
        number[places] = np.arange(places.size)
    flags = [period_flag(path, time["period_s"]), *local_flags]
    return (start or 0.0) + time["period_s"] * number, flags, start is not None


def _series(
    node: str, table: _Table, gpus: np.ndarray, time_s: Floats, good: np.ndarray
) -> list[SensorSeries]:
    numbers = {
        name: without_blanks(as_numbers(pd.Series(table.cells[name], dtype=str)))
        for name in sorted(table.known)
    }
    rows = np.flatnonzero(good)
    found: list[SensorSeries] = []
    for gpu, own in groups(gpus[rows]):
        places = rows[own]
        limits = numbers[LIMIT][places] if LIMIT in numbers else np.array([np.nan])
        limit_w = float(np.nanmax(limits, initial=0.0)) or None
        sensors = [
            SensorSeries(
                node=node,
                sensor=f"GPU:{gpu} {name}",
                device_kind="gpu",
                device_index=gpu,
                quantity=what.quantity,
                time_s=time_s[places],
                values=numbers[name][places] * what.factor,
                limit_w=limit_w,
                samples=what.samples,
                valid_max=what.valid_max,
            )
            for name, what in FIELDS.items()
            if name in numbers
        ]
        found += with_values(sensors)
    return found


def _recognises(head: Head) -> bool:
    lines = [line for line in head.lines[:50] if len(line) < 1 << 14]
    lines = [line.replace('"', "") for line in lines]
    headings = [line for line in lines if (found := _HEADING.match(line)) and found[2]]
    return bool(headings) and any(_ROW.match(line) for line in lines)


FORMAT = Format("dcgm", _recognises, read_dcgm)
