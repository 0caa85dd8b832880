"""ERA5 in a Zarr store, version 2 or 3, at a path or any fsspec URL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5.channels import CHANNEL_SOURCES
from scalewatt.datasets.era5_preparation.labelled_fields import (
    BLOCK_BYTES,
    WIDE_BLOCK_BYTES,
    FieldSource,
    Piece,
)
from scalewatt.datasets.era5_preparation.labels import (
    as_index,
    decode,
    decode_levels,
    decode_times,
    dimension_names,
)

if TYPE_CHECKING:
    import zarr

METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


@dataclass(frozen=True)
class ZarrPiece:
    """One array of a store; only the chunks asked for are fetched, each once."""

    where: str
    times: np.ndarray
    levels: tuple[int | None, ...]
    time_chunk: int
    level_chunk: int
    array: zarr.Array
    dimensions: tuple[str, ...]
    files: tuple[str, ...]

    def read(self, times: np.ndarray, levels: Sequence[int]) -> list[np.ndarray]:
        order = np.argsort(levels)
        ascending = as_index(np.array(levels)[order])
        selection: dict[str, Any] = {"time": as_index(times), "level": ascending}
        wanted = tuple(selection.get(name, slice(None)) for name in self.dimensions)
        block = np.asarray(self.array.get_orthogonal_selection(wanted))
        if "level" not in self.dimensions:
            block = block[None]
        names = ("level",) * ("level" not in self.dimensions) + self.dimensions
        axes = [names.index(n) for n in ("level", "time", "latitude", "longitude")]
        fields = decode(block.transpose(axes), _attributes(self.array))
        return [fields[at] for at in np.argsort(order)]


def open_zarr(url: str) -> FieldSource:
    """The store's ERA5 arrays (names of WeatherBench 2 and ARCO-ERA5); nothing is read but labels.

    InputError where it cannot be opened or a coordinate is missing.
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
        chunk = dict(zip(dimensions, array.chunks, strict=True))
        has_levels = "level" in dimensions
        pieces[variable] = [
            ZarrPiece(
                where=name,
                times=times,
                levels=levels if has_levels else (None,),
                time_chunk=chunk["time"],
                level_chunk=chunk.get("level", 1),
                array=_holes_told(array, variable, name),
                dimensions=dimensions,
                files=_metadata_files(url, variable),
            )
        ]
    units = str(_attributes(arrays.get("relative_humidity")).get("units", "unknown"))
    at_once = WIDE_BLOCK_BYTES if "://" in url else BLOCK_BYTES
    grid = values["latitude"], values["longitude"]
    return FieldSource(name, *grid, pieces, units, block_bytes=at_once)


def _store(url: str) -> Any:
    from zarr.storage import FsspecStore, LocalStore

    if "://" in url:
        return FsspecStore.from_url(url, read_only=True)
    return LocalStore(url, read_only=True)


def _holes_told(array: zarr.Array, variable: str, name: str) -> zarr.Array:
    """The array with missing values in place of chunks that a shard lacks.

    Such chunks are no files, so that `_strict` does not see them, and Zarr gives the fill value.
    InputError where no value stands for a missing one.
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
    """A local store's files that say what a variable is; none of a store elsewhere."""
    if "://" in url and not url.startswith("file://"):
        return ()
    root = Path(url.removeprefix("file://"))
    files = (folder / name for folder in (root, root / variable) for name in METADATA)
    return tuple(str(file) for file in files if file.exists())


def _strict(store: Any) -> Any:
    """The same store, but a missing chunk is an error: Zarr would take it for fill values."""
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
    """The array's attributes; in version 2 the fill value of packed numbers is none of them."""
    if array is None:
        return {}
    fill = array.fill_value if array.metadata.zarr_format == 2 else None
    packed = array.dtype.kind in "iu" and fill is not None and "scale_factor" in array.attrs
    return ({"_FillValue": fill} if packed else {}) | dict(array.attrs)


def _coordinates(group: zarr.Group) -> dict[str, str]:
    """The arrays that label the dimensions, by our names."""
    found = {}
    for name in ("time", "level", "latitude", "longitude"):
        for spelling in (name, *(s for s, n in dimension_names().items() if n == name)):
            if spelling in group:
                found[name] = spelling
                break
    return found


def _dimensions(array: zarr.Array, variable: str, name: str) -> tuple[str, ...]:
    """Our names of an array's dimensions; InputError unless they are ours."""
    labelled: Any = array.attrs.get("_ARRAY_DIMENSIONS", ())
    names = getattr(array.metadata, "dimension_names", None) or labelled
    known = tuple(dimension_names().get(str(n), str(n)) for n in names)
    if set(known) - {"level"} != {"time", "latitude", "longitude"} or len(known) != array.ndim:
        raise InputError(
            f"{name}: {variable} has dimensions {', '.join(map(str, names)) or 'without names'}; "
            "needed are time, latitude, longitude and, aloft, level"
        )
    return known
