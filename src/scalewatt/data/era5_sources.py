"""ERA5 as it is distributed: Zarr stores, netCDF and GRIB files, and the original project's yearly HDF5.

Each source becomes arrays of xarray with one set of names, of which only labels are read when it is
opened, and a table of where each field is: in which array, at which level and time.
"""

from __future__ import annotations

import glob
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from scalewatt.common.errors import InputError
from scalewatt.data.era5 import CHANNEL_COUNTS, CHANNEL_OF, SHORT_NAMES, year_times

OF_ZARR = (".zgroup", ".zattrs", ".zmetadata", "zarr.json")
"""Files of which a Zarr store has one, in versions 2 and 3."""
DIMENSIONS = {"valid_time": "time", "pressure_level": "level", "isobaricInhPa": "level"}
COORDINATES = ("time", "level", "latitude", "longitude", "expver", "number")

CHANNELS_OF = {
    variable: {c.level: n for n, c in enumerate(CHANNEL_OF.values()) if c.variable == variable}
    for variable in dict.fromkeys(SHORT_NAMES.values())
}
"""Numbers of the channels, by variable and level."""
ALOFT = {variable for variable, levels in CHANNELS_OF.items() if None not in levels}

ECMWF_HUMIDITY = "water above 0 °C, ice below -23 °C, both between (ECMWF)"
"""What the relative humidity of ECMWF's own files is defined over."""

BLOCK_BYTES = 64 * 2**20
"""Read and decoded at once: several chunks, because a request takes long at a remote store."""

Field = tuple[int, int, np.ndarray]
"""Channel, step, and values float32 (latitude, longitude) as stored."""


@dataclass
class Source:
    """Arrays of variables on one grid; `name` begins the messages, an array's `file` names it."""

    name: str
    arrays: list[xr.DataArray]
    humidity_over: str | None = None
    """What relative humidity is defined over; None if it is to be judged by its unit."""
    link: tuple[Path, int] | None = None
    """The file whose `fields` are used in place, and their steps; None to copy them."""
    parts: list[Part] = field(default_factory=list)


@dataclass
class Part:
    """The fields of one array that are needed: `channels` along its levels, `steps` along its times."""

    array: xr.DataArray
    channels: list[int]
    steps: list[int]


def open_source(store: str, year: int, times: np.ndarray, grid: Sequence[int] | None) -> Source:
    """Open a source, and find each channel at these times of the year.

    A source is patterns of GRIB and netCDF files, a folder of the original project's years, or a Zarr store.
    """
    if any("*" in word or word.endswith((".nc", ".grib")) for word in store.split()):
        source = open_files(store.split())
    elif Path(store).is_dir() and not any((Path(store) / name).exists() for name in OF_ZARR):
        source = open_original(Path(store), year, times, grid)
    else:
        source = open_zarr(store)
    source.parts = find_fields(source, times)
    return source


# --- fields ---------------------------------------------------------------------------------------


def find_fields(source: Source, times: np.ndarray) -> list[Part]:
    """Find every channel at each time; InputError names what is missing or there twice."""
    parts = []
    count = np.zeros((len(CHANNEL_OF), len(times)), int)
    for array in source.arrays:
        needed = CHANNELS_OF[str(array.name)]
        levels = [(at, level) for at, level in enumerate(_levels(array)) if level in needed]
        labels = np.atleast_1d(array["time"].values)
        positions = np.flatnonzero(np.isin(labels, times))
        if levels and positions.size:
            channels = [needed[level] for _, level in levels]
            steps = np.searchsorted(times, labels[positions])
            np.add.at(count, np.ix_(np.array(channels), steps), 1)
            where = {"level": _index(np.array([at for at, _ in levels])), "time": _index(positions)}
            parts.append(Part(array.isel(where, missing_dims="ignore"), channels, steps.tolist()))

    for number, step in np.argwhere(count > 1)[:1]:
        files = {part.array.attrs["file"] for part in parts_of(parts, number, step)}
        raise InputError(
            f"{source.name}: has {[*CHANNEL_OF.values()][number]} on {_minute(times[step])} more than "
            f"once, in {' and '.join(sorted(files))}"
        )
    for channel, missing in zip(CHANNEL_OF.values(), count == 0, strict=True):
        if missing.all():
            hint = "; ARCO-ERA5 has only specific humidity, WeatherBench 2's stores have relative"
            hint = hint if channel.variable == "relative_humidity" else ""
            raise InputError(f"{source.name}: missing {channel}{hint}")
        if missing.any():
            shown = ", ".join(map(_minute, times[missing][:5]))
            raise InputError(
                f"{source.name}: missing {channel} on {shown} (times: {missing.sum()})"
            )
    return parts


