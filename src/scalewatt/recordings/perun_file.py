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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from scalewatt.common.errors import InputError
from scalewatt.recordings.block import Block, LazyNodes, Recording, sensor_frame
from scalewatt.recordings.terms import (
    ALL_KINDS,
    NODE,
    QUANTITIES,
    Flag,
    Floats,
    flag,
    number_devices,
    origin_stated,
)

EXPECTED = "expected an HDF5 file written by perun 0.3 to 1.0, with nodes/<run>/nodes/<round>"
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


# --- runs and rounds ------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunInfo:
    """A run in a file.

    `name`: its id or, where the file has that twice, <app>/<run_id>. `round_ids` are in the order of
    their numbers, "failed" last. `execution_dt` is perun's naive local start time.
    """

    app: str
    run_id: str
    name: str
    round_ids: tuple[str, ...]
    execution_dt: str | None


def list_runs(path: Path | str) -> list[RunInfo]:
    """List the runs of a perun file in the order of their start; InputError if it is not HDF5."""
    with _reading(Path(path)), h5py.File(path, "r", locking=False) as handle:
        return _runs(handle)


def _runs(handle: h5py.File) -> list[RunInfo]:
    runs = [(app, *item) for app, node in handle.items() for item in _children(node).items()]
    ids = [run_id for _, run_id, _ in runs]
    infos = []
    for app, run_id, run in runs:
        name = run_id if ids.count(run_id) == 1 else f"{app}/{run_id}"
        rounds = sorted(_children(run), key=lambda r: (not r.isdecimal(), len(r), r))
        infos.append(RunInfo(app, run_id, name, tuple(rounds), _attribute(run, "execution_dt")))
    return sorted(infos, key=lambda info: info.execution_dt or "")


def choose_run(runs: Sequence[RunInfo], run_id: str | None) -> tuple[RunInfo, list[Flag]]:
    """Choose the run called `run_id` or `<app>/<run_id>`; without a name the last run, flagged.

    Raises InputError (without the path) where the file has none.
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
    """Choose a round by name; without a name the last numbered one, or else `failed`."""
    if round_id is not None and round_id not in run.round_ids:
        held = ", ".join(run.round_ids) or "none"
        raise InputError(f"run {run.run_id} holds no round {round_id!r}; it holds {held}")
    numbered = [name for name in run.round_ids if name.isdecimal()]
    chosen = round_id or next(reversed(numbered or run.round_ids), "")
    if chosen != "failed" and (round_id or len(run.round_ids) < 2):
        return chosen, []
    failed = "; perun recorded that the program failed" if "failed" in run.round_ids else ""
    detail = f"rounds of the run: {', '.join(run.round_ids)}; {chosen} is read{failed}"
    return chosen, [flag("several", None, detail)]


def _lost_hosts(hosts: Mapping[str, h5py.Group]) -> list[Flag]:
    """Flag ranks without a host: its recording is not in the file."""
    # Numbers in older files, their text "[0, 1]" in newer ones.
    stated = " ".join(str(node.attrs.get("mpi_ranks", "")) for node in hosts.values())
    ranks = {int(number) for number in re.findall(r"\d+", stated)}
    lost = sorted(set(range(max(ranks, default=0))) - ranks)
    detail = f"the file holds no recording of the hosts of ranks {', '.join(map(str, lost))}"
    return [flag("not_recorded", None, detail)] if lost else []


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
        handle = h5py.File(path, "r", locking=False)
    with handle:
        with _reading(path):
            run, several = choose_run(_runs(handle), run_id)
            name, flags = _choose_round(run, round_id)
            group = _children(handle[run.app])[run.run_id]
            hosts = dict(sorted(_children(_children(group).get(name)).items()))
            if not hosts:
                raise InputError(f"run {run.run_id} holds no host; {EXPECTED}")
            origin = origin_stated(group.attrs)
            periods = (_number(_attribute(group, key)) for key in PERIOD_KEYS)
            recording = Recording(
                nodes=LazyNodes({h: partial(_read_host, path, h, hosts[h], origin) for h in hosts}),
                clock_known=False,
                period_s=next((p for p in periods if p is not None and 0 < p < math.inf), None),
                source=str(path),
                flags=(*several, *flags, *_lost_hosts(hosts)),
                started=run.execution_dt,
                run=run.run_id,
                round=name,
                perun_j={
                    (host, kind): total
                    for host, node in hosts.items()
                    for kind, total in _stated_totals(node).items()
                },
            )
        yield recording


# --- HDF5 -----------------------------------------------------------------------------------------


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


def _children(group: Any) -> dict[str, h5py.Group]:
    """Groups under a group's `nodes`, by name."""
    nodes = group.get("nodes") if isinstance(group, h5py.Group) else None
    if not isinstance(nodes, h5py.Group):
        return {}
    return {name: node for name, node in nodes.items() if isinstance(node, h5py.Group)}


