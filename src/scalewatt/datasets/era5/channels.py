"""FourCastNet's 20 channels and where ERA5 has them; the years and times of a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np

CHANNEL_SOURCES: dict[str, tuple[str, int | None]] = {
    "u10": ("10m_u_component_of_wind", None),
    "v10": ("10m_v_component_of_wind", None),
    "t2m": ("2m_temperature", None),
    "sp": ("surface_pressure", None),
    "msl": ("mean_sea_level_pressure", None),
    "t850": ("temperature", 850),
    "u1000": ("u_component_of_wind", 1000),
    "v1000": ("v_component_of_wind", 1000),
    "z1000": ("geopotential", 1000),
    "u850": ("u_component_of_wind", 850),
    "v850": ("v_component_of_wind", 850),
    "z850": ("geopotential", 850),
    "u500": ("u_component_of_wind", 500),
    "v500": ("v_component_of_wind", 500),
    "z500": ("geopotential", 500),
    "t500": ("temperature", 500),
    "z50": ("geopotential", 50),
    "r500": ("relative_humidity", 500),
    "r850": ("relative_humidity", 850),
    "tcwv": ("total_column_water_vapour", None),
}
"""Variable (WeatherBench 2's and ARCO-ERA5's name) and pressure level (hPa) of every channel."""

CHANNELS = tuple(CHANNEL_SOURCES)

SHORT_NAMES = {
    "10u": "10m_u_component_of_wind",
    "u10": "10m_u_component_of_wind",
    "10v": "10m_v_component_of_wind",
    "v10": "10m_v_component_of_wind",
    "2t": "2m_temperature",
    "t2m": "2m_temperature",
    "sp": "surface_pressure",
    "msl": "mean_sea_level_pressure",
    "tcwv": "total_column_water_vapour",
    "t": "temperature",
    "u": "u_component_of_wind",
    "v": "v_component_of_wind",
    "z": "geopotential",
    "r": "relative_humidity",
}
"""What GRIB and the Climate Data Store's netCDF call the variables."""

Z500 = CHANNELS.index("z500")

ALOFT = frozenset(v for v, level in CHANNEL_SOURCES.values() if level is not None)
"""The variables of pressure levels."""


def channels_by_variable() -> dict[str, dict[int | None, int]]:
    """Return, for each variable, the channel of each of its levels."""
    groups: dict[str, dict[int | None, int]] = {}
    for channel, (variable, level) in enumerate(CHANNEL_SOURCES.values()):
        groups.setdefault(variable, {})[level] = channel
    return groups


def describe_channel(channel: int) -> str:
    """Return a channel's variable and level, for messages."""
    variable, level = CHANNEL_SOURCES[CHANNELS[channel]]
    return variable if level is None else f"{variable} at {level} hPa"


# --- times ----------------------------------------------------------------------------------------

STEP_H = 6
TARGET_STEPS = 2
"""A sample's targets are up to this many steps (12 h) ahead."""


def part_years(definition: dict[str, Any], part: str) -> range:
    """Return the years of `part` (train, validation, test), both ends of its pair included."""
    first, last = definition[f"{part}_years"]
    return range(first, last + 1)


def all_years(definition: dict[str, Any]) -> list[int]:
    """Return all years of a definition, ascending."""
    parts = ("train", "validation", "test")
    return sorted({year for part in parts for year in part_years(definition, part)})


def year_times(year: int, samples_per_year: int | None = None) -> np.ndarray:
    """Return the 6-hourly times (datetime64[ns]) stored for a year, from 1 January 00:00 UTC.

    With `samples_per_year`, only as many as its samples and their targets need; the targets of
    the last samples of a calendar year are in the next year.
    """
    start, end = np.datetime64(f"{year}-01-01", "h"), np.datetime64(f"{year + 1}-01-01", "h")
    times = np.arange(start, end, np.timedelta64(STEP_H, "h"))
    stop = None if samples_per_year is None else samples_per_year + TARGET_STEPS
    return times[:stop].astype("datetime64[ns]")
