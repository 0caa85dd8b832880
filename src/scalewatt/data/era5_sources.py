"""ERA5 as it is distributed: Zarr stores, netCDF and GRIB files, and the original project's yearly HDF5.

Each source becomes arrays of xarray with one set of names. Only labels are read when it is opened.
"""

from __future__ import annotations

import glob
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from scalewatt.common.errors import InputError
from scalewatt.data.era5 import CHANNEL_COUNTS, CHANNEL_OF, CHANNELS, SHORT_NAMES, year_times

DIMENSIONS = {"valid_time": "time", "pressure_level": "level", "isobaricInhPa": "level"}
COORDINATES = ("time", "level", "latitude", "longitude", "expver", "number")

CHANNELS_OF = {
    variable: {c.level: n for n, c in enumerate(CHANNEL_OF.values()) if c.variable == variable}
    for variable in dict.fromkeys(SHORT_NAMES.values())
}
"""Numbers of the channels, by variable and level."""
CHANNELS_OF["fields"] = {number: number for number in range(len(CHANNEL_OF))}
"""Of the original project's files."""
ALOFT = {variable for variable, levels in CHANNELS_OF.items() if None not in levels}

ECMWF_HUMIDITY = "water above 0 °C, ice below -23 °C, both between (ECMWF)"
"""What the relative humidity of ECMWF's own files is defined over."""

FILES = (".nc", ".nc4", ".grib", ".grib2", ".grb", ".grb2")
BLOCK_BYTES = 64 * 2**20
"""Read and decoded at once: several chunks, because a request takes long at a remote store."""


@dataclass
class Source:
    """Arrays of variables on one grid; `name` begins the messages, an array's `file` names it."""

    name: str
    arrays: list[xr.DataArray]
    humidity_over: str | None = None
    """What relative humidity is defined over; None if it is to be judged by its unit."""
    link: Path | None = None
    """The file whose `fields` are used in place; None to copy them."""


class Part(NamedTuple):
    """The fields of one array that are needed: its levels are `channels`, its times `steps` of the year."""

    array: xr.DataArray
    channels: list[int]
    steps: np.ndarray


def open_source(store: str, year: int) -> Source:
    """Open patterns of GRIB and netCDF files, a folder of yearly HDF5 files, or a Zarr store."""
    if any("*" in word or word.endswith(FILES) for word in store.split()):
        return open_files(store.split())
    folder = Path(store)
    if folder.is_dir() and not any(path.name in METADATA for path in folder.iterdir()):
        return open_original(folder, year)
    return open_zarr(store)


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Raise InputError that begins with a name, whatever codecs and file systems raise."""
    try:
        yield
    except Exception as error:
        raise InputError(f"{name}: cannot be read ({error or type(error).__name__})") from error


# --- fields ---------------------------------------------------------------------------------------


def find_fields(source: Source, times: np.ndarray) -> list[Part]:
    """Find every channel at each time; InputError names what is missing or there twice."""
    parts = []
    count = np.zeros((len(CHANNEL_OF), len(times)), int)
    for array in source.arrays:
        channel_of, levels = CHANNELS_OF[str(array.name)], _levels(array)
        rows = [row for row, level in enumerate(levels) if level in channel_of]
        channels = [channel_of[levels[row]] for row in rows]
        labels = np.atleast_1d(array["time"].values)
        columns = np.flatnonzero(np.isin(labels, times))
        if rows and columns.size:
            steps = np.searchsorted(times, labels[columns])
            np.add.at(count, np.ix_(np.array(channels), steps), 1)
            needed = array.isel({"level": rows, "time": columns}, missing_dims="ignore")
            parts.append(Part(needed, channels, steps))

    for wrong, text in ((count > 1, "more than once:"), (count == 0, "missing")):
        for number in np.flatnonzero(wrong.any(axis=1)):
            channel, at = CHANNEL_OF[CHANNELS[number]], times[wrong[number]]
            shown = f"{', '.join(np.datetime_as_string(at[:5], 'm'))} (times: {len(at)})"
            raise InputError(f"{source.name}: {text} {channel.text} on {shown}")
    return parts


def read_fields(parts: list[Part]) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield channel, step and values as stored, float32 (latitude, longitude), of all fields.

    While the fields of a block of times of a part are used, the next block is read.
    """
    blocks = _read_blocks(parts)
    with ThreadPoolExecutor(1, thread_name_prefix="era5") as reader:
        coming = reader.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = reader.submit(next, blocks, None)
            for channel, fields, steps in block:
                for step, values in zip(steps, fields, strict=True):
                    yield channel, step, values


def _read_blocks(parts: list[Part]) -> Iterator[list[tuple[int, np.ndarray, np.ndarray]]]:
    for part in parts:
        # About BLOCK_BYTES, or a chunk if that is not much larger.
        sizes, chunks = part.array.sizes, part.array.encoding.get("preferred_chunks") or {}
        chunk = chunks.get("time", chunks.get("valid_time", 1))
        times = BLOCK_BYTES // (4 * sizes["latitude"] * sizes["longitude"] * len(part.channels))
        length = max(1, times, min(chunk, 2 * times))
        for first in range(0, len(part.steps), length):
            block = slice(first, first + length)
            fields = _read(part.array.isel({"time": block}, missing_dims="ignore"))
            yield [(*each, part.steps[block]) for each in zip(part.channels, fields, strict=True)]


