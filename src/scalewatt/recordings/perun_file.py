"""perun's HDF5 files, versions 0.3 to 1.0, as blocks of samples.

Layout: /<app>/nodes/<run>/nodes/<round>/nodes/<host>/nodes/<kind>/nodes/<sensor>/raw_data. Rounds are
called "0", "1", … or, where the program failed, "failed".

A sensor's unit and magnitude decide, never the version: W is power, J a cumulative counter, % utilisation.
From 0.8 on perun stores RAPL as float32 W and the µJ counter as `alt_values`. The counter is taken: its
differences are exact, and a failed read (0) costs nothing but adds 262 kJ to the watts. Where there are
only watts, each is the mean since the sample before.
"""

from __future__ import annotations

import math
import re
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import printable
from scalewatt.recordings.block import Block, Recording, sensor_frame
from scalewatt.recordings.terms import (
    DEVICE_KINDS,
    LATEST_S,
    NODE,
    QUANTITIES,
    Flag,
    Floats,
    flag,
    number_devices,
    origin_stated,
)

EXPECTED = "expected an HDF5 file written by perun 0.3 to 1.0, with nodes/<run>/nodes/<round>"
UNKNOWN_BACKEND = "assumed"
"""Flag of a sensor that no backend of perun has: its kind and unit alone say what it is of."""
KINDS = (*DEVICE_KINDS, NODE)
OTHER_KINDS = {"rack", "socket", "sysio", "disk", "net", "fan", "other"}
"""Device kinds of perun that are not parts of a node."""
POWER_NAMES = {
    "gpu": r"CUDA:\d+_POWER|ROCM:[^_]+_POWER",
    "cpu": r"cpu_\d+_.*package.*|cpu_power_socket_\d.*",
    "ram": r"ram_\d+_.*dram.*",
    NODE: r"(?!)",
}
"""Names that perun's backends give to the sensors of power and energy, by device kind."""
# Newer ROCm names hold a UUID in place of an index.
INDEX = r"(?:CUDA:|ROCM:(?=\d\d?_)|cpu_|ram_|CPU_USAGE_|[a-z_]+_socket_)(\d+)"
TOTALS = {"gpu": "GPU_ENERGY", "cpu": "CPU_ENERGY", "ram": "DRAM_ENERGY"}
PERIOD_KEYS = ("monitor.sampling_period", "sampling_period", "sampling_rate")
UNITS = {"WATT": "W", "JOULE": "J", "PERCENT": "%"}
PREFIXES = {
    **{"PICO": 1e-12, "NANO": 1e-9, "MICRO": 1e-6, "MILLI": 1e-3, "MILI": 1e-3, "ONE": 1.0},
    **{"KILO": 1e3, "MEGA": 1e6, "GIGA": 1e9, "TERA": 1e12, "p": 1e-12, "n": 1e-9, "µ": 1e-6},
    **{"μ": 1e-6, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12},
}
# NVML reports 2^32-1 mW where it knows no limit, other sensors the largest number of their type.
NO_LIMIT_W = 1e5


@dataclass(frozen=True)
class RunInfo:
    """One run in a file.

    `name`: its id or, where the file has that twice, <app>/<run_id>. `round_ids` are in the order of
    their numbers, "failed" last. `execution_dt` is perun's naive local start time.
    """

    app: str
    run_id: str
    name: str
    round_ids: tuple[str, ...]
    execution_dt: str | None


def list_runs(path: Path | str) -> list[RunInfo]:
    """Return the runs of a perun file in the order of their start; InputError if it is not HDF5."""
    with _reading(Path(path)), _opened(Path(path))[0] as handle:
        return _runs(handle)


def _runs(handle: h5py.File) -> list[RunInfo]:
    runs = []
    ids = [run_id for node in handle.values() for run_id in _children(node)]
    for app, node in handle.items():
        for run_id, run in _children(node).items():
            name = run_id if ids.count(run_id) == 1 else f"{printable(app)}/{run_id}"
            rounds = sorted(_children(run), key=lambda r: (not r.isdecimal(), len(r), r))
            runs.append(RunInfo(app, run_id, name, tuple(rounds), _attribute(run, "execution_dt")))
    return sorted(runs, key=lambda run: run.execution_dt or "")


def choose_run(runs: Sequence[RunInfo], run_id: str | None) -> tuple[RunInfo, list[Flag]]:
    """Return the run called `run_id` or `<app>/<run_id>`; without a name the last run, flagged.

    Raises InputError (without the path) where there is no such run.
    """
    if not runs:
        raise InputError(f"holds no run; {EXPECTED}")
    chosen = [run for run in runs if run_id in (None, f"{run.app}/{run.run_id}")]
    chosen = chosen or [run for run in runs if run.run_id == run_id]
    if not chosen:
        held = ", ".join(run.name for run in runs)
        raise InputError(f"holds no run {run_id!r}; it holds {held}")
    if len(chosen) == 1:
        return chosen[0], []
    listed = ", ".join(run.name for run in chosen)
    detail = f"the file holds {len(chosen)} runs ({listed}); {chosen[-1].name} is read"
    return chosen[-1], [flag("several", None, detail)]


