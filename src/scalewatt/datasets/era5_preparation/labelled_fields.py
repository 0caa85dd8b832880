"""ERA5 fields by label, assembled from pieces: the labelled arrays of a store, or of many files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5.channels import CHANNEL_SOURCES, channels_by_variable
from scalewatt.datasets.era5_preparation.field_checks import (
    Orientation,
    orient,
    recognise,
)
from scalewatt.datasets.era5_preparation.write_year import (
    AS_STORED,
    BLOCK_BYTES,
    Block,
    YearReader,
)

DIMENSION_NAMES = {
    "valid_time": "time",
    "pressure_level": "level",
    "isobaricInhPa": "level",
}
"""Our name of every other spelling of a dimension."""

Index = slice | np.ndarray
_ORDER = ("expver", "level", "time", "latitude", "longitude")

WIDE_BLOCK_BYTES = 128 * 2**20
"""Decoded at once where requests take long, or chunks span many times."""


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


@dataclass(frozen=True)
class FieldSource:
    """All pieces of a source, or of one of its files, on one grid; `name` begins its messages."""

    name: str
    latitude: np.ndarray = field(default_factory=lambda: np.empty(0))
    longitude: np.ndarray = field(default_factory=lambda: np.empty(0))
    pieces: dict[str, list[Piece]] = field(default_factory=dict)
    humidity_units: str = "unknown"
    humidity_over: str | None = None
    """What relative humidity is defined over; None if it is assumed by its units."""
    block_bytes: int = BLOCK_BYTES
    skipped: dict[str, str] = field(default_factory=dict)
    """Why variables that were found could not be used, by variable."""

    def check(self, times: np.ndarray) -> None:
        """Raise InputError unless every variable, level and time is there exactly once."""
        wanted = channels_by_variable()
        if absent := sorted(wanted.keys() - self.pieces.keys()):
            more = "".join(f"; {self.skipped[v]}" for v in absent if v in self.skipped)
            raise InputError(f"{self.name}: missing {', '.join(absent)}{_hint(absent)}{more}")
        lacking = {
            level
            for variable, levels in wanted.items()
            for level in levels
            if not any(level in piece.levels for piece in self.pieces[variable])
        }
        if None in lacking:
            raise InputError(f"{self.name}: a surface variable has pressure levels")
        if lacking:
            raise InputError(f"{self.name}: missing levels {sorted(lacking)} hPa")  # type: ignore[type-var]
        for variable, level in CHANNEL_SOURCES.values():
            self._check_times(variable, level, times)

    def _check_times(self, variable: str, level: int | None, times: np.ndarray) -> None:
        owner = np.full(len(times), -1)
        pieces = self.pieces[variable]
        for number, piece in enumerate(pieces):
            if level not in piece.levels:
                continue
            here = np.isin(times, piece.times)
            if (twice := here & (owner >= 0)).any():
                at = int(np.flatnonzero(twice)[0])
                raise InputError(
                    f"{self.name}: {_label(variable, level)} on {str(times[at])[:16]} is in both "
                    f"{pieces[owner[at]].where} and {piece.where}"
                )
            owner[here] = number
        if len(absent := times[owner < 0]):
            shown = ", ".join(str(time)[:16] for time in absent[:5])
            more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
            raise InputError(
                f"{self.name}: {_label(variable, level)} is missing {len(absent)} times: "
                f"{shown}{more}"
            )

    def files(self, times: np.ndarray) -> tuple[str, ...]:
        """Return the local files that contain any of these times."""
        pieces = (piece for pieces in self.pieces.values() for piece in pieces)
        return tuple(sorted({f for p in pieces if np.isin(times, p.times).any() for f in p.files}))

    def read(
        self, variable: str, levels: Sequence[int | None], times: np.ndarray
    ) -> list[np.ndarray]:
        """Return, per level, (time, latitude, longitude) float32 as stored; InputError if unreadable."""
        out: list[np.ndarray | None] = [None] * len(levels)
        for piece in self.pieces[variable]:
            mine = [number for number, level in enumerate(levels) if level in piece.levels]
            there, positions = _positions(piece.times, times)
            if not mine or not len(there):
                continue
            try:
                found = piece.read(positions, [piece.levels.index(levels[n]) for n in mine])
            except InputError:
                raise
            except Exception as error:  # whatever codecs and file systems raise
                raise InputError(
                    f"{piece.where}: {variable} cannot be read from {str(times[there[0]])[:16]} "
                    f"to {str(times[there[-1]])[:16]} ({error or type(error).__name__})"
                ) from error
            for number, fields in zip(mine, found, strict=True):
                if len(there) == len(times):
                    out[number] = fields
                    continue
                whole = out[number]
                if whole is None:
                    whole = np.full((len(times), *fields.shape[1:]), np.nan, np.float32)
                    out[number] = whole
                whole[there] = fields
        return [fields for fields in out if fields is not None]

    def steps_at_once(self, variable: str, levels: Sequence[int | None]) -> int:
        """Return how many times decode to `block_bytes`, at least one.

        Up to WIDE_BLOCK_BYTES where chunks are as long, which would be decoded again and again.
        """
        size = 4 * len(self.latitude) * len(self.longitude)
        decoded = max(
            len(
                set(
                    piece.levels.index(at) // piece.level_chunk
                    for at in levels
                    if at in piece.levels
                )
            )
            * piece.level_chunk
            for piece in self.pieces[variable]
        )
        step_bytes = size * max(1, decoded)
        chunk_bytes = step_bytes * max(piece.time_chunk for piece in self.pieces[variable])
        at_once = max(self.block_bytes, min(chunk_bytes, WIDE_BLOCK_BYTES))
        return max(1, at_once // step_bytes)


def _label(variable: str, level: int | None) -> str:
    return variable if level is None else f"{variable} at {level} hPa"


def _hint(absent: list[str]) -> str:
    if absent == ["relative_humidity"]:
        return (
            " (ARCO-ERA5 has only specific humidity; WeatherBench 2's stores and the Climate Data "
            "Store have relative humidity)"
        )
    return ""


def _positions(have: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where in `wanted` the times are that `have` contains, and their positions in `have`."""
    order = np.argsort(have, kind="stable")
    at = np.minimum(np.searchsorted(have[order], wanted), len(have) - 1)
    there = np.flatnonzero(have[order][at] == wanted)
    return there, order[at[there]]


