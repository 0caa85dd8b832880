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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.recordings import terms
from scalewatt.recordings.block import Block, LazyNodes, Recording, make_node_blocks
from scalewatt.recordings.terms import flag
from scalewatt.recordings.times import zone_named

EXPECTED = "expected an HDF5 file written by perun 0.3 to 1.0, with nodes/<run>/nodes/<round>"
POWER_NAMES = {
    "gpu": r"CUDA:\d+_POWER|ROCM:[^_]+_POWER",
    "cpu": r"cpu_\d+_.*package.*|cpu_power_socket_\d.*",
    "ram": r"ram_\d+_.*dram.*",
    terms.NODE: r"(?!)",
}
"""Names that perun's backends give to the sensors of power and energy, by device kind."""
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


# --- one round of one run ---------------------------------------------------------------------------


def read_perun_file(
    path: Path,
    run_id: str | None = None,
    round_id: str | None = None,
    time_zone: str | None = None,
) -> Recording:
    """Read one round of one run; its hosts are read from the file when asked for.

    A file of several runs, or a run of several rounds, needs their names. Times are seconds from each
    host's first sample; the start is local time of `time_zone`, by default this machine's. Raises
    InputError for a file that is missing, damaged or not perun's.
    """
    zone = zone_named(time_zone, f"{path}: time zone")
    with _opened(path) as handle:
        runs = [run for app in handle.values() for run in _children(app).items()]
        runs.sort(key=lambda run: _attribute(run[1], "execution_dt") or "")
        if not runs:
            raise InputError(f"holds no run; {EXPECTED}")
        chosen = [run for run in runs if run_id in (None, run[0])]
        if len(chosen) != 1:
            asked = f"not one run {run_id!r}" if run_id else "not one run"
            raise InputError(
                f"holds {asked}; name one (run) of {', '.join(name for name, _ in runs)}"
            )
        ((run, group),) = chosen
        rounds = _children(group)
        names = sorted(rounds, key=lambda name: (not name.isdecimal(), len(name), name))
        # A failed program's round, `failed`, is taken if no other is there
        possible = [name for name in names if name.isdecimal()] or names
        possible = [name for name in names if name == round_id] if round_id else possible
        if names and len(possible) != 1:
            what = f"run {run} holds not one round; name one (round) of"
            raise InputError(f"{what} {', '.join(names)}")
        hosts = _children(rounds[possible[0]]) if names else {}
        if not hosts:
            raise InputError(f"run {run} holds no host; {EXPECTED}")

        flags = []
        if "failed" in rounds:
            flags.append(flag("segment_lost", None, "perun recorded that the program failed"))
        # Of ranks without a host the recording is not in the file. They are stated as numbers in older
        # files, as their text "[0, 1]" in newer ones.
        stated = " ".join(str(node.attrs.get("mpi_ranks", "")) for node in hosts.values())
        ranks = {int(number) for number in re.findall(r"\d+", stated)}
        if lost := sorted(set(range(max(ranks, default=0))) - ranks):
            of_ranks = f"the hosts of ranks {', '.join(map(str, lost))}"
            flags.append(flag("not_recorded", None, f"the file holds no recording of {of_ranks}"))
        origin = terms.origin_stated(group.attrs)
        periods = (_number(_attribute(group, key)) for key in PERIOD_KEYS)
        totals = {host: _stated_totals(node) for host, node in hosts.items()}
        started = _attribute(group, "execution_dt")
        if started and zone:
            with suppress(ValueError):  # no time
                started = datetime.fromisoformat(started).replace(tzinfo=zone).isoformat()
        read = {
            h: partial(_read_host, path, hosts[h].name, origin, totals[h]) for h in sorted(hosts)
        }
        return Recording(
            nodes=LazyNodes(read),
            clock_known=False,
            period_s=next((p for p in periods if 0 < p < math.inf), None),
            source=str(path),
            flags=tuple(flags),
            started=started,
            run=run,
            round=possible[0],
            is_part=len(runs) > 1 or bool(round_id and len(names) > 1),
            perun_j=totals,
        )