def _choose_round(run: RunInfo, round_id: str | None) -> tuple[str, list[Flag]]:
    """Return the name and the flags of a round; without a name that of the last numbered round."""
    if round_id is not None and round_id not in run.round_ids:
        held = ", ".join(run.round_ids) or "none"
        raise InputError(f"run {run.run_id} holds no round {round_id!r}; it holds {held}")
    numbered = [name for name in run.round_ids if name.isdecimal()]
    chosen = round_id or next(reversed(numbered or run.round_ids), "")
    details = []
    if round_id is None and len(numbered) > 1:
        details.append(f"the run holds {len(numbered)} rounds; the last one ({chosen}) is read")
    if chosen == "failed":
        details.append("perun recorded that the program failed")
    elif round_id is None and "failed" in run.round_ids:
        details.append("perun recorded that the program failed; that part is not read")
    return chosen, [flag("several", None, detail) for detail in details]


def _lost_hosts(hosts: Mapping[str, h5py.Group]) -> list[Flag]:
    """Return a flag where ranks have no host: its recording is not in the file."""
    # Numbers in older files, their text "[0, 1]" in newer ones.
    stated = " ".join(str(node.attrs.get("mpi_ranks", "")) for node in hosts.values())
    ranks = {int(number) for number in re.findall(r"\d+", stated)}
    lost = sorted(set(range(max(ranks, default=0))) - ranks)
    if not lost:
        return []
    listed = ", ".join(map(str, lost[:8])) + (", …" if len(lost) > 8 else "")
    detail = f"the file holds no recording of the hosts of ranks {listed}"
    return [flag("not_recorded", None, detail)]


@contextmanager
def open_perun_file(
    path: Path | str, run_id: str | None = None, round_id: str | None = None
) -> Iterator[Recording]:
    """Give one round of one run, whose hosts are read from the open file when asked for.

    Without names the last run's last numbered round is given, round `failed` only if there is no
    other; that there are others is flagged. Times are seconds from each host's first sample. Raises
    InputError for a file that is missing, damaged or not perun's.
    """
    path = Path(path)
    with _reading(path):
        handle, locked = _opened(path)
    with handle:
        with _reading(path):
            run, several = choose_run(_runs(handle), run_id)
            name, flags = _choose_round(run, round_id)
            group = _children(handle[run.app])[run.run_id]
            hosts = dict(sorted(_children(_children(group).get(name)).items()))
            if not hosts:
                raise InputError(f"run {run.run_id} holds no host; {EXPECTED}")
            periods = (_number(_attribute(group, key)) for key in PERIOD_KEYS)
            totals = {host: _stated_totals(node) for host, node in hosts.items()}
            recording = Recording(
                nodes=_Hosts(path, hosts, origin_stated(group.attrs)),
                clock_known=False,
                period_s=next((p for p in periods if p is not None and 0 < p < math.inf), None),
                source=str(path),
                flags=(*locked, *several, *flags, *_lost_hosts(hosts)),
                started=run.execution_dt,
                run=run.run_id,
                round=name,
                perun_j={(host, k): total for host in hosts for k, total in totals[host].items()},
            )
        yield recording


class _Hosts(UserDict[str, Any]):
    """The blocks of each host, read from its group anew at each access."""

    def __init__(self, path: Path, groups: Mapping[str, h5py.Group], origin: str) -> None:
        super().__init__(groups)
        self._path, self._origin = path, origin

    def __getitem__(self, host: str) -> list[Block]:
        with _reading(self._path):
            return _read_host(host, self.data[host], self._origin)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Make InputErrors with the file's path of all that h5py raises for a file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (OSError, LookupError, ValueError, TypeError, RuntimeError, MemoryError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: cannot be read ({reason}); {EXPECTED}") from error


def _opened(path: Path) -> tuple[h5py.File, list[Flag]]:
    """Open a file for reading; a flag where another process holds it locked."""
    try:
        return h5py.File(path, "r", locking="best-effort"), []
    except BlockingIOError:
        problem = flag("damaged", None, "another program may be writing the file")
        return h5py.File(path, "r", locking=False), [problem]


def _children(group: Any) -> dict[str, h5py.Group]:
    """Return the groups under a group's `nodes`, by name."""
    nodes = group.get("nodes") if isinstance(group, h5py.Group) else None
    if not isinstance(nodes, h5py.Group):
        return {}
    return {printable(n): node for n, node in nodes.items() if isinstance(node, h5py.Group)}


