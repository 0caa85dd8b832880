"""Reading single steps of prepared ERA5 years and the steps that follow them."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from scalewatt.campaign.campaign_file import PARTS
from scalewatt.common.errors import InputError
from scalewatt.data.era5 import Era5Dataset, year_times

ROWS, COLUMNS, STEPS = 4, 8, 8


def write_year(folder: Path, year: int, steps: int = STEPS, channels: int = 20) -> np.ndarray:
    """A prepared year of noise in `folder`; its fields."""
    shape = (steps, channels, ROWS + 1, COLUMNS)
    noise = np.random.default_rng(year).normal(size=shape).astype(np.float32)
    with h5py.File(folder / f"{year}.h5", "w") as file:
        file["fields"] = noise
        file["time"] = year_times(year)[:steps].astype("datetime64[s]").astype(np.int64)
        file["latitude"] = np.linspace(90, -90, ROWS + 1)
        file["longitude"] = np.arange(COLUMNS) * 360 / COLUMNS
    return noise


def fields(path: Path) -> np.ndarray:
    with h5py.File(path) as file:
        return file["fields"][:]


def dataset(
    folder: Path,
    years: list[int],
    lead_steps: int,
    samples: int,
    part: str = "train",
    known: int = 0,
) -> Era5Dataset:
    """A part of the years; the dataset's last year is `known`."""
    definition = {f"{name}_years": [years[0], years[-1]] for name in PARTS}
    other = "test" if part == "train" else "train"
    definition[f"{other}_years"] = [known or years[0]] * 2
    definition |= {"samples_per_year": samples}
    return Era5Dataset(folder, definition, part, lead_steps)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two prepared years."""
    path = tmp_path_factory.mktemp("prepared")
    for year in (1999, 2000):
        write_year(path, year)
    return path


def test_a_sample_is_a_step_and_the_steps_after_it_without_the_south_pole(folder: Path) -> None:
    data = dataset(folder, [1999, 2000], 2, 6)
    assert len(data) == 12 and data.shape == (20, 4, 8)
    x, targets = data[0, 6 + 5]
    expected = torch.from_numpy(fields(folder / "2000.h5")[5:8, :, :4])
    assert torch.equal(x, expected[0]) and torch.equal(targets, expected[1:])
    assert data.latitude.tolist() == [90, 45, 0, -45]


def test_a_target_may_be_in_the_next_year(tmp_path: Path) -> None:
    for year in (1999, 2000):
        with h5py.File(tmp_path / f"{year}.h5", "w") as file:
            times = year_times(year).astype("datetime64[s]").astype(np.int64)
            values = np.broadcast_to(times[:, None, None, None] / 21600, (len(times), 1, 3, 2))
            file["fields"], file["time"] = values.astype(np.float32), times
            file["latitude"] = [90.0, 0, -90]
    data = dataset(tmp_path, [1999], 2, 1460, known=2000)
    assert len(data) == 1460
    for position in (0, 1457, 1458, 1459):
        x, targets = data[0, position]
        assert (targets[:, 0, 0, 0] - x[0, 0, 0]).tolist() == [1, 2]
    leap = dataset(tmp_path, [2000], 2, 1460)
    assert len(leap) == 1460  # 1464 times: room for the targets


def test_a_sample_without_target_is_refused_in_training_and_left_out_in_evaluation(
    folder: Path,
) -> None:
    with pytest.raises(InputError, match=r"2000\.h5: has 7 samples with targets 6 h ahead"):
        dataset(folder, [2000], 1, 8)
    data = dataset(folder, [2000], 1, 8, "validation")
    assert len(data) == 7
    x, targets = data[0, 6]
    assert not torch.equal(x, targets[0])


def test_workers_open_their_own_files_after_a_fork(folder: Path) -> None:
    data = dataset(folder, [1999, 2000], 1, 6)
    keys = [(0, position) for position in (11, 0, 5, 6, 7)]
    here = torch.stack([data[key][0] for key in keys])
    loader = DataLoader(data, batch_size=2, sampler=keys, num_workers=2)
    assert torch.equal(torch.cat([x for x, _ in loader]), here)


def test_a_missing_or_damaged_year_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"1999\.h5: cannot be read as a prepared year"):
        dataset(tmp_path, [1999], 1, 6)
    (tmp_path / "1999.h5").write_bytes(b"torn")
    with pytest.raises(InputError, match=r"1999\.h5: cannot be read as a prepared year"):
        dataset(tmp_path, [1999], 1, 6)
