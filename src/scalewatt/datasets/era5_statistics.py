"""Mean and standard deviation of every channel over the training years."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import h5py
import numpy as np

from scalewatt.datasets.era5_channels import CHANNELS
from scalewatt.errors import InputError
from scalewatt.files import write_json

STATISTICS = "statistics.json"
BLOCK_BYTES = 256 * 2**20  # read at once


def write_statistics(folder: Path, years: Iterable[int]) -> None:
    """Mean and population sd of each channel over all values of the years' files, unweighted.

    One pass in float64, blocks merged by the formula of Chan, Golub and LeVeque (1979).
    """
    years = list(years)
    count, mean, squares = 0, np.zeros(len(CHANNELS)), np.zeros(len(CHANNELS))
    for year in years:
        with h5py.File(folder / f"{year}.h5", "r") as file:
            fields = file["fields"]
            steps = max(1, BLOCK_BYTES // (8 * int(np.prod(fields.shape[1:]))))
            for first in range(0, len(fields), steps):
                block = fields[first : first + steps].astype(np.float64)
                size = block[:, 0].size
                block_mean = block.mean(axis=(0, 2, 3))
                block -= block_mean[:, None, None]
                difference = block_mean - mean
                squares += np.einsum("tcij,tcij->c", block, block)
                squares += difference**2 * (count * size / (count + size))
                mean += difference * (size / (count + size))
                count += size
    sd = np.sqrt(squares / count)
    if constant := [name for name, s in zip(CHANNELS, sd, strict=True) if s == 0]:
        raise InputError(f"{folder}: {', '.join(constant)} never changes in the training years")
    write_json(
        folder / STATISTICS,
        {
            "channels": list(CHANNELS),
            "years": years,
            "values_per_channel": count,
            "mean": mean.tolist(),
            "sd": sd.tolist(),
        },
    )


def load_statistics(folder: Path | str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every channel, float32 (20,)."""
    statistics = json.loads((Path(folder) / STATISTICS).read_text(encoding="utf-8"))
    return np.array(statistics["mean"], np.float32), np.array(statistics["sd"], np.float32)


def statistics_years(folder: Path) -> list[int] | None:
    path = folder / STATISTICS
    return json.loads(path.read_text(encoding="utf-8"))["years"] if path.exists() else None