def open_labelled_year(
    source: FieldSource, times: np.ndarray, grid: Sequence[int] | None
) -> YearReader:
    """Check grid, labels and times before anything is read; recognise units by the first time."""
    orientation = orient(source.latitude, source.longitude, grid, source.name)
    source.check(times)
    (humidity,) = source.read("relative_humidity", [500], times[:1])
    (geopotential,) = source.read("geopotential", [500], times[:1])
    factors = recognise(humidity, geopotential, source.name)
    from_fraction = factors["relative_humidity"] != 1
    assumed = "water (as WeatherBench 2's)" if from_fraction else "unknown"
    return YearReader(
        name=source.name,
        grid=(orientation.latitude, orientation.longitude),
        attributes={
            **AS_STORED,
            "relative_humidity_over": source.humidity_over or assumed,
            "relative_humidity_source_units": source.humidity_units,
            "relative_humidity_converted_from_fraction": from_fraction,
            "geopotential_converted_from_height": factors["geopotential"] != 1,
            "latitude_reversed": orientation.reverse,
            "longitude_shifted": orientation.shift,
        },
        files=source.files(times),
        blocks=partial(_blocks, source, orientation, factors),
    )


def _blocks(
    source: FieldSource, orientation: Orientation, factors: Mapping[str, float], times: np.ndarray
) -> Iterator[Block]:
    """Yield all channels at `times`, variable by variable, each in the order of time."""
    for variable, channels in channels_by_variable().items():
        factor = np.float32(factors.get(variable, 1.0))
        most = source.steps_at_once(variable, list(channels))
        for part in _parts(source.pieces[variable], times, most):
            found = source.read(variable, list(channels), times[part])
            fields = {}
            for channel, values in zip(channels.values(), found, strict=True):
                if factor != 1:
                    values = values * factor
                fields[channel] = orientation.apply(values)
            yield part.start, fields


def _parts(pieces: Sequence[Piece], times: np.ndarray, most: int) -> Iterator[slice]:
    """Yield slices of at most `most` times that end, where possible, with a chunk of a piece."""
    chunk = np.zeros(len(times), np.int64)
    for number, piece in enumerate(pieces):
        there, positions = _positions(piece.times, times)
        chunk[there] = (number + 1) * 2**32 + positions // piece.time_chunk
    first = 0
    while first < len(times):
        last = min(first + most, len(times))
        if last < len(times):
            ends = np.flatnonzero(chunk[first + 1 : last + 1] != chunk[first:last])
            last = first + 1 + int(ends[-1]) if len(ends) else last
        yield slice(first, last)
        first = last