def _attribute(item: h5py.HLObject, name: str) -> Any:
    """Value of an attribute, or the element of an array of one; None if absent."""
    value = item.attrs.get(name)
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _number(value: Any) -> float | None:
    """Number, which may be written as text; None if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _unit(data: h5py.Dataset) -> str:
    """Symbol of a unit, however the version spells it."""
    word = str(_attribute(data, "unit") or "").removeprefix("Unit.")
    return UNITS.get(word.upper(), word)


def _magnitude(data: h5py.HLObject) -> float:
    """Power of ten given as a number, its text, its name or its symbol; 1 where absent."""
    value = _attribute(data, "mag")
    number, word = _number(value), "" if value is None else str(value)
    magnitude = PREFIXES.get(word.removeprefix("Magnitude.")) if number is None else number
    if magnitude is None or magnitude not in PREFIXES.values():
        raise _UnreadableError(f"its magnitude is {word!r}")
    return magnitude


def _stated_totals(host: h5py.Group) -> dict[str, float]:
    """Energy in J that perun itself computed, by device kind."""
    totals = {}
    for kind, name in TOTALS.items():
        if (metric := host.get(f"metrics/{name}")) is not None:
            totals[kind] = (_number(_attribute(metric, "value")) or 0.0) * _magnitude(metric)
    return {kind: total for kind, total in totals.items() if 0 < total < math.inf}


# --- hosts ----------------------------------------------------------------------------------------

Row = dict[str, Any]
"""A row of the frame of sensors, and its samples (`time_s`, `values`) and `flags`."""


class _UnreadableError(ValueError):
    """A sensor's datasets are not what perun writes; the message is a flag's detail."""


def _read_host(path: Path, host: str, group: h5py.Group, origin: str) -> list[Block]:
    """Read a host's blocks, one for each of its time axes; sensors are sorted by kind, index and name."""
    with _reading(path):
        kinds, totals = _children(group), _stated_totals(group)
        if unknown := kinds.keys() - OTHER_KINDS - {*ALL_KINDS}:
            kind = min(unknown)
            raise InputError(f"host {host} has devices of an unknown kind, {kind}; {EXPECTED}")
        rows: list[Row] = []
        axes: list[Floats] = []
        for kind in ALL_KINDS:
            sensors = _children(kinds.get(kind)).items()
            read = [_read_sensor(sensor, name, kind, axes) for name, sensor in sensors]
            of_kind = [{**row, "origin": origin} for row in read if row is not None]
            if kind in totals and all(row["quantity"] == "utilisation" for row in of_kind):
                detail = f"perun computed {totals[kind]:.0f} J, but the file holds no sensor of it"
                missing = _row(kind, kind) | {"flags": [flag("unreadable", kind, detail)]}
                of_kind.append(missing)
            numbers = number_devices({row["name"]: row["index"] for row in of_kind})
            of_kind = [row | {"index": numbers[row["name"]]} for row in of_kind]
            rows += sorted(of_kind, key=lambda row: (row["index"], row["name"]))
        for name in _children(kinds.get("socket")):
            _flag_parts(rows, name)
        blocks: dict[int, list[Row]] = {}
        for row in rows:
            blocks.setdefault(id(row["time_s"]), []).append(row)
        return [_block(host, of_axis) for of_axis in blocks.values()]


def _block(host: str, rows: Sequence[Row]) -> Block:
    """Block of sensors that share a time axis."""
    values = np.array([row["values"] for row in rows]).T
    flags = tuple(each for row in rows for each in row["flags"])
    return Block(host, rows[0]["time_s"], values, sensor_frame(rows), flags=flags)


def _flag_parts(rows: Sequence[Row], socket: str) -> None:
    """Flag the power of the CPU of a socket that was recorded as a whole, too."""
    detail = f"the CPU alone; {socket}, its socket with memory and I/O, is recorded but not counted"
    for row in rows:
        is_part = (row["kind"], row["index"]) == ("cpu", _index(socket, "cpu"))
        if is_part and row["quantity"] == "power" and row["values"].size:
            row["flags"].append(flag("second_sensor", row["name"], detail))


