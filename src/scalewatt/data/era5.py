"""ERA5 for FourCastNet: its channels, the files of prepared years, and datasets of them.

A prepared year, `<year>.h5`, has `fields` float32 (time, channel, latitude, longitude), contiguous
and not normalised, north to south and from 0° eastward; `time` int64 (Unix s), 6-hourly from 1
January 00:00; `latitude`, `longitude`; and `statistics`, the moments of every channel. For a file of
the original project, `fields` is a link to it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import torch
from torch.utils.data import Dataset

from scalewatt.campaign.campaign_file import TARGET_STEPS, all_years, part_years
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object

_TABLE = pd.read_csv(Path(__file__).with_name("channels.csv"), dtype={"level": "Int64"})
_ALOFT = _TABLE["variable"] + " at " + _TABLE["level"].astype("string") + " hPa"
_TABLE["text"] = _ALOFT.fillna(_TABLE["variable"])
_TABLE["level"] = _TABLE["level"].astype(object).where(_TABLE["level"].notna(), None)
CHANNEL_OF: dict[str, Any] = {str(row.channel): row for row in _TABLE.itertuples(index=False)}
"""The channels in their order: `variable` as WeatherBench 2 and ARCO-ERA5 name it, its `level` in hPa (None
at the surface), `text` for both, and the range `low` to `high` in `unit`, which holds every analysis of the
atmosphere; another unit, another level of geopotential, or normalised values fall outside of several."""

SHORT_NAMES = dict(zip(_TABLE["grib"], _TABLE["variable"], strict=True)) | {
    name: channel.variable for name, channel in CHANNEL_OF.items() if channel.level is None
}
"""Variables by their names in GRIB and in the Climate Data Store's netCDF."""

CHANNELS = tuple(CHANNEL_OF)
CHANNEL_COUNTS = (len(CHANNELS), len(CHANNELS) + 1)
"""The original project's later files have another channel at the end, which is not used."""
Z500 = CHANNELS.index("z500")

STEP_H = 6

STATISTICS = "statistics.json"
CLIMATOLOGY = "climatology.h5"


def year_times(year: int, samples_per_year: int | None = None) -> np.ndarray:
    """Times (datetime64[ns]) that are stored for a year, 6-hourly from 1 January 00:00 UTC.

    With `samples_per_year`, only as many as its samples and their targets need; the targets of
    the last samples of a calendar year are in the next year.
    """
    times = np.arange(f"{year}-01-01", f"{year + 1}-01-01", STEP_H, dtype="datetime64[h]")
    stop = None if samples_per_year is None else samples_per_year + TARGET_STEPS
    return times[:stop].astype("datetime64[ns]")


def read_layout(path: Path) -> tuple[int, tuple[int, int, int]]:
    """Times of a prepared year, and its channels, latitudes and longitudes.

    A linked file may have more times. InputError if the file is missing or damaged.
    """
    try:
        with h5py.File(path, "r") as file:
            return len(file["time"]), file["fields"].shape[1:]
    except (OSError, KeyError) as error:
        raise InputError(f"{path}: cannot be read as a prepared year ({error})") from error


class Era5Dataset(Dataset[tuple[torch.Tensor, ...]]):
    """Single steps of a part of a dataset's years with the steps that follow them.

    An item, by the key (epoch, position), is x, float32 (channels, H, W), and its targets, float32
    (lead_steps, channels, H, W), 6 h apart. H leaves out the southernmost row, and of 21 channels
    the last is left out. A year contributes its first `samples_per_year` times; targets may be in
    the next year, if the dataset has it. A sample without targets is refused in training (InputError),
    and left out of the other parts. With `scale`, the channels' means and standard deviations, fields
    are normalised as they are read.
    """

    def __init__(
        self,
        folder: Path | str,
        definition: dict[str, Any],
        part: str,
        lead_steps: int,
        scale: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> None:
        folder, years = Path(folder), part_years(definition, part)
        wanted, known = definition["samples_per_year"], all_years(definition)
        self.scale = scale
        self._open: dict[tuple[int, Path], h5py.Dataset] = {}  # by process
        self._samples: list[list[tuple[Path, int]]] = []
        """Files and steps of each sample's fields."""
        for year in years:
            path, following = folder / f"{year}.h5", folder / f"{year + 1}.h5"
            count, (channels, latitudes, longitudes) = read_layout(path)
            steps = [(path, step) for step in range(count)]
            if count == len(year_times(year)) and year + 1 in known:
                steps += [(following, step) for step in range(read_layout(following)[0])]
            usable = min(wanted, count, max(0, len(steps) - lead_steps))
            if part == "train" and usable < wanted:
                text = f"{path}: has {usable} samples with targets {lead_steps * STEP_H} h ahead"
                advice = f"lower samples_per_year ({wanted}), or prepare {year + 1}, too"
                raise InputError(f"{text}; {advice}")
            self._samples += [steps[first : first + 1 + lead_steps] for first in range(usable)]
        if not self._samples:
            raise InputError(f"{folder}: no {part} samples of ERA5 have targets")
        self.shape = min(channels, len(CHANNELS)), latitudes - 1, longitudes
        with h5py.File(path, "r") as file:
            self.latitude: np.ndarray = file["latitude"][:-1]
            """Degrees north of the rows used, float64 (H,)."""

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, key: tuple[int, int]) -> tuple[torch.Tensor, ...]:
        _, position = key
        fields = torch.empty(len(self._samples[position]), *self.shape)
        for field, (path, step) in zip(fields.numpy(), self._samples[position], strict=True):
            try:
                # HDF5 handles do not survive a fork: each process opens its files.
                if (file := (os.getpid(), path)) not in self._open:
                    self._open[file] = h5py.File(path, "r")["fields"]
                self._open[file].read_direct(field, np.s_[step, : field.shape[0], : field.shape[1]])
            except (OSError, KeyError) as error:
                raise InputError(f"{path}: step {step} cannot be read ({error})") from error
        if self.scale:
            mean, sd = self.scale
            fields = (fields - mean) / sd
        return fields[0], fields[1:]


def load_statistics(folder: Path | str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every channel over the training years, float32 (20,)."""
    statistics = read_json_object(Path(folder) / STATISTICS, "mean", "sd")
    return np.array(statistics["mean"], np.float32), np.array(statistics["sd"], np.float32)


def load_climatology(folder: Path | str) -> np.ndarray:
    """Mean z500 of the training years, float32 (latitude, longitude) in m²/s², all latitudes."""
    with h5py.File(Path(folder) / CLIMATOLOGY, "r") as file:
        return file["z500"][...]
