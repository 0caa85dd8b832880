"""ERA5 for FourCastNet: its channels, the files of prepared years, and datasets of them.

A prepared year, `<year>.h5`, has `fields` float32 (time, channel, latitude, longitude), contiguous
and not normalised, north to south and from 0° eastward; `time` int64 (Unix s), 6-hourly from 1
January 00:00; `latitude`, `longitude`; and `statistics`, the moments of every channel. For a file of
the original project, `fields` is a link to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import torch
from torch.utils.data import Dataset

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object
from scalewatt.data.era5_years import all_years as all_years  # models take it from here
from scalewatt.data.era5_years import part_years as part_years


class Channel(NamedTuple):
    """A field that FourCastNet reads, its lowest and highest plausible value anywhere, and their unit."""

    variable: str
    """WeatherBench 2's and ARCO-ERA5's name."""
    level: int | None
    """Pressure in hPa; None at the surface."""
    low: float
    high: float
    unit: str

    def __str__(self) -> str:
        return self.variable if self.level is None else f"{self.variable} at {self.level} hPa"


CHANNEL_OF: dict[str, Channel] = {
    # The strongest winds of a reanalysis at 0.25° are about half of these, in m/s.
    "u10": Channel("10m_u_component_of_wind", None, -80, 80, "m/s"),
    "v10": Channel("10m_v_component_of_wind", None, -80, 80, "m/s"),
    # Records at the ground are 184 K and 330 K; aloft the extremes are closer together.
    "t2m": Channel("2m_temperature", None, 165, 345, "K"),
    # In Pa: the highest grid points of Tibet lie near 500 hPa, the Dead Sea near 1060 hPa.
    "sp": Channel("surface_pressure", None, 40_000, 112_000, "Pa"),
    # Records at sea level are 870 hPa and 1085 hPa.
    "msl": Channel("mean_sea_level_pressure", None, 84_000, 112_000, "Pa"),
    "t850": Channel("temperature", 850, 195, 335, "K"),
    "u1000": Channel("u_component_of_wind", 1000, -110, 110, "m/s"),
    "v1000": Channel("v_component_of_wind", 1000, -110, 110, "m/s"),
    # In m²/s²; 8 m of height for each hPa below or above 1000 at sea level.
    "z1000": Channel("geopotential", 1000, -15_000, 12_000, "m²/s²"),
    "u850": Channel("u_component_of_wind", 850, -110, 110, "m/s"),
    "v850": Channel("v_component_of_wind", 850, -110, 110, "m/s"),
    "z850": Channel("geopotential", 850, 4_000, 20_000, "m²/s²"),
    "u500": Channel("u_component_of_wind", 500, -150, 150, "m/s"),
    "v500": Channel("v_component_of_wind", 500, -150, 150, "m/s"),
    "z500": Channel("geopotential", 500, 40_000, 62_000, "m²/s²"),
    "t500": Channel("temperature", 500, 190, 300, "K"),
    "z50": Channel("geopotential", 50, 160_000, 220_000, "m²/s²"),
    # In %: spectral truncation leaves a little below 0, supersaturation over ice far over 100.
    "r500": Channel("relative_humidity", 500, -60, 250, "%"),
    "r850": Channel("relative_humidity", 850, -60, 250, "%"),
    "tcwv": Channel("total_column_water_vapour", None, -5, 130, "kg/m²"),
}
"""The channels in their order. The ranges hold every analysis of the atmosphere; another unit, another
level of geopotential, or normalised values fall outside of several."""

CHANNELS = tuple(CHANNEL_OF)
CHANNEL_COUNTS = (len(CHANNELS), len(CHANNELS) + 1)
"""The original project's later files have another channel at the end, which is not used."""
Z500 = CHANNELS.index("z500")

STEP_H = 6
TARGET_STEPS = 2
"""A sample's targets are up to this many steps (12 h) ahead."""

STATISTICS = "statistics.json"
CLIMATOLOGY = "climatology.h5"


# --- a year ---------------------------------------------------------------------------------------


def year_times(year: int, samples_per_year: int | None = None) -> np.ndarray:
    """Times (datetime64[ns]) that are stored for a year, 6-hourly from 1 January 00:00 UTC.

    With `samples_per_year`, only as many as its samples and their targets need; the targets of
    the last samples of a calendar year are in the next year.
    """
    start, end = np.datetime64(f"{year}-01-01", "h"), np.datetime64(f"{year + 1}-01-01", "h")
    times = np.arange(start, end, np.timedelta64(STEP_H, "h"))
    stop = None if samples_per_year is None else samples_per_year + TARGET_STEPS
    return times[:stop].astype("datetime64[ns]")


class YearFile(NamedTuple):
    """Layout of a prepared year."""

    path: Path
    steps: int
    """Times; a linked file may have more."""
    channels: int
    latitudes: int
    longitudes: int


