"""ERA5-format fields made of Rossby–Haurwitz waves on the sphere, for runs without real data.

The flow is non-divergent with streamfunction ψ: a solid-body rotation of the air (angular speed ω
relative to the Earth) plus spherical harmonics of degree n and zonal wave number m. Each harmonic
moves along longitude at the angular speed that the barotropic vorticity equation gives it
(Haurwitz 1940),

    c = ω - 2(Ω + ω) / (n(n + 1)).

What is exact. At 500 hPa, the harmonics solve the vorticity equation linearised about the
solid-body rotation; if all of them had one degree n they would solve the nonlinear equation too,
because waves of one degree do not advect each other's vorticity. Waves of different degree do;
that interaction is left out. At each level, winds are the exact derivatives of ψ, and geopotential
is in exact nonlinear balance with them (the divergence equation with zero divergence; all products
are band-limited, so the spectral solution has no truncation error). Temperature is hydrostatic.

What is only plausible. The vertical structure (mean wind, amplitude and westward tilt of the waves
with height, all moving as at 500 hPa), the global means (international standard atmosphere), and
everything at the surface or about moisture, which are functions of the fields above.
"""

from __future__ import annotations

import math
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial import legendre

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5.channels import TARGET_STEPS, all_years, year_times

if TYPE_CHECKING:
    import xarray as xr

EARTH_RADIUS_M = 6.371e6
EARTH_ROTATION = 7.292e-5  # rad/s
GRAVITY = 9.80665  # m/s²
GAS_CONSTANT = 287.05  # J/(kg K), dry air
VAPOUR_GAS_CONSTANT = 461.5  # J/(kg K)

LEVELS_HPA = (50, 500, 850, 1000)
MODES = ((3, 1), (4, 3), (5, 2), (5, 4), (6, 3), (6, 5), (7, 6), (8, 5))  # (degree n, zonal m)
MAX_DEGREE = max(n for n, _ in MODES)
SUPERROTATION = 15.0 / EARTH_RADIUS_M  # rad/s at 500 hPa: 15 m/s at the equator
MODE_WIND = 4.0  # m/s, root mean square over the sphere, typical of one mode at 500 hPa

UNITS = {
    "10m_u_component_of_wind": "m s**-1",
    "10m_v_component_of_wind": "m s**-1",
    "2m_temperature": "K",
    "surface_pressure": "Pa",
    "mean_sea_level_pressure": "Pa",
    "total_column_water_vapour": "kg m**-2",
    "temperature": "K",
    "u_component_of_wind": "m s**-1",
    "v_component_of_wind": "m s**-1",
    "geopotential": "m**2 s**-2",
    "relative_humidity": "%",
}


def phase_speed(degree: int, superrotation: float = SUPERROTATION) -> float:
    """Return the angular speed (rad/s, eastward) of a harmonic of this degree in solid-body rotation."""
    return superrotation - 2 * (EARTH_ROTATION + superrotation) / (degree * (degree + 1))


# --- spherical harmonics ------------------------------------------------------------------------


