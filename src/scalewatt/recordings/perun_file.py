"""Reading perun's HDF5 files, versions 0.3.2 to 1.0.0, by what is in them.

What a series is follows from its unit and magnitude, never from the version (perun_sensor.py). A
host is read when it is asked for, so that a file of any size needs the memory of one host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from scalewatt.recordings.perun_sensor import SensorReader
from scalewatt.recordings.series import (
    DEVICE_KINDS,
    MEASURED,
    Flag,
    Recording,
    SensorSeries,
    flag,
    number_devices,
    origin_stated,
)

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
# What h5py raises for damaged files, whatever the damage is.
_DAMAGE = (OSError, LookupError, ValueError, TypeError, RuntimeError, MemoryError)


def list_runs(path: Path | str) -> list[RunInfo]:
    """Return the runs of a perun file in the order of their start; InputError as on reading."""
    with _opened(path) as (handle, _), _named(path):
        runs = [run_info(run) for run in runs_of(handle)]
    if not runs:
        raise InputError(f"{path}: holds no run; {EXPECTED}")
    return runs


def holds_runs(path: Path | str) -> bool:
    """Return True if there is a run of perun in an HDF5 file; InputError if it is damaged or none."""
    with _opened(path) as (handle, _), _named(path):
        return bool(runs_of(handle))


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
    with _opened(path) as (handle, problems):
        with _named(path):
            run, several_runs = choose_run(runs_of(handle), run_id)
            name, hosts, of_round = choose_round(run, round_id)
            recording = Recording(
                nodes=_Hosts(hosts, path, origin_stated(run.group.attrs)),
                t0_known=False,
                sampling_period_s=sampling_period_s(run.group),
                source=str(path),
                problems=(*problems, *several_runs, *of_round),
                execution_dt=run.execution_dt,
                run_id=run.run_id,
                round_id=name,
            )
        yield recording


class _Hosts(Mapping[str, tuple[SensorSeries, ...]]):
    """The series of each host, read anew at each access."""

    def __init__(
        self, groups: Mapping[str, h5py.Group], path: Path | str, origin: str = MEASURED
    ) -> None:
        self._groups = {host: groups[host] for host in sorted(groups)}
        self._path, self._origin = path, origin

    def __getitem__(self, host: str) -> tuple[SensorSeries, ...]:
        group = self._groups[host]
        if not group:
            raise ValueError(f"{self._path}: is closed; read its hosts while it is open")
        with _named(self._path):
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
    reader = SensorReader(host, wholes=children(kinds["socket"]) if "socket" in kinds else ())
    series = [
        found
        for kind in DEVICE_KINDS
        if kind in kinds
        for name, sensor in children(kinds[kind]).items()
        if (found := reader.read(kind, name, sensor)) is not None
    ]
    return number_devices(series)


@contextmanager
def _opened(path: Path | str) -> Iterator[tuple[h5py.File, list[Flag]]]:
    """Open a file for reading; a flag where another process holds it locked."""
    _require_hdf5(Path(path))
    problems: list[Flag] = []
    try:
        with _named(path):
            handle = h5py.File(path, "r", locking="best-effort")
    except BlockingIOError:
        problems.append(flag("file_locked", None, "another program may be writing the file"))
        with _named(path, locked=True):
            handle = h5py.File(path, "r", locking=False)
    with handle:
        yield handle, problems


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


@contextmanager
def _named(path: Path | str, locked: bool = False) -> Iterator[None]:
    """Give errors the file's path; h5py's become InputErrors of one line."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except BlockingIOError:
        raise
    except _DAMAGE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        problem = "is being written by another program" if locked else "cannot be read"
        raise InputError(f"{path}: {problem} ({reason}); {EXPECTED}") from error
