"""Reading two-step samples of ERA5 at the full grid from the page cache, in four ways.

    python benchmarks/era5_reading.py [--folder FOLDER] [--rounds 15] [--steps 12]

Writes one prepared year of made fields (83 MB a step) and reads random samples of two steps, 20
channels each, alternately: the same bytes by os.preadv into one preallocated array; our reader, a
batch of one, into shared buffers; h5py opening the file and indexing it with a list of
channels for every sample; and this, cropped and collated into the batch that ours gives. Prints
times and ratios (median of the rounds, range, and of the fastest); the file is deleted at the end.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import torch
from torch.utils.data import default_collate

from scalewatt.datasets.era5.channels import year_times
from scalewatt.datasets.era5.era5_dataset import Era5Dataset
from scalewatt.datasets.era5.shared_buffers import SharedBuffers

YEAR, CHANNELS, LATITUDES, LONGITUDES = 1979, 20, 721, 1440
SAMPLE_BYTES = 2 * CHANNELS * (LATITUDES - 1) * LONGITUDES * 4


def write_year(folder: Path, steps: int) -> int:
    """A prepared year, contiguous; the offset of its fields."""
    values = np.random.default_rng(0).normal(size=(CHANNELS, LATITUDES, LONGITUDES))
    with h5py.File(folder / f"{YEAR}.h5", "w") as file:
        shape = (steps, CHANNELS, LATITUDES, LONGITUDES)
        fields = file.create_dataset("fields", shape, np.float32)
        for step in range(steps):
            fields[step] = (values + step).astype(np.float32)
        file["time"] = year_times(YEAR)[:steps].astype("datetime64[s]").astype(np.int64)
        file["latitude"] = np.linspace(90, -90, LATITUDES)
        file["longitude"] = np.arange(LONGITUDES) / 4
        return fields.id.get_offset()


def plain(path: Path, offset: int) -> Callable[[int], float]:
    """As many bytes as a sample has, into one array."""
    descriptor = os.open(path, os.O_RDONLY)
    array = np.empty(SAMPLE_BYTES, np.uint8)
    array.fill(1)
    stride = CHANNELS * LATITUDES * LONGITUDES * 4

    def read(step: int) -> float:
        got = 0
        while got < SAMPLE_BYTES:
            at = offset + step * stride + got
            got += os.preadv(descriptor, [memoryview(array)[got:]], at)
        return float(array[0])

    return read


def ours(folder: Path, steps: int) -> Callable[[int], float]:
    """Our reader, as a loader calls it."""
    data = Era5Dataset(folder, [YEAR], 1, steps - 1, buffers=SharedBuffers(2, SAMPLE_BYTES))

    def read(step: int) -> float:
        x, _ = data.collate(data.__getitems__([(0, step)]))  # type: ignore[misc]
        return float(x[0, 3, 0, 0])

    return read


def indexed(path: Path, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Two steps by h5py, the file opened and channels given as a list."""
    channels = list(range(CHANNELS))
    with h5py.File(path, "r") as file:
        return file["fields"][step, channels], file["fields"][step + 1, channels]


def opened(path: Path) -> Callable[[int], float]:
    """Only read."""
    return lambda step: float(indexed(path, step)[0][3, 0, 0])


def collated(path: Path) -> Callable[[int], float]:
    """Read, without the southernmost row, as a batch."""

    def read(step: int) -> float:
        rows = LATITUDES - 1
        x, target = (torch.from_numpy(part[:, :rows]) for part in indexed(path, step))
        batch = default_collate([(x, target[None])])
        return float(batch[0][0, 3, 0, 0])

    return read


def main() -> None:
    """Write, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="where to write about 1 GB")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        measure(Path(temporary), options.rounds, options.steps)


def measure(folder: Path, rounds: int, steps: int) -> None:
    """Alternate the ways; the first two rounds only bring everything into memory."""
    path = folder / f"{YEAR}.h5"
    offset = write_year(folder, steps)
    ways = {
        "the same bytes": plain(path, offset),
        "ours": ours(folder, steps),
        "h5py, opened and by a list": opened(path),
        "h5py, opened and by a list, collated": collated(path),
    }
    for step in range(steps - 1):
        ways["the same bytes"](step)
    assert len({read(3) for name, read in ways.items() if name != "the same bytes"}) == 1
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 2):
        step = random.randrange(steps - 1)
        for name, read in ways.items():
            began = time.perf_counter()
            read(step)
            times[name].append(time.perf_counter() - began)
    for name, found in times.items():
        print(f"{name}: {1e3 * statistics.median(found[2:]):.1f} ms a sample")
    base, own, list_only, whole = (found[2:] for found in times.values())
    compare("ours / the same bytes", own, base)
    compare("h5py by a list / ours", list_only, own)
    compare("h5py by a list, collated / ours", whole, own)


def compare(what: str, a: list[float], b: list[float]) -> None:
    """Print the ratio of each round's times, and of the fastest."""
    ratios = sorted(x / y for x, y in zip(a, b, strict=True))
    print(
        f"{what}: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), "
        f"of the fastest {min(a) / min(b):.2f}"
    )


if __name__ == "__main__":
    main()