def parts_of(parts: list[Part], channel: int, step: int) -> list[Part]:
    """Parts that have a channel at a step."""
    return [part for part in parts if channel in part.channels and step in part.steps]


def read_field(source: Source, channel: int, step: int) -> np.ndarray:
    """Read a channel at a step, float32 (latitude, longitude)."""
    (part,) = parts_of(source.parts, channel, step)
    level, time = part.channels.index(channel), part.steps.index(step)
    return _read(part.array, slice(level, level + 1), slice(time, time + 1))[0, 0]


def read_variable(source: Source, variable: str) -> Iterator[list[Field]]:
    """Read the fields of a variable, as stored, a block of one array after another."""
    for part in source.parts:
        if part.array.name == variable:
            length = _block_length(part)
            for first in range(0, len(part.steps), length):
                block = slice(first, first + length)
                stacks = _read(part.array, slice(None), block)
                yield [
                    (channel, step, values)
                    for channel, stack in zip(part.channels, stacks, strict=True)
                    for step, values in zip(part.steps[block], stack, strict=True)
                ]


def _block_length(part: Part) -> int:
    """Times of a block: of about BLOCK_BYTES, or of a chunk if that is not much larger."""
    sizes, chunks = part.array.sizes, part.array.encoding.get("preferred_chunks") or {}
    chunk = chunks.get("time", chunks.get("valid_time", 1))
    times = BLOCK_BYTES // (4 * sizes["latitude"] * sizes["longitude"] * len(part.channels))
    return max(1, times, min(chunk, 2 * times))


def _read(array: xr.DataArray, levels: slice, times: slice) -> np.ndarray:
    """Read float32 (level, time, latitude, longitude), NaN where missing."""
    try:
        block = array.isel({"level": levels, "time": times}, missing_dims="ignore").load()
        if "expver" in block.dims:  # final values (1) come before preliminary ones (5)
            order = np.argsort(block["expver"].values.astype(int))
            versions = [block.isel(expver=at, drop=True) for at in order]
            block = reduce(lambda values, others: values.fillna(others), versions)
    except Exception as error:  # whatever codecs and file systems raise
        known = np.atleast_1d(array["time"].values)[times]
        raise InputError(
            f"{array.attrs['file']}: {array.name} cannot be read from {_minute(known[0])} to "
            f"{_minute(known[-1])} ({error or type(error).__name__})"
        ) from error
    block = block.expand_dims([name for name in ("level", "time") if name not in block.dims])
    fields = block.transpose("level", "time", "latitude", "longitude").values
    return fields.astype(np.float32, copy=False)


def _index(positions: np.ndarray) -> slice | np.ndarray:
    """Give positions as a slice where they are evenly spaced, which is read faster."""
    steps = np.diff(positions)
    if (steps > 0).all() and (steps == steps[:1]).all():
        step = int(steps[0]) if len(steps) else 1
        return slice(int(positions[0]), int(positions[-1]) + 1, step)
    return positions


def _levels(array: xr.DataArray) -> list[int | None]:
    """Pressure levels in hPa, from hPa or Pa; None alone at the surface."""
    if array.name not in ALOFT:
        return [None]
    factor = 0.01 if array["level"].attrs.get("units") == "Pa" else 1
    return [round(level * factor) for level in np.atleast_1d(array["level"].values).astype(float)]