def _attribute(item: h5py.HLObject, name: str) -> Any:
    """Return an attribute's value, of an array of one its element; None if absent."""
    value = item.attrs.get(name)
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _number(value: Any) -> float | None:
    """Return a number, which may be written as text; None if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _unit(data: h5py.Dataset) -> str:
    """Return a unit's symbol, however the version spells it."""
    word = str(_attribute(data, "unit") or "").removeprefix("Unit.")
    return UNITS.get(word.upper(), word)


def _magnitude(data: h5py.HLObject) -> float:
    """Return a power of ten given as a number, its text, its name or its symbol; 1 where absent."""
    value = _attribute(data, "mag")
    number, word = _number(value), "" if value is None else str(value)
    magnitude = PREFIXES.get(word.removeprefix("Magnitude.")) if number is None else number
    if magnitude is None or magnitude not in PREFIXES.values():
        raise _Unreadable(f"its magnitude is {word[:20]!r}")
    return magnitude


def _stated_totals(host: h5py.Group) -> dict[str, float]:
    """Return the energy in J that perun itself computed, by device kind."""
    totals = {}
    for kind, name in TOTALS.items():
        if (metric := host.get(f"metrics/{name}")) is not None:
            totals[kind] = (_number(_attribute(metric, "value")) or 0.0) * _magnitude(metric)
    return {kind: total for kind, total in totals.items() if 0 < total < math.inf}


Row = dict[str, Any]
"""A row of the frame of sensors, and its samples: `raw` numbers, their `scale`, `fill` and `time_s`."""
Axis = tuple[NDArray[Any], float, Floats]
"""Times as they are stored, their factor, and the times in s."""


class _Unreadable(ValueError):
    """A sensor's datasets are not what perun writes; the message is a flag's detail."""


def _read_host(host: str, group: h5py.Group, origin: str) -> list[Block]:
    """Return a host's blocks, one for each of its time axes; sensors are sorted by kind, index and name."""
    kinds, flags = _children(group), list[Flag]()
    if unknown := kinds.keys() - OTHER_KINDS - {*KINDS}:
        raise InputError(f"host {host} has devices of an unknown kind, {min(unknown)}; {EXPECTED}")
    rows: list[Row] = []
    axes: list[Axis] = []
    for kind in KINDS:
        for name, sensor in _children(kinds.get(kind)).items():
            row = _row(name, kind, origin=origin)
            if kind == "gpu":
                known = {"uuid": "uuid", "device": "name"}
                row |= {key: str(_attribute(sensor, k) or "") for key, k in known.items()}
            try:
                if not _read_sensor(row, sensor, axes):
                    continue
            except _Unreadable as error:
                flags.append(flag("unreadable", name, str(error)))
            rows.append(row)
            flags += _flags_of(row, sensor, _children(kinds.get("socket")))
    held = {row["kind"] for row in rows if row["quantity"] != "utilisation"}
    for kind, total in _stated_totals(group).items():
        if kind not in held:
            rows.append(_row(kind, kind))
            detail = f"perun computed {total:.0f} J, but the file holds no sensor of it"
            flags.append(flag("unreadable", kind, detail))
    return _blocks(host, _numbered(rows), flags)


def _row(name: str, kind: str, **known: Any) -> Row:
    """Return the row of a sensor without samples."""
    nothing = {"raw": np.zeros(0), "scale": 1.0, "fill": None, "time_s": np.zeros(0)}
    row = {"name": name, "kind": kind, "index": _index(name, kind), "quantity": "power"}
    return row | {"known": bool(re.fullmatch(POWER_NAMES[kind], name))} | nothing | known


def _index(name: str, kind: str) -> int | None:
    """Return the index that a sensor's name states, None if none."""
    match = re.match(INDEX, name) or re.search(rf"(?i:{kind})\D?(\d{{1,4}})", name)
    return int(match[1]) if match else None


def _read_sensor(row: Row, group: h5py.Group, axes: list[Axis]) -> bool:
    """Complete a sensor's row; False if it measures neither power nor use."""
    kind, known, raw = row["kind"], row["known"], group.get("raw_data", {})
    if not raw and not known:
        return False
    name = "alt_values" if "alt_values" in raw and _unit(raw["alt_values"]) == "J" else "values"
    data, values = _numbers(raw, name)
    unit = _unit(data)
    quantity = QUANTITIES.get(unit)
    if quantity is None and (known or not unit or re.search("[WJ]", unit.upper())):
        raise _Unreadable(f"its unit is {unit[:20] or 'not stated'}; expected W or J")
    # "%" of RAM is the memory in use, which says nothing about power.
    if quantity is None or (quantity == "utilisation" and kind in ("ram", NODE)):
        return False
    # Sensors give whole numbers of W or its parts; perun computed fractions from a counter.
    fractions = values.dtype.kind == "f"
    if quantity == "power" and kind != "gpu" and known and fractions:
        quantity = "mean_power"
    scale = _magnitude(data)
    top = (_number(_attribute(data, "valid_max")) or 0.0) * scale
    row["time_s"] = _time_axis(raw, axes)
    row |= {"quantity": quantity, "raw": values}
    row["scale"] = scale / 100 if quantity == "utilisation" else scale
    row["range_j"] = top if quantity == "counter" and 0 < top < math.inf else math.nan
    row["limit_w"] = top if quantity == "power" and 0 < top < NO_LIMIT_W else math.nan
    # Whole numbers have no mark of their own: theirs is 0 (NVML) or the counter's last value.
    row["fill"] = _number(_attribute(data, "fill")) if fractions else None
    return True


