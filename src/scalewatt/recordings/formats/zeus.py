"""Logs of Zeus: energies of GPUs over named windows (ZeusMonitor), and powers (PowerMonitor).

`ZeusMonitor(log_file=)`: `start_time,window_name,elapsed_time,gpu<i>_energy,...` in s and J, a line at the
end of each window; start_time is a monotonic clock's in files of Zeus 0.3 and unix time from 0.6 on. A
window's name is written as it is, commas too. `PowerMonitor.power_df` saved: `time,power<i>,...` in unix
time and W. Up to 0.6 the powers are NVML's PowerUsage (a mean on newer GPUs), later its instantaneous
power. `PowerMonitor(power_csv_path=)`, up to Zeus 0.12, writes the same without a heading: a generic CSV.
Source: PyPI zeus-ml 0.3 to 0.10 and zeus 0.10 to 0.16, zeus/monitor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import printable
from scalewatt.recordings.formats.format import (
    TOTAL_ONLY,
    UNKNOWN_TOTAL,
    Format,
    Head,
    Options,
    listed,
    node_of,
    number,
)
from scalewatt.recordings.formats.text_columns import cells_of, read_lines
from scalewatt.recordings.series import (
    LATEST_S,
    Floats,
    Recording,
    SensorSeries,
    by_node,
    flag,
)
from scalewatt.recordings.text_times import as_numbers, unread

_WINDOW_COLUMNS = ["start_time", "window_name", "elapsed_time"]
_ENERGY = re.compile(r"gpu(\d{1,4})_energy")
_POWER = re.compile(r"power(\d{1,4})")

UNIX_S = 1e9
"""No monotonic clock counts as many seconds, and unix time does since 2001."""
TOUCHING_S = 1e-3
"""Windows that overlap by less follow each other."""

INNER_WINDOWS = "total_only"
"""Flag of a recording with windows within others, which are left out."""
DAMAGED_WINDOW = "damaged"
"""Flag of a recording with windows of no length, or whose time is no number: left out."""


@dataclass(frozen=True)
class Window:
    """One window: its name, begin and end in s, and the energy of each GPU in J (NaN: unknown)."""

    name: str
    begin_s: float
    end_s: float
    energies_j: tuple[float, ...]


def read_zeus_windows(path: Path, options: Options) -> Recording:
    """Read the energies of windows as totals: those named `options.run`, else the outermost ones.

    Raises InputError if there is no such window, or none, and for windows that cross.
    """
    text = read_lines(path)
    header, *rows = (line.split(",") for line in text.lines)
    gpus = _gpus(path, header)
    windows, damaged, refused = _windows(rows, len(gpus))
    problems = text.damage(damaged)
    if refused:
        detail = f"{path.name}: {refused} windows without a time or a length are left out"
        problems.append(flag(DAMAGED_WINDOW, None, detail))
    if options.run is not None:
        names = dict.fromkeys(one.name for one in windows)
        windows = [one for one in windows if one.name == options.run]
        if not windows:
            raise InputError(
                f"{path}: holds no window {printable(options.run)}; allowed: {listed(names)}"
            )
    if not windows:
        raise InputError(f"{path}: holds no window with a begin and a length")
    outer, inner = _outermost(path, windows)
    if inner:
        detail = (
            f"{path.name}: {len(inner)} windows lie within others and are left out: "
            f"{listed(one.name for one in inner)}"
        )
        problems.append(flag(INNER_WINDOWS, None, detail))
    counted = set(map(id, outer))  # a line may come twice
    unix = min(one.begin_s for one in outer) >= UNIX_S
    node = node_of(path, options)
    series = [_total(node, gpu, place, outer, unix) for place, gpu in enumerate(gpus)]
    return Recording(
        nodes=by_node(series),
        t0_known=unix,
        sampling_period_s=None,
        source=str(path),
        problems=tuple(problems),
        run_id=options.run,
        windows=tuple(_row(one, gpus, unix, id(one) in counted) for one in windows),
    )


def _row(window: Window, gpus: Sequence[int], unix: bool, counted: bool) -> dict[str, Any]:
    """Return a window as `Recording.windows` has it."""
    known = [None if np.isnan(joules) else joules for joules in window.energies_j]
    return {
        "window": window.name,
        "start_s": window.begin_s if unix else None,
        "duration_s": window.end_s - window.begin_s,
        "energy_j": None if None in known else sum(window.energies_j),
        "gpus_j": {str(gpu): joules for gpu, joules in zip(gpus, known, strict=True)},
        "counted": counted,
    }


def outermost(windows: Iterable[Window]) -> tuple[list[Window], list[Window]]:
    """Return the windows that follow each other in time, the longest first where some nest; and the rest.

    Raises InputError for windows that overlap without nesting: how their energy divides is not known.
    """
    outer: list[Window] = []
    inner: list[Window] = []
    for one in sorted(windows, key=lambda w: (w.begin_s, -w.end_s)):
        last_s = outer[-1].end_s if outer else -np.inf
        if one.end_s <= last_s:
            inner.append(one)
        elif one.begin_s >= last_s - TOUCHING_S:
            outer.append(one)
        elif one.end_s <= last_s + TOUCHING_S:
            inner.append(one)
        else:
            names = f"{outer[-1].name[:60]} and {one.name[:60]}"
            raise InputError(f"its windows {names} cross; name one with --run")
    return outer, inner


def _outermost(path: Path, windows: Sequence[Window]) -> tuple[list[Window], list[Window]]:
    """Return what `outermost` does. Raises InputError, with the path, also for a clock that began anew.

    A line is written as its window ends, so the ends of one program's monotonic clock never go back.
    """
    ends = np.array([one.end_s for one in windows if one.end_s < UNIX_S])
    if np.any(np.diff(ends) < -TOUCHING_S):
        raise InputError(
            f"{path}: its clock goes back from window to window: those of several programs; expected "
            "one file for each"
        )
    try:
        return outermost(windows)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def totals_counter(windows: Sequence[Window], place: int) -> tuple[Floats, Floats]:
    """Return times and values of a counter that starts at 0 J with each window, in order of time.

    Where a window begins as the one before ends, the counter goes on.
    """
    times: list[float] = []
    values: list[float] = []
    for one in windows:
        if not times or one.begin_s > times[-1]:
            times.append(one.begin_s)
            values.append(0.0)
        elif np.isnan(values[-1]):
            values[-1] = 0.0  # no rise, so that what is before stays unknown
        times.append(one.end_s)
        values.append(values[-1] + one.energies_j[place])
    return np.array(times), np.array(values)


def _total(node: str, gpu: int, place: int, windows: Sequence[Window], unix: bool) -> SensorSeries:
    sensor = f"gpu{gpu}_energy"
    time_s, values = totals_counter(windows, place)
    unknown = [one.name for one in windows if np.isnan(one.energies_j[place])]
    detail = f"totals of {len(windows)} windows, without samples: {listed(w.name for w in windows)}"
    flags = [flag(TOTAL_ONLY, sensor, detail)]
    if unknown:
        detail = f"no energy above 0 J of {len(unknown)} windows: {listed(unknown)}"
        flags.append(flag(UNKNOWN_TOTAL, sensor, detail))
    return SensorSeries(
        node=node,
        sensor=sensor,
        device_kind="gpu",
        device_index=gpu,
        quantity="counter",
        time_s=time_s if unix else time_s - time_s[0],
        values=values,
        flags=tuple(flags),
        totals=True,
    )


def _gpus(path: Path, header: Sequence[str]) -> list[int]:
    """Return the indices of the GPUs in a header."""
    found = [_ENERGY.fullmatch(name.strip()) for name in header[len(_WINDOW_COLUMNS) :]]
    gpus = [int(match[1]) for match in found if match]
    if not gpus or len(gpus) != len(found) or len(set(gpus)) != len(gpus):
        raise InputError(f"{path}: expected columns {','.join(_WINDOW_COLUMNS)},gpu0_energy,...")
    return gpus


def _windows(rows: Iterable[Sequence[str]], gpus: int) -> tuple[list[Window], int, int]:
    """Return the windows, how many rows are none, and how many windows have no time or no length."""
    found, damaged, refused = [], 0, 0
    for row in rows:
        if len(row) < len(_WINDOW_COLUMNS) + gpus:
            damaged += 1
            continue
        begin, length = number(row[0]), number(row[-gpus - 1])
        # Of the largest times two are the same.
        if not (0 <= begin < LATEST_S and 0 < length < LATEST_S and begin + length > begin):
            refused += 1
            continue
        energies = (number(field) for field in row[-gpus:])
        known = tuple(joules if joules > 0 else float("nan") for joules in energies)
        name = printable(",".join(row[1 : -gpus - 1]))
        found.append(Window(name, begin, begin + length, known))
    return found, damaged, refused


def read_zeus_power(path: Path, options: Options) -> Recording:
    """Read the powers of GPUs. Raises InputError if there is no sample with a time."""
    text = read_lines(path)
    first = text.lines[0].split(",")
    gpus = _power_columns(first)
    rows = text.lines[1:]
    time = first.index("time")
    whole = [row for row in rows if row.count(",") == len(first) - 1]
    times, *powers = _numbers(whole, len(first), (time, *gpus))
    timed = (times > 0) & (times < LATEST_S)
    if not timed.any():
        such = unread((row.split(",")[time] for row in whole[:1]), times[:1])
        raise InputError(f"{path}: holds no sample with a time{such}")
    problems = text.damage(len(rows) - int(np.count_nonzero(timed)))
    node = node_of(path, options)
    series = [
        SensorSeries(
            node=node,
            sensor=f"power{gpu}",
            device_kind="gpu",
            device_index=gpu,
            quantity="power",
            time_s=times[timed],
            values=power[timed],
        )
        for gpu, power in zip(gpus.values(), powers, strict=True)
    ]
    return Recording(
        nodes=by_node(series),
        t0_known=True,
        sampling_period_s=None,
        source=str(path),
        problems=tuple(problems),
    )


def _numbers(lines: Sequence[str], columns: int, wanted: Sequence[int]) -> list[Floats]:
    """Return the wanted columns of lines that have `columns` cells each."""
    if not lines:
        return [np.zeros(0) for _ in wanted]
    cells = cells_of(lines, columns, wanted, ",")
    return [as_numbers(cells[place]) for place in wanted]


def _power_columns(row: Sequence[str]) -> dict[int, int]:
    """Return the GPU of each column of powers, by the column's place."""
    found = {place: _POWER.fullmatch(name) for place, name in enumerate(row)}
    return {place: int(match[1]) for place, match in found.items() if match}


def _is_windows(head: Head) -> bool:
    return bool(head.lines) and head.lines[0].split(",")[:3] == _WINDOW_COLUMNS


def _is_power(head: Head) -> bool:
    """Tell powers by their header; pandas may have put its index before."""
    names = head.lines[0].strip().split(",") if head.lines else []
    is_timed = names[:1] == ["time"] or names[:2] == ["", "time"]
    return is_timed and any(_POWER.fullmatch(name) for name in names)


WINDOWS = Format("zeus-windows", _is_windows, read_zeus_windows, holds_runs=True)
POWER = Format("zeus-power", _is_power, read_zeus_power)
