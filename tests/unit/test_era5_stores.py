"""ERA5 from Zarr stores of both versions, here and behind HTTP, and what their values tell."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import h5py
import numpy as np
import pytest
from era5_data import TIMES, expected_fields, fields, marked_store, write

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5_preparation.prepare_era5 import parse_source, prepare_year

GRID = [4, 8]


class Served:
    """A folder behind HTTP, and how often each file was asked for."""

    def __init__(self, folder):
        self.requests = requests = Counter()

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self):
                requests[self.path] += 1
                super().do_GET()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, name):
        return f"http://127.0.0.1:{self.server.server_port}/{name}"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    served = Served(tmp_path_factory.mktemp("served"))
    yield served
    served.server.shutdown()
    served.server.server_close()


@pytest.fixture(scope="module")
def expected():
    return expected_fields(marked_store(), TIMES)


@pytest.fixture
def served_folder(served):
    return served.server.RequestHandlerClass.keywords["directory"]


def prepare(source, tmp_path, **options):
    path = tmp_path / "prepared" / "2000.h5"
    prepare_year(source, 2000, path, times=TIMES, **({"grid": GRID} | options))
    return path


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.parametrize("format", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
def test_both_versions_of_zarr_are_read_here_and_over_http(
    tmp_path, expected, served, served_folder, format, consolidated
):
    name = f"era5-{format}-{consolidated}.zarr"
    encoding = {n: {"chunks": (1, *a.shape[1:])} for n, a in marked_store().data_vars.items()}
    path = write(
        marked_store(),
        served_folder / name,
        zarr_format=format,
        consolidated=consolidated,
        encoding=encoding,
    )
    np.testing.assert_array_equal(fields(prepare(path, tmp_path / "path")), expected)
    np.testing.assert_array_equal(fields(prepare(f"file://{path}", tmp_path / "file")), expected)
    source = {"zarr": served.url(name)}
    np.testing.assert_array_equal(fields(prepare(source, tmp_path / "http")), expected)
    chunks = {p: n for p, n in served.requests.items() if name in p and "/temperature/" in p}
    data = [n for p, n in chunks.items() if not p.rpartition("/")[2].startswith((".z", "zarr"))]
    assert len(data) == len(TIMES) and set(data) == {1}  # each chunk of all levels once


def test_an_hourly_store_is_read_every_sixth_hour(tmp_path, expected, served, served_folder):
    store = marked_store(years=(2000,))
    hours = np.arange(store.time.values[0], store.time.values[-1] + 1, np.timedelta64(1, "h"))
    write(
        store.reindex(time=hours, method="ffill"),
        served_folder / "hourly.zarr",
        encoding={n: {"chunks": (1, *a.shape[1:])} for n, a in store.data_vars.items()},
    )
    found = prepare(served.url("hourly.zarr"), tmp_path)
    np.testing.assert_array_equal(fields(found), expected)
    chunks = [p for p in served.requests if "hourly.zarr/surface_pressure/" in p and ".0.0" in p]
    assert len(chunks) == len(TIMES)


def test_packed_numbers_are_unpacked(tmp_path, expected):
    packed = {
        name: {
            "dtype": "int16",
            "scale_factor": (high - low) / 60000,
            "add_offset": (high + low) / 2,
            "_FillValue": -32767,
        }
        for name, array in marked_store().data_vars.items()
        for low, high in [(float(array.min()), float(array.max()))]
    }
    found = fields(prepare(write(marked_store(), tmp_path / "a.zarr", encoding=packed), tmp_path))
    span = np.array([packed[v]["scale_factor"] for v in _variables()])[:, None, None]
    assert (np.abs(found - expected) <= 0.51 * span + 1e-6 * np.abs(expected)).all()


def _variables():
    from scalewatt.datasets.era5.channels import CHANNEL_SOURCES

    return [variable for variable, _ in CHANNEL_SOURCES.values()]


def test_longitudes_from_minus_180_are_turned(tmp_path, expected):
    store = marked_store().roll(longitude=4, roll_coords=True)
    store = store.assign_coords(longitude=(store.longitude + 180) % 360 - 180)
    assert store.longitude.values[0] == -180
    path = prepare(write(store, tmp_path / "a.zarr"), tmp_path)
    np.testing.assert_array_equal(fields(path), expected)
    with h5py.File(path) as file:
        assert file["longitude"][:].tolist() == list(range(0, 360, 45))
        assert file.attrs["longitude_shifted"] == 4


def test_geopotential_height_becomes_geopotential(tmp_path, expected):
    store = marked_store()
    store["geopotential"] = store["geopotential"] / 9.80665
    path = prepare(write(store, tmp_path / "a.zarr"), tmp_path)
    np.testing.assert_allclose(fields(path), expected, rtol=1e-6)
    with h5py.File(path) as file:
        assert file.attrs["geopotential_converted_from_height"]


def in_celsius(store):
    store["2m_temperature"] = store["2m_temperature"] - 273.15
    return store


def in_hectopascal(store):
    store["surface_pressure"] = store["surface_pressure"] / 100
    return store


def normalised(store):
    return (store - store.mean()) / store.std() + 1


def swapped(store):
    store["geopotential"] = store["geopotential"].copy(data=store["geopotential"].values[:, ::-1])
    return store


def constant(store):
    store["10m_u_component_of_wind"].loc[{"time": TIMES[2]}] = 0
    return store


def in_fractions_later(store):
    store["relative_humidity"].loc[{"time": TIMES[4:]}] /= 100
    return store


def in_percent_later(store):
    store["relative_humidity"].loc[{"time": slice(None, TIMES[3])}] /= 100
    return store


def with_one_level_as_a_fraction(store):
    store["relative_humidity"].loc[{"level": 850}] /= 100
    return store


def with_the_lowest_level_as_height(store):
    store["geopotential"].loc[{"level": 1000}] /= 9.80665
    return store


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (in_fractions_later, r"at 500 hPa reaches no more than .* on 2000-01-02T00:00.*fraction"),
        (in_percent_later, "relative_humidity at 500 hPa reaches from .* on 2000-01-02T00:00"),
        (with_one_level_as_a_fraction, r"humidity at 850 hPa reaches no more than .*fraction"),
        (with_the_lowest_level_as_height, "geopotential at 1000 hPa reaches .* height in m; give"),
        (in_celsius, "2m_temperature reaches from .*°C; give K"),
        (in_hectopascal, "surface_pressure reaches from .*hPa; give Pa"),
        (normalised, "these look normalised"),
        (swapped, "geopotential at 1000 hPa reaches from"),
        (constant, "10m_u_component_of_wind is 0 everywhere on 2000-01-01T12:00"),
        (lambda s: s.isel(latitude=slice(1, None)), "has 4 latitudes × 8 longitudes; grid 4 × 8"),
        (lambda s: s.assign_coords(latitude=[80, 40, 0, -40, -80]), "latitudes go from 80 to -80"),
        (lambda s: s.assign_coords(longitude=s.longitude + 10), "longitudes go from 10 to 325"),
        (lambda s: s.isel(time=[0, 0, *range(1, 8)]), "1999-01-01T00:00 more than once"),
        (lambda s: s.drop_vars("relative_humidity"), "ARCO-ERA5 has only specific humidity"),
    ],
)
def test_values_and_labels_that_cannot_be_ours_are_refused(tmp_path, damage, message):
    path = write(damage(marked_store()), tmp_path / "bad.zarr")
    with pytest.raises(InputError, match=message):
        prepare(path, tmp_path)
    assert not (tmp_path / "prepared" / "2000.h5").exists()


def test_a_missing_chunk_is_not_read_as_fill_values(tmp_path):
    encoding = {"10m_v_component_of_wind": {"chunks": (1, 5, 4)}}
    path = write(marked_store(), tmp_path / "holes.zarr", encoding=encoding)
    (tmp_path / "holes.zarr" / "10m_v_component_of_wind" / "10.0.1").unlink()
    with pytest.raises(
        InputError, match=r"10m_v_component_of_wind cannot be .*10\.0\.1 is missing"
    ):
        prepare(path, tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"zarr": "a", "files": ["b"]}, "exactly one of zarr, files, hdf5"),
        ({"grib": "a"}, "exactly one of zarr, files, hdf5"),
        ({"files": []}, "files: .* is no list of patterns"),
        ({"hdf5": 7}, "hdf5: 7 is no text"),
    ],
)
def test_a_source_is_one_of_three(source, message):
    with pytest.raises(InputError, match=message):
        parse_source(source)
    assert parse_source('{"files": "*.nc"}') == ("files", ["*.nc"])
