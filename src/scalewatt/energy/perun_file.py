"""Reading perun's HDF5 files, versions 0.3.2 to 1.0.0, by what is in them.

Layout: /<app>/nodes/<run>/nodes/<round>/nodes/<host>/nodes/<kind>/nodes/<sensor>/raw_data/values.
What a series is follows from its unit and magnitude, never from the version: W is power, J is a
cumulative counter, % is utilisation. perun 1.0.0 stores RAPL as float32 W computed from the µJ
counter, and the counter as `alt_values`. The counter is taken: its differences are exact, a failed
read (0) costs nothing, while the watts carry float32 rounding and 262 kJ for every failed read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import h5py
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

EXPECTED = "expected an HDF5 file written by perun 0.3 to 1.0, with nodes/<run>/nodes/<round>"

_PERIOD_KEYS = ("monitor.sampling_period", "monitor.sampling_rate", "sampling_rate")
# NVML reports 2^32-1 mW where it knows no limit, other sensors the largest float.
_NO_LIMIT_W = 1e5


@dataclass(frozen=True)
class _Run:
    run_id: str
    group: h5py.Group
    execution_dt: str | None


def read_perun_file(path: Path | str, run_id: str | None = None) -> Recording:
    """Read one run of a perun file; the last one where `run_id` is not given.

    Of several rounds the last is read, of round `failed` only if there is no other; both are
    problems of the recording. Times are seconds from each host's first sample. Raises InputError
    for a file that is missing, empty, damaged or not perun's.
    """
    if Path(path).is_file() and Path(path).stat().st_size == 0:
        raise InputError(f"{path}: is empty; {EXPECTED}")
    try:
        with h5py.File(path, "r", locking="best-effort") as handle:
            run, problems = _choose_run(_runs(handle), path, run_id)
            return _read_run(run, str(path), problems)
    except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read ({reason}); {EXPECTED}") from error


def _children(group: h5py.Group) -> dict[str, h5py.Group]:
    nodes = group.get("nodes")
    if not isinstance(nodes, h5py.Group):
        return {}
    return {name: node for name, node in nodes.items() if isinstance(node, h5py.Group)}


def _runs(handle: h5py.File) -> list[_Run]:
    """Return the runs of all applications in the order of their start."""
    runs = [
        _Run(name, group, _text(group.attrs.get("execution_dt")))
        for app in handle.values()
        if isinstance(app, h5py.Group)
        for name, group in _children(app).items()
    ]
    return sorted(runs, key=lambda run: run.execution_dt or "")


def _choose_run(runs: list[_Run], path: Path | str, run_id: str | None) -> tuple[_Run, list[Flag]]:
    if not runs:
        raise InputError(f"{path}: holds no run; {EXPECTED}")
    if run_id is None:
        if len(runs) == 1:
            return runs[0], []
        names = ", ".join(run.run_id for run in runs)
        detail = f"the file holds {len(runs)} runs ({names}); {runs[-1].run_id} is read"
        return runs[-1], [flag("several_runs", None, detail)]
    for run in reversed(runs):
        if run.run_id == run_id:
            return run, []
    names = ", ".join(run.run_id for run in runs)
    raise InputError(f"{path}: holds no run {run_id!r}; it holds {names}")


def _read_run(run: _Run, source: str, problems: list[Flag]) -> Recording:
    rounds = _children(run.group)
    name, more = _choose_round(rounds)
    hosts = _children(rounds[name]) if name is not None else {}
    if not hosts:
        raise InputError(f"{source}: run {run.run_id} holds no host; {EXPECTED}")
    problems = problems + more
    series: list[SensorSeries] = []
    for host, node in hosts.items():
        for kind, sensors in _children(node).items():
            if kind in DEVICE_KINDS:
                for sensor, group in _children(sensors).items():
                    found, doubts = _read_sensor(host, kind, sensor, group)
                    series += found
                    problems += doubts
    return Recording(
        nodes=by_node(number_devices(series), hosts),
        t0_known=False,
        sampling_period_s=_period(run.group),
        source=source,
        problems=tuple(problems),
        execution_dt=run.execution_dt,
        run_id=run.run_id,
        round_id=name,
    )


def _choose_round(rounds: dict[str, h5py.Group]) -> tuple[str | None, list[Flag]]:
    numbered = sorted((name for name in rounds if name.isdecimal()), key=int)
    others = sorted(set(rounds) - set(numbered))
    chosen = next(reversed(numbered or others), None)
    problems = []
    if len(numbered) > 1:
        detail = f"the run holds {len(numbered)} rounds; the last one ({chosen}) is read"
        problems.append(flag("several_rounds", None, detail))
    if "failed" in rounds:
        detail = "perun recorded that the program failed" + (
            "; that part is not read" if chosen != "failed" else ""
        )
        problems.append(flag("failed_round", None, detail))
    return chosen, problems


def _read_sensor(
    host: str, kind: str, sensor: str, group: h5py.Group
) -> tuple[list[SensorSeries], list[Flag]]:
    """Return the series of one sensor: none where its unit is of no use here (bytes, hertz)."""
    raw = group.get("raw_data")
    if not isinstance(raw, h5py.Group) or "values" not in raw or "timesteps" not in raw:
        return [], []
    data = raw["values"]
    alternative = raw.get("alt_values")
    if alternative is not None and _text(alternative.attrs.get("unit")) == "J":
        data = alternative
    quantity = QUANTITIES.get(_text(data.attrs.get("unit")) or "")
    # "%" of RAM is the memory in use, which says nothing about power.
    if quantity is None or (quantity == "utilisation" and kind == "ram"):
        return [], []
    values, time_s = _values(data, quantity), np.asarray(raw["timesteps"][()], dtype=np.float64)
    problems = []
    if values.size != time_s.size:
        detail = f"{values.size} values but {time_s.size} times; the longer one is cut"
        problems.append(flag("length_mismatch", sensor, detail))
        values, time_s = values[: time_s.size], time_s[: values.size]
    index = index_in_name(sensor)
    top = _scaled(data, "valid_max")
    series = SensorSeries(
        node=host,
        sensor=sensor,
        device_kind=kind,
        device_index=NO_INDEX if index is None else index,
        quantity=quantity,
        time_s=time_s,
        values=values,
        valid_max=top if quantity == "counter" and top and np.isfinite(top) else None,
        limit_w=top if quantity == "power" and top and 0 < top < _NO_LIMIT_W else None,
    )
    return [series], problems


def _values(data: h5py.Dataset, quantity: str) -> Floats:
    """Return W, J or a fraction; what perun marks as never filled in becomes NaN."""
    raw = data[()]
    values = raw.astype(np.float64) * float(data.attrs.get("mag", 1.0))
    fill = data.attrs.get("fill")
    # A fill of 0 (NVML) stays 0 here: whether a device can draw 0 W is judged at integration.
    if fill is not None and float(fill) != 0:
        values[raw == fill] = np.nan
    return values / 100.0 if quantity == "utilisation" else values


def _scaled(data: h5py.Dataset, attribute: str) -> float | None:
    value = data.attrs.get(attribute)
    return None if value is None else float(value) * float(data.attrs.get("mag", 1.0))


def _period(run: h5py.Group) -> float | None:
    for key in _PERIOD_KEYS:
        try:
            return float(_text(run.attrs.get(key)) or "")
        except ValueError:
            continue
    return None


def _text(value: object) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
