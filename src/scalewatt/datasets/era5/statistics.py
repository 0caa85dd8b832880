"""Mean and standard deviation of every channel, and the mean z500, over the training years.

Partial results are merged by the formulas of Chan, Golub and LeVeque (1979); all in float64.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.files import atomic_path, read_json, read_json_object, write_json
from scalewatt.datasets.era5.channels import CHANNELS, Z500

STATISTICS = "statistics.json"
CLIMATOLOGY = "climatology.h5"
BLOCK_BYTES = 128 * 2**20  # read at once
PART = 2**15
"""Values at once: their float64 copy stays in a core's cache."""


# --- moments --------------------------------------------------------------------------------------


def field_moments(values: np.ndarray) -> tuple[int, float, float]:
    """Return count, mean and sum of squared deviations from the mean of a float32 array.

    Sums are of the deviations from a guess of the mean, so that nothing is lost where the mean is
    large against the deviations.
    """
    flat = values.reshape(-1)
    guess = float(flat[:: max(1, flat.size // 4096)].mean(dtype=np.float64))
    total = squares = 0.0
    buffer = np.empty(min(PART, flat.size))
    for first in range(0, flat.size, PART):
        part = flat[first : first + PART]
        deviations = np.subtract(part, guess, out=buffer[: part.size], dtype=np.float64)
        total += float(deviations.sum())
        squares += float(np.einsum("i,i", deviations, deviations))
    return flat.size, guess + total / flat.size, max(0.0, squares - total**2 / flat.size)


@dataclass
class Moments:
    """Moments of every channel, and the sum of the fields of z500 (latitude, longitude), if any."""

    count: np.ndarray = field(default_factory=lambda: np.zeros(len(CHANNELS), np.int64))
    mean: np.ndarray = field(default_factory=lambda: np.zeros(len(CHANNELS)))
    squares: np.ndarray = field(default_factory=lambda: np.zeros(len(CHANNELS)))
    z500_sum: np.ndarray | None = None

    def add_field(self, channel: int, values: np.ndarray) -> None:
        """Add one field of a channel."""
        self._add(np.array([channel]), *(np.array([x]) for x in field_moments(values)))

    def add_z500(self, values: np.ndarray) -> None:
        """Add one field of z500 to the sum for the mean field."""
        if self.z500_sum is None:
            self.z500_sum = np.zeros(values.shape)
        self.z500_sum += values

    def merge(self, other: Moments) -> None:
        """Add the moments of another."""
        counted = np.flatnonzero(other.count)
        self._add(counted, other.count[counted], other.mean[counted], other.squares[counted])
        if other.z500_sum is not None:
            self.add_z500(other.z500_sum)

    def _add(
        self, channels: np.ndarray, count: np.ndarray, mean: np.ndarray, squares: np.ndarray
    ) -> None:
        before = self.count[channels]
        both = before + count
        difference = mean - self.mean[channels]
        self.squares[channels] += squares + difference**2 * (before * (count / both))
        self.mean[channels] += difference * (count / both)
        self.count[channels] = both


# --- files ----------------------------------------------------------------------------------------


def write_statistics(folder: Path, years: Iterable[int], steps: dict[int, int]) -> None:
    """Merge the years' moments into `statistics.json` and `climatology.h5`.

    Population sd, unweighted over all values of each year's first `steps`. A year's own moments
    are taken where its file has those of exactly these steps; else they are computed in one pass.
    """
    years = list(years)
    whole = Moments()
    fields = 0
    for year in years:
        path = folder / f"{year}.h5"
        whole.merge(stored_moments(path, steps[year]) or read_moments(path, steps[year]))
        fields += steps[year]
    sd = np.sqrt(whole.squares / whole.count)
    if constant := [name for name, s in zip(CHANNELS, sd, strict=True) if s == 0]:
        raise InputError(f"{folder}: {', '.join(constant)} never changes in the training years")
    statistics = {
        "channels": list(CHANNELS),
        "years": years,
        "values_per_channel": int(whole.count[0]),
        "mean": whole.mean.tolist(),
        "sd": sd.tolist(),
    }
    assert whole.z500_sum is not None
    climatology = (whole.z500_sum / fields).astype(np.float32)
    with atomic_path(folder / CLIMATOLOGY) as temporary, h5py.File(temporary, "w") as file:
        file["z500"] = climatology
        file.attrs["years"] = years
        file.attrs["units"] = "m**2 s**-2"
    write_json(folder / STATISTICS, statistics)


def stored_moments(path: Path, steps: int) -> Moments | None:
    """Return the moments stored in a prepared year's file; None unless they are of its first `steps`."""
    with h5py.File(path, "r") as file:
        group = file.get("statistics")
        if group is None or int(group.attrs["steps"]) != steps:
            return None
        return Moments(*(group[key][...] for key in ("count", "mean", "squares", "z500_sum")))


def store_moments(file: h5py.File, moments: Moments, steps: int) -> None:
    """Write the moments that `stored_moments` reads."""
    group = file.create_group("statistics")
    group.attrs["steps"] = steps
    for key in ("count", "mean", "squares", "z500_sum"):
        group[key] = getattr(moments, key)


def read_moments(path: Path, steps: int) -> Moments:
    """Compute the moments of a file's first `steps`, in one pass over them."""
    moments = Moments()
    with h5py.File(path, "r") as file:
        fields = file["fields"]
        at_once = max(1, BLOCK_BYTES // (4 * int(np.prod(fields.shape[1:]))))
        for first in range(0, steps, at_once):
            for step in fields[first : min(first + at_once, steps), : len(CHANNELS)]:
                for channel, values in enumerate(step):
                    moments.add_field(channel, values)
                moments.add_z500(step[Z500])
    return moments


def load_statistics(folder: Path | str) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of every channel, float32 (20,)."""
    statistics = read_json_object(Path(folder) / STATISTICS, "mean", "sd")
    return np.array(statistics["mean"], np.float32), np.array(statistics["sd"], np.float32)


def load_climatology(folder: Path | str) -> np.ndarray:
    """Return the mean z500 of the training years, float32 (latitude, longitude) in m²/s², all latitudes."""
    with h5py.File(Path(folder) / CLIMATOLOGY, "r") as file:
        return file["z500"][...]


def rounded_statistics(folder: Path) -> dict[str, Any]:
    """Return the statistics with ten digits: the same on machines whose sums differ in the last bits."""
    statistics = read_json(folder / STATISTICS)
    for key in ("mean", "sd"):
        statistics[key] = [f"{value:.10g}" for value in statistics[key]]
    return statistics
