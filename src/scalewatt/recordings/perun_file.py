"""Reading perun's HDF5 files, versions 0.3.2 to 1.0.0, by what is in them.

What a series is follows from its unit and magnitude, never from the version (perun_sensor.py). A
host is read when it is asked for, so that a file of any size needs the memory of one host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

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
    OTHER_KINDS,
    SensorReader,
    has_power,
    lost_kind,
    stated_totals,
)
from scalewatt.recordings.series import (
    DEVICE_KINDS,
    MEASURED,
    NODE,
    Flag,
    Recording,
    SensorSeries,
    flag,
    number_devices,
    origin_stated,
)

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
# What h5py raises for damaged files, whatever the damage is.
DAMAGE = (OSError, LookupError, ValueError, TypeError, RuntimeError, MemoryError, RecursionError)


def list_runs(path: Path | str) -> list[RunInfo]:
    """Return the runs of a perun file in the order of their start; InputError as on reading."""
    runs = _runs(Path(path))
    if not runs:
        raise InputError(f"{path}: holds no run; {EXPECTED}")
    return runs


def holds_runs(path: Path | str) -> bool:
    """Return True if there is a run of perun in an HDF5 file; InputError if it is damaged or none."""
    return bool(_runs(Path(path)))


def _runs(path: Path) -> list[RunInfo]:
    _require_hdf5(path)
    with reading(path):
        handle, _ = _opened(path)
        with handle:
            return [run_info(run) for run in runs_of(handle)]


def read_perun_file(
    path: Path | str, run_id: str | None = None, round_id: str | None = None
) -> Recording:
    """Read one round of a perun file as `open_perun_file` does, all hosts at once."""
    with open_perun_file(path, run_id, round_id) as recording:
        return replace(recording, nodes=dict(recording.nodes))


@contextmanager
def open_perun_file(
    path: Path | str, run_id: str | None = None, round_id: str | None = None
) -> Iterator[Recording]:
    """Give one round of one run, whose hosts are read from the open file when asked for.

    Without names the last run's last numbered round is given, round `failed` only if there is no
    other; that there are others is a problem of the recording. Runs of several applications with
    one name are told apart as `<app>/<run_id>`. Times are seconds from each host's first sample.
    Raises InputError for a file that is missing, empty, damaged or not perun's.
    """
    path = Path(path)
    _require_hdf5(path)
    with reading(path):
        handle, locked = _opened(path)
    try:
        with reading(path):
            run, several_runs = choose_run(runs_of(handle), run_id)
            name, hosts, flags = choose_round(run, round_id)
            recording = Recording(
                nodes=_Hosts(path, handle, hosts, origin_stated(run.group.attrs)),
                t0_known=False,
                sampling_period_s=sampling_period_s(run.group),
                source=str(path),
                problems=(*locked, *several_runs, *flags),
                execution_dt=run.execution_dt,
                run_id=run.run_id,
                round_id=name,
            )
        yield recording
    finally:
        with suppress(*DAMAGE):
            handle.close()


def keep_round(path: Path, part: tuple[str, str, str]) -> None:
    """Leave one round (application, run, round) in a perun file, with all its metadata."""
    whole = path.with_name(path.name + ".whole")
    path.rename(whole)
    app, run, round_ = part
    with reading(whole), h5py.File(whole, "r") as source, h5py.File(path, "w") as copy:
        copy.attrs.update(source.attrs)
        group, into = source, copy
        for name in (app, run):
            group, into = group[name], into.create_group(name)
            into.attrs.update(group.attrs)
            for other in set(group) - {"nodes"}:
                source.copy(group[other], into, other)
            group, into = group["nodes"], into.create_group("nodes")
            into.attrs.update(group.attrs)
        source.copy(group[round_], into, round_)
    whole.unlink()


class _Hosts(Mapping[str, tuple[SensorSeries, ...]]):
    """The series of each host, read anew at each access."""

    def __init__(
        self, path: Path, handle: h5py.File, groups: Mapping[str, h5py.Group], origin: str
    ) -> None:
        self._path, self._handle, self._origin = path, handle, origin
        self._groups = {host: groups[host] for host in sorted(groups)}

    def __getitem__(self, host: str) -> tuple[SensorSeries, ...]:
        group = self._groups[host]
        if not self._handle:
            raise ValueError(f"{self._path}: is closed; read its hosts while it is open")
        with reading(self._path):
            series = _read_host(host, group)
        if self._origin == MEASURED:
            return series
        return tuple(replace(one, origin=self._origin) for one in series)

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)


def _read_host(host: str, group: h5py.Group) -> tuple[SensorSeries, ...]:
    kinds = children(group)
    for kind in kinds.keys() - {*DEVICE_KINDS, *OTHER_KINDS}:
        if has_power(kinds[kind]):  # which no total would have
            raise InputError(
                f"host {host} has power or energy under the unknown kind {kind!r}; {EXPECTED}"
            )
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


def _opened(path: Path) -> tuple[h5py.File, list[Flag]]:
    """Open a file for reading; a flag where another process holds it locked."""
    try:
        return h5py.File(path, "r", locking="best-effort"), []
    except BlockingIOError:
        problem = flag("damaged", None, "another program may be writing the file")
    try:
        return h5py.File(path, "r", locking=False), [problem]
    except DAMAGE as error:
        raise InputError(f"is being written by another program ({error}); {EXPECTED}") from error


@contextmanager
def reading(path: Path, expected: str = EXPECTED) -> Iterator[None]:
    """Make InputErrors of one line, with the file's path, of what h5py raises for it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except DAMAGE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: cannot be read ({reason}); {expected}") from error


def _require_hdf5(path: Path) -> None:
    """Raise InputError unless a file begins like an HDF5 file."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; {EXPECTED}")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is no regular file; {EXPECTED}")
    try:
        with path.open("rb") as file:
            begin = file.read(len(_SIGNATURE))
            size = file.seek(0, 2)
            marked = begin == _SIGNATURE or _signature_behind_user_block(file, size)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}: cannot be read ({reason}); {EXPECTED}") from error
    if not begin:
        raise InputError(f"{path}: is empty; {EXPECTED}")
    if not marked:
        raise InputError(f"{path}: is no HDF5 file ({_what(begin)}); {EXPECTED}")


def is_hdf5(path: Path) -> bool:
    """Return True if a file begins like an HDF5 file."""
    try:
        _require_hdf5(path)
    except InputError:
        return False
    return True


def _signature_behind_user_block(file: BinaryIO, size: int) -> bool:
    offset = 512
    while offset < size:
        file.seek(offset)
        if file.read(len(_SIGNATURE)) == _SIGNATURE:
            return True
        offset *= 2
    return False


def _what(begin: bytes) -> str:
    if begin.lstrip()[:1] in (b"{", b"["):
        return "it begins like JSON"
    if all(32 <= byte < 127 or byte in b"\t\r\n" for byte in begin):
        return "it begins like text"
    return "its first bytes are others"
