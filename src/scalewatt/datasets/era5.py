"""Reader of prepared ERA5 years (their form: `era5_prepare`)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch.utils.data import Dataset

from scalewatt.datasets.era5_channels import CHANNELS
from scalewatt.datasets.era5_times import STEP_H, all_years, year_times
from scalewatt.errors import InputError

STEP_S = STEP_H * 3600


@dataclass(frozen=True)
class YearFile:
    """What a reader must know of one prepared year; `start` is its first time (Unix s)."""

    path: Path
    steps: int
    channels: int
    latitudes: int
    longitudes: int
    start: int

    @classmethod
    def read(cls, folder: Path, year: int) -> YearFile:
        """InputError if the file is missing, unreadable or not 6-hourly from 1 January."""
        path = folder / f"{year}.h5"
        try:
            with h5py.File(path, "r") as file:
                time = file["time"][:]
                steps, channels, latitudes, longitudes = file["fields"].shape
        except FileNotFoundError:
            raise InputError(f"{path}: prepared ERA5 year is missing") from None
        except (OSError, KeyError, ValueError) as error:
            raise InputError(f"{path}: no prepared ERA5 year ({error})") from error
        expected = year_times(year)[: len(time)].astype("datetime64[s]").astype(np.int64)
        if len(time) != steps or not np.array_equal(time, expected):
            raise InputError(f"{path}: times are not 6-hourly from 1 January {year} 00:00")
        return cls(path, steps, channels, latitudes, longitudes, start=int(time[0]))

    @property
    def end(self) -> int:
        """The time (Unix s) at which the next year must start to continue this one."""
        return self.start + self.steps * STEP_S


def check_years(folder: Path, definition: dict[str, Any]) -> None:
    """InputError unless every year's file has the definition's grid and times."""
    rows, columns = definition["grid"]
    for year in all_years(definition):
        file = YearFile.read(folder, year)
        expected = (len(CHANNELS), rows + 1, columns)
        found = (file.channels, file.latitudes, file.longitudes)
        if found != expected:
            raise InputError(
                f"{file.path}: has (channels, latitudes, longitudes) = {found}, but dataset "
                f"{definition['name']} with grid {rows} × {columns} needs {expected} "
                "(one row more than the grid: the southernmost is not used)"
            )
        needed = len(year_times(year, definition["samples_per_year"]))
        if file.steps < needed:
            raise InputError(f"{file.path}: has {file.steps} times, {needed} are needed")


class Era5Dataset(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Single steps of prepared years with the steps that follow them, not normalised.

    An item, by the key (epoch, position), is x, float32 (channels, H, W), and its targets, float32
    (lead_steps, channels, H, W), 6 h apart. H leaves out the southernmost row. A year contributes
    its first `samples_per_year` times; targets may be in the next year's file. A sample whose
    targets are not there is an error that names the year (InputError), or left out if
    `require_targets` is false.
    """

    def __init__(
        self,
        folder: Path | str,
        years: Iterable[int],
        lead_steps: int,
        samples_per_year: int,
        require_targets: bool = True,
    ) -> None:
        self.lead_steps = lead_steps
        self._files: list[YearFile] = []
        self._samples: list[tuple[int, int]] = []  # (file, time in it)
        folder = Path(folder)
        for year in years:
            first = YearFile.read(folder, year)
            at = len(self._files)
            # Every year is followed in the list by the file that continues it, or by itself.
            following = first
            if (folder / f"{year + 1}.h5").exists():
                following = YearFile.read(folder, year + 1)
            self._files += [first, following]
            steps = first.steps + (following.steps if following.start == first.end else 0)
            usable = min(samples_per_year, first.steps, max(0, steps - lead_steps))
            if require_targets and usable < samples_per_year:
                raise InputError(
                    f"{first.path}: year {year} has {usable} samples with targets "
                    f"{lead_steps * STEP_H} h ahead, {samples_per_year} are needed; give it more "
                    f"times or prepare {year + 1} as well"
                )
            self._samples += [(at, step) for step in range(usable)]
        if not self._samples:
            raise InputError(f"{folder}: no ERA5 samples in the years {list(years)}")
        shapes = {(file.channels, file.latitudes, file.longitudes) for file in self._files}
        if len(shapes) > 1:
            raise InputError(f"{folder}: years have different grids or channels: {sorted(shapes)}")
        channels, latitudes, longitudes = shapes.pop()
        self.shape = (channels, latitudes - 1, longitudes)
        self._handles: dict[Path, h5py.Dataset] = {}
        self._process = os.getpid()

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, key: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
        at, step = self._samples[key[1]]
        buffer = torch.empty((1 + self.lead_steps, *self.shape))
        here = min(1 + self.lead_steps, self._files[at].steps - step)
        self._read(at, step, buffer[:here])
        if here <= self.lead_steps:
            self._read(at + 1, 0, buffer[here:])
        return buffer[0], buffer[1:]

    @property
    def latitude(self) -> np.ndarray:
        """Degrees north of the rows used, float64 (H,)."""
        with h5py.File(self._files[0].path, "r") as file:
            return file["latitude"][:-1]

    def _read(self, at: int, step: int, out: torch.Tensor) -> None:
        source = np.s_[step : step + len(out), :, : self.shape[1], :]
        self._fields(self._files[at].path).read_direct(out.numpy(), source)

    def _fields(self, path: Path) -> h5py.Dataset:
        # HDF5 handles do not survive a fork: each process opens its own, once.
        if self._process != os.getpid():
            self._handles, self._process = {}, os.getpid()
        if path not in self._handles:
            self._handles[path] = h5py.File(path, "r")["fields"]
        return self._handles[path]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_handles": {}}