def _minute(time: Any) -> str:
    return str(np.datetime64(time, "ns"))[:16]


# --- labels ---------------------------------------------------------------------------------------


def normalise(dataset: xr.Dataset, name: str) -> list[xr.DataArray]:
    """Arrays of the variables that are needed, with our names of variables and dimensions."""
    if {"time", "valid_time"} <= dataset.variables.keys():  # of two times, the valid one counts
        valid = dataset["valid_time"]
        dataset = dataset.drop_vars(["time", "valid_time"])
        dataset = dataset.assign_coords(time=(valid.dims, valid.values))
    names = {
        old: new for old, new in (DIMENSIONS | SHORT_NAMES).items() if old in dataset.variables
    }
    dataset = dataset.rename({o: new for o, new in names.items() if new not in dataset.variables})
    dataset = dataset.set_coords([n for n in COORDINATES if n in dataset.variables])

    variables = CHANNELS_OF.keys() & set(map(str, dataset.data_vars))
    absent = [n for n in ("time", "latitude", "longitude") if n not in dataset.coords]
    if variables and absent:
        raise InputError(f"{name}: missing {', '.join(absent)}")
    arrays = []
    for variable in sorted(variables):
        array = dataset[variable].assign_attrs(file=name)
        array["time"] = array["time"].astype("datetime64[ns]")
        if variable in ALOFT and "level" not in array.coords:
            continue  # `z` without levels is orography
        known = {*COORDINATES} - {"number"} - ({"level"} if variable not in ALOFT else set())
        others = {*array.dims} - known
        if members := [dimension for dimension in others if array.sizes[dimension] > 1]:
            raise InputError(
                f"{name}: {variable} has {array.sizes[members[0]]} along {members[0]}; needed is 1"
            )
        arrays.append(array.isel(dict.fromkeys(others, 0), drop=True))
    return arrays


# --- Zarr and netCDF ------------------------------------------------------------------------------


def open_zarr(url: str) -> Source:
    """Open a store of version 2 or 3 at a path or any fsspec URL; InputError if it cannot be read."""
    from zarr.storage import FsspecStore, LocalStore

    name, kind = f"ERA5 store {url}", FsspecStore.from_url if "://" in url else LocalStore
    try:
        store = kind(url, read_only=True)
    except Exception as error:  # each file system has its own
        raise InputError(f"{name}: cannot be read as Zarr ({error})") from error
    return Source(name, _open(_strict(store), "zarr", name))


def _strict(store: Any) -> Any:
    """Wrap a store so that a missing chunk is an error and not a field of fill values."""
    from zarr.storage import WrapperStore

    metadata = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")

    class StrictStore(WrapperStore):
        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            value = await self._store.get(key, prototype, byte_range)
            if value is None and not key.endswith(metadata):
                raise RuntimeError(f"chunk {key} is missing")
            return value

    return StrictStore(store)


