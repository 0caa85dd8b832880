"""A year of ERA5 is made all or nothing, with its moments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing import get_context

import numpy as np
import pytest
from era5_data import DEFINITION, fields, marked_store, write
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from scalewatt.common.errors import InputError
from scalewatt.data.era5 import CHANNELS, year_times
from scalewatt.data.era5_prepare import (
    Moments,
    prepare_year,
    stored_moments,
)
from scalewatt.data.prepared import prepare_dataset, prepare_dataset_year

STEPS = 260  # to the beginning of March
SLOW = """
import sys, time
from scalewatt.data import era5_prepare
from scalewatt.data.era5 import year_times

check = era5_prepare.check_field
def slowly(*arguments):
    time.sleep(1e-4)
    check(*arguments)
era5_prepare.check_field = slowly
era5_prepare.prepare_year(sys.argv[1], 2000, sys.argv[2], times=year_times(2000)[:int(sys.argv[3])])
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    store = marked_store(years=(2000,), steps=STEPS)
    return write(store, tmp_path_factory.mktemp("store") / "era5.zarr")


@pytest.fixture(scope="module")
def whole(url, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "2000.h5"
    prepare_year(url, 2000, path, times=year_times(2000)[:STEPS])
    return path


def start(url, path):
    return subprocess.Popen([sys.executable, "-c", SLOW, url, str(path), str(STEPS)])


def wait_for(condition, process):
    while not condition():
        assert process.poll() is None, "ended too early"
        time.sleep(0.01)


def test_a_killed_year_never_looks_complete_and_is_made_again(tmp_path, url, whole):
    path = tmp_path / "2000.h5"
    process = start(url, path)
    try:
        wait_for(lambda: path.with_name(".2000.h5.partial").exists(), process)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not path.exists()
    prepare_year(url, 2000, path, times=year_times(2000)[:STEPS])
    assert path.read_bytes() == whole.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".2000.lock", "2000.h5"]


def test_too_little_space_is_reported_before_the_year_is_begun(tmp_path, url, monkeypatch):
    class Full:
        f_frsize, f_bavail, f_blocks, f_bfree = 1000, 1, 9, 9

    monkeypatch.setattr(os, "statvfs", lambda _: Full)
    with pytest.raises(InputError, match=r"0\.0 GB are free, this year's fields need"):
        prepare_year(url, 2000, tmp_path / "2000.h5", times=year_times(2000)[:STEPS])


# --- moments --------------------------------------------------------------------------------------

VALUES = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40),
    elements=st.floats(-1e5, 1e5, width=32),
)


@given(st.lists(VALUES, min_size=1, max_size=5), st.sampled_from([0, 3e5]))
def test_moments_of_fields_are_those_of_all_their_values(parts, offset):
    parts = [part + np.float32(offset) for part in parts]
    whole = np.concatenate([part.ravel() for part in parts]).astype(np.float64)
    moments = Moments()
    for part in parts:
        moments.add(3, part)
    arrays, scale = moments.arrays(), np.abs(whole).max() + 1e-30
    assert arrays["count"].tolist() == [0, 0, 0, whole.size] + [0] * (len(CHANNELS) - 4)
    assert arrays["mean"][3] == pytest.approx(whole.mean(), abs=1e-12 * scale)
    squares = ((whole - whole.mean()) ** 2).sum()
    least = 1e-15 * scale**2 * whole.size
    assert arrays["squares"][3] == pytest.approx(squares, rel=1e-9, abs=least)


def test_a_small_spread_round_a_large_mean_is_exact():
    values = 200_000 + np.random.default_rng(0).integers(0, 8, (721, 1440)) / 64
    moments = Moments()
    moments.add(0, values.astype(np.float32))
    assert moments.arrays()["mean"][0] == pytest.approx(values.mean(), rel=1e-14)
    squares = ((values - values.mean()) ** 2).sum()
    assert moments.arrays()["squares"][0] == pytest.approx(squares, rel=1e-11)


def test_the_file_holds_its_moments(whole):
    with pytest.raises(InputError, match="has no statistics of 259 steps; delete it"):
        stored_moments(whole, STEPS - 1)
    stored = stored_moments(whole, STEPS)
    values = fields(whole).astype(np.float64)
    np.testing.assert_allclose(stored["mean"], values.mean((0, 2, 3)), rtol=1e-12, atol=1e-12)
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
        found = pool.starmap(
            make_year, [(tmp_path / "years", small, year) for year in (1999, 2000, 2001, 2002)]
        )
    assert [(one["year"], one["steps"], one["grid"]) for one in found][:2] == [
        (1999, 8, [5, 8]),
        (2000, 8, [5, 8]),
    ]
    assert str(tmp_path) not in json.dumps(found) and len({f["moments_sha256"] for f in found}) == 4
    assert prepare_dataset(DEFINITION, tmp_path / "years", None) == marker
    for name in ("statistics.json", "1999.h5", "climatology.h5"):
        once, apart = ((tmp_path / kind / name).read_bytes() for kind in ("once", "years"))
        assert once == apart


def test_only_years_of_such_a_dataset_are_made_alone(tmp_path, small):
    with pytest.raises(
        InputError, match="--year: 1990: the dataset has no such year; its years: 1999, 2000"
    ):
        make_year(tmp_path, small, 1990)
    with pytest.raises(InputError, match="era is not prepared year by year"):
        prepare_dataset_year(DEFINITION | {"source": "embedded"}, tmp_path, None, 1999)
