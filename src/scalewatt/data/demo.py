"""Data of the demo, which need no download: handwriting as images, and waves as ERA5's fields.

The scans are those of scikit-learn: 1797 handwritten digits, 8 × 8 pixels (E. Alpaydin and C. Kaynak,
Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998, CC BY 4.0).
The fields are not weather: each is a mean, a difference between equator and poles, and waves that travel
along longitude. Amplitudes and phases differ a little between years.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from scalewatt.data.era5 import year_times
from scalewatt.data.imagenet import SPLITS, stratified_subset

SCAN_SIZE = 40
"""Pixels; the model crops to the size that it needs."""


def write_scans(folder: Path, definition: dict[str, Any]) -> None:
    """Write train/ and val/ with the definition's numbers of images, stratified, unless they exist."""
    from PIL import Image
    from sklearn.datasets import load_digits

    if any((folder / split).exists() for split in SPLITS):
        return
    digits, building = load_digits(), folder / ".building"
    shutil.rmtree(building, ignore_errors=True)
    train = stratified_subset(digits.target, definition["train_samples"], seed=0)
    others = np.setdiff1d(np.arange(len(digits.target)), train)
    chosen = stratified_subset(digits.target[others], definition["validation_samples"], seed=0)
    for split, scans in zip(SPLITS, (train, others[chosen]), strict=True):
        for scan in scans:
            path = building / split / f"n{digits.target[scan]:07d}d" / f"scan_{scan:04d}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(np.uint8(np.round(digits.images[scan] * (255 / 16))))
            image = image.resize((SCAN_SIZE, SCAN_SIZE), Image.Resampling.BICUBIC)
            image.convert("RGB").save(path, "JPEG", quality=95)
    for split in SPLITS:
        (building / split).rename(folder / split)
    building.rmdir()


WAVES = Path(__file__).with_name("waves.csv")
"""Unit and phase in rad of each variable at the surface or at a level in hPa: mean over the globe, equator
minus pole, and standard deviation of the waves."""
SPEEDS = (4.0, 6.0, 8.0, 10.0, 11.0, 12.0)
"""Degrees eastward a day of the wave numbers 1, 2, …"""
TILT = 0.5
"""Westward shift of the waves, in rad of phase, where the pressure has fallen by a factor of e."""


def year_dataset(definition: dict[str, Any], year: int) -> xr.Dataset:
    """Make a year of the fields that `definition` describes, as float32 with ERA5's names and units."""
    rows, columns = definition["grid"]
    latitude = np.linspace(90, -90, rows + 1)
    longitude = np.linspace(0, 360, columns, endpoint=False)
    times = year_times(year, definition["samples_per_year"])
    seconds = (times - times[0]) / np.timedelta64(1, "s")
    waves = travelling_waves(definition.get("seed", 0), year, seconds, latitude, longitude)
    meridional = (1 / 3 - np.sin(np.deg2rad(latitude)) ** 2)[:, None]  # its global mean is 0

    def field(row: Any) -> np.ndarray:
        tilt = 0.0 if np.isnan(row.level) else TILT * math.log(1000 / row.level)
        travelling = (waves * np.exp(1j * (row.phase + tilt))).real
        values = row.mean + row.difference * meridional + row.amplitude * travelling
        return values.astype(np.float32)

    variables: dict[str, Any] = {}
    table = pd.read_csv(WAVES)
    for name, levels in table.groupby("variable", sort=False):
        fields = [field(row) for row in levels.itertuples()]
        at_surface = levels["level"].isna().all()
        dimensions = ("time", *([] if at_surface else ["level"]), "latitude", "longitude")
        variables[str(name)] = dimensions, fields[0] if at_surface else np.stack(fields, axis=1)
    level = table["level"].dropna().unique().astype(int)
    coordinates = {"time": times, "level": level, "latitude": latitude, "longitude": longitude}
    return xr.Dataset(variables, coordinates)


def travelling_waves(
    seed: int, year: int, seconds: np.ndarray, latitude: np.ndarray, longitude: np.ndarray
) -> np.ndarray:
    """Sum the waves, complex (time, latitude, longitude); the real part has a variance of 1.

    `seconds` since 1 January; degrees north and east. The waves vanish at the poles.
    """
    every_year, this_year = np.random.default_rng(seed), np.random.default_rng([seed, year])
    count = len(SPEEDS)
    amplitudes = every_year.uniform(0.6, 1.4, count) * this_year.uniform(0.8, 1.2, count)
    phases = every_year.uniform(0, 2 * np.pi, count) + this_year.normal(0, 0.5, count)
    nodes = every_year.uniform(-1, 1, count)
    north, east = np.deg2rad(latitude), np.deg2rad(longitude)
    waves = np.zeros((seconds.size, latitude.size, longitude.size), complex)
    each = zip(SPEEDS, amplitudes, phases, nodes, strict=True)
    for number, (speed, amplitude, phase, node) in enumerate(each, start=1):
        turned = phase - number * np.deg2rad(speed) * seconds / 86_400
        along = np.exp(1j * (turned[:, None] + number * east))
        across = np.cos(north) ** 2 * np.cos(3 * north + node)
        waves += amplitude * along[:, None] * across[:, None]
    weights = np.cos(north)[:, None]
    variance = (weights * (np.abs(waves) ** 2 / 2)).mean() / weights.mean()
    return waves / math.sqrt(variance)
