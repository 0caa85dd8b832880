"""The original project's yearly files, used where they are."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from era5_data import DEFINITION, original_fields

from scalewatt.common.errors import InputError
from scalewatt.data.era5 import read_layout, year_times
from scalewatt.data.era5_prepare import prepare_year
from scalewatt.data.era5_sources import open_source
from scalewatt.data.prepared import prepare_dataset

GRID = (8, 16)
EARTH = DEFINITION | {"name": "earth", "grid": list(GRID), "samples_per_year": 1458}
FOLDERS = {1999: "train", 2000: "train", 2001: "test", 2002: "out_of_sample"}


def write(path, steps=1460, channels=20, change=None):
    values = original_fields(steps, channels, GRID)
    if change is not None:
        values = change(values)
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["fields"] = values


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    for year, name in FOLDERS.items():
        write(folder / name / f"{year}.h5", channels=21 if year == 2000 else 20)
    return folder


@pytest.fixture(scope="module")
def prepared(originals, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    return folder, prepare_dataset(EARTH, folder, str(originals))


def test_originals_in_three_folders_are_linked_and_not_copied(prepared, originals):
    folder, marker = prepared
    assert marker["train_samples"] == 2 * 1458
    for year, name in FOLDERS.items():
        path = folder / f"{year}.h5"
        assert path.stat().st_size < (originals / name / f"{year}.h5").stat().st_size / 20
        assert read_layout(path) == (1460, (21 if year == 2000 else 20, 9, 16))
        with h5py.File(path) as linked, h5py.File(originals / name / f"{year}.h5") as original:
            assert isinstance(linked.get("fields", getlink=True), h5py.ExternalLink)
            np.testing.assert_array_equal(linked["fields"][7], original["fields"][7])
            assert linked["latitude"][[0, -1]].tolist() == [90, -90]


def prepare(tmp_path, year=2000, samples=30):
    source = str(tmp_path / "originals")
    times = year_times(year, samples)
    prepare_year(open_source(source, year), tmp_path / "new" / f"{year}.h5", times, GRID)


def reordered(values):
    return values[:, [1, 0, *range(2, 20)]]


def by_level(values):
    return values[:, [*range(5), *range(19, 4, -1)]]


def with_nan(values):
    values[37, 3, 2, 5] = np.nan
    return values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (reordered, "winds v are stronger than u"),
        (by_level, "temperature at 850 hPa on .* reaches from"),
        (lambda v: (v - v.mean((0, 2, 3), keepdims=True)) / 300, "2m_temperature .*another unit"),
        (lambda v: v[:, :, ::-1], "rows must go from 90° N to 90° S"),
        (lambda v: np.roll(v, 8, axis=3), "columns must go from 0° eastward"),
        (lambda v: v[:, :19], r"shape \(40, 19, 9, 16\); needed is \(up to 1464, 20 or 21"),
        (lambda v: v[:, :, :8], "has 8 latitudes from 90 to -90; needed are 9"),
        (lambda v: v[:20], r"missing .* on 2000-01-06T00:00, .* \(times: 12\)"),
        (with_nan, "surface_pressure on 2000-01-10T06:00 has missing values"),
    ],
)
def test_files_that_are_not_what_they_should_be_are_refused(tmp_path, change, message):
    write(tmp_path / "originals" / "2000.h5", steps=40, change=change)
    with pytest.raises(InputError, match=message):
        prepare(tmp_path, samples=38 if change is with_nan else 30)
    assert not (tmp_path / "new" / "2000.h5").exists()


def test_missing_doubled_and_torn_files_are_named(tmp_path):
    (tmp_path / "originals").mkdir()
    with pytest.raises(InputError, match=r"has 0 files 2000\.h5, not 1"):
        prepare(tmp_path)
    write(tmp_path / "originals" / "train" / "2000.h5", steps=40)
    content = (tmp_path / "originals" / "train" / "2000.h5").read_bytes()
    (tmp_path / "originals" / "train" / "2000.h5").write_bytes(content[:-1000])
    with pytest.raises(InputError, match=r"train/2000\.h5: cannot be read .*trunc"):
        prepare(tmp_path)
    (tmp_path / "originals" / "2000.h5").write_bytes(content)
    with pytest.raises(InputError, match=r"has 2 files 2000\.h5, not 1"):
        prepare(tmp_path)
