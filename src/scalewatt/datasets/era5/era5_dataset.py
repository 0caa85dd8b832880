"""Datasets of prepared ERA5 years (their format: `prepare_era5`)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch.utils.data import Dataset

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5.channels import CHANNELS, STEP_H
from scalewatt.datasets.era5.year_layout import StepReader, YearFile

Key = tuple[int, int]


class Era5Dataset(Dataset[tuple[torch.Tensor, ...]]):
    """Single steps of prepared years with the steps that follow them, not normalised.

    An item, by the key (epoch, position), is x, float32 (channels, H, W), and its targets, float32
    (lead_steps, channels, H, W), 6 h apart. H leaves out the southernmost row, and of 21 channels
    the last is left out. A year contributes its first `samples_per_year` times; targets may be in
    the next year's file, if it is one of `known_years` (by default `years`), whatever else is in the
    folder. A sample whose targets are not there is an error that names the year
    (InputError), or left out if `require_targets` is false.

    Each process opens a year once.
    """

    def __init__(
        self,
        folder: Path | str,
        years: Iterable[int],
        lead_steps: int,
        samples_per_year: int,
        require_targets: bool = True,
        known_years: Iterable[int] | None = None,
    ) -> None:
        self.lead_steps = lead_steps
        self._files: list[YearFile] = []
        self._samples: list[tuple[int, int]] = []  # (file, time in it)
        folder, years = Path(folder), list(years)
        known = frozenset(years if known_years is None else known_years)
        opened: dict[int, YearFile] = {}

        def read(year: int) -> YearFile:
            if year not in opened:
                opened[year] = YearFile.read(folder, year)
            return opened[year]

        for year in years:
            first = read(year)
            at = len(self._files)
            # Every year is followed in the list by the file that continues it, or by itself.
            following = read(year + 1) if year + 1 in known else first
            self._files += [first, following]
            steps = first.steps + (following.steps if following.start == first.end else 0)
            usable = min(samples_per_year, first.steps, max(0, steps - lead_steps))
            if require_targets and usable < samples_per_year:
                raise InputError(
                    f"{first.path}: year {year} has {usable} samples with targets "
                    f"{lead_steps * STEP_H} h ahead, {samples_per_year} are needed; give it more "
                    f"times, or {year + 1} to the dataset, or lower samples_per_year"
                )
            self._samples += [(at, step) for step in range(usable)]
        if not self._samples:
            raise InputError(f"{folder}: no ERA5 samples in the years {years}")
        shapes = {
            (min(file.channels, len(CHANNELS)), file.latitudes, file.longitudes)
            for file in self._files
        }
        if len(shapes) > 1:
            raise InputError(f"{folder}: years have different grids or channels: {sorted(shapes)}")
        channels, latitudes, longitudes = shapes.pop()
        self.shape = (channels, latitudes - 1, longitudes)
        self._readers: dict[Path, StepReader] = {}
        self._process = os.getpid()

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, key: Key) -> tuple[torch.Tensor, ...]:
        _, position = key
        fields = torch.empty(1 + self.lead_steps, *self.shape)
        file, step = self._samples[position]
        for field in fields.numpy():
            if step >= self._files[file].steps:  # the next year's
                file, step = file + 1, step - self._files[file].steps
            self._reader(self._files[file]).read(step, field)
            step += 1
        return fields[0], fields[1:]

    @property
    def latitude(self) -> np.ndarray:
        """Degrees north of the rows used, float64 (H,)."""
        with h5py.File(self._files[0].path, "r") as file:
            return file["latitude"][:-1]

    def _reader(self, file: YearFile) -> StepReader:
        # HDF5 handles do not survive a fork: each process opens its own, once.
        if self._process != os.getpid():
            self._readers, self._process = {}, os.getpid()
        if file.path not in self._readers:
            self._readers[file.path] = file.open()
        return self._readers[file.path]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_readers": {}}


class SyntheticEra5(Dataset[torch.Tensor]):
    """Positions without fields: nothing is read, and the workload keeps one sample on the device."""

    workers = 0

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitems__(self, keys: Sequence[Key]) -> list[torch.Tensor]:
        """Return the positions of a batch, int64 (n,), as its only part."""
        return [torch.tensor([position for _, position in keys])]

    @staticmethod
    def collate(batch: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the batch, which is complete already."""
        return batch
