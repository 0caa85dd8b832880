"""Reading perun's HDF5 files, versions 0.3.2 to 1.0.0, by what is in them.

What a series is follows from its unit and magnitude, never from the version (perun_sensor.py). A
host is read when it is asked for, and the next one ahead of it, so that a file of any size needs the
memory of two hosts. HDF5 may loop for ever over a damaged file, or end its process: a child process
reads it (perun_content.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from scalewatt.common.errors import InputError
from scalewatt.common.limited_calls import CallFailed, Limits, call_limited, interrupt_call
from scalewatt.recordings import perun_content
from scalewatt.recordings.perun_layout import EXPECTED, RunInfo
from scalewatt.recordings.series import Recording, SensorSeries

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_Result = TypeVar("_Result")

# Reading 541 MB took 0.7 s. Time in which a slow file system is waited for is no time of computing.
_CPU_S, _CPU_BYTES_A_S = 5.0, 2e7
_WALL_S, _WALL_BYTES_A_S = 120.0, 1e6
# Four bytes of a file may become eight, held several times; more where a file was compressed.
_MEMORY_BYTES, _MEMORY_TIMES = 1 << 31, 24


def list_runs(path: Path | str) -> list[RunInfo]:
    """Return the runs of a perun file in the order of their start; InputError as on reading."""
    _require_hdf5(Path(path))
    runs = _call(path, perun_content.list_runs, os.path.abspath(path))
    if not runs:
        raise InputError(f"{path}: holds no run; {EXPECTED}")
    return runs


def holds_runs(path: Path | str) -> bool:
    """Return True if there is a run of perun in an HDF5 file; InputError if it is damaged or none."""
    _require_hdf5(Path(path))
    return bool(_call(path, perun_content.list_runs, os.path.abspath(path)))


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
    _require_hdf5(Path(path))
    key = os.path.abspath(path), run_id, round_id
    found = _call(path, perun_content.open_round, key)
    hosts = _Hosts(path, key, found.hosts)
    try:
        yield Recording(
            nodes=hosts,
            t0_known=False,
            sampling_period_s=found.sampling_period_s,
            source=str(path),
            problems=found.problems,
            execution_dt=found.execution_dt,
            run_id=found.run_id,
            round_id=found.round_id,
        )
    except BaseException:
        hosts.abandon()
        raise
    hosts.close()


def keep_round(path: Path, part: tuple[str, str, str]) -> None:
    """Leave one round (application, run, round) in a perun file, with all its metadata."""
    whole = path.with_name(path.name + ".whole")
    path.rename(whole)
    _call(whole, perun_content.keep_round, *map(os.path.abspath, (whole, path)), part)
    whole.unlink()


class _Hosts(Mapping[str, tuple[SensorSeries, ...]]):
    """The series of each host, read anew at each access.

    Of hosts that are taken in their order the next is read while the one before is worked on.
    """

    def __init__(self, path: Path | str, key: perun_content.Key, hosts: tuple[str, ...]) -> None:
        self._path, self._key, self._names = path, key, hosts
        self._is_open = True
        self._fatal: InputError | None = None
        self._reader = ThreadPoolExecutor(max_workers=1)
        self._before: str | None = None
        self._ahead: dict[str, Future[tuple[SensorSeries, ...]]] = {}

    def __getitem__(self, host: str) -> tuple[SensorSeries, ...]:
        if host not in self._names:
            raise KeyError(host)
        if not self._is_open:
            raise ValueError(f"{self._path}: is closed; read its hosts while it is open")
        if self._fatal is not None:
            raise self._fatal
        ahead = self._ahead.pop(host, None)
        try:
            found = self._read(host) if ahead is None else ahead.result()
        except InputError as error:
            if isinstance(error.__cause__, CallFailed):
                self._fatal = error  # each further host would cost as much as this one
            raise
        before, self._before = self._before, host
        if self._next(before) == host and (following := self._next(host)) is not None:
            self._ahead = {following: self._reader.submit(self._read, following)}
        return found

    def _read(self, host: str) -> tuple[SensorSeries, ...]:
        return _call(self._path, perun_content.read_host, self._key, host)

    def _next(self, host: str | None) -> str | None:
        """Return the host after one; None after the last, and after none."""
        place = self._names.index(host) + 1 if host is not None else len(self._names)
        return self._names[place] if place < len(self._names) else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def close(self) -> None:
        """Close the file."""
        self._stop_reading()
        if self._fatal is None:
            with suppress(InputError):
                _call(self._path, perun_content.close_round, self._key)

    def abandon(self) -> None:
        """Close the file at once: a host that is being read ahead may take minutes."""
        if all(ahead.done() for ahead in self._ahead.values()):
            self.close()
        else:
            interrupt_call()
            self._stop_reading()

    def _stop_reading(self) -> None:
        self._is_open = False
        self._reader.shutdown(cancel_futures=True)
        self._ahead.clear()


def _call(path: Path | str, function: Callable[..., _Result], *args: Any) -> _Result:
    """Call a function of `perun_content` in the child process; its errors get the file's path."""
    try:
        return call_limited(function, *args, limits=limits_of(path))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except CallFailed as error:
        raise InputError(f"{path}: cannot be read ({error}); {EXPECTED}") from error


def limits_of(path: Path | str) -> Limits:
    """Return what reading an HDF5 file may take, by its size."""
    try:
        size = os.path.getsize(path)
    except OSError:
        size = 0
    return Limits(
        cpu_s=_CPU_S + size / _CPU_BYTES_A_S,
        wall_s=_WALL_S + size / _WALL_BYTES_A_S,
        memory_bytes=_MEMORY_BYTES + _MEMORY_TIMES * size,
    )


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
