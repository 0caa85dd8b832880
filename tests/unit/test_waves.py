"""Rossby–Haurwitz waves: the physics they claim, in the format that ERA5 has."""

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
A, OMEGA = waves.EARTH_RADIUS_M, waves.EARTH_ROTATION


@pytest.fixture(scope="module")
def year():
    return waves.year_dataset(DEFINITION, 1979)


def grid(rows=19, columns=40):
    latitude = np.deg2rad(np.linspace(90, -90, rows))
    longitude = np.linspace(0, 2 * np.pi, columns, endpoint=False)
    return latitude[:, None], longitude, waves.Harmonics.on_grid(16, latitude, longitude)


def test_harmonics_are_orthonormal_with_the_derivatives_they_claim():
    nodes, weights = np.polynomial.legendre.leggauss(20)
    step = 1e-6
    tables, shifted = (
        waves.Harmonics.on_grid(8, np.arcsin(nodes) + d, np.zeros(1)) for d in (0, step)
    )
    for m in range(9):
        products = np.einsum("nj,kj,j->nk", tables.value[m], tables.value[m], weights)
        np.testing.assert_allclose(products[m:, m:], np.eye(9 - m), atol=1e-12)
        np.testing.assert_allclose(
            tables.northward[m], (shifted.value - tables.value)[m] / step, atol=1e-4
        )
        np.testing.assert_allclose(
            tables.eastward[m], m * tables.value[m] / np.sqrt(1 - nodes**2), atol=1e-12
        )


def test_geopotential_of_one_wave_is_phillips_solution():
    # Williamson et al. 1992, test case 6: zonal wave number 4 in solid-body rotation.
    r, spin, k = 4, 7.848e-6, 7.848e-6
    latitude, longitude, harmonics = grid()
    sin, cos = np.sin(latitude), np.cos(latitude)
    psi = np.zeros((9, 9), complex)
    psi[0, 1] = -(A**2) * spin / np.sqrt(1.5)
    row = 4  # cos^4 · sin is the harmonic of degree 5 up to its norm
    psi[4, 5] = A**2 * k * (cos**4 * sin)[row, 0] / harmonics.value[4, 5, row]
    c2 = cos**2
    mean = spin / 2 * (2 * OMEGA + spin) * c2 + k**2 / 4 * (
        (r + 1) * c2 ** (r + 1) + (2 * r**2 - r - 2) * c2**r - 2 * r**2 * c2 ** (r - 1)
    )
    once = 2 * (OMEGA + spin) * k / ((r + 1) * (r + 2)) * cos**r
    once = once * ((r**2 + 2 * r + 2) - (r + 1) ** 2 * c2)
    twice = k**2 / 4 * c2**r * ((r + 1) * c2 - (r + 2))
    expected = A**2 * (mean + once * np.cos(r * longitude) + twice * np.cos(2 * r * longitude))
    found = harmonics.field(waves.Balance(8).geopotential(psi))
    difference = found - expected  # only the global mean, which balance leaves open
    assert np.ptp(difference) < 1e-9 * np.ptp(expected)


def vorticity_equation(year):
    """Tendency of vorticity and minus its advection at 500 hPa, on a grid."""
    latitude, _, harmonics = grid()
    before, now, after = year.streamfunction(np.array([-30.0, 0.0, 30.0]), 500)
    factor = -waves.laplacian_factor(9)
    tendency = harmonics.field(factor * (after - before)) / 60
    zeta_x, zeta_y = harmonics.gradient(factor * now)
    v, minus_u = harmonics.gradient(now)
    advection = -minus_u * zeta_x + v * (zeta_y + 2 * OMEGA * np.cos(latitude) / A)
    return tendency, -advection


def test_waves_of_one_degree_solve_the_nonlinear_vorticity_equation():
    drawn = waves.Year.draw(0, 1979)
    one_degree = np.array([n == 5 for n, _ in waves.MODES])
    tendency, advection = vorticity_equation(waves.Year(drawn.amplitude * one_degree, drawn.phase))
    np.testing.assert_allclose(tendency, advection, atol=1e-6 * np.abs(tendency).max())


def test_weak_waves_of_all_degrees_solve_the_linearised_vorticity_equation():
    drawn = waves.Year.draw(0, 1979)
    tendency, advection = vorticity_equation(waves.Year(drawn.amplitude * 1e-6, drawn.phase))
    np.testing.assert_allclose(tendency, advection, atol=1e-4 * np.abs(tendency).max())
    tendency, advection = vorticity_equation(drawn)  # and strong ones do not, as the docs say
    assert np.abs(tendency - advection).max() > 0.05 * np.abs(tendency).max()


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


def test_temperature_is_that_of_the_layers_thickness(year):
    thickness = year["geopotential"].sel(level=850) - year["geopotential"].sel(level=1000)
    layer = thickness / (waves.GAS_CONSTANT * np.log(1000 / 850))
    mean = year["temperature"].sel(level=[850, 1000]).mean("level")
    assert float(np.abs(layer - mean).max()) < 1.0


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