def _flags_of(row: Row, group: h5py.Group, sockets: Iterable[str]) -> list[Flag]:
    """Return the flags that follow from what a sensor is; `sockets` names those of whole sockets."""
    name, kind, flags = row["name"], row["kind"], list[Flag]()
    if row["raw"].size and row["quantity"] in ("power", "counter") and not row["known"]:
        source = str(_attribute(group, "source") or "not stated")[:100]
        detail = f"counted as a {kind}: of no backend that perun ships (source: {source})"
        flags.append(flag(UNKNOWN_BACKEND, name, detail))
    if kind == "cpu" and row["raw"].size and row["quantity"] == "power":
        whole = sorted(one for one in sockets if _index(one, kind) == row["index"])
        detail = "the CPU alone; {}, its socket with memory and I/O, is recorded but not counted"
        flags += [flag("second_sensor", name, detail.format(one)) for one in whole]
    return flags


def _numbered(rows: Sequence[Row]) -> list[Row]:
    """Number the devices whose names state no index, and sort by kind, index and name."""
    for kind in KINDS:
        of_kind = [row for row in rows if row["kind"] == kind]
        numbers = number_devices({row["name"]: row["index"] for row in of_kind})
        for row in of_kind:
            row["index"] = numbers[row["name"]]
    return sorted(rows, key=lambda row: (KINDS.index(row["kind"]), row["index"], row["name"]))


def _time_axis(raw: Mapping[str, Any], axes: list[Axis]) -> Floats:
    """Return times in s: the equal ones among a host's `axes`, as sensors usually share theirs."""
    data, times = _numbers(raw, "timesteps")
    scale = _magnitude(data)
    for known, factor, time_s in axes:
        if factor == scale and np.array_equal(known, times):
            return time_s
    axes.append((times, scale, np.multiply(times, scale, dtype=np.float64)))
    return axes[-1][2]


def _blocks(host: str, rows: Sequence[Row], flags: list[Flag]) -> list[Block]:
    """Return a block for each time axis; where a sensor has more values or times, the longer one is cut."""
    groups: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        sizes = row["raw"].size, row["time_s"].size
        if sizes[0] != sizes[1]:
            detail = f"{sizes[0]} values but {sizes[1]} times; the longer one is cut"
            flags.append(flag("damaged", row["name"], detail))
        groups.setdefault((id(row["time_s"]), min(sizes)), []).append(row)
    return [_block(host, group, n, flags) for (_, n), group in groups.items()]


def _block(host: str, rows: Sequence[Row], n: int, flags: Iterable[Flag]) -> Block:
    """Return the block of sensors that share their first n times; samples without a time are left out."""
    time_s, values = rows[0]["time_s"][:n], np.empty((len(rows), n)).T
    for column, row in zip(values.T, rows, strict=True):
        np.multiply(row["raw"][:n], row["scale"], out=column, dtype=np.float64)
        if row["fill"] is not None:
            column[row["raw"][:n] == row["fill"]] = np.nan
    names = [row["name"] for row in rows]
    own = [one for one in flags if one["device"] in names]
    timed = np.abs(time_s) < LATEST_S
    if not timed.all():
        detail = f"{np.count_nonzero(~timed)} of {n} samples without a time are left out"
        own += [flag("damaged", name, detail) for name in names]
        time_s, values = time_s[timed], np.asfortranarray(values[timed])
    return Block(host, time_s, values, sensor_frame(rows), flags=tuple(own))


def _numbers(raw: Mapping[str, Any], name: str) -> tuple[h5py.Dataset, NDArray[Any]]:
    """Return a dataset and its numbers."""
    data = raw.get(name)
    if not isinstance(data, h5py.Dataset):
        raise _Unreadable(f"it holds no {name}")
    numbers = np.asarray(data[()])
    if numbers.dtype.kind not in "iuf" or numbers.ndim != 1:
        raise _Unreadable(f"its {name} are not a list of numbers")
    return data, numbers
