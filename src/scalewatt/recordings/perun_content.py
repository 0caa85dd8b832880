"""What a perun file holds, read with HDF5; called by `perun_file` in a process of its own.

Messages leave out the file's path. A file that was opened stays open until it is closed by its key:
reading a host does not search it anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import h5py

from scalewatt.common.errors import InputError
from scalewatt.recordings.perun_layout import (
    EXPECTED,
    RunInfo,
    children,
    choose_round,
    choose_run,
    run_info,
    runs_of,
    sampling_period_s,
)
from scalewatt.recordings.perun_sensor import (
    SensorReader,
    lost_kind,
    refuse_unknown,
    stated_totals,
)
from scalewatt.recordings.series import (
    DEVICE_KINDS,
    MEASURED,
    NODE,
    Flag,
    SensorSeries,
    flag,
    number_devices,
    origin_stated,
)

Key = tuple[str, str | None, str | None]
"""A file's absolute path, the run and the round that were asked for."""

# What h5py raises for damaged files, whatever the damage is.
_DAMAGE = (OSError, LookupError, ValueError, TypeError, RuntimeError, MemoryError)


@dataclass(frozen=True)
class RoundInfo:
    """One round of one run, without its samples."""

    hosts: tuple[str, ...]
    sampling_period_s: float | None
    problems: tuple[Flag, ...]
    execution_dt: str | None
    run_id: str
    round_id: str


@dataclass(frozen=True, eq=False)
class _Open:
    handle: h5py.File
    info: RoundInfo
    hosts: Mapping[str, h5py.Group]
    origin: str


_open: dict[Key, _Open] = {}


def list_runs(path: str) -> list[RunInfo]:
    """Return the runs of a file in the order of their start; InputError if it is damaged."""
    with _described(), _opened(path) as (handle, _):
        return [run_info(run) for run in runs_of(handle)]


def open_round(key: Key) -> RoundInfo:
    """Open a file and return what is in one of its rounds; InputError if it is damaged."""
    close_round(key)
    with _described():
        _open[key] = _opened_round(*key)
    return _open[key].info


def read_host(key: Key, host: str) -> tuple[SensorSeries, ...]:
    """Return the series of one host of a round, open or not; InputError if it is damaged."""
    if key not in _open:
        open_round(key)
    found = _open[key]
    with _described():
        series = _read_host(host, found.hosts[host])
    if found.origin == MEASURED:
        return series
    return tuple(replace(one, origin=found.origin) for one in series)


def close_round(key: Key) -> None:
    """Close a file, if it is open."""
    if (found := _open.pop(key, None)) is not None:
        with suppress(*_DAMAGE):
            found.handle.close()


def keep_round(whole: str, target: str, part: tuple[str, str, str]) -> None:
    """Write one round (application, run, round) of a file to a new one, with all its metadata."""
    app, run, round_ = part
    with _described(), h5py.File(whole, "r") as source, h5py.File(target, "w") as copy:
        copy.attrs.update(source.attrs)
        place, into = source, copy
        for name in (app, run):
            place, into = place[name], into.create_group(name)
            into.attrs.update(place.attrs)
            for beside in set(place) - {"nodes"}:
                source.copy(place[beside], into, beside)
            place, into = place["nodes"], into.create_group("nodes")
            into.attrs.update(place.attrs)
        source.copy(place[round_], into, round_)


def _opened_round(path: str, run_id: str | None, round_id: str | None) -> _Open:
    handle, problems = _file(path)
    try:
        run, several_runs = choose_run(runs_of(handle), run_id)
        name, hosts, of_round = choose_round(run, round_id)
        info = RoundInfo(
            hosts=tuple(sorted(hosts)),
            sampling_period_s=sampling_period_s(run.group),
            problems=(*problems, *several_runs, *of_round),
            execution_dt=run.execution_dt,
            run_id=run.run_id,
            round_id=name,
        )
        return _Open(handle, info, hosts, origin_stated(run.group.attrs))
    except BaseException:
        with suppress(*_DAMAGE):
            handle.close()
        raise


def _read_host(host: str, group: h5py.Group) -> tuple[SensorSeries, ...]:
    refuse_unknown(host, group)
    kinds = children(group)
    reader = SensorReader(host, wholes=children(kinds["socket"]) if "socket" in kinds else ())
    series = [
        found
        for kind in (*DEVICE_KINDS, NODE)
        if kind in kinds
        for name, sensor in children(kinds[kind]).items()
        if (found := reader.read(kind, name, sensor)) is not None
    ]
    totals = stated_totals(group)
    held = {one.device_kind for one in series if one.quantity != "utilisation"}
    lost = [lost_kind(host, kind, total) for kind, total in totals.items() if kind not in held]
    with_totals = (replace(one, perun_kind_j=totals.get(one.device_kind)) for one in series)
    return number_devices([*with_totals, *lost])


@contextmanager
def _opened(path: str) -> Iterator[tuple[h5py.File, list[Flag]]]:
    handle, problems = _file(path)
    with handle:
        yield handle, problems


def _file(path: str) -> tuple[h5py.File, list[Flag]]:
    """Open a file for reading; a flag where another process holds it locked."""
    try:
        return h5py.File(path, "r", locking="best-effort"), []
    except BlockingIOError:
        problem = flag("file_locked", None, "another program may be writing the file")
    try:
        return h5py.File(path, "r", locking=False), [problem]
    except _DAMAGE as error:
        raise _refusal("is being written by another program", error) from error


@contextmanager
def _described() -> Iterator[None]:
    """Make InputErrors of one line of what h5py raises."""
    try:
        yield
    except InputError:
        raise
    except _DAMAGE as error:
        raise _refusal("cannot be read", error) from error


def _refusal(problem: str, error: BaseException) -> InputError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return InputError(f"{problem} ({reason}); {EXPECTED}")
