"""ERA5 for FourCastNet: preparation into yearly HDF5 files, statistics, and their reader.

Prepared form, one file `<year>.h5` a year: `fields` float32 (time, channel, latitude, longitude),
contiguous and uncompressed, not normalised; `time` int64 (Unix seconds), `latitude` descending,
`longitude`; attributes say which channels, from where, and what relative humidity is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import torch
from torch.utils.data import Dataset

from scalewatt.datasets.era5_times import STEP_H, all_years, part_years, year_times
from scalewatt.errors import InputError
from scalewatt.files import atomic_path, write_json

if TYPE_CHECKING:
    import xarray as xr

CHANNEL_SOURCES: dict[str, tuple[str, int | None]] = {
    "u10": ("10m_u_component_of_wind", None),
    "v10": ("10m_v_component_of_wind", None),
    "t2m": ("2m_temperature", None),
    "sp": ("surface_pressure", None),
    "msl": ("mean_sea_level_pressure", None),
    "t850": ("temperature", 850),
    "u1000": ("u_component_of_wind", 1000),
    "v1000": ("v_component_of_wind", 1000),
    "z1000": ("geopotential", 1000),
    "u850": ("u_component_of_wind", 850),
    "v850": ("v_component_of_wind", 850),
    "z850": ("geopotential", 850),
    "u500": ("u_component_of_wind", 500),
    "v500": ("v_component_of_wind", 500),
    "z500": ("geopotential", 500),
    "t500": ("temperature", 500),
    "z50": ("geopotential", 50),
    "r500": ("relative_humidity", 500),
    "r850": ("relative_humidity", 850),
    "tcwv": ("total_column_water_vapour", None),
}
"""Variable (WeatherBench 2's and ARCO-ERA5's name) and pressure level (hPa) of every channel."""

CHANNELS = tuple(CHANNEL_SOURCES)
STATISTICS = "statistics.json"
BLOCK_BYTES = 256 * 2**20  # of one variable, read at once
STEP_S = STEP_H * 3600


# --- preparation --------------------------------------------------------------------------------


def prepare(
    store_url: str, folder: Path | str, definition: dict[str, Any], source: str | None = None
) -> None:
    """Write the yearly files that `definition` needs and their statistics into `folder`.

    Finished years are kept, so that an interrupted preparation goes on. `source` is recorded as
    the data's origin (default: `store_url`). InputError names what the store lacks.
    """
    folder = Path(folder)
    new = [year for year in all_years(definition) if not (folder / f"{year}.h5").exists()]
    for year in new:
        times = year_times(year, definition["samples_per_year"])
        prepare_year(store_url, year, folder / f"{year}.h5", times=times, source=source)
    check_years(folder, definition)
    train_years = part_years(definition, "train")
    if set(new) & set(train_years) or _statistics_years(folder) != list(train_years):
        write_statistics(folder, train_years)


def prepare_year(
    store_url: str,
    year: int,
    out_path: Path | str,
    *,
    times: np.ndarray | None = None,
    source: str | None = None,
) -> None:
    """Write one year of an ERA5 Zarr store (path or fsspec URL) as HDF5, all or nothing.

    `times` defaults to the whole year, 6-hourly. Everything is selected by label; a store may
    hold more times, levels and variables, and latitude in either direction. Missing variables,
    levels or times and values that are not finite are refused by name and date (InputError).
    """
    times = year_times(year) if times is None else times
    with open_store(store_url) as store:
        _check_store(store, store_url, times)
        latitude = np.sort(store["latitude"].values)[::-1].astype(np.float64)
        longitude = store["longitude"].values.astype(np.float64)
        from_fraction, units = _relative_humidity(store, store_url, times[:1])
        with atomic_path(out_path) as temporary, h5py.File(temporary, "w") as file:
            shape = (len(times), len(CHANNELS), len(latitude), len(longitude))
            fields = file.create_dataset("fields", shape, np.float32)
            file["time"] = times.astype("datetime64[s]").astype(np.int64)
            file["latitude"], file["longitude"] = latitude, longitude
            file.attrs["channels"] = list(CHANNELS)
            file.attrs["source"] = source or store_url
            file.attrs["relative_humidity"] = "%"
            file.attrs["relative_humidity_source_units"] = units
            file.attrs["relative_humidity_converted_from_fraction"] = from_fraction
            for variable, channels in _channels_by_variable().items():
                scale = 100 if variable == "relative_humidity" and from_fraction else 1
                levels = [CHANNEL_SOURCES[CHANNELS[channel]][1] for channel in channels]
                selection = _by_level(store, variable, levels)
                for first, block in _blocks(selection, times):
                    _check_finite(block, store_url, variable, levels, times[first:])
                    for channel, field in zip(channels, block.swapaxes(0, 1), strict=True):
                        fields[first : first + len(block), channel] = field * np.float32(scale)


def open_store(store_url: str) -> xr.Dataset:
    """Open a Zarr store lazily, without dask."""
    import xarray as xr

    try:
        return xr.open_dataset(store_url, engine="zarr", chunks=None)
    except Exception as error:  # whatever fsspec's many file systems raise
        raise InputError(f"ERA5 store {store_url}: cannot be opened as Zarr ({error})") from error


def _channels_by_variable() -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for channel, (variable, _) in enumerate(CHANNEL_SOURCES.values()):
        groups.setdefault(variable, []).append(channel)
    return groups


def _check_store(store: xr.Dataset, url: str, times: np.ndarray) -> None:
    """InputError unless the store has every coordinate, variable, level and time needed."""
    wanted = {variable for variable, _ in CHANNEL_SOURCES.values()}
    names = sorted(wanted - set(store.data_vars))
    names += [n for n in ("time", "level", "latitude", "longitude") if n not in store.coords]
    if names:
        raise InputError(f"ERA5 store {url}: missing {', '.join(names)}")
    levels = {level for _, level in CHANNEL_SOURCES.values() if level is not None}
    if lacking := sorted(levels - set(store["level"].values.tolist())):
        raise InputError(f"ERA5 store {url}: missing levels {lacking} hPa")
    absent = np.setdiff1d(times, store["time"].values)
    if len(absent):
        shown = ", ".join(str(time)[:16] for time in absent[:5])
        more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
        raise InputError(f"ERA5 store {url}: missing {len(absent)} times: {shown}{more}")


def _by_level(store: xr.Dataset, variable: str, levels: list[int | None]) -> xr.DataArray:
    """The variable as (time, level, latitude descending, longitude), still lazy."""
    array = store[variable]
    array = array.expand_dims("level") if levels == [None] else array.sel(level=levels)
    if array["latitude"][0] < array["latitude"][-1]:
        array = array.isel(latitude=slice(None, None, -1))
    return array.transpose("time", "level", "latitude", "longitude")


def _blocks(array: xr.DataArray, times: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(first time's position, float32 block) over `times`; a block's size is bounded."""
    steps = max(1, BLOCK_BYTES // (4 * int(np.prod(array.shape[1:]))))
    for first in range(0, len(times), steps):
        now = times[first : first + steps]
        try:
            block = np.asarray(array.sel(time=now).values, np.float32)
        except Exception as error:  # whatever codecs and file systems raise
            raise InputError(
                f"ERA5 store: {array.name} cannot be read "
                f"from {str(now[0])[:16]} to {str(now[-1])[:16]} ({error})"
            ) from error
        yield first, block


def _check_finite(
    block: np.ndarray, url: str, variable: str, levels: list[int | None], times: np.ndarray
) -> None:
    """InputError with names and dates unless all of (time, level, …) is finite."""
    bad = ~np.isfinite(block).all(axis=(2, 3))
    if bad.any():
        dates = ", ".join(str(times[step])[:16] for step in np.flatnonzero(bad.any(axis=1))[:5])
        at = [level for level, wrong in zip(levels, bad.any(axis=0), strict=True) if wrong]
        where = "" if at == [None] else f" at {', '.join(map(str, at))} hPa"
        raise InputError(f"ERA5 store {url}: {variable}{where} has missing values on {dates}")


def _relative_humidity(store: xr.Dataset, url: str, times: np.ndarray) -> tuple[bool, str]:
    """Whether the store's relative humidity is a fraction, judged by its values; its units.

    A field in percent exceeds 2 somewhere on every globe, a fraction nowhere.
    """
    array = store["relative_humidity"].sel(time=times, level=500)
    largest, units = float(array.max()), str(array.attrs.get("units", "unknown"))
    if not 0 < largest <= 250:
        raise InputError(
            f"ERA5 store {url}: relative_humidity at 500 hPa reaches {largest:g}; "
            "allowed are percent (0–100, a little over is possible) or a fraction (0–1)"
        )
    return largest <= 2, units


# --- statistics ---------------------------------------------------------------------------------


def write_statistics(folder: Path, years: Iterable[int]) -> None:
    """Mean and population sd of each channel over all values of the years' files, unweighted.

    One pass in float64, blocks merged by the formula of Chan, Golub and LeVeque (1979).
    """
    years = list(years)
    count, mean, squares = 0, np.zeros(len(CHANNELS)), np.zeros(len(CHANNELS))
    for year in years:
        with h5py.File(folder / f"{year}.h5", "r") as file:
            fields = file["fields"]
            steps = max(1, BLOCK_BYTES // (8 * int(np.prod(fields.shape[1:]))))
            for first in range(0, len(fields), steps):
                block = fields[first : first + steps].astype(np.float64)
                size = block[:, 0].size
                block_mean = block.mean(axis=(0, 2, 3))
                block -= block_mean[:, None, None]
                difference = block_mean - mean
                squares += np.einsum("tcij,tcij->c", block, block)
                squares += difference**2 * (count * size / (count + size))
                mean += difference * (size / (count + size))
                count += size
    sd = np.sqrt(squares / count)
    if constant := [name for name, s in zip(CHANNELS, sd, strict=True) if s == 0]:
        raise InputError(f"{folder}: {', '.join(constant)} never changes in the training years")
    write_json(
        folder / STATISTICS,
        {
            "channels": list(CHANNELS),
            "years": years,
            "values_per_channel": count,
            "mean": mean.tolist(),
            "sd": sd.tolist(),
        },
    )


def load_statistics(folder: Path | str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every channel, float32 (20,)."""
    statistics = json.loads((Path(folder) / STATISTICS).read_text(encoding="utf-8"))
    return np.array(statistics["mean"], np.float32), np.array(statistics["sd"], np.float32)


def _statistics_years(folder: Path) -> list[int] | None:
    path = folder / STATISTICS
    return json.loads(path.read_text(encoding="utf-8"))["years"] if path.exists() else None


# --- reading ------------------------------------------------------------------------------------


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
