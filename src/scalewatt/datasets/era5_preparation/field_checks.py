"""Checks of ERA5 fields: plausible ranges, units recognised by values, the grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5.channels import CHANNELS, describe_channel

GRAVITY = 9.80665  # m/s², the one that defines geopotential height

_WIND_SURFACE, _WIND_LOW, _WIND_500 = (-80.0, 80.0), (-110.0, 110.0), (-150.0, 150.0)
_HUMIDITY = (-60.0, 250.0)

PLAUSIBLE: dict[str, tuple[float, float]] = {
    # The strongest winds of a reanalysis at 0.25° are about half of these.
    "u10": _WIND_SURFACE,
    "v10": _WIND_SURFACE,
    "u1000": _WIND_LOW,
    "v1000": _WIND_LOW,
    "u850": _WIND_LOW,
    "v850": _WIND_LOW,
    "u500": _WIND_500,
    "v500": _WIND_500,
    # Records at the ground are 184 K and 330 K; aloft the extremes are closer together.
    "t2m": (165.0, 345.0),
    "t850": (195.0, 335.0),
    "t500": (190.0, 300.0),
    # The highest grid points of Tibet lie near 500 hPa, the Dead Sea near 1060 hPa.
    "sp": (40_000.0, 112_000.0),
    # Records at sea level are 870 hPa and 1085 hPa.
    "msl": (84_000.0, 112_000.0),
    # 8 m of height for each hPa below or above 1000 at sea level.
    "z1000": (-15_000.0, 12_000.0),
    "z850": (4_000.0, 20_000.0),
    "z500": (40_000.0, 62_000.0),
    "z50": (160_000.0, 220_000.0),
    # Spectral truncation leaves humidity a little below 0, supersaturation over ice far over 100.
    "r500": _HUMIDITY,
    "r850": _HUMIDITY,
    "tcwv": (-5.0, 130.0),
}
"""Lowest and highest value of each channel anywhere, in K, Pa, m/s, m²/s², % and kg/m².

Wide enough for every analysis of the atmosphere, and narrow enough that another unit, another level
of geopotential, or normalised values fall outside in several channels.
"""

FRACTION = 2.0
"""Relative humidity in percent exceeds this somewhere on every globe, a fraction nowhere."""
LEAST_SPREAD = {"z1000": 2_000.0}
"""A range that includes 0 does not distinguish metres from m²/s². Pressure at sea level, which differs by
more than 60 hPa on every globe and by less than 200 hPa, does: 5000 m²/s² and 1600 m."""


def check_field(channel: int, low: float, high: float, time: np.datetime64, source: str) -> None:
    """Raise InputError unless a field of the globe with these extremes is finite and plausible.

    Values must have been converted already.
    """
    what, when = describe_channel(channel), str(time)[:16]
    if not (np.isfinite(low) and np.isfinite(high)):
        raise InputError(f"{source}: {what} has missing values on {when}")
    lowest, highest = PLAUSIBLE[CHANNELS[channel]]
    if low < lowest or high > highest:
        raise InputError(
            f"{source}: {what} reaches from {low:g} to {high:g} on {when}; "
            f"plausible are {lowest:g} to {highest:g}{_guess(CHANNELS[channel], low, high)}"
        )
    if low == high:
        raise InputError(f"{source}: {what} is {low:g} everywhere on {when}")
    name = CHANNELS[channel]
    if name in ("r500", "r850") and high <= FRACTION:
        raise InputError(
            f"{source}: {what} reaches no more than {high:g} on {when}: this looks like a fraction; "
            "give percent"
        )
    if high - low < LEAST_SPREAD.get(name, 0):
        raise InputError(
            f"{source}: {what} reaches from {low:g} to {high:g} on {when}: this looks like height "
            "in m; give m²/s²"
        )


def _guess(name: str, low: float, high: float) -> str:
    """Return a guess of what implausible values are."""
    if low > -15 and high < 15 and name not in ("tcwv", "r500", "r850"):
        return ": these look normalised; give the physical values"
    if name.startswith("t") and name != "tcwv" and low > -110 and high < 75:
        return ": these look like °C; give K"
    if name in ("sp", "msl") and low > 400 and high < 1120:
        return ": these look like hPa; give Pa"
    return ""


def recognise(
    humidity_500: np.ndarray, geopotential_500: np.ndarray, source: str
) -> dict[str, float]:
    """Return the factors that convert relative humidity and geopotential, by their values at 500 hPa.

    Humidity is a fraction up to `FRACTION`. 500 hPa lies at 4 to 6 km of height, or 40 000 to
    60 000 m²/s². InputError if they are neither.
    """
    humidity, geopotential = float(humidity_500.max()), float(geopotential_500.max())
    if not (0 < humidity <= 250 or np.isnan(humidity)):
        raise InputError(
            f"{source}: relative_humidity at 500 hPa reaches {humidity:g}; "
            "allowed are percent (0–100, a little over is possible) or a fraction (0–1)"
        )
    return {
        "relative_humidity": 100.0 if humidity <= FRACTION else 1.0,
        "geopotential": GRAVITY if 4_000 < geopotential < 6_500 else 1.0,
    }


@dataclass(frozen=True)
class Orientation:
    """The rearrangement of stored fields to north to south and 0° to 360°."""

    latitude: np.ndarray
    """Degrees north, descending, float64."""
    longitude: np.ndarray
    """Degrees east from 0, ascending, float64."""
    reverse: bool
    shift: int

    def apply(self, fields: np.ndarray) -> np.ndarray:
        """Return fields (…, latitude, longitude) in our orientation; a view where possible."""
        if self.reverse:
            fields = fields[..., ::-1, :]
        return np.roll(fields, -self.shift, axis=-1) if self.shift else fields


def orient(
    latitude: np.ndarray, longitude: np.ndarray, grid: Sequence[int] | None, source: str
) -> Orientation:
    """Return the orientation of a global regular grid; InputError on any other, or one that is not `grid`.

    `grid` is rows and columns used: one row less than the latitudes.
    """
    latitude, longitude = latitude.astype(np.float64), longitude.astype(np.float64)
    shape = (len(latitude), len(longitude))
    if grid is not None and shape != (grid[0] + 1, grid[1]):
        raise InputError(
            f"{source}: has {shape[0]} latitudes × {shape[1]} longitudes; grid "
            f"{grid[0]} × {grid[1]} needs {grid[0] + 1} × {grid[1]} (the southernmost is not used)"
        )
    reverse = bool(latitude[0] < latitude[-1])
    latitude = latitude[::-1] if reverse else latitude
    if not np.allclose(latitude, np.linspace(90, -90, shape[0]), atol=1e-3):
        raise InputError(
            f"{source}: latitudes go from {latitude[0]:g} to {latitude[-1]:g}; "
            "needed are equal steps from 90 to -90 or from -90 to 90"
        )
    shift = int(np.argmin(np.abs((longitude + 180) % 360 - 180)))
    turned = np.roll(longitude, -shift) % 360
    turned[0] = (turned[0] + 180) % 360 - 180  # 359.9999 is 0
    if not np.allclose(turned, np.arange(shape[1]) * (360 / shape[1]), atol=1e-3):
        raise InputError(
            f"{source}: longitudes go from {longitude[0]:g} to {longitude[-1]:g}; needed are "
            f"{shape[1]} equal steps round the globe through 0, from 0 or from -180"
        )
    return Orientation(latitude, turned, reverse, shift)
