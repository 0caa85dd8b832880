"""Smooth fields that travel along longitude, with ERA5's names, means and format, for runs without data.

Every variable is a mean, a difference between equator and poles, and waves of zonal wave numbers 1 to
6, each at a speed of its own. Amplitudes and phases differ a little between years. It is not weather.
"""

from __future__ import annotations

import math
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5.channels import TARGET_STEPS, all_years, year_times

if TYPE_CHECKING:
    import xarray as xr

LEVELS_HPA = (50, 500, 850, 1000)
SPEEDS = (4.0, 6.0, 8.0, 10.0, 11.0, 12.0)
"""Degrees eastward a day of the wave numbers 1, 2, …"""
TILT = 0.5
"""Westward shift of the waves, in rad of phase, where the pressure has fallen by a factor of e."""

Shape = tuple[float, float, float]
"""Mean over the globe, equator minus pole, and standard deviation of the waves."""

SURFACE: dict[str, tuple[str, float, Shape]] = {
    "10m_u_component_of_wind": ("m s**-1", math.pi, (2.0, 3.0, 3.0)),
    "10m_v_component_of_wind": ("m s**-1", math.pi / 2, (0.0, 0.0, 3.0)),
    "2m_temperature": ("K", -0.5, (287.0, 40.0, 4.0)),
    "surface_pressure": ("Pa", 0.2, (96_500.0, 4000.0, 900.0)),
    "mean_sea_level_pressure": ("Pa", 0.0, (101_200.0, 900.0, 900.0)),
    "total_column_water_vapour": ("kg m**-2", 1.5, (24.0, 24.0, 3.0)),
}
ALOFT: dict[str, tuple[str, float, list[Shape]]] = {
    "temperature": ("K", -0.5, [(212, -10, 2), (253, 30, 4), (279, 35, 4), (285, 40, 4)]),
    "u_component_of_wind": ("m s**-1", math.pi, [(8, 8, 5), (10, 10, 8), (5, 8, 5), (3, 5, 4)]),
    "v_component_of_wind": ("m s**-1", math.pi / 2, [(0, 0, 5), (0, 0, 8), (0, 0, 5), (0, 0, 4)]),
    "geopotential": (
        "m**2 s**-2",
        0.0,
        [(200_000, 8000, 1500), (54_500, 7000, 700), (14_300, 2500, 800), (1000, 900, 700)],
    ),
    "relative_humidity": ("%", 1.5, [(5, 2, 0.5), (45, 10, 7), (62, 5, 6), (75, 5, 4)]),
}
"""Unit, phase in rad, and shapes, at the surface or at each of LEVELS_HPA."""


def travelling_waves(
    seed: int, year: int, seconds: np.ndarray, latitude: np.ndarray, longitude: np.ndarray
) -> np.ndarray:
    """Return waves as complex (time, latitude, longitude): the real part has a variance of 1.

    `seconds` since 1 January; degrees north and east. The waves vanish at the poles.
    """
    common, of_year = np.random.default_rng(seed), np.random.default_rng([seed, year])
    numbers = np.arange(1, len(SPEEDS) + 1)
    amplitudes = common.uniform(0.6, 1.4, numbers.size) * of_year.uniform(0.8, 1.2, numbers.size)
    phases = common.uniform(0, 2 * np.pi, numbers.size) + of_year.normal(0, 0.5, numbers.size)
    nodes = common.uniform(-1, 1, numbers.size)
    north, east = np.deg2rad(latitude), np.deg2rad(longitude)
    waves = np.zeros((seconds.size, latitude.size, longitude.size), complex)
    for number, speed, amplitude, phase, node in zip(
        numbers, SPEEDS, amplitudes, phases, nodes, strict=True
    ):
        turned = phase - number * np.deg2rad(speed) * seconds / 86_400
        along = np.exp(1j * (turned[:, None] + number * east))
        across = np.cos(north) ** 2 * np.cos(3 * north + node)
        waves += amplitude * along[:, None] * across[:, None]
    weights = np.cos(north)[:, None]
    variance = (weights * (np.abs(waves) ** 2 / 2)).mean() / weights.mean()
    return waves / math.sqrt(variance)


def year_dataset(definition: dict[str, Any], year: int) -> xr.Dataset:
    """Return one year of the dataset that `definition` describes, as ERA5-named float32 fields."""
    import xarray as xr

    rows, columns = definition["grid"]
    latitude = np.linspace(90, -90, rows + 1)
    longitude = np.linspace(0, 360, columns, endpoint=False)
    times = year_times(year, definition["samples_per_year"])
    seconds = (times - times[0]) / np.timedelta64(1, "s")
    waves = travelling_waves(definition.get("seed", 0), year, seconds, latitude, longitude)
    meridional = (1 / 3 - np.sin(np.deg2rad(latitude)) ** 2)[:, None]  # 0 over the globe

    def field(shape: Shape, phase: float) -> np.ndarray:
        mean, difference, amplitude = shape
        travelling = (waves * np.exp(1j * phase)).real
        return (mean + difference * meridional + amplitude * travelling).astype(np.float32)

    place = ("latitude", "longitude")
    variables: dict[str, Any] = {
        name: (("time", *place), field(shape, phase), {"units": unit})
        for name, (unit, phase, shape) in SURFACE.items()
    }
    for name, (unit, phase, shapes) in ALOFT.items():
        tilts = [TILT * math.log(1000 / level) for level in LEVELS_HPA]
        levels = [field(shape, phase + tilt) for shape, tilt in zip(shapes, tilts, strict=True)]
        variables[name] = (("time", "level", *place), np.stack(levels, axis=1), {"units": unit})
    coordinates = {
        "time": times,
        "level": ("level", np.array(LEVELS_HPA), {"units": "hPa"}),
        "latitude": ("latitude", latitude, {"units": "degrees_north"}),
        "longitude": ("longitude", longitude, {"units": "degrees_east"}),
    }
    title = "Travelling waves in ERA5's format, made by scalewatt; not observations"
    return xr.Dataset(variables, coordinates, {"title": title})


def write_waves(store_path: Path | str, definition: dict[str, Any]) -> None:
    """Write all years of `definition` as a Zarr store, which replaces any other once complete."""
    store = Path(store_path)
    most = len(year_times(2001)) - TARGET_STEPS
    if definition["samples_per_year"] > most:
        raise InputError(
            f"dataset {definition['name']}: samples_per_year {definition['samples_per_year']} is "
            f"too large; waves are continuous within a year only, so at most {most} have targets"
        )
    store.parent.mkdir(parents=True, exist_ok=True)
    building = store.with_name(f".{store.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        for year in all_years(definition):
            dataset = year_dataset(definition, year)
            if building.exists():
                options: dict[str, Any] = {"append_dim": "time"}
            else:
                time = {"units": "hours since 1900-01-01", "dtype": "int64"}
                chunks = {name: {"chunks": dataset[name].shape} for name in dataset.data_vars}
                options = {"mode": "w", "encoding": {"time": time, **chunks}}
            dataset.to_zarr(building, zarr_format=2, consolidated=True, **options)
        if store.exists():
            shutil.rmtree(store)
        building.rename(store)
    finally:
        shutil.rmtree(building, ignore_errors=True)
