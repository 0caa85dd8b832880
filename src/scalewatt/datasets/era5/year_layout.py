"""The layout of a prepared ERA5 year's file, and reading its steps."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5.channels import CHANNELS, STEP_H, all_years, year_times

STEP_S = STEP_H * 3600
CHANNEL_COUNTS = (len(CHANNELS), len(CHANNELS) + 1)
"""The original project's later files have one channel more, at the end, which is not used."""

# What h5py raises for damaged files, whatever the damage is.
_DAMAGE = (OSError, LookupError, ValueError, TypeError, AttributeError, RuntimeError, MemoryError)


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

    @classmethod
    def read(cls, folder: Path, year: int) -> YearFile:
        """Read a year's layout; InputError if the file is missing, damaged or not 6-hourly from 1 January."""
        path = folder / f"{year}.h5"
        try:
            with h5py.File(path, "r") as file:
                time = file["time"][:]
                fields = _open_fields(file, path)
                steps, channels, latitudes, longitudes = fields.shape
                stored_in = Path(fields.file.filename)
        except FileNotFoundError:
            raise InputError(f"{path}: prepared ERA5 year is missing") from None
        except _DAMAGE as error:
            raise InputError(f"{path}: no prepared ERA5 year ({error})") from error
        expected = year_times(year)[: len(time)].astype("datetime64[s]").astype(np.int64)
        if len(time) > steps or not np.array_equal(time, expected):
            raise InputError(f"{path}: times are not 6-hourly from 1 January {year} 00:00")
        return cls(path, len(time), channels, latitudes, longitudes, int(time[0]), stored_in)

    @property
    def end(self) -> int:
        """Return the Unix time in s at which the next year must start to continue this one."""
        return self.start + self.steps * STEP_S

    def open(self) -> StepReader:
        """Return a reader of its steps; InputError if the file is gone."""
        try:
            return StepReader(self)
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


# --- reading --------------------------------------------------------------------------------------


class StepReader:
    """An open year."""

    def __init__(self, year: YearFile) -> None:
        self._stored_in = year.stored_in
        self._fields = _open_fields(h5py.File(year.path, "r"), year.path)
        # The open file, which is kept where another one takes its name.
        self._descriptor = self._fields.file.id.get_vfd_handle()
        self._bytes = os.fstat(self._descriptor).st_size

    def read(self, step: int, out: np.ndarray) -> None:
        """Read one step's first channels and rows into `out`, float32 (channels, H, W), contiguous.

        Values that lie next to each other in the file go straight into `out`.
        """
        channels, rows, _ = out.shape
        try:
            self._fields.read_direct(out, np.s_[step, :channels, :rows])
        except OSError as error:
            raise InputError(f"{self._stored_in}: step {step} cannot be read ({error})") from error
        # Of a file that has become shorter HDF5 reads zeros.
        if (found := os.fstat(self._descriptor).st_size) < self._bytes:
            raise InputError(f"{self._stored_in}: is cut off: had {self._bytes} bytes, has {found}")
