"""A year of ERA5 is made all or nothing, with its moments."""

from __future__ import annotations

import json
from multiprocessing import get_context

import numpy as np
import pytest
from era5_data import DEFINITION, fields, marked_store, write

from scalewatt.common.errors import InputError
from scalewatt.data.era5 import year_times
from scalewatt.data.era5_prepare import prepare_year, stored_moments
from scalewatt.data.era5_sources import open_source
from scalewatt.data.prepared import prepare_dataset, prepare_dataset_year

STEPS = 260  # to the beginning of March


def prepare(url, path):
    times = year_times(2000)[:STEPS]
    prepare_year(open_source(url, 2000), path, times, [4, 8])


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    store = marked_store(years=(2000,), steps=STEPS)
    return write(store, tmp_path_factory.mktemp("store") / "era5.zarr")


@pytest.fixture(scope="module")
def whole(url, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "2000.h5"
    prepare(url, path)
    return path


def test_what_a_killed_job_has_left_of_a_year_is_made_anew(tmp_path, url, whole):
    (tmp_path / ".2000.h5.partial").write_bytes(whole.read_bytes()[:1000])
    prepare(url, tmp_path / "2000.h5")
    assert (tmp_path / "2000.h5").read_bytes() == whole.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".2000.lock", "2000.h5"]


# --- moments --------------------------------------------------------------------------------------


def test_the_file_holds_its_moments(whole):
    with pytest.raises(InputError, match="has no moments of 259 steps; delete it"):
        stored_moments(whole, STEPS - 1)
    stored = stored_moments(whole, STEPS)
    values = fields(whole).astype(np.float64)
    np.testing.assert_allclose(stored["mean"], values.mean((0, 2, 3)), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(stored["count"], STEPS * values[0, 0].size)
    np.testing.assert_allclose(
        stored["squares"] / stored["count"], values.var((0, 2, 3)), rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(stored["z500_sum"], values[:, 14].sum(0), rtol=1e-12)


# --- jobs of single years -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return write(marked_store(), tmp_path_factory.mktemp("small") / "era5.zarr")


def make_year(folder, source, year):
    return prepare_dataset_year(DEFINITION, folder, source, year)


def test_years_made_in_parallel_are_the_dataset_made_at_once(tmp_path, small):
    marker = prepare_dataset(DEFINITION, tmp_path / "once", small)
    with get_context("spawn").Pool(2) as pool:
        made = pool.starmap(
            make_year, [(tmp_path / "years", small, year) for year in (1999, 2000, 2001, 2002)]
        )
    assert [(year["year"], year["steps"], year["grid"]) for year in made][:2] == [
        (1999, 8, [5, 8]),
        (2000, 8, [5, 8]),
    ]
    assert str(tmp_path) not in json.dumps(made)
    assert len({year["moments_sha256"] for year in made}) == 4
    assert prepare_dataset(DEFINITION, tmp_path / "years", None) == marker
    for name in ("statistics.json", "1999.h5", "climatology.h5"):
        once, apart = ((tmp_path / kind / name).read_bytes() for kind in ("once", "years"))
        assert once == apart


def test_a_year_is_not_added_to_what_was_prepared_for_another_dataset(tmp_path, small):
    prepare_dataset(DEFINITION, tmp_path, small)
    more = DEFINITION | {"validation_years": [2001, 2002]}
    remedy = r"was prepared for .*; name another folder, or delete manifest\.json in it"
    with pytest.raises(InputError, match=remedy):
        prepare_dataset_year(more, tmp_path, small, 2002)
    year = (tmp_path / "2000.h5").stat().st_mtime_ns
    (tmp_path / "manifest.json").unlink()
    prepare_dataset(more, tmp_path, small)
    assert (tmp_path / "2000.h5").stat().st_mtime_ns == year
