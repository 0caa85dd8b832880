"""ERA5 in a Zarr store, version 2 or 3, at a path or any fsspec URL."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5.channels import CHANNEL_SOURCES
from scalewatt.datasets.era5_preparation.labelled_fields import (
    DIMENSION_NAMES,
    WIDE_BLOCK_BYTES,
    FieldSource,
    Index,
    Piece,
    decode_levels,
    decode_times,
)
from scalewatt.datasets.era5_preparation.write_year import BLOCK_BYTES

if TYPE_CHECKING:
    import zarr

METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


def open_zarr(url: str) -> FieldSource:
    """Open a store's ERA5 arrays (names of WeatherBench 2 and ARCO-ERA5); only labels are read.

    InputError if it cannot be opened or a coordinate is missing.
    """
    import zarr

    name = f"ERA5 store {url}"
    try:
        store = _store(url)
        group = zarr.open_group(store, mode="r")
        strict = zarr.open_group(_strict(store), mode="r")
        arrays: dict[str, Any] = {
            variable: strict[variable]
            for variable in {variable for variable, _ in CHANNEL_SOURCES.values()}
            if variable in group
        }
        labels: dict[str, Any] = {key: group[there] for key, there in _coordinates(group).items()}
    except Exception as error:  # whatever fsspec's many file systems raise
        raise InputError(f"{name}: cannot be opened as Zarr ({error}){_hint(url)}") from error
    if lacking := [n for n in ("time", "level", "latitude", "longitude") if n not in labels]:
        raise InputError(f"{name}: missing {', '.join(lacking)}")
    try:
        values = {key: np.asarray(array[...]) for key, array in labels.items()}
    except Exception as error:
        raise InputError(f"{name}: its coordinates cannot be read ({error})") from error
    times = decode_times(values["time"], _attributes(labels["time"]), name)
    levels = decode_levels(values["level"], _attributes(labels["level"]), name)
    pieces: dict[str, list[Piece]] = {}
    for variable, array in arrays.items():
        dimensions = _dimensions(array, variable, name)
        stored = _with_missing_as_nan(array, variable, name)
        pieces[variable] = [
            Piece(
                where=name,
                times=times,
                levels=levels if "level" in dimensions else (None,),
                dimensions=dimensions,
                chunks=dict(zip(dimensions, array.chunks, strict=True)),
                attributes=_attributes(stored),
                select=partial(_select, stored, dimensions),
                files=_metadata_files(url, variable),
            )
        ]
    units = str(_attributes(arrays.get("relative_humidity")).get("units", "unknown"))
    at_once = WIDE_BLOCK_BYTES if "://" in url else BLOCK_BYTES
    grid = values["latitude"], values["longitude"]
    return FieldSource(name, *grid, pieces, units, block_bytes=at_once)


def _select(
    array: zarr.Array, dimensions: tuple[str, ...], positions: dict[str, Index]
) -> np.ndarray:
    wanted: Any = tuple(positions.get(name, slice(None)) for name in dimensions)
    return np.asarray(array.get_orthogonal_selection(wanted))


def _store(url: str) -> Any:
    from zarr.storage import FsspecStore, LocalStore

    if "://" in url:
        return FsspecStore.from_url(url, read_only=True)
    return LocalStore(url, read_only=True)


def _with_missing_as_nan(array: zarr.Array, variable: str, name: str) -> zarr.Array:
    """Return the array with missing values in place of chunks that a shard lacks.

    Such chunks are no files, so that `_strict` does not see them, and Zarr gives the fill value.
    InputError if no value stands for a missing one.
    """
    import zarr

    if array.shards is None:
        return array
    fill: Any = np.nan
    if array.dtype.kind != "f":
        fill = array.attrs.get("_FillValue")
        if not isinstance(fill, (int, float)):
            raise InputError(
                f"{name}: {variable} is {array.dtype} in shards and has no _FillValue; chunks that "
                "are missing could not be told from values"
            )
    metadata: Any = replace(array.metadata, fill_value=array.dtype.type(fill))
    return zarr.Array(zarr.AsyncArray(metadata=metadata, store_path=array.store_path))


def _metadata_files(url: str, variable: str) -> tuple[str, ...]:
    """Return a local store's metadata files of a variable; none for a remote store."""
    if "://" in url and not url.startswith("file://"):
        return ()
    root = Path(url.removeprefix("file://"))
    files = (folder / name for folder in (root, root / variable) for name in METADATA)
    return tuple(str(file) for file in files if file.exists())


def _strict(store: Any) -> Any:
    """Return the store with missing chunks as errors: Zarr would replace them by fill values."""
    from zarr.storage import WrapperStore

    class StrictStore(WrapperStore):
        async def get(self, key: str, *arguments: Any, **named: Any) -> Any:
            value = await self._store.get(key, *arguments, **named)
            if value is None and not key.endswith(METADATA):
                raise RuntimeError(f"chunk {key} is missing")
            return value

    return StrictStore(store)


def _hint(url: str) -> str:
    if url.startswith("gs://"):
        return (
            f"; without gcsfs, a public gs://{url[5:]} is also https://storage.googleapis.com/"
            f"{url[5:]}"
        )
    return ""


def _attributes(array: Any) -> dict[str, Any]:
    """Return the array's attributes, with the fill value of packed numbers, which version 2 keeps apart."""
    if array is None:
        return {}
    fill = array.fill_value if array.metadata.zarr_format == 2 else None
    packed = array.dtype.kind in "iu" and fill is not None and "scale_factor" in array.attrs
    return ({"_FillValue": fill} if packed else {}) | dict(array.attrs)


def _coordinates(group: zarr.Group) -> dict[str, str]:
    """Return the names of the arrays that label the dimensions, by our names."""
    found = {}
    for name in ("time", "level", "latitude", "longitude"):
        for spelling in (name, *(s for s, n in DIMENSION_NAMES.items() if n == name)):
            if spelling in group:
                found[name] = spelling
                break
    return found


def _dimensions(array: zarr.Array, variable: str, name: str) -> tuple[str, ...]:
    """Return our names of an array's dimensions; InputError if one is unknown."""
    labelled: Any = array.attrs.get("_ARRAY_DIMENSIONS", ())
    names = getattr(array.metadata, "dimension_names", None) or labelled
    known = tuple(DIMENSION_NAMES.get(str(n), str(n)) for n in names)
    if set(known) - {"level"} != {"time", "latitude", "longitude"} or len(known) != array.ndim:
        raise InputError(
            f"{name}: {variable} has dimensions {', '.join(map(str, names)) or 'without names'}; "
            "needed are time, latitude, longitude and, aloft, level"
        )
    return known