def _read(block: xr.DataArray) -> np.ndarray:
    """Read float32 (level, time, latitude, longitude), NaN where missing."""
    times = np.datetime_as_string(np.atleast_1d(block["time"].values), "m")
    with _reading(f"{block.attrs['file']}: {block.name} from {times[0]} to {times[-1]}"):
        block = block.load()
    if "expver" in block.dims:  # final values (1) come before preliminary ones (5)
        order = np.argsort(block["expver"].values.astype(int))
        versions = [block.isel(expver=version, drop=True) for version in order]
        block = reduce(lambda values, others: values.fillna(others), versions)
    block = block.expand_dims([name for name in ("level", "time") if name not in block.dims])
    fields = block.transpose("level", "time", "latitude", "longitude").values
    return fields.astype(np.float32, copy=False)


def _levels(array: xr.DataArray) -> list[int | None]:
    """Pressure levels in hPa, from hPa or Pa; None alone at the surface."""
    if array.name not in ALOFT:
        return [None]
    factor = 0.01 if array["level"].attrs.get("units") == "Pa" else 1
    return [round(level * factor) for level in np.atleast_1d(array["level"].values).astype(float)]


# --- labels ---------------------------------------------------------------------------------------


def normalise(dataset: xr.Dataset, name: str) -> list[xr.DataArray]:
    """Arrays of the variables that are needed, with our names of variables and dimensions."""
    if {"time", "valid_time"} <= dataset.variables.keys():  # of two times, the valid one counts
        valid = dataset["valid_time"]
        dataset = dataset.drop_vars(["time", "valid_time"])
        dataset = dataset.assign_coords(time=(valid.dims, valid.values))
    known = dataset.variables.keys()
    names = {old: new for old, new in (DIMENSIONS | SHORT_NAMES).items() if old in known}
    dataset = dataset.rename({old: new for old, new in names.items() if new not in known})
    dataset = dataset.set_coords([n for n in COORDINATES if n in dataset.variables])

    variables = CHANNELS_OF.keys() & set(map(str, dataset.data_vars))
    absent = [n for n in ("time", "latitude", "longitude") if n not in dataset.coords]
    if variables and absent:
        raise InputError(f"{name}: missing {', '.join(absent)}")
    arrays = []
    for variable in sorted(variables):
        array = dataset[variable].assign_attrs(file=name)
        if variable in ALOFT and "level" not in array.coords:
            continue  # `z` without levels is orography
        array["time"] = array["time"].astype("datetime64[ns]")
        others = {*array.dims} - {"time", "latitude", "longitude", "expver"}
        others -= {"level"} if variable in ALOFT else set()
        with _reading(f"{name}: {variable}"):  # members of an ensemble are refused
            arrays.append(array.squeeze(others, drop=True))
    return arrays


# --- Zarr and netCDF ------------------------------------------------------------------------------

METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
"""Files of a Zarr store that are no chunks."""


def open_zarr(url: str) -> Source:
    """Open a store of version 2 or 3 at a path or any fsspec URL; InputError if it cannot be read."""
    from zarr.storage import FsspecStore, LocalStore, WrapperStore

    class StrictStore(WrapperStore):
        """A store in which a missing chunk is an error and not a field of fill values."""

        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            value = await self._store.get(key, prototype, byte_range)
            if value is None and not key.endswith(METADATA):
                raise RuntimeError(f"chunk {key} is missing")
            return value

    name, kind = f"ERA5 store {url}", FsspecStore.from_url if "://" in url else LocalStore
    with _reading(name):
        store = StrictStore(kind(url, read_only=True))
    return Source(name, _open(store, "zarr", name))


def _open(store: Any, engine: str, name: str) -> list[xr.DataArray]:
    """Open with labels decoded and values left where they are; InputError if it cannot be read."""
    with _reading(name), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # consolidated metadata, of which some stores have none
        dataset = xr.open_dataset(store, engine=engine, cache=False, decode_cf=False)
        for variable in dataset.variables.values():
            for key in ("_FillValue", "missing_value"):
                # NaN is missing as it is: masking would copy each field.
                if np.all(pd.isna(variable.attrs.get(key, 0))):
                    del variable.attrs[key]
        dataset = xr.decode_cf(dataset, decode_timedelta=False)
    return normalise(dataset, name)


# --- GRIB -----------------------------------------------------------------------------------------

GRIB_ORDER = ("iScansNegatively", "jPointsAreConsecutive", "alternativeRowScanning")
GRIB_GRID = (
    *("Nj", "latitudeOfFirstGridPointInDegrees", "latitudeOfLastGridPointInDegrees"),
    *("Ni", "longitudeOfFirstGridPointInDegrees", "longitudeOfLastGridPointInDegrees"),
)