def _read_sensor(sensor: h5py.Group, name: str, kind: str, axes: list[Floats]) -> Row | None:
    """Read a sensor; None if it measures neither power nor use. `axes` are the host's time axes so far."""
    row, is_known = _row(name, kind), bool(re.fullmatch(POWER_NAMES[kind], name))
    if kind == "gpu":
        facts = {"uuid": "uuid", "device": "name"}
        row |= {key: str(_attribute(sensor, k) or "") for key, k in facts.items()}
    raw = sensor.get("raw_data", {})
    if not raw and not is_known:
        return None
    try:
        samples = _read_samples(raw, kind, is_known, axes)
    except _UnreadableError as error:
        return row | {"flags": [flag("unreadable", name, str(error))]}
    if samples is None:
        return None
    if samples["quantity"] in ("power", "counter") and not is_known:
        source = _attribute(sensor, "source") or "not stated"
        detail = f"counted as a {kind}: of no backend that perun ships (source: {source})"
        row["flags"] = [flag("assumed", name, detail)]
    return row | samples


def _row(name: str, kind: str) -> Row:
    """Row of a sensor without samples."""
    row = {"name": name, "kind": kind, "index": _index(name, kind), "quantity": "power"}
    return {**row, "time_s": np.zeros(0), "values": np.zeros(0), "flags": []}


def _index(name: str, kind: str) -> int | None:
    """Device index that a sensor's name states, None if none."""
    match = re.match(INDEX, name) or re.search(rf"(?i:{kind})\D?(\d{{1,4}})", name)
    return int(match[1]) if match else None


def _read_samples(
    raw: Mapping[str, Any], kind: str, is_known: bool, axes: list[Floats]
) -> dict[str, Any] | None:
    """Samples of a sensor and what they are of; None if it measures neither power nor use."""
    name = "alt_values" if "alt_values" in raw and _unit(raw["alt_values"]) == "J" else "values"
    data, values = _numbers(raw, name)
    unit = _unit(data)
    quantity = QUANTITIES.get(unit)
    if quantity is None and (is_known or not unit or re.search("[WJ]", unit.upper())):
        raise _UnreadableError(f"its unit is {unit or 'not stated'}; expected W or J")
    # "%" of RAM is the memory in use, which says nothing about power.
    if quantity is None or (quantity == "utilisation" and kind in ("ram", NODE)):
        return None
    # Sensors give whole numbers of W or its parts; perun computed fractions from a counter.
    fractions = values.dtype.kind == "f"
    if quantity == "power" and kind != "gpu" and is_known and fractions:
        quantity = "mean_power"
    scale = _magnitude(data)
    top = (_number(_attribute(data, "valid_max")) or 0.0) * scale
    scaled = np.multiply(values, scale / 100 if quantity == "utilisation" else scale, dtype=float)
    # Whole numbers have no mark of their own: theirs is 0 (NVML) or the counter's last value.
    if fractions:
        scaled[values == _number(_attribute(data, "fill"))] = np.nan
    return {
        "quantity": quantity,
        "range_j": top if quantity == "counter" and 0 < top < math.inf else math.nan,
        "limit_w": top if quantity == "power" and 0 < top < NO_LIMIT_W else math.nan,
        "time_s": _time_axis(raw, values.size, axes),
        "values": scaled,
    }


def _time_axis(raw: Mapping[str, Any], size: int, axes: list[Floats]) -> Floats:
    """Times of n samples in s: the equal ones of a host's `axes`, as its sensors usually share theirs."""
    data, times = _numbers(raw, "timesteps")
    if times.size != size or not np.isfinite(times).all():
        raise _UnreadableError(f"it holds {size} values but {np.isfinite(times).sum()} times")
    time_s = np.multiply(times, _magnitude(data), dtype=float)
    for axis in axes:
        if np.array_equal(axis, time_s):
            return axis
    axes.append(time_s)
    return time_s


def _numbers(raw: Mapping[str, Any], name: str) -> tuple[h5py.Dataset, NDArray[Any]]:
    """Dataset of a sensor and its numbers."""
    data = raw.get(name)
    if not isinstance(data, h5py.Dataset):
        raise _UnreadableError(f"it holds no {name}")
    numbers = np.asarray(data[()])
    if numbers.dtype.kind not in "iuf" or numbers.ndim != 1:
        raise _UnreadableError(f"its {name} are not a list of numbers")
    return data, numbers
