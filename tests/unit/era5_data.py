"""Small global fields with ERA5's names, in which every value says when and where it is of."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from scalewatt.data.demo import year_dataset
from scalewatt.data.era5 import CHANNEL_OF, CHANNELS, year_times
from scalewatt.data.era5_sources import SHORT_NAMES

DEFINITION = {
    "name": "era",
    "format": "era5",
    "source": "data_root",
    "grid": [4, 8],
    "train_years": [1999, 2000],
    "validation_years": [2001, 2001],
    "test_years": [2002, 2002],
    "samples_per_year": 6,
}
TIMES = year_times(2000, 6)


def marked_store(years=(1999, 2000, 2001, 2002), steps=8) -> xr.Dataset:
    """ERA5-named fields in which every value says which time, level and latitude it is of."""
    return _marked_store(years, steps).copy(deep=True)


@cache
def _marked_store(years, steps):
    times = np.concatenate([year_times(year)[:steps] for year in years])
    template = year_dataset(DEFINITION | {"samples_per_year": 1}, 1999).isel(time=0, drop=True)
    store = template.expand_dims(time=times).copy(deep=True)
    hours = (times - np.datetime64("1999-01-01")) / np.timedelta64(1, "h")
    spot = store.latitude * 0.999 + store.longitude / 1000
    mark = (xr.DataArray(hours % 700, dims="time") + spot) / 1000  # -0.09 to 0.79
    for name in store.data_vars:
        dims = store[name].dims
        channels = [channel for channel in CHANNEL_OF.values() if channel.variable == name]
        levels = [channel.level for channel in channels]
        ranges = [(channel.low, channel.high) for channel in channels]
        if name == "relative_humidity":
            ranges = [(5.0, 95.0)] * len(levels)
        values = [low + (high - low) * (0.1 + mark) for low, high in ranges]
        whole = values[0] if levels == [None] else xr.concat(values, "level")
        if levels != [None]:
            whole = whole.assign_coords(level=levels).reindex(level=store.level, fill_value=7)
        store[name] = whole.transpose(*dims).astype(np.float32).assign_attrs(store[name].attrs)
    return store


def write(store: xr.Dataset, path: Path, **options) -> str:
    """Write a Zarr store; version 2 with consolidated metadata if not told else."""
    store.to_zarr(path, mode="w", **({"zarr_format": 2, "consolidated": True} | options))
    return str(path)


def fields(path: Path) -> np.ndarray:
    """(time, channel, latitude, longitude) of a prepared year."""
    with h5py.File(path) as file:
        return file["fields"][:]


def expected_fields(store: xr.Dataset, times: np.ndarray) -> np.ndarray:
    """What a prepared year of the store must hold."""
    channels = [
        store[c.variable].sel(time=times, **({} if c.level is None else {"level": c.level})).values
        for c in CHANNEL_OF.values()
    ]
    return np.stack(channels, axis=1)


def short_name(variable: str) -> str:
    """What GRIB calls a variable."""
    return next(short for short, long in SHORT_NAMES.items() if long == variable)


def original_fields(steps: int, channels: int, grid: tuple[int, int]) -> np.ndarray:
    """Fields as in the original project's files, from an Earth with Tibet and Antarctica."""
    rows, columns = grid
    store = year_dataset(DEFINITION | {"grid": [rows, columns], "samples_per_year": 10}, 1999)
    values = np.resize(
        expected_fields(store, store.time.values), (steps, len(CHANNELS), rows + 1, columns)
    )
    values += np.arange(steps, dtype=np.float32)[:, None, None, None] / 1000
    pressure = values[:, CHANNELS.index("sp")]
    latitude = np.linspace(90, -90, rows + 1)[:, None]
    longitude = np.arange(columns) * 360 / columns
    pressure[:, np.broadcast_to(latitude < -75, (rows + 1, columns))] = 68_000
    pressure[:, (np.abs(latitude - 33) < 15) & (np.abs(longitude - 90) < 20)] = 55_000
    more = values[:, :1].repeat(channels - len(CHANNELS), axis=1)
    return np.concatenate([values, more], axis=1)
