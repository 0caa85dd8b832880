"""ERA5: from a Zarr store by label to yearly HDF5, and exact statistics."""

from __future__ import annotations

import shutil

import h5py
import numpy as np
import pytest
from era5_data import DEFINITION, fields, marked_store, write

from scalewatt.common.errors import InputError
from scalewatt.data.era5 import CHANNELS, load_statistics
from scalewatt.data.prepared import prepare_dataset, prepare_dataset_year


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    return write(marked_store(), tmp_path_factory.mktemp("store") / "era5.zarr")


@pytest.fixture(scope="module")
def prepared(url, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    return folder, prepare_dataset(DEFINITION, folder, url)


def test_the_prepared_file_is_contiguous_and_describes_itself(prepared, url):
    folder, _ = prepared
    with h5py.File(folder / "1999.h5") as file:
        data = file["fields"]
        assert data.shape == (8, 20, 5, 8) and data.dtype == np.float32
        assert data.chunks is None and data.compression is None
        assert file["time"][:2].tolist() == [915148800, 915148800 + 21600]
        assert file["latitude"][:].tolist() == [90, 45, 0, -45, -90]
        assert list(file.attrs["channels"]) == list(CHANNELS)
        assert file.attrs["source"] == f"ERA5 store {url}"
        assert file.attrs["relative_humidity_over"] == "unknown"


def test_relative_humidity_as_a_fraction_becomes_percent(tmp_path, prepared):
    folder, _ = prepared
    store = marked_store()
    store["relative_humidity"] = (store["relative_humidity"] / 100).assign_attrs(units="1")
    path = write(store, tmp_path / "fraction.zarr")
    prepare_dataset_year(DEFINITION, tmp_path, path, 2000)
    np.testing.assert_allclose(fields(tmp_path / "2000.h5"), fields(folder / "2000.h5"), rtol=1e-6)
    with h5py.File(tmp_path / "2000.h5") as file:
        assert file.attrs["relative_humidity_over"].startswith("water")
    shutil.copy(folder / "1999.h5", tmp_path)
    with pytest.raises(InputError, match=r"1999\.h5 over unknown, 2002\.h5 over water"):
        prepare_dataset(DEFINITION, tmp_path, path)


def test_statistics_are_those_of_the_training_years(prepared):
    folder, _ = prepared
    values = np.concatenate([fields(folder / f"{year}.h5") for year in (1999, 2000)])
    mean, sd = load_statistics(folder)
    assert mean.dtype == sd.dtype == np.float32 and mean.shape == (20,)
    np.testing.assert_allclose(mean, values.mean((0, 2, 3), dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(sd, values.std((0, 2, 3), dtype=np.float64), rtol=1e-6)


def test_prepared_years_need_no_source_and_missing_ones_name_the_key(tmp_path, prepared):
    folder, marker = prepared
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "manifest.json").unlink()
    assert prepare_dataset(DEFINITION, tmp_path / "copy", None) == marker
    with pytest.raises(
        InputError, match=r"1999\.h5: missing; .*sources: {era: <url, files or folder>}"
    ):
        prepare_dataset(DEFINITION, tmp_path / "new", None)
