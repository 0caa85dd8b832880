"""Yearly HDF5 files of the original FourCastNet project, used in place.

`<year>.h5`, directly in a folder or in one below it (train, test, out_of_sample), with `fields`
float32 (time, channel, latitude, longitude) and no labels: 20 channels in our order, or 21 of which
the last is not used; 6-hourly from 1 January 00:00, north to south, 0° to 360°. What a file cannot
say is judged by its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5.channels import CHANNELS, year_times
from scalewatt.datasets.era5.year_layout import CHANNEL_COUNTS
from scalewatt.datasets.era5_preparation.field_checks import check_field
from scalewatt.datasets.era5_preparation.write_year import (
    AS_STORED,
    BLOCK_BYTES,
    Block,
    YearReader,
)

TIBET, AMERICA = (33.0, 90.0), (33.0, 270.0)
"""Latitude and longitude: 5 km high, and near sea level half the globe away."""

Grid = tuple[np.ndarray, np.ndarray]
"""Latitudes and longitudes."""


def open_original_year(
    folder: Path, year: int, times: np.ndarray, grid: Sequence[int] | None
) -> YearReader:
    """Find and check a year's file: shape, times, and the first step of every month.

    InputError if it is missing, torn, too short, on another grid, or where channels are in
    another order, normalised, or turned round.
    """
    path = find_original(folder, year)
    all_times = year_times(year)
    try:
        with h5py.File(path, "r") as file:
            fields = file["fields"]
            shape = fields.shape
            _check_shape(path, shape, fields.dtype, grid)
            if not len(times) <= shape[0] <= len(all_times):
                raise InputError(
                    f"{path}: has {shape[0]} steps; needed are at least {len(times)} (those "
                    f"of samples_per_year and the two after them) of the {len(all_times)} "
                    f"6-hourly steps of {year}"
                )
            found = np.linspace(90, -90, shape[2]), np.arange(shape[3]) * (360 / shape[3])
            _check_values(path, found, fields, all_times[: shape[0]])
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"{path}: no readable yearly ERA5 file ({error})") from error
    return YearReader(
        name=str(path),
        grid=found,
        attributes=AS_STORED,
        files=(str(path),),
        blocks=partial(_blocks, path, all_times),
        link=(path.resolve(), shape[0]),
    )


def _blocks(path: Path, all_times: np.ndarray, times: np.ndarray) -> Iterator[Block]:
    """Yield all channels of some steps at once."""
    positions = np.searchsorted(all_times, times)
    with h5py.File(path, "r") as file:
        fields = file["fields"]
        at_once = max(1, BLOCK_BYTES // (4 * len(CHANNELS) * fields.shape[2] * fields.shape[3]))
        for first in range(0, len(times), at_once):
            part = positions[first : first + at_once]
            try:
                block = fields[part[0] : part[-1] + 1, : len(CHANNELS)]
            except OSError as error:
                raise InputError(
                    f"{path}: cannot be read from {str(times[first])[:16]} ({error})"
                ) from error
            yield first, {channel: block[:, channel] for channel in range(len(CHANNELS))}


def _check_values(path: Path, grid: Grid, fields: h5py.Dataset, times: np.ndarray) -> None:
    """Raise InputError unless the first step of every month has our channels, units and orientation."""
    month = times.astype("datetime64[M]")
    steps = [0, *(np.flatnonzero(month[1:] != month[:-1]) + 1).tolist()]
    winds, pressure = np.zeros((2, 4, len(grid[0]))), np.zeros(fields.shape[2:])
    pairs = [(f"u{level}", f"v{level}") for level in ("10", "1000", "850", "500")]
    for step in steps:
        block = fields[step, : len(CHANNELS)]
        for channel, values in enumerate(block):
            extremes = float(values.min()), float(values.max())
            check_field(channel, *extremes, times[step], str(path))
        for number, pair in enumerate(pairs):
            for kind, name in enumerate(pair):
                winds[kind, number] += block[CHANNELS.index(name)].mean(axis=1)
        pressure += block[CHANNELS.index("sp")] / len(steps)
    for pair, along, across in zip(pairs, *np.square(winds).mean(axis=2), strict=True):
        if across > along:
            raise InputError(
                f"{path}: the mean wind of {pair[1]} along latitudes is stronger than that "
                f"of {pair[0]}: its channels are in another order than {' '.join(CHANNELS)}"
            )
    _check_directions(path, grid, pressure)


def _check_directions(path: Path, grid: Grid, pressure: np.ndarray) -> None:
    """Raise InputError unless the high ground of Antarctica is in the last rows, and Tibet's at 90° E."""
    if pressure[-1].mean() > pressure[0].mean():
        raise InputError(
            f"{path}: surface pressure is lower in the first row than in the last; "
            "rows must go from 90° N to 90° S"
        )
    there, opposite = (pressure[_nearest(grid, place)] for place in (TIBET, AMERICA))
    if there > opposite:
        raise InputError(
            f"{path}: surface pressure is {opposite:.0f} Pa at 33° N 90° W and {there:.0f} "
            "Pa in Tibet; columns must go from 0° eastward to 360°"
        )


def _nearest(grid: Grid, place: tuple[float, float]) -> tuple[int, int]:
    latitude, longitude = (np.abs(a - at).argmin() for a, at in zip(grid, place, strict=True))
    return int(latitude), int(longitude)


def find_original(folder: Path, year: int) -> Path:
    """Return the year's file; InputError if there is none, or more than one."""
    found = sorted(p for p in (*folder.glob(f"{year}.h5"), *folder.glob(f"*/{year}.h5")))
    if not found:
        raise InputError(f"{folder}: has no {year}.h5, neither itself nor in a folder below it")
    if len(found) > 1:
        raise InputError(f"{folder}: has the year {year} twice: {found[0]} and {found[1]}")
    return found[0]


def _check_shape(
    path: Path, shape: tuple[int, ...], kind: np.dtype, grid: Sequence[int] | None
) -> None:
    right = len(shape) == 4 and shape[1] in CHANNEL_COUNTS and kind == np.float32
    if right and grid is not None:
        right = shape[2:] == (grid[0] + 1, grid[1])
    if not right:
        size = f"{grid[0] + 1}, {grid[1]}" if grid is not None else "latitude, longitude"
        raise InputError(
            f"{path}: fields is {kind} {shape}; needed is float32 (time, 20 or 21, {size})"
        )