def _open(store: Any, engine: str, name: str) -> list[xr.DataArray]:
    """Open with labels decoded and values left where they are; InputError if it cannot be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # consolidated metadata, of which some stores have none
            dataset = xr.open_dataset(store, engine=engine, cache=False, decode_cf=False)
        for variable in dataset.variables.values():
            for key in ("_FillValue", "missing_value"):
                # NaN is missing as it is: masking would copy each field.
                if np.all(pd.isna(variable.attrs.get(key, 0))):
                    del variable.attrs[key]
        dataset = xr.decode_cf(dataset, decode_timedelta=False)
    except Exception as error:  # each engine and file system has many
        kind = "Zarr" if engine == "zarr" else "netCDF"
        raise InputError(f"{name}: cannot be read as {kind} ({error})") from error
    return normalise(dataset, name)


# --- GRIB -----------------------------------------------------------------------------------------

GRIB_KEYS = (
    *("shortName", "typeOfLevel", "level", "validityDate", "validityTime", "offset", "totalLength"),
)
GRIB_ORDER = ("iScansNegatively", "jPointsAreConsecutive", "alternativeRowScanning")
GRIB_GRID = (
    *("Nj", "latitudeOfFirstGridPointInDegrees", "latitudeOfLastGridPointInDegrees"),
    *("Ni", "longitudeOfFirstGridPointInDegrees", "longitudeOfLastGridPointInDegrees"),
)


def open_grib(path: Path) -> list[xr.DataArray]:
    """List a file's messages by their headers; InputError if it is torn or its grid is not regular."""
    headers = pd.DataFrame(_headers(path), columns=[*GRIB_KEYS, *GRIB_GRID])
    headers["variable"] = headers["shortName"].map(SHORT_NAMES)
    headers.loc[headers["typeOfLevel"] != "isobaricInhPa", "level"] = 0
    arrays = []
    for key, rows in headers.groupby(["variable", "level", *GRIB_GRID]):
        labels: Any = key
        variable, level, height, north, south, width, west, east = labels
        if (variable in ALOFT) != bool(level):
            continue
        stamps = rows["validityDate"].map("{:08d}".format) + rows["validityTime"].map(
            "{:04d}".format
        )
        coordinates = {
            "time": pd.to_datetime(stamps, format="%Y%m%d%H%M").to_numpy("datetime64[ns]"),
            "latitude": np.linspace(north, south, height),
            "longitude": np.linspace(west, east if east >= west else east + 360, width),
        }
        spans = rows[["offset", "totalLength"]].to_numpy(int)
        values = indexing.LazilyIndexedArray(Messages(path, spans, (height, width)))
        array = xr.DataArray(xr.Variable([*coordinates], values), coordinates, name=variable)
        arrays.append(array.assign_coords(level=level).assign_attrs(file=str(path)))
    return arrays


def _headers(path: Path) -> Iterator[list[Any]]:
    """Yield the values of GRIB_KEYS and GRIB_GRID for each message of a variable that is needed."""
    import eccodes

    with path.open("rb") as file:
        for number in count():
            try:
                handle = eccodes.codes_grib_new_from_file(file, headers_only=True)
            except eccodes.CodesInternalError as error:
                raise InputError(
                    f"{path}: not a whole GRIB file after {number} messages ({error})"
                ) from error
            if handle is None:
                return
            if (name := eccodes.codes_get(handle, "shortName")) in SHORT_NAMES:
                kind = eccodes.codes_get(handle, "gridType")
                if kind != "regular_ll" or any(eccodes.codes_get(handle, k) for k in GRIB_ORDER):
                    raise InputError(
                        f"{path}: the grid of {name} is {kind}, or not row by row from west to east; "
                        "needed is a regular latitude-longitude grid"
                    )
                yield [eccodes.codes_get(handle, key) for key in (*GRIB_KEYS, *GRIB_GRID)]
            eccodes.codes_release(handle)


class Messages(BackendArray):
    """Messages of a file, (time, latitude, longitude), which are decoded when they are read."""

    def __init__(self, path: Path, spans: np.ndarray, grid: tuple[int, int]) -> None:
        self.path, self.spans = path, spans
        self.shape, self.dtype = (len(spans), *grid), np.dtype(np.float32)

    def __getitem__(self, key: Any) -> Any:
        support = indexing.IndexingSupport.BASIC  # slices of messages
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._decode)

    def _decode(self, key: tuple[Any, ...]) -> np.ndarray:
        import eccodes

        fields = np.empty((len(self.spans[key[0]]), *self.shape[1:]), self.dtype)
        with self.path.open("rb") as file:
            for field, (offset, size) in zip(fields, self.spans[key[0]], strict=True):
                file.seek(offset)
                handle = eccodes.codes_new_from_message(file.read(size))
                eccodes.codes_set(handle, "missingValue", np.nan)
                field[...] = eccodes.codes_get_values(handle).reshape(field.shape)
                eccodes.codes_release(handle)
        return fields[:, *key[1:]]


# --- many files -----------------------------------------------------------------------------------