def open_grib(path: Path) -> list[xr.DataArray]:
    """List a file's messages by their headers; InputError if it is torn or its grid is not regular."""
    import eccodes

    get = eccodes.codes_get
    messages: dict[tuple[Any, ...], list[tuple[str, int, int]]] = {}
    with path.open("rb") as file:
        while True:
            with _reading(str(path)):  # it may be torn
                handle = eccodes.codes_grib_new_from_file(file, headers_only=True)
            if handle is None:
                break
            variable = SHORT_NAMES.get(get(handle, "shortName"))
            aloft = get(handle, "typeOfLevel") == "isobaricInhPa"
            if variable and (variable in ALOFT) == aloft:
                kind = get(handle, "gridType")
                if kind != "regular_ll" or any(get(handle, key) for key in GRIB_ORDER):
                    needed = "regular_ll row by row eastward"
                    raise InputError(f"{path}: the grid of {variable} is {kind}, not {needed}")
                minute = f"{get(handle, 'validityDate'):08}{get(handle, 'validityTime'):04}"
                labels = variable, get(handle, "level"), *(get(handle, key) for key in GRIB_GRID)
                span = get(handle, "offset", int), get(handle, "totalLength", int)
                messages.setdefault(labels, []).append((minute, *span))
            eccodes.codes_release(handle)

    arrays = []
    for (variable, level, height, north, south, width, west, east), listed in messages.items():
        minutes = [minute for minute, *_ in listed]
        coordinates = {
            "time": pd.to_datetime(minutes, format="%Y%m%d%H%M").to_numpy("M8[ns]"),
            "latitude": np.linspace(north, south, height),
            "longitude": np.linspace(west, east if east >= west else east + 360, width),
        }
        spans = np.array([span for _, *span in listed])
        values = indexing.LazilyIndexedArray(Messages(path, spans, (height, width)))
        array = xr.DataArray(xr.Variable([*coordinates], values), coordinates, name=variable)
        arrays.append(array.assign_coords(level=level).assign_attrs(file=str(path)))
    return arrays


class Messages(BackendArray):
    """Messages of a file, (time, latitude, longitude), which are decoded when they are read."""

    def __init__(self, path: Path, spans: np.ndarray, grid: tuple[int, int]) -> None:
        self.path, self.spans = path, spans
        self.shape, self.dtype = (len(spans), *grid), np.dtype(np.float32)

    def __getitem__(self, key: Any) -> Any:
        support = indexing.IndexingSupport.OUTER
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
    matches = {pattern: glob.glob(pattern, recursive=True) for pattern in patterns}
    if empty := [pattern for pattern, paths in matches.items() if not paths]:
        raise InputError(f"{empty[0]}: matches no ERA5 file")
    files = sorted({Path(path) for paths in matches.values() for path in paths})
    arrays = [array for path in files if path.is_file() for array in open_file(path)]
    for array in arrays:
        for axis in ("latitude", "longitude"):
            some, others = arrays[0][axis].values, array[axis].values
            if some.shape != others.shape or not np.allclose(some, others, atol=1e-4):
                first, other = arrays[0].attrs["file"], array.attrs["file"]
                raise InputError(f"{other}: is on another grid than {first}")
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


def open_original(folder: Path, year: int) -> Source:
    """Open `<year>.h5`, in the folder or one below it (train, test, out_of_sample), to be used in place.

    It has `fields` (time, channel, latitude, longitude) and no labels: 20 channels in our order, or 21 of
    which the last is not used; 6-hourly from 1 January 00:00, north to south, 0° to 360°. InputError if
    it is missing, torn or has another shape.
    """
    paths = sorted((*folder.glob(f"{year}.h5"), *folder.glob(f"*/{year}.h5")))
    if len(paths) != 1:
        raise InputError(f"{folder}: not a Zarr store, and has {len(paths)} files {year}.h5, not 1")
    path, steps = paths[0], year_times(year)
    with _reading(str(path)):
        fields = xr.open_dataset(path, engine="h5netcdf", cache=False, phony_dims="sort")["fields"]
    if fields.ndim != 4 or len(fields) > len(steps) or fields.shape[1] not in CHANNEL_COUNTS:
        needed = f"(up to {len(steps)}, 20 or 21, latitudes, longitudes)"
        raise InputError(f"{path}: fields has shape {fields.shape}; needed is {needed}")
    names = ("time", "level", "latitude", "longitude")
    fields = fields.rename(dict(zip(fields.dims, names, strict=True))).assign_attrs(file=str(path))
    fields = fields.assign_coords(
        time=steps[: len(fields)],
        level=np.arange(fields.shape[1]),
        latitude=np.linspace(90, -90, fields.shape[2]),
        longitude=np.arange(fields.shape[3]) * (360 / fields.shape[3]),
    )
    return Source(str(path), [fields], humidity_over=ECMWF_HUMIDITY, link=path.resolve())
