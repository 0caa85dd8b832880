"""Recordings of jpwr: the powers of a node's devices in W, one column each, about every 0.1 s.

`jpwr --df-out DIR` writes `power.<node>.<pid>.csv`, or `.h5` of pandas' fixed HDFStore, with
`timestamps` in unix seconds (taken after the readings) and columns `<method>:<device>`: `pynvml:0` and
`rocm:0` (GPUs), `gc:0` (IPUs), `gh:<label>` (sensors of Grace Hopper, by their firmware's labels).
`energy.*` beside it are sums in Wh without times. Format: github.com/FZJ-JSC/jpwr, clitool.py, 0.0.10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.recordings.formats.format import (
    MOST_NAMES,
    Format,
    Head,
    Options,
    call_on_hdf5,
    missing_times,
)
from scalewatt.recordings.formats.text_columns import cells_of, read_lines
from scalewatt.recordings.series import (
    LATEST_S,
    NODE,
    Flag,
    Floats,
    Recording,
    SensorSeries,
    by_node,
    flag,
)
from scalewatt.recordings.text_times import as_numbers

TIME = "timestamps"
KEY = "jpwr"
_METHODS = ("pynvml", "rocm", "gc", "gh")
_COLUMN = re.compile(rf"({'|'.join(_METHODS)}):(.+)")
_FILE = re.compile(r"power\.(?:\d+\.)?(?P<node>.+?)\.\d+\.(?:csv|h5)")
_GRACE = re.compile(r"(?:(?P<cpu>Grace)|(?P<module>Module)) Power Socket (?P<index>\d{1,3})", re.I)
_EXPECTED = f"expected jpwr's power.*: {TIME} and columns such as pynvml:0"

NO_SENSOR = "no_own_sensor"
"""Flag of a GPU that reads 0 W throughout: jpwr's word for one whose power another one's sensor counts."""
IPU_AS_GPU = "ipu_as_gpu"
"""Flag of an IPU, which is counted among the GPUs."""
NOT_COUNTED = "not_counted"
"""Flag of columns that are part of another one, or of no known device."""
MODULE = "module_as_node"
"""Flag of a superchip's sensor, taken as the node's: fans, network and losses are not in it."""


@dataclass(frozen=True, eq=False)
class _Table:
    columns: tuple[str, ...]
    values: Floats
    """(samples, columns)"""
    flags: tuple[Flag, ...] = ()


def read_jpwr(path: Path, options: Options) -> Recording:
    """Read the powers of one node.

    Raises InputError if the file holds energies only, no sample, or no known device.
    """
    head = Head.of(path)
    table = _hdf5_table(path) if head.is_hdf5 else _csv_table(path)
    if TIME not in table.columns:
        raise InputError(f"{path}: holds no times; {_EXPECTED}")
    times = table.values[:, table.columns.index(TIME)]
    timed = np.isfinite(times) & (times > 0) & (times < LATEST_S)
    if not timed.any():
        raise InputError(f"{path}: holds no sample with a time; {_EXPECTED}")
    problems = [*table.flags, *missing_times(path.name, timed)]
    node = options.node or _node(path)
    series = []
    for place, name in enumerate(table.columns):
        if name and name != TIME:
            one, found = _series(node, name, times[timed], table.values[timed, place])
            series += one
            problems += found
    if not series:
        raise InputError(f"{path}: holds no known device; {_EXPECTED}")
    return Recording(
        nodes=by_node(series),
        t0_known=True,
        sampling_period_s=None,
        source=str(path),
        problems=tuple(problems),
    )


def _series(
    node: str, name: str, time_s: Floats, power_w: Floats
) -> tuple[list[SensorSeries], list[Flag]]:
    found = _COLUMN.fullmatch(name)
    place = _device(found) if found else None
    if found is None or place is None:
        detail = f"{name}: is a part of another sensor, or of no known device; not counted"
        return [], [flag(NOT_COUNTED, name, detail)]
    kind, index = place
    flags = []
    if found[1] == "rocm" and not np.any(power_w[np.isfinite(power_w)]):
        detail = f"{name}: 0 W throughout; another one's sensor counts it"
        return [], [flag(NO_SENSOR, name, detail)]
    if found[1] == "gc":
        flags.append(flag(IPU_AS_GPU, name, f"{name}: an IPU, counted among the GPUs"))
        power_w = np.where(power_w == 0, np.nan, power_w)  # what jpwr writes for no reading
    if kind == NODE:
        detail = f"{name}: the whole superchip, taken as the node: without fans, network and losses"
        flags.append(flag(MODULE, name, detail))
    one = SensorSeries(
        node=node,
        sensor=name,
        device_kind=kind,
        device_index=index,
        quantity="power",
        time_s=time_s,
        values=power_w,
        flags=tuple(flags),
    )
    return [one], []


def _device(column: re.Match[str]) -> tuple[str, int] | None:
    """Return kind and index of a column's device; None for a rail within another sensor's."""
    method, device = column[1], column[2]
    if method == "gh":
        grace = _GRACE.fullmatch(device)
        if grace is None:
            return None
        return (NODE if grace["module"] else "cpu"), int(grace["index"])
    return ("gpu", int(device)) if re.fullmatch(r"\d{1,4}", device) else None


def _node(path: Path) -> str:
    found = _FILE.fullmatch(path.name)
    return found["node"] if found else path.name.removesuffix(".csv").removesuffix(".h5")


def _csv_table(path: Path) -> _Table:
    text = read_lines(path)
    columns = tuple(text.lines[0].split(","))
    rows = text.lines[1:]
    whole = [row for row in rows if row.count(",") == len(columns) - 1]
    flags = tuple(text.damage(len(rows) - len(whole)))
    if not whole:
        return _Table(columns, np.zeros((0, len(columns))), flags)
    cells = cells_of(whole, len(columns), range(len(columns)), ",")
    values = np.column_stack([as_numbers(cells[place]) for place in cells])
    return _Table(columns, values, flags)


def _hdf5_table(path: Path) -> _Table:
    columns, values = call_on_hdf5(path, read_frame, KEY)
    return _Table(columns, values)


def read_frame(path: str, key: str) -> tuple[tuple[str, ...], Floats]:
    """Return columns and values (rows, columns) of a frame of numbers in pandas' fixed HDFStore.

    Called in a process with limits. A series has no columns. Raises InputError for anything else.
    """
    with h5py.File(path, "r") as file:
        group = file.get(key)
        if not isinstance(group, h5py.Group):
            raise InputError(f"holds no group {key}")
        if "axis0" not in group:
            return (), np.zeros((0, 0))
        columns, parts = [], []
        for block in range(int(group.attrs["nblocks"])):
            values = group[f"block{block}_values"]
            if values.ndim != 2 or values.dtype.kind not in "iuf":
                raise InputError(f"{key}/block{block}_values: expected numbers in rows and columns")
            names = [_text(name) for name in group[f"block{block}_items"][:]]
            if len(names) != values.shape[1]:
                raise InputError(f"{key}/block{block}_values: expected {len(names)} columns")
            columns += names
            parts.append(np.asarray(values[:], dtype=np.float64))
        if len({part.shape[0] for part in parts}) != 1:
            raise InputError(f"{key}: expected as many rows in each block")
        return tuple(columns), np.concatenate(parts, axis=1)


def frame_columns(path: str, key: str) -> tuple[str, ...]:
    """Return the columns of a frame. Called in a process with limits."""
    with h5py.File(path, "r") as file:
        return tuple(_text(name) for name in file[f"{key}/axis0"][:MOST_NAMES])


def _text(name: object) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def _is_device(name: str) -> bool:
    return _COLUMN.fullmatch(name) is not None


def _columns(head: Head) -> list[str]:
    return head.lines[0].strip().split(",") if head.lines else []


def _frame_columns(head: Head) -> tuple[str, ...]:
    if f"{KEY}/axis0" not in head.groups:
        return ()
    try:
        return call_on_hdf5(head.path, frame_columns, KEY)
    except InputError:
        return ()


def _is_powers(head: Head) -> bool:
    if head.is_hdf5:
        return TIME in _frame_columns(head)
    columns = _columns(head)
    return TIME in columns and any(map(_is_device, columns))


def _is_energies(head: Head) -> bool:
    """Tell sums: a series of them, or the frame of what the devices' own counters say."""
    if head.is_hdf5:
        names = _frame_columns(head)
        return f"{KEY}/index" in head.groups or (TIME not in names and any(map(_is_device, names)))
    columns = _columns(head)
    if columns == ["", "0"] and len(head.lines) > 1:
        return _is_device(head.lines[1].split(",")[0])
    return columns[:1] == [""] and len(columns) > 1 and all(map(_is_device, columns[1:]))


def _refuse_energies(path: Path, options: Options) -> Recording:
    raise InputError(
        f"{path}: holds jpwr's energies without times; give the file power.* beside it"
    )


FORMAT = Format("jpwr", _is_powers, read_jpwr)
ENERGIES = Format("jpwr-energies", _is_energies, _refuse_energies, records=False)
