"""The demo's fields travel, have ERA5's magnitudes, and are the same every time."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5 import demo_waves as waves
from scalewatt.datasets.era5.channels import year_times

DEFINITION = {
    "name": "waves",
    "format": "era5",
    "source": "embedded",
    "grid": [16, 32],
    "train_years": [1979, 1980],
    "validation_years": [1981, 1981],
    "test_years": [1982, 1982],
    "samples_per_year": 10,
}


@pytest.fixture(scope="module")
def year():
    return waves.year_dataset(DEFINITION, 1979)


def test_fields_have_realistic_magnitudes(year):
    def mean_and_sd(name, **at):
        field = year[name].sel(**at)
        weights = np.cos(np.deg2rad(year.latitude))
        return float(field.weighted(weights).mean()), float(field.std())

    for name, at, mean, sd in [
        ("geopotential", {"level": 500}, (53000, 57000), (1500, 4500)),
        ("geopotential", {"level": 1000}, (500, 1500), (300, 1500)),
        ("temperature", {"level": 850}, (270, 290), (5, 18)),
        ("2m_temperature", {}, (275, 295), (5, 18)),
        ("mean_sea_level_pressure", {}, (1.005e5, 1.02e5), (300, 2000)),
        ("u_component_of_wind", {"level": 500}, (5, 20), (4, 20)),
        ("v_component_of_wind", {"level": 500}, (-0.1, 0.1), (4, 20)),
        ("total_column_water_vapour", {}, (10, 30), (5, 20)),
    ]:
        found = mean_and_sd(name, **at)
        assert mean[0] < found[0] < mean[1] and sd[0] < found[1] < sd[1], (name, at, found)
    assert year["relative_humidity"].min() >= 0 and year["relative_humidity"].max() <= 100


def test_scalars_have_one_value_at_a_pole(year):
    for pole in (0, -1):
        for name in ("geopotential", "temperature", "2m_temperature"):
            assert np.ptp(year[name].isel(latitude=pole).values, axis=-1).max() < 0.05


def test_a_persistence_forecast_has_a_clear_error_that_grows(year):
    z = year["geopotential"].sel(level=500).values
    six, twelve = (np.sqrt(np.mean((z[lag:] - z[:-lag]) ** 2)) for lag in (1, 2))
    assert 100 < six < 1.0e3 and 1.7 * six < twelve < 2.1 * six


def test_the_store_is_deterministic_and_continuous_and_no_two_years_are_the_same(tmp_path):
    for name in ("a.zarr", "b.zarr"):
        waves.write_waves(tmp_path / name, DEFINITION)
    files = [
        {p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()}
        for root in (tmp_path / "a.zarr", tmp_path / "b.zarr")
    ]
    assert files[0] == files[1] and sorted(p.name for p in tmp_path.iterdir()) == [
        "a.zarr",
        "b.zarr",
    ]
    store = xr.open_dataset(tmp_path / "a.zarr", engine="zarr", chunks=None)
    expected = np.concatenate([year_times(y)[:12] for y in range(1979, 1983)])
    assert np.array_equal(store.time.values, expected)
    assert store.latitude.values[[0, -1]].tolist() == [90, -90] and len(store.latitude) == 17
    assert store.level.values.tolist() == [50, 500, 850, 1000]
    assert store["relative_humidity"].attrs["units"] == "%"
    z = store["geopotential"].sel(level=500)
    first, second = (z.sel(time=f"{y}-01-03T00:00").values for y in (1979, 1980))
    assert 100 < np.sqrt(np.mean((first - second) ** 2)) < 5000


def test_another_seed_gives_other_waves(year):
    other = waves.year_dataset(DEFINITION | {"seed": 1}, 1979)
    assert not np.allclose(other["geopotential"], year["geopotential"], rtol=1e-3)


def test_a_year_without_room_for_targets_is_refused(tmp_path):
    with pytest.raises(InputError, match="samples_per_year"):
        waves.write_waves(tmp_path / "w.zarr", DEFINITION | {"samples_per_year": 1460})
    assert not list(tmp_path.iterdir())


def test_an_interrupted_store_leaves_nothing_behind(tmp_path, monkeypatch):
    whole = waves.year_dataset

    def failing(definition, year):
        if year == 1981:
            raise KeyboardInterrupt
        return whole(definition, year)

    monkeypatch.setattr(waves, "year_dataset", failing)
    with pytest.raises(KeyboardInterrupt):
        waves.write_waves(tmp_path / "w.zarr", DEFINITION)
    assert not list(tmp_path.iterdir())
