"""Arrays of ERA5 with labels, in a store or a file: their dimensions, times, levels and packing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalewatt.common.errors import InputError

DIMENSION_NAMES = {
    "valid_time": "time",
    "pressure_level": "level",
    "isobaricInhPa": "level",
}
"""Our name of every other spelling of a dimension."""

Index = slice | np.ndarray
_ORDER = ("expver", "level", "time", "latitude", "longitude")


@dataclass(frozen=True)
class Piece:
    """Fields of one variable at some times and levels; only what is asked for is read."""

    where: str
    """Path or URL."""
    times: np.ndarray
    """datetime64[ns], in any order."""
    levels: tuple[int | None, ...]
    """hPa; None alone at the surface."""
    dimensions: tuple[str, ...]
    """Our names, in the order of the array; `time`, `level` and `expver` may be absent."""
    chunks: Mapping[str, int]
    """Length of a chunk along dimensions, where the array is stored in chunks."""
    attributes: Mapping[str, Any]
    select: Callable[[dict[str, Index]], np.ndarray]
    """Return the stored numbers at positions along some dimensions, ascending."""
    files: tuple[str, ...]
    """Local files that change when the values do."""
    versions: tuple[int, ...] = (0,)
    """Positions along `expver`, final values before preliminary ones."""

    @property
    def time_chunk(self) -> int:
        """Times decoded together."""
        return self.chunks.get("time", 1)

    @property
    def level_chunk(self) -> int:
        """Levels decoded together."""
        return self.chunks.get("level", 1)

    def read(self, times: np.ndarray, levels: Sequence[int]) -> list[np.ndarray]:
        """Return, per level, the fields (time, latitude, longitude) at these positions, NaN where missing.

        Raises any exception where they cannot be read.
        """
        order = np.argsort(levels)
        selection = {"time": as_index(times), "level": as_index(np.array(levels)[order])}
        stored = self.select({n: at for n, at in selection.items() if n in self.dimensions})
        absent = tuple(name for name in _ORDER if name not in self.dimensions)
        names = (*absent, *self.dimensions)
        fields = decode(stored[(None,) * len(absent)], self.attributes)
        fields = fields.transpose([names.index(name) for name in _ORDER])
        whole = fields[self.versions[0]]
        for version in self.versions[1:]:
            whole = np.where(np.isnan(whole), fields[version], whole)
        return [whole[at] for at in np.argsort(order)]


def decode_times(values: np.ndarray, attributes: Mapping[str, Any], name: str) -> np.ndarray:
    """Return CF times as datetime64[ns]; InputError if they cannot be decoded or are not unique."""
    import xarray as xr

    try:
        dataset = xr.Dataset({"time": ("time", np.atleast_1d(values), attributes)})
        times = xr.decode_cf(dataset)["time"].values.astype("datetime64[ns]")
    except Exception as error:  # xarray's and pandas' many
        raise InputError(f"{name}: its times cannot be decoded ({error})") from error
    unique, counts = np.unique(times, return_counts=True)
    if (counts > 1).any():
        raise InputError(f"{name}: has {str(unique[counts > 1][0])[:16]} more than once")
    return times


def decode_levels(values: np.ndarray, attributes: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Return pressure levels in hPa, from hPa or Pa; InputError if they are no numbers."""
    try:
        levels = np.atleast_1d(values).astype(np.float64)
    except ValueError as error:
        raise InputError(f"{name}: its levels are no numbers ({error})") from error
    if attributes.get("units") == "Pa":
        levels = levels / 100
    return tuple(round(level) for level in levels.tolist())


def decode(raw: np.ndarray, attributes: Mapping[str, Any]) -> np.ndarray:
    """Return stored numbers as float32: scale and offset applied, fill values as NaN."""
    scale, offset = attributes.get("scale_factor", 1), attributes.get("add_offset", 0)
    fills = [attributes[key] for key in ("_FillValue", "missing_value") if key in attributes]
    fills = [fill for value in fills for fill in np.atleast_1d(value).tolist() if fill == fill]
    if scale == 1 and offset == 0:
        block = raw.astype(np.float32, copy=False)
    else:
        block = (raw * np.float64(scale) + np.float64(offset)).astype(np.float32)
    for fill in fills:
        if not isinstance(fill, str) and (wrong := raw == fill).any():
            block = np.where(wrong, np.float32(np.nan), block)
    return block


def as_index(positions: np.ndarray) -> Index:
    """Return positions as a slice where they are consecutive, which is read faster."""
    if len(positions) and (np.diff(positions) == 1).all():
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return positions