# --- HDF5 -----------------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    """Open a file, and make InputErrors with its path of all that h5py raises for it."""
    try:
        with h5py.File(path, "r", locking=False) as handle:
            yield handle
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (OSError, LookupError, ValueError, TypeError, RuntimeError, MemoryError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: cannot be read ({reason}); {EXPECTED}") from error


def _children(group: Any) -> dict[str, h5py.Group]:
    """Groups under a group's `nodes`, by name."""
    nodes = group.get("nodes") if isinstance(group, h5py.Group) else None
    children = nodes.items() if isinstance(nodes, h5py.Group) else ()
    return {name: node for name, node in children if isinstance(node, h5py.Group)}


def _attribute(item: h5py.HLObject, name: str) -> Any:
    """Value of an attribute, or the element of an array of one; None if absent."""
    value = item.attrs.get(name)
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.item()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _number(value: Any) -> float:
    """Number, which may be written as text; NaN if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _unit(data: h5py.Dataset) -> str:
    """Symbol of a unit, however the version spells it."""
    word = str(_attribute(data, "unit") or "").removeprefix("Unit.")
    return UNITS.get(word.upper(), word)


def _magnitude(data: h5py.HLObject) -> float:
    """Power of ten given as a number, its text, its name or its symbol; 1 where absent."""
    value = _attribute(data, "mag")
    word = "" if value is None else str(value).removeprefix("Magnitude.")
    magnitude = PREFIXES.get(word, _number(value))
    if magnitude not in PREFIXES.values():
        raise ValueError(f"its magnitude is {str(value)!r}")
    return magnitude


def _stated_totals(host: h5py.Group) -> dict[str, float]:
    """Energy in J that perun itself computed, by device kind."""
    metrics = {kind: host.get(f"metrics/{name}") for kind, name in TOTALS.items()}
    totals = {k: _number(_attribute(m, "value")) * _magnitude(m) for k, m in metrics.items() if m}
    return {kind: joules for kind, joules in totals.items() if 0 < joules < math.inf}


# --- hosts ----------------------------------------------------------------------------------------

Row = dict[str, Any]
"""A row of the frame of sensors, and its samples (`time_s`, `values`) and `flags`."""


def _read_host(path: Path, host: str, origin: str, totals: Mapping[str, float]) -> list[Block]:
    """Read a host's blocks, one for each set of times; sensors are sorted by kind, index and name.

    `host` is the path of its group, `totals` perun's own energy in J by device kind.
    """
    rows = list[Row]()
    with _opened(path) as handle:
        kinds = _children(handle[host])
        for kind in terms.ALL_KINDS:
            sensors = _children(kinds.get(kind)).items()
            read = [_read_sensor(sensor, name, kind) for name, sensor in sensors]
            of_kind = [row for row in read if row is not None]
            if kind in totals and all(row["quantity"] == "utilisation" for row in of_kind):
                detail = f"perun computed {totals[kind]:.0f} J, but the file holds no sensor of it"
                of_kind.append(_row(kind, kind) | {"flags": [flag("unreadable", kind, detail)]})
            numbers = terms.number_devices({row["name"]: row["index"] for row in of_kind})
            of_kind = [row | {"index": numbers[row["name"]], "origin": origin} for row in of_kind]
            rows += sorted(of_kind, key=lambda row: (row["index"], row["name"]))
    return make_node_blocks(host.rpartition("/")[2], rows)


def _row(name: str, kind: str) -> Row:
    """Row of a sensor without samples."""
    facts = {"name": name, "kind": kind, "index": terms.index_in_name(name, kind)}
    return {**facts, "quantity": "power", "time_s": np.zeros(0), "values": np.zeros(0), "flags": []}


def _read_sensor(sensor: h5py.Group, name: str, kind: str) -> Row | None:
    """Read a sensor; None if it measures neither power nor use."""
    row, is_known = _row(name, kind), bool(re.fullmatch(POWER_NAMES[kind], name))
    if kind == "gpu":
        facts = {"uuid": _attribute(sensor, "uuid"), "device": _attribute(sensor, "name")}
        row |= {key: str(value or "") for key, value in facts.items()}
    raw = sensor.get("raw_data", {})
    if not (raw or is_known):
        return None
    try:
        has_counter = "alt_values" in raw and _unit(raw["alt_values"]) == "J"
        data = raw["alt_values" if has_counter else "values"]
        values, unit = data[:], _unit(data)
        quantity = terms.QUANTITIES.get(unit)
        if quantity is None and (is_known or not unit or re.search("[WJ]", unit.upper())):
            raise ValueError(f"its unit is {unit or 'not stated'}; expected W or J")
        # "%" of RAM is the memory in use, which says nothing about power.
        if quantity is None or (quantity == "utilisation" and kind in ("ram", terms.NODE)):
            return None
        # Sensors give whole numbers of W or its parts; perun computed fractions from a counter.
        has_fractions = values.dtype.kind == "f"
        if quantity == "power" and kind != "gpu" and is_known and has_fractions:
            quantity = "mean_power"
        scale = _magnitude(data)
        top = _number(_attribute(data, "valid_max")) * scale
        factor = scale / 100 if quantity == "utilisation" else scale
        scaled = np.multiply(values, factor, dtype=float)
        # Whole numbers have no mark of their own: theirs is 0 (NVML) or the counter's last value.
        if has_fractions:
            scaled[values == _number(_attribute(data, "fill"))] = np.nan
        time_s = np.multiply(raw["timesteps"], _magnitude(raw["timesteps"]), dtype=float)
        if time_s.shape != values.shape or not np.isfinite(time_s).all():
            raise ValueError(f"values: {values.size}, times: {np.isfinite(time_s).sum()}")
    except (LookupError, ValueError, TypeError) as error:
        return row | {"flags": [flag("unreadable", name, f"cannot be read ({error})")]}
    if quantity in ("power", "counter") and not is_known:
        source = _attribute(sensor, "source") or "not stated"
        detail = f"counted as a {kind}: of no backend that perun ships (source: {source})"
        row["flags"] = [flag("assumed", name, detail)]
    if quantity == "counter" and 0 < top < math.inf:
        row["range_j"] = top
    elif quantity == "power" and 0 < top < NO_LIMIT_W:
        row["limit_w"] = top
    return row | {"quantity": quantity, "time_s": time_s, "values": scaled}
