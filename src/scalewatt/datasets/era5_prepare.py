"""ERA5 for FourCastNet: preparation into yearly HDF5 files.

Prepared form, one file `<year>.h5` a year: `fields` float32 (time, channel, latitude, longitude),
contiguous and uncompressed, not normalised; `time` int64 (Unix seconds), `latitude` descending,
`longitude`; attributes say which channels, from where, and what relative humidity is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from scalewatt.datasets.era5 import check_years
from scalewatt.datasets.era5_channels import CHANNEL_SOURCES, CHANNELS
from scalewatt.datasets.era5_statistics import BLOCK_BYTES, statistics_years, write_statistics
from scalewatt.datasets.era5_times import all_years, part_years, year_times
from scalewatt.errors import InputError
from scalewatt.files import atomic_path

if TYPE_CHECKING:
    import xarray as xr


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
    if set(new) & set(train_years) or statistics_years(folder) != list(train_years):
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