def open_files(patterns: Sequence[str]) -> Source:
    """Open all GRIB and netCDF files that the patterns match, split in whatever way."""
    paths = {pattern: glob.glob(pattern, recursive=True) for pattern in patterns}
    if empty := [pattern for pattern, matches in paths.items() if not matches]:
        raise InputError(f"{empty[0]}: matches no ERA5 file")
    files = sorted({Path(path) for matches in paths.values() for path in matches})
    arrays = [array for path in files if path.is_file() for array in open_file(path)]
    for array in arrays:
        for axis in ("latitude", "longitude"):
            some, others = arrays[0][axis].values, array[axis].values
            if some.shape != others.shape or not np.allclose(some, others, atol=1e-4):
                raise InputError(
                    f"{array.attrs['file']}: is on another grid than {arrays[0].attrs['file']}"
                )
    return Source(f"ERA5 files {', '.join(patterns)}", arrays, humidity_over=ECMWF_HUMIDITY)


def open_file(path: Path) -> list[xr.DataArray]:
    """Open a GRIB, netCDF-3 or netCDF-4 file; InputError if it is none, or torn."""
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"GRIB":
        return open_grib(path)
    engine = {b"CDF": "scipy", b"\x89HD": "h5netcdf"}.get(start[:3])
    if engine is None:
        raise InputError(f"{path}: neither GRIB nor netCDF (it begins with {start!r})")
    return _open(path, engine, str(path))


# --- yearly files of the original project ---------------------------------------------------------


def open_original(folder: Path, year: int, times: np.ndarray, grid: Sequence[int] | None) -> Source:
    """Open `<year>.h5`, in the folder or one below it (train, test, out_of_sample), to be used in place.

    It has `fields` float32 (time, channel, latitude, longitude) and no labels: 20 channels in our
    order, or 21 of which the last is not used; 6-hourly from 1 January 00:00, north to south, 0° to
    360°. InputError if it is missing, torn, too short, or has another shape.
    """
    paths = sorted((*folder.glob(f"{year}.h5"), *folder.glob(f"*/{year}.h5")))
    if len(paths) != 1:
        raise InputError(
            f"{folder}: needed is a Zarr store, or one {year}.h5, in it or a folder below, not {len(paths)}"
        )
    path = paths[0]
    try:
        fields = xr.open_dataset(path, engine="h5netcdf", cache=False, phony_dims="sort")["fields"]
    except Exception as error:  # h5py has many for damaged files
        raise InputError(f"{path}: not a readable yearly ERA5 file ({error})") from error
    shape = fields.shape
    right = len(shape) == 4 and shape[1] in CHANNEL_COUNTS and fields.dtype == np.float32
    if not right or (grid is not None and shape[2:] != (grid[0] + 1, grid[1])):
        size = "latitude, longitude" if grid is None else f"{grid[0] + 1}, {grid[1]}"
        raise InputError(
            f"{path}: fields is {fields.dtype} {shape}; needed is float32 (time, 20 or 21, {size})"
        )
    steps = year_times(year)
    if not len(times) <= shape[0] <= len(steps):
        raise InputError(
            f"{path}: has {shape[0]} steps; needed are at least {len(times)} (those of "
            f"samples_per_year and the two after them) of the {len(steps)} 6-hourly steps of {year}"
        )
    names = ("time", "channel", "latitude", "longitude")
    fields = fields.rename(dict(zip(fields.dims, names, strict=True))).assign_coords(
        time=steps[: shape[0]],
        latitude=np.linspace(90, -90, shape[2]),
        longitude=np.arange(shape[3]) * (360 / shape[3]),
    )
    arrays = [
        fields.isel(channel=number)
        .assign_coords(level=channel.level)
        .assign_attrs(file=str(path))
        .rename(channel.variable)
        for number, channel in enumerate(CHANNEL_OF.values())
    ]
    link = path.resolve(), shape[0]
    return Source(str(path), arrays, humidity_over=ECMWF_HUMIDITY, link=link)