def read_layout(folder: Path, year: int) -> YearFile:
    """Read a prepared year's layout; InputError if the file is missing or damaged."""
    path = folder / f"{year}.h5"
    try:
        with h5py.File(path, "r") as file:
            return YearFile(path, len(file["time"]), *file["fields"].shape[1:])
    except FileNotFoundError:
        raise InputError(f"{path}: prepared ERA5 year is missing") from None
    except Exception as error:  # h5py has many for damaged files
        raise InputError(f"{path}: not a readable prepared ERA5 year ({error})") from error


# --- datasets -------------------------------------------------------------------------------------

Key = tuple[int, int]
"""Epoch and position."""


class Era5Dataset(Dataset[tuple[torch.Tensor, ...]]):
    """Single steps of prepared years with the steps that follow them, not normalised.

    An item, by the key (epoch, position), is x, float32 (channels, H, W), and its targets, float32
    (lead_steps, channels, H, W), 6 h apart. H leaves out the southernmost row, and of 21 channels
    the last is left out. A year contributes its first `samples_per_year` times; targets may be in
    the next year's file, if it is one of `known_years` (by default `years`), whatever else is in the
    folder. A sample whose targets are not there is an error that names the year
    (InputError), or left out if `require_targets` is false.

    Each process opens a year once.
    """

    def __init__(
        self,
        folder: Path | str,
        years: Iterable[int],
        lead_steps: int,
        samples_per_year: int,
        require_targets: bool = True,
        known_years: Iterable[int] | None = None,
    ) -> None:
        folder, years = Path(folder), list(years)
        known = set(years if known_years is None else known_years)
        read = {*years, *(year + 1 for year in years if year + 1 in known)}
        self._files = {year: read_layout(folder, year) for year in sorted(read)}
        self._samples: list[tuple[int, int]] = []  # (year, time in it)
        self._open: dict[tuple[int, int], h5py.Dataset] = {}  # by process and year
        self.lead_steps = lead_steps
        for year in years:
            usable = min(samples_per_year, self._steps_with_targets(year))
            if require_targets and usable < samples_per_year:
                raise InputError(
                    f"{self._files[year].path}: year {year} has {usable} samples with targets "
                    f"{lead_steps * STEP_H} h ahead, {samples_per_year} are needed; give it more "
                    f"times, or {year + 1} to the dataset, or lower samples_per_year"
                )
            self._samples += [(year, step) for step in range(usable)]
        if not self._samples:
            raise InputError(f"{folder}: no ERA5 samples in the years {years}")
        shapes = {
            (min(file.channels, len(CHANNELS)), file.latitudes - 1, file.longitudes)
            for file in self._files.values()
        }
        if len(shapes) > 1:
            raise InputError(f"{folder}: years have different grids or channels: {sorted(shapes)}")
        (self.shape,) = shapes

    def _steps_with_targets(self, year: int) -> int:
        file, following = self._files[year], self._files.get(year + 1)
        continued = following is not None and file.steps == len(year_times(year))
        steps = file.steps + (following.steps if following and continued else 0)
        return min(file.steps, max(0, steps - self.lead_steps))

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, key: Key) -> tuple[torch.Tensor, ...]:
        _, position = key
        fields = torch.empty(1 + self.lead_steps, *self.shape)
        year, step = self._samples[position]
        for field in fields.numpy():
            if step == self._files[year].steps:
                year, step = year + 1, 0
            self._read(year, step, field)
            step += 1
        return fields[0], fields[1:]

    def _read(self, year: int, step: int, out: np.ndarray) -> None:
        """Read a step's first channels and rows straight into `out`, float32 (channels, H, W)."""
        channels, rows, _ = self.shape
        try:
            self._fields(year).read_direct(out, np.s_[step, :channels, :rows])
        except (OSError, KeyError) as error:
            path = self._files[year].path
            raise InputError(f"{path}: step {step} cannot be read ({error})") from error

    def _fields(self, year: int) -> h5py.Dataset:
        # HDF5 handles do not survive a fork: each process opens its files.
        key = os.getpid(), year
        if key not in self._open:
            self._open[key] = h5py.File(self._files[year].path, "r")["fields"]
        return self._open[key]

    @property
    def latitude(self) -> np.ndarray:
        """Degrees north of the rows used, float64 (H,)."""
        with h5py.File(next(iter(self._files.values())).path, "r") as file:
            return file["latitude"][:-1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": {}}


# --- statistics -----------------------------------------------------------------------------------


def load_statistics(folder: Path | str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every channel over the training years, float32 (20,)."""
    statistics = read_json_object(Path(folder) / STATISTICS, "mean", "sd")
    return np.array(statistics["mean"], np.float32), np.array(statistics["sd"], np.float32)


def load_climatology(folder: Path | str) -> np.ndarray:
    """Mean z500 of the training years, float32 (latitude, longitude) in m²/s², all latitudes."""
    with h5py.File(Path(folder) / CLIMATOLOGY, "r") as file:
        return file["z500"][...]
