"""The layout of a prepared ERA5 year's file, and reading its steps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5.channels import CHANNELS, STEP_H, all_years, year_times

STEP_S = STEP_H * 3600
CHANNEL_COUNTS = (len(CHANNELS), len(CHANNELS) + 1)
"""The original project's later files have one channel more, at the end, which is not used."""


@dataclass(frozen=True)
class YearFile:
    """The layout of one prepared year; `start` is its first time (Unix s)."""

    path: Path
    steps: int
    channels: int
    latitudes: int
    longitudes: int
    start: int
    stored_in: Path
    """The file with the values: `path`, or what its `fields` links to."""
    offset: int | None
    """Bytes before the first value where all are contiguous float32, else None."""

    @classmethod
    def read(cls, folder: Path, year: int) -> YearFile:
        """Read a year's layout; InputError if the file is missing, damaged or not 6-hourly from 1 January."""
        path = folder / f"{year}.h5"
        try:
            with h5py.File(path, "r") as file:
                time = file["time"][:]
                fields = _open_fields(file, path)
                shape = fields.shape
                steps, channels, latitudes, longitudes = shape
                stored_in, offset = Path(fields.file.filename), _contiguous_offset(fields)
        except FileNotFoundError:
            raise InputError(f"{path}: prepared ERA5 year is missing") from None
        except (OSError, KeyError, ValueError) as error:
            raise InputError(f"{path}: no prepared ERA5 year ({error})") from error
        expected = year_times(year)[: len(time)].astype("datetime64[s]").astype(np.int64)
        if len(time) > steps or not np.array_equal(time, expected):
            raise InputError(f"{path}: times are not 6-hourly from 1 January {year} 00:00")
        if offset is not None:
            _check_size(stored_in, offset + 4 * int(np.prod(shape, dtype=np.int64)))
        start = int(time[0])
        return cls(path, len(time), channels, latitudes, longitudes, start, stored_in, offset)

    @property
    def end(self) -> int:
        """The time (Unix s) at which the next year must start to continue this one."""
        return self.start + self.steps * STEP_S

    def open(self) -> StepReader:
        """Return a reader of its steps; InputError if the file is gone."""
        try:
            return _Contiguous(self) if self.offset is not None else _ByHdf5(self)
        except OSError as error:
            raise InputError(f"{self.stored_in}: cannot be opened ({error})") from error


def check_years(folder: Path, definition: dict[str, Any]) -> None:
    """Raise InputError unless every year's file has the definition's grid and times."""
    rows, columns = definition["grid"]
    for year in all_years(definition):
        file = YearFile.read(folder, year)
        found = (file.channels, file.latitudes, file.longitudes)
        if found not in [(channels, rows + 1, columns) for channels in CHANNEL_COUNTS]:
            raise InputError(
                f"{file.path}: has (channels, latitudes, longitudes) = {found}, but dataset "
                f"{definition['name']} with grid {rows} × {columns} needs "
                f"{(len(CHANNELS), rows + 1, columns)} "
                "(one row more than the grid: the southernmost is not used)"
            )
        needed = len(year_times(year, definition["samples_per_year"]))
        if file.steps < needed:
            raise InputError(f"{file.path}: has {file.steps} times, {needed} are needed")


def check_origins(folder: Path, years: Iterable[int]) -> None:
    """Raise InputError unless all years have our channels, and relative humidity of one definition.

    A file that does not state its channels is trusted; humidity that does not state over what it is
    defined counts as a definition of its own.
    """
    kinds: dict[str, int] = {}
    for year in years:
        path = folder / f"{year}.h5"
        with h5py.File(path, "r") as file:
            channels = file.attrs.get("channels")
            kind = str(file.attrs.get("relative_humidity_over", "unknown"))
        if channels is not None and (found := [str(c) for c in channels]) != list(CHANNELS):
            raise InputError(
                f"{path}: has the channels {' '.join(found)}; needed are {' '.join(CHANNELS)}"
            )
        kinds.setdefault(kind, year)
    if len(kinds) > 1:
        found = [f"{year}.h5 over {kind}" for kind, year in kinds.items()]
        raise InputError(
            f"{folder}: years have relative humidity of different kinds: {', '.join(found)}; make "
            "all years from one source"
        )


def _open_fields(file: h5py.File, path: Path) -> h5py.Dataset:
    link = file.get("fields", getlink=True)
    try:
        return file["fields"]
    except (OSError, KeyError) as error:
        if isinstance(link, h5py.ExternalLink):
            raise InputError(
                f"{path}: its values should be in {link.filename}, which cannot be read ({error})"
            ) from error
        raise


def _contiguous_offset(fields: h5py.Dataset) -> int | None:
    plain = fields.dtype == np.dtype("<f4") and fields.chunks is None and not fields.is_virtual
    if not plain or fields.external or fields.file.userblock_size:
        return None
    return fields.id.get_offset()


def _check_size(path: Path, needed: int) -> None:
    found = path.stat().st_size
    if found < needed:
        raise InputError(f"{path}: is cut off: has {found} bytes, its fields end at {needed}")


# --- reading --------------------------------------------------------------------------------------


class StepReader(Protocol):
    """An open year."""

    def read(self, step: int, out: np.ndarray) -> None:
        """Read one step's first channels and rows into `out`, float32 (channels, H, W), contiguous."""


class _Contiguous:
    """Straight from the file into memory, by one system call a step."""

    def __init__(self, year: YearFile) -> None:
        self.year = year
        self.file = open(year.stored_in, "rb", buffering=0)  # noqa: SIM115 for the process's life
        self.skipped: dict[int, memoryview] = {}

    def read(self, step: int, out: np.ndarray) -> None:
        """See `StepReader`."""
        year = self.year
        assert year.offset is not None
        channel_bytes = 4 * year.latitudes * year.longitudes
        between = channel_bytes - out[0].nbytes
        if between not in self.skipped:
            self.skipped[between] = memoryview(bytearray(between))
        parts = []
        for channel in out:
            parts += [memoryview(channel).cast("B"), self.skipped[between]]
        parts.pop()
        offset = year.offset + step * year.channels * channel_bytes
        _read_exactly(self.file.fileno(), parts, offset, year.stored_in)


class _ByHdf5:
    """Through HDF5, whatever the layout."""

    def __init__(self, year: YearFile) -> None:
        self.year = year
        self.fields = h5py.File(year.path, "r")["fields"]

    def read(self, step: int, out: np.ndarray) -> None:
        """See `StepReader`."""
        channels, rows, _ = out.shape
        try:
            self.fields.read_direct(out, np.s_[step, :channels, :rows])
        except OSError as error:
            raise InputError(
                f"{self.year.stored_in}: step {step} cannot be read ({error})"
            ) from error


def _read_exactly(descriptor: int, parts: Sequence[memoryview], offset: int, path: Path) -> None:
    """Fill `parts` one after the other with the file's bytes from `offset` on."""
    left = list(parts)
    while left:
        got = os.preadv(descriptor, left, offset)
        if got == 0:
            raise InputError(f"{path}: is cut off: nothing can be read at byte {offset}")
        offset += got
        while left and got >= left[0].nbytes:
            got -= left.pop(0).nbytes
        if got:
            left[0] = left[0][got:]
