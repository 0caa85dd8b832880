"""Checks of ERA5 fields: plausible values, units recognised by values, the grid, channels without labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.data.era5 import CHANNEL_OF, CHANNELS
from scalewatt.data.era5_sources import Source, read_field

FRACTION = 2.0
"""Relative humidity in percent exceeds this somewhere on every globe, a fraction nowhere."""


# --- values ---------------------------------------------------------------------------------------


def check_field(number: int, low: float, high: float, time: np.datetime64, source: str) -> None:
    """Raise InputError unless a converted global field with these extremes is finite and plausible."""
    channel = CHANNEL_OF[CHANNELS[number]]
    field = f"{source}: {channel} on {str(time)[:16]}"
    if not (np.isfinite(low) and np.isfinite(high)):
        raise InputError(f"{field} has missing values")
    if low == high:
        raise InputError(f"{field} is {low:g} everywhere")
    is_fraction = channel.variable == "relative_humidity" and high <= FRACTION
    if low < channel.low or high > channel.high or is_fraction:
        hint = "a fraction" if is_fraction else "another unit"
        raise InputError(
            f"{field} reaches from {low:g} to {high:g}, which may be {hint}; plausible are "
            f"{channel.low:g} to {channel.high:g} {channel.unit}"
        )


def humidity_factor(source: Source) -> float:
    """Factor that converts relative humidity to %: 100 if the first field is a fraction and not linked."""
    if source.link:
        return 1
    return 100 if 0 < read_field(source, CHANNELS.index("r500"), 0).max() <= FRACTION else 1


# --- the grid -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Orientation:
    """The rearrangement of stored fields to north to south and 0° to 360°."""

    latitude: np.ndarray
    """Degrees north, descending, float64."""
    longitude: np.ndarray
    """Degrees east from 0, ascending, float64."""
    reverse: bool
    shift: int

    def apply(self, field: np.ndarray) -> np.ndarray:
        """Turn a field (latitude, longitude), contiguous afterwards."""
        field = field[::-1] if self.reverse else field
        return np.ascontiguousarray(np.roll(field, -self.shift, axis=1) if self.shift else field)


def orient(source: Source, grid: Sequence[int] | None) -> Orientation:
    """Orientation of a source's global regular grid; InputError on any other, or if it is not `grid`.

    `grid` is rows and columns used: a row less than the latitudes.
    """
    latitude, longitude = (
        source.arrays[0][axis].values.astype(float) for axis in ("latitude", "longitude")
    )
    shape = (len(latitude), len(longitude))
    if grid is not None and shape != (grid[0] + 1, grid[1]):
        raise InputError(
            f"{source.name}: has {shape[0]} latitudes × {shape[1]} longitudes; grid "
            f"{grid[0]} × {grid[1]} needs {grid[0] + 1} × {grid[1]} (the southernmost is not used)"
        )
    reverse = bool(latitude[0] < latitude[-1])
    latitude = latitude[::-1] if reverse else latitude
    if not np.allclose(latitude, np.linspace(90, -90, shape[0]), atol=1e-3):
        raise InputError(
            f"{source.name}: latitudes go from {latitude[0]:g} to {latitude[-1]:g}; "
            "needed are equal steps from 90 to -90 or from -90 to 90"
        )
    shift = int(np.argmin(np.abs((longitude + 180) % 360 - 180)))
    turned = np.roll(longitude, -shift) % 360
    turned[0] = (turned[0] + 180) % 360 - 180  # 359.9999 is 0
    if not np.allclose(turned, np.arange(shape[1]) * (360 / shape[1]), atol=1e-3):
        raise InputError(
            f"{source.name}: longitudes go from {longitude[0]:g} to {longitude[-1]:g}; needed are "
            f"{shape[1]} equal steps round the globe through 0, from 0 or from -180"
        )
    return Orientation(latitude, turned, reverse, shift)


# --- files without labels -------------------------------------------------------------------------


def check_unlabelled(source: Source, times: np.ndarray) -> None:
    """Raise InputError unless the first step of every month has our channels, units and orientation.

    Zonal winds are stronger than meridional ones; pressure is low in Antarctica and Tibet.
    """
    _, firsts = np.unique(times.astype("datetime64[M]"), return_index=True)
    means = {}
    for number, name in enumerate(CHANNELS):
        fields = [read_field(source, number, step) for step in firsts]
        for values, step in zip(fields, firsts, strict=True):
            check_field(number, float(values.min()), float(values.max()), times[step], source.name)
        means[name] = np.mean(fields, axis=0, dtype=float)

    along_latitudes = {name: np.square(mean.mean(axis=1)).mean() for name, mean in means.items()}
    for level in ("10", "1000", "850", "500"):
        if along_latitudes[f"v{level}"] > along_latitudes[f"u{level}"]:
            raise InputError(
                f"{source.name}: the mean wind of v{level} along latitudes is stronger than that of "
                f"u{level}; its channels must be {' '.join(CHANNELS)}"
            )
    pressure = means["sp"]
    rows, columns = pressure.shape
    row = round((90 - 33) / 180 * (rows - 1))  # of Tibet, 5 km high, and of the plains of America
    if pressure[-1].mean() > pressure[0].mean():
        raise InputError(
            f"{source.name}: surface pressure is lower in the first row than in the last; rows must "
            "go from 90° N to 90° S"
        )
    if pressure[row, columns // 4] > pressure[row, columns * 3 // 4]:
        raise InputError(
            f"{source.name}: surface pressure at 33° N is higher at 90° E, in Tibet, than at 90° W; "
            "columns must go from 0° eastward to 360°"
        )