@dataclass(frozen=True)
class Harmonics:
    """Spherical harmonics up to a degree on a latitude-longitude grid.

    Tables have the shape (m, n, latitude): the orthonormal Legendre functions P, m·P/cos(latitude)
    and dP/dlatitude; `waves` is exp(i·m·longitude), (m, longitude). All are finite at the poles.
    """

    value: np.ndarray
    eastward: np.ndarray
    northward: np.ndarray
    waves: np.ndarray

    @classmethod
    def on_grid(cls, degree: int, latitude: np.ndarray, longitude: np.ndarray) -> Harmonics:
        """Return the tables on the given latitudes and longitudes (radians)."""
        value, eastward, northward = np.zeros((3, degree + 1, degree + 1, len(latitude)))
        sin, cos = np.sin(latitude), np.cos(latitude)
        for m in range(degree + 1):
            for n in range(m, degree + 1):
                norm = math.sqrt((n + 0.5) * math.factorial(n - m) / math.factorial(n + m))
                # P = cos^m · q with the polynomial q, the m-th derivative of Legendre's in sin.
                polynomial = legendre.legder(np.eye(n + 1)[n] * norm, m)
                q = legendre.legval(sin, polynomial)
                slope = legendre.legval(sin, legendre.legder(polynomial))
                value[m, n] = cos**m * q
                northward[m, n] = cos ** (m + 1) * slope
                if m > 0:
                    eastward[m, n] = m * cos ** (m - 1) * q
                    northward[m, n] -= m * sin * cos ** (m - 1) * q
        waves = np.exp(1j * np.outer(np.arange(degree + 1), longitude))
        return cls(value, eastward, northward, waves)

    @property
    def sin_latitude(self) -> np.ndarray:
        """Sine of the latitude of every row."""
        return self.value[0, 1] / math.sqrt(1.5)

    def field(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the real part of Σ coefficients (…, m, n) · harmonics: (…, latitude, longitude)."""
        return self._sum(coefficients, self.value)

    def gradient(self, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the eastward and northward derivatives on the sphere (per metre)."""
        east = self._sum(1j * coefficients, self.eastward)
        north = self._sum(coefficients, self.northward)
        return east / EARTH_RADIUS_M, north / EARTH_RADIUS_M

    def _sum(self, coefficients: np.ndarray, table: np.ndarray) -> np.ndarray:
        # Matrix products, (m, …, n) @ (m, n, latitude), then over m, are much faster than einsum.
        size = coefficients.shape[-1]
        shape = coefficients.shape[:-2]
        by_m = coefficients.reshape(-1, size, size).transpose(1, 0, 2)
        along = (by_m @ table[:size, :size]).transpose(1, 2, 0)
        waves = self.waves[:size]
        real = along.real @ waves.real - along.imag @ waves.imag
        return real.reshape(*shape, *real.shape[-2:])


def laplacian_factor(size: int) -> np.ndarray:
    """Return n(n + 1)/a², minus the eigenvalues of the Laplacian, along the last axis of coefficients."""
    n = np.arange(size)
    return n * (n + 1) / EARTH_RADIUS_M**2


class Balance:
    """Nonlinear balance of geopotential with a non-divergent flow.

    ∇²(Φ + K) = ∇·((f + ζ)∇ψ), with kinetic energy K = |∇ψ|²/2 and vorticity ζ = ∇²ψ. Products are
    taken on a Gaussian grid that integrates all of them exactly.
    """

    def __init__(self, degree: int) -> None:
        self.degree = 2 * degree  # of a product
        nodes, self.weights = legendre.leggauss(self.degree + 1)
        longitude = np.linspace(0, 2 * np.pi, 2 * self.degree + 2, endpoint=False)
        self.harmonics = Harmonics.on_grid(self.degree, np.arcsin(nodes), longitude)
        self.coriolis = 2 * EARTH_ROTATION * nodes[:, None]
        self.beta = 2 * EARTH_ROTATION * np.sqrt(1 - nodes[:, None] ** 2) / EARTH_RADIUS_M

    def geopotential(self, psi: np.ndarray) -> np.ndarray:
        """Return coefficients (…, M, M) of Φ (m²/s², zero mean) from those of ψ (…, m, n)."""
        grid = self.harmonics
        zeta = -laplacian_factor(psi.shape[-1]) * psi
        psi_x, psi_y = grid.gradient(psi)
        zeta_x, zeta_y = grid.gradient(zeta)
        vorticity = grid.field(zeta)
        forcing = (self.coriolis + vorticity) * vorticity
        forcing += zeta_x * psi_x + (zeta_y + self.beta) * psi_y
        laplacian = laplacian_factor(self.degree + 1)
        laplacian[0] = np.inf  # the mean is no part of the balance
        kinetic = self.analyse((psi_x**2 + psi_y**2) / 2)
        kinetic[..., 0, 0] = 0
        return -self.analyse(forcing) / laplacian - kinetic

    def analyse(self, field: np.ndarray) -> np.ndarray:
        """Return coefficients (…, m, n) of a field (…, latitude, longitude) on the Gaussian grid."""
        along = np.fft.rfft(field, norm="forward")[..., : self.degree + 1]
        along[..., 1:] *= 2  # the negative wave numbers, which the real part stands for
        by_m = (along * self.weights[:, None]).swapaxes(-1, -2)[..., None, :]
        return (by_m @ self.harmonics.value.swapaxes(-1, -2))[..., 0, :]


# --- the atmosphere -----------------------------------------------------------------------------


def standard_atmosphere(pressure_hpa: float) -> tuple[float, float]:
    """Return geopotential (m²/s²) and temperature (K) of the international standard atmosphere to 20 km."""
    lapse, exponent = 0.0065, 0.0065 * GAS_CONSTANT / GRAVITY
    temperature = 288.15 * (pressure_hpa / 1013.25) ** exponent
    if temperature > 216.65:
        return GRAVITY * (288.15 - temperature) / lapse, temperature
    tropopause_hpa = 1013.25 * (216.65 / 288.15) ** (1 / exponent)
    above = GAS_CONSTANT * 216.65 * math.log(tropopause_hpa / pressure_hpa)
    return GRAVITY * 11000 + above, 216.65


def vertical_structure(pressure_hpa: float) -> tuple[float, float, float]:
    """Return mean wind and wave amplitude relative to 500 hPa, and westward tilt (rad of phase)."""
    height = math.log(500 / pressure_hpa)
    wind = 1 + height * (1.0 - 0.36 * height)
    amplitude = 1 + height * (0.45 - 0.17 * height)
    return wind, amplitude, 0.5 * height


@dataclass(frozen=True)
class Year:
    """Amplitude (m²/s, at 500 hPa) and phase (rad, on 1 January) of every mode in one year."""

    amplitude: np.ndarray
    phase: np.ndarray

    @classmethod
    def draw(cls, seed: int, year: int) -> Year:
        """Draw the year's waves: the seed's, varied a little from year to year."""
        common, own = np.random.default_rng(seed), np.random.default_rng([seed, year])
        wind = MODE_WIND * common.uniform(0.6, 1.4, len(MODES)) * own.uniform(0.8, 1.2, len(MODES))
        phase = common.uniform(0, 2 * np.pi, len(MODES)) + own.normal(0, 0.5, len(MODES))
        n = np.array([n for n, _ in MODES])
        return cls(2 * EARTH_RADIUS_M * wind / np.sqrt(n * (n + 1)), phase)

    def streamfunction(self, seconds: np.ndarray, pressure_hpa: float) -> np.ndarray:
        """Return coefficients (time, m, n) of ψ in m²/s at `seconds` since 1 January."""
        wind, scale, tilt = vertical_structure(pressure_hpa)
        psi = np.zeros((len(seconds), MAX_DEGREE + 1, MAX_DEGREE + 1), complex)
        # Solid-body rotation is -a²ω·sin(latitude), and sin(latitude) is P(1, 0)/√1.5.
        psi[:, 0, 1] = -(EARTH_RADIUS_M**2) * SUPERROTATION * wind / math.sqrt(1.5)
        for (n, m), amplitude, phase in zip(MODES, self.amplitude, self.phase, strict=True):
            angle = phase + tilt - m * phase_speed(n) * seconds
            psi[:, m, n] = scale * amplitude * np.exp(1j * angle)
        return psi


def make_fields(
    year: Year, seconds: np.ndarray, grid: Harmonics, balance: Balance, height: np.ndarray
) -> dict[str, np.ndarray]:
    """Return all variables of UNITS: (time, level, latitude, longitude) or without level.

    `height` is the surface height in m, (latitude, longitude).
    """
    fields: dict[str, list[np.ndarray]] = {
        name: []
        for name in ("geopotential", "temperature", "u_component_of_wind", "v_component_of_wind")
    }
    for level in LEVELS_HPA:
        psi = year.streamfunction(seconds, level)
        psi_x, psi_y = grid.gradient(psi)
        mean_geopotential, mean_temperature = standard_atmosphere(level)
        geopotential = balance.geopotential(psi)
        # Hydrostatic: T = -∂Φ/∂ln p / R, by a centred difference over ±5 % of the pressure.
        below, above = (
            balance.geopotential(year.streamfunction(seconds, level * math.exp(step)))
            for step in (0.05, -0.05)
        )
        temperature = (above - below) / (0.1 * GAS_CONSTANT)
        fields["geopotential"].append(grid.field(geopotential) + mean_geopotential)
        fields["temperature"].append(grid.field(temperature) + mean_temperature)
        fields["u_component_of_wind"].append(-psi_y)
        fields["v_component_of_wind"].append(psi_x)
    stacked = {name: np.stack(levels, axis=1) for name, levels in fields.items()}
    return stacked | moisture_and_surface(stacked, height, grid.sin_latitude)


def moisture_and_surface(
    fields: dict[str, np.ndarray], height: np.ndarray, sin_latitude: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the variables that are plausible functions of the balanced ones (see the module's docstring)."""
    lowest = LEVELS_HPA.index(1000)
    u, v = fields["u_component_of_wind"], fields["v_component_of_wind"]
    temperature = fields["temperature"][:, lowest]
    sea_level = 1e5 * np.exp(fields["geopotential"][:, lowest] / (GAS_CONSTANT * temperature))
    near_surface = temperature - 0.0065 * height
    # Air that flows poleward rises and is moist; the logistic keeps humidity between 0 and 100 %.
    poleward = v * sin_latitude[:, None]
    typical = np.array([-3.5, -0.2, 0.8, 1.2])[:, None, None]  # logit, for LEVELS_HPA
    humidity = 100 / (1 + np.exp(-typical - poleward / 7))
    # Magnus' formula (Pa), and a column as deep as water vapour's scale height of 2 km.
    saturation = 611.2 * np.exp(17.62 * (near_surface - 273.15) / (near_surface - 30.03))
    vapour = humidity[:, lowest] / 100 * saturation / (VAPOUR_GAS_CONSTANT * near_surface)
    return {
        "10m_u_component_of_wind": 0.7 * u[:, lowest],
        "10m_v_component_of_wind": 0.7 * v[:, lowest],
        "2m_temperature": near_surface,
        "mean_sea_level_pressure": sea_level,
        "surface_pressure": sea_level * np.exp(-GRAVITY * height / (GAS_CONSTANT * near_surface)),
        "relative_humidity": humidity,
        "total_column_water_vapour": 2000 * vapour,
    }


def surface_height(seed: int, grid: Harmonics) -> np.ndarray:
    """Return a smooth surface height in m, 0 to about 2 km: (latitude, longitude)."""
    rng = np.random.default_rng([seed, 0])
    coefficients = rng.normal(size=(2, 5, 5)) * np.triu(np.ones((5, 5)))
    coefficients[:, 0, 0] = 0
    pattern = grid.field(coefficients[0] + 1j * coefficients[1])
    return 300 * (pattern / pattern.std()) ** 2


# --- the store ----------------------------------------------------------------------------------


def year_dataset(definition: dict[str, Any], year: int) -> xr.Dataset:
    """Return one year of the dataset that `definition` describes, as ERA5-named float32 fields."""
    import xarray as xr

    rows, columns = definition["grid"]
    latitude = np.linspace(90, -90, rows + 1)
    longitude = np.linspace(0, 360, columns, endpoint=False)
    grid = Harmonics.on_grid(2 * MAX_DEGREE, np.deg2rad(latitude), np.deg2rad(longitude))
    seed = definition.get("seed", 0)
    times = year_times(year, definition["samples_per_year"])
    seconds = (times - times[0]) / np.timedelta64(1, "s")
    fields = make_fields(
        Year.draw(seed, year),
        seconds,
        grid,
        Balance(MAX_DEGREE),
        surface_height(seed, grid),
    )
    dims = {3: ("time", "latitude", "longitude"), 4: ("time", "level", "latitude", "longitude")}
    return xr.Dataset(
        {
            name: (dims[fields[name].ndim], fields[name].astype(np.float32), {"units": units})
            for name, units in UNITS.items()
        },
        {
            "time": times,
            "level": ("level", np.array(LEVELS_HPA), {"units": "hPa"}),
            "latitude": ("latitude", latitude, {"units": "degrees_north"}),
            "longitude": ("longitude", longitude, {"units": "degrees_east"}),
        },
        {"title": "Rossby-Haurwitz waves in ERA5's format, made by scalewatt; not observations"},
    )


def write_waves(store_path: Path | str, definition: dict[str, Any]) -> None:
    """Write all years of `definition` as a Zarr store, which replaces any other once complete."""
    store = Path(store_path)
    if definition["samples_per_year"] + TARGET_STEPS > len(year_times(2001)):
        raise InputError(
            f"dataset {definition['name']}: samples_per_year {definition['samples_per_year']} is "
            f"too large; waves are continuous within a year only, so at most "
            f"{len(year_times(2001)) - TARGET_STEPS} samples have targets"
        )
    store.parent.mkdir(parents=True, exist_ok=True)
    building = store.with_name(f".{store.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        for year in all_years(definition):
            dataset = year_dataset(definition, year)
            if building.exists():
                options: dict[str, Any] = {"append_dim": "time"}
            else:
                time = {"units": "hours since 1900-01-01", "dtype": "int64"}
                chunks = {name: {"chunks": dataset[name].shape} for name in UNITS}
                options = {"mode": "w", "encoding": {"time": time, **chunks}}
            dataset.to_zarr(building, zarr_format=2, consolidated=True, **options)
        if store.exists():
            shutil.rmtree(store)
        building.rename(store)
    finally:
        shutil.rmtree(building, ignore_errors=True)
