"""ERA5 from Zarr stores, netCDF and GRIB files: the same fields from every form, or a refusal by name."""

from __future__ import annotations

import re
import threading
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import eccodes
import h5py
import numpy as np
import pytest
import xarray as xr
from era5_data import TIMES, expected_fields, fields, marked_store, short_name, write

from scalewatt.common.errors import InputError
from scalewatt.data.era5 import CHANNEL_OF
from scalewatt.data.era5_prepare import prepare_year
from scalewatt.data.era5_sources import open_source

GRID = [4, 8]
CDS_NAMES = {"10u": "u10", "10v": "v10", "2t": "t2m"}  # where netCDF's short names are not GRIB's
HOURS = np.arange(TIMES[0], TIMES[-1] + 1, np.timedelta64(1, "h"))


@pytest.fixture(scope="module")
def store():
    return marked_store(years=(2000,), steps=8)


@pytest.fixture(scope="module")
def expected(store):
    return expected_fields(store, TIMES)


def prepare(source, folder):
    path = folder / "prepared" / "2000.h5"
    prepare_year(open_source(source, 2000), path, TIMES, GRID)
    return path


# --- forms ----------------------------------------------------------------------------------------


def aloft(store):
    return [name for name, array in store.data_vars.items() if "level" in array.dims]


def split(store):
    """Surface and pressure levels apart, with netCDF's short names."""
    parts = store.drop_vars([*aloft(store), "level"]), store[aloft(store)]
    names = {name: CDS_NAMES.get(short_name(name), short_name(name)) for name in store.data_vars}
    return [part.rename({n: names[n] for n in part.data_vars}) for part in parts]


def packing(store, fill=-32767):
    return {
        name: {
            "dtype": "int16",
            "scale_factor": (float(array.max()) - float(array.min())) / 60000,
            "add_offset": (float(array.max()) + float(array.min())) / 2,
            "_FillValue": fill,
        }
        for name, array in store.data_vars.items()
    }


def netcdf(store, path, **options):
    store.to_netcdf(path, engine="h5netcdf", **options)


def zarr_with(**options):
    return lambda store, folder: write(store, folder / "a.zarr", **options)


def packed_zarr(store, folder):
    return write(store, folder / "a.zarr", encoding=packing(store))


def shards(store, folder):
    encoding = {
        name: {"shards": (4, *array.shape[1:]), "chunks": (1, *array.shape[1:-1], 4)}
        for name, array in store.items()
    }
    options = {"zarr_format": 3, "consolidated": False}
    return write(store, folder / "a.zarr", encoding=encoding, **options)


def hourly_zarr(store, folder):
    return write(store.reindex(time=HOURS, method="ffill"), folder / "a.zarr")


def other_order(store, folder):
    """Other orders of levels, latitudes and dimensions, and times in between."""
    store = store.isel(level=[2, 0, 3, 1], latitude=slice(None, None, -1))
    between = store.assign_coords(time=store.time + np.timedelta64(3, "h"))
    store = xr.concat([store, between], "time").sortby("time").transpose("longitude", ...)
    return write(store, folder / "a.zarr")


def netcdf_since_2024(store, folder):
    """netCDF-4, compressed, new names, members and versions as coordinates."""
    for part, kind in zip(split(store), ("surface", "levels"), strict=True):
        part = part.isel(level=[2, 0, 3, 1]) if "level" in part.dims else part
        part = part.rename({"time": "valid_time"})
        part = part.rename({"level": "pressure_level"}) if "level" in part.dims else part
        versions = ("valid_time", np.full(part.sizes["valid_time"], "0001"), {"missing_value": ""})
        part = part.assign_coords(number=0, expver=versions)
        chunked = {
            name: {
                "zlib": True,
                "chunksizes": (3, *array.shape[1:]),
                "_FillValue": np.float32("nan"),
            }
            for name, array in part.data_vars.items()
        }
        netcdf(part, folder / f"{kind}.nc", encoding=chunked)
    return str(folder / "*.nc")


def netcdf_before_2024(store, folder):
    """netCDF-3, packed to 16 bits."""
    time = {"time": {"units": "hours since 1900-01-01", "dtype": "int32"}}
    for number, part in enumerate(split(store)):
        encoding = packing(part, np.int16(-32767)) | time
        part.to_netcdf(folder / f"{number}.nc", "w", "NETCDF3_64BIT", None, "scipy", encoding)
    return str(folder / "*.nc")


def two_versions(store, folder):
    """Final values before preliminary ones, which are given first."""
    surface, levels = split(store)
    late = surface.time >= TIMES[3]
    versions = xr.DataArray([5, 1], dims="expver", name="expver")
    netcdf(xr.concat([surface.where(late), surface.where(~late)], versions), folder / "a.nc")
    netcdf(levels, folder / "b.nc")
    return str(folder / "*.nc")


def levels_in_pascal(store, folder):
    netcdf(
        store.assign_coords(level=("level", store.level.values * 100.0, {"units": "Pa"})),
        folder / "a.nc",
    )
    return str(folder / "a.nc")


def grib(store, folder, edition=1):
    write_grib(store, folder / "a.grib", edition)
    return str(folder / "a.grib")


def split_files(store, folder):
    """Split by time, variable, level and format, with scalar times and levels."""
    surface, levels = split(store)
    netcdf(surface.isel(time=slice(0, 2)), folder / "a.nc")
    surface.isel(time=slice(2, None)).to_netcdf(folder / "b.nc", engine="scipy")
    netcdf(levels.isel(time=2), folder / "c.nc")
    others = [0, 1, 3, 4, 5, 6, 7]
    netcdf(levels.isel(time=others).sel(level=[50, 500]), folder / "d.nc")
    netcdf(levels.isel(time=others).sel(level=850), folder / "e.nc")
    write_grib(store[aloft(store)].isel(time=others).sel(level=[1000]), folder / "f.grib")
    return f"{folder}/*.nc {folder}/f.grib"


def write_grib(store, path, edition=1):
    """All variables of the store as messages of a file, time by time."""
    with path.open("wb") as file:
        for time in store.time.values:
            for name, array in store.sel(time=time).data_vars.items():
                for level in store.level.values if "level" in array.dims else [None]:
                    values = (array if level is None else array.sel(level=level)).values
                    file.write(message(name, values, time, level, edition))


def spectral(name):
    """A message of spectral coefficients."""
    handle = eccodes.codes_grib_new_from_samples("sh_pl_grib1")
    eccodes.codes_set(handle, "shortName", name)
    content = eccodes.codes_get_message(handle)
    eccodes.codes_release(handle)
    return content


def message(name, values, time, level, edition=1, **more):
    kind = "sfc" if level is None else "pl"
    handle = eccodes.codes_grib_new_from_samples(f"regular_ll_{kind}_grib{edition}")
    date = str(time)
    keys = {
        "centre": "ecmf",
        "Ni": values.shape[1],
        "Nj": values.shape[0],
        "latitudeOfFirstGridPointInDegrees": 90,
        "latitudeOfLastGridPointInDegrees": -90,
        "longitudeOfFirstGridPointInDegrees": 0,
        "longitudeOfLastGridPointInDegrees": 360 - 360 / values.shape[1],
        "iDirectionIncrementInDegrees": 360 / values.shape[1],
        "jDirectionIncrementInDegrees": 180 / (values.shape[0] - 1),
        "dataDate": int(date[:10].replace("-", "")),
        "dataTime": int(date[11:16].replace(":", "")),
        "shortName": short_name(name),
        "bitsPerValue": 24,
    }
    keys |= {} if level is None else {"level": int(level)}
    for key, value in (keys | more).items():
        eccodes.codes_set(handle, key, value)
    eccodes.codes_set_values(handle, values.astype(float).ravel())
    content = eccodes.codes_get_message(handle)
    eccodes.codes_release(handle)
    return content


@pytest.mark.parametrize(
    ("form", "rounding"),  # largest error, as a share of a variable's range on all levels
    [
        (zarr_with(), 0),
        (zarr_with(zarr_format=3, consolidated=False), 0),
        (shards, 0),
        (hourly_zarr, 0),
        (other_order, 0),
        (packed_zarr, 0.51 / 60000),
        (netcdf_since_2024, 0),
        (netcdf_before_2024, 0.51 / 60000),
        (two_versions, 0),
        (levels_in_pascal, 0),
        (grib, 1e-7),
        (partial(grib, edition=2), 1e-7),
        (split_files, 1e-7),
    ],
)
def test_every_form_of_source_gives_the_same_fields(form, rounding, tmp_path, store, expected):
    prepared = fields(prepare(form(store, tmp_path), tmp_path))
    if not rounding:
        np.testing.assert_array_equal(prepared, expected)
        return
    for number, channel in enumerate(CHANNEL_OF.values()):
        span = float(store[channel.variable].max() - store[channel.variable].min())
        np.testing.assert_allclose(
            prepared[:, number], expected[:, number], rtol=2e-7, atol=rounding * span
        )


def test_longitudes_from_minus_180_are_turned(tmp_path, store, expected):
    store = store.roll(longitude=4, roll_coords=True)
    store = store.assign_coords(longitude=(store.longitude + 180) % 360 - 180)
    assert store.longitude.values[0] == -180
    path = prepare(write(store, tmp_path / "a.zarr"), tmp_path)
    np.testing.assert_array_equal(fields(path), expected)
    with h5py.File(path) as file:
        assert file["longitude"][:].tolist() == list(range(0, 360, 45))


@pytest.fixture
def served(tmp_path):
    """A folder behind HTTP: its address, and how often each file was asked for."""
    requests = Counter()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self):
            requests[self.path] += 1
            super().do_GET()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()


def test_a_store_over_http_sends_each_chunk_that_is_needed_once(tmp_path, served, store, expected):
    url, requests = served
    store = store.reindex(time=HOURS, method="ffill")  # of which every sixth is needed
    chunks = {n: {"chunks": (1, *a.shape[1:])} for n, a in store.data_vars.items()}
    write(store, tmp_path / "a.zarr", encoding=chunks)
    np.testing.assert_array_equal(fields(prepare(f"{url}/a.zarr", tmp_path)), expected)
    data = [n for path, n in requests.items() if re.search(r"/temperature/\d", path)]
    assert data == [1] * len(TIMES)


# --- refusals -------------------------------------------------------------------------------------


def changed(variable, change, **where):
    """Change a variable's values where its labels are these."""

    def apply(store):
        store[variable].loc[where] = change(store[variable].loc[where])
        return store

    return apply


def in_another_unit(variable, change):
    return lambda store: store.assign({variable: change(store[variable])})


def normalised(store):
    return (store - store.mean()) / store.std() + 1


LATER = TIMES[4:]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        # values
        (
            changed("relative_humidity", lambda v: v / 100, time=LATER),
            "at 500 hPa on 2000-01-02T00:00 reaches .* may be a fraction",
        ),
        (
            in_another_unit("geopotential", lambda v: v / 9.80665),
            "geopotential at .* another unit; plausible are .* m²/s²",
        ),
        (
            in_another_unit("2m_temperature", lambda v: v - 273.15),
            "2m_temperature .*; plausible are 165 to 345 K",
        ),
        (normalised, "2m_temperature .*another unit"),
        (
            changed("10m_u_component_of_wind", lambda v: 0 * abs(v), time=TIMES[2]),
            "10m_u_component_of_wind on 2000-01-01T12:00 is 0 everywhere",
        ),
        (
            changed("geopotential", lambda v: v + np.nan, time=TIMES[3], level=850, latitude=45),
            "geopotential at 850 hPa on 2000-01-01T18:00 has missing values",
        ),
        # labels
        (
            lambda s: s.isel(time=[0, 0, *range(1, 8)]),
            "more than once: 10m_u_component_of_wind on 2000-01-01T00:00",
        ),
        (lambda s: s.sel(time=s.time != TIMES[5]), r"missing .* on 2000-01-02T06:00 \(times: 1\)"),
        (lambda s: s.sel(level=[50, 500, 1000]), "missing .* at 850 hPa"),
        (
            lambda s: s.isel(latitude=slice(1, None)),
            "has 4 latitudes from 45 to -90; needed are 5",
        ),
        (
            lambda s: s.assign_coords(longitude=s.longitude + 10),
            "longitudes from 10 to 325; needed are 8",
        ),
        (lambda s: s.rename(latitude="lat"), "missing latitude"),
        # variables
        (lambda s: s.drop_vars("relative_humidity"), "missing relative_humidity at 500 hPa on"),
        (lambda s: s.expand_dims(number=[0, 1]), r": 10m_u\w+: cannot be read .*squeeze"),
        (lambda s: s.isel(level=0, drop=True), "missing temperature at 850 hPa"),
    ],
)
def test_values_and_labels_that_cannot_be_ours_are_refused(tmp_path, damage, message):
    source = write(damage(marked_store(years=(2000,), steps=8)), tmp_path / "bad.zarr")
    with pytest.raises(InputError, match=message):
        prepare(source, tmp_path)
    assert not list(tmp_path.glob("prepared/*.h5*"))


def test_a_missing_or_torn_chunk_is_not_read_as_fill_values(tmp_path, store):
    path = write(store, tmp_path / "a.zarr", encoding={"surface_pressure": {"chunks": (1, 5, 4)}})
    (tmp_path / "a.zarr" / "surface_pressure" / "2.0.1").unlink()
    with pytest.raises(
        InputError, match=r"surface_pressure from .*: cannot be read .*2\.0\.1 is missing"
    ):
        prepare(path, tmp_path)
    path = write(store, tmp_path / "b.zarr")
    chunk = max((tmp_path / "b.zarr" / "geopotential").glob("[0-9]*"))
    chunk.write_bytes(chunk.read_bytes()[:20])
    with pytest.raises(InputError, match=r"geopotential from 2000-01-01.*: cannot be read"):
        prepare(path, tmp_path)


@pytest.mark.parametrize(
    ("form", "name", "message"),
    [
        (grib, "a.grib", r"a\.grib: cannot be read"),
        (netcdf_since_2024, "levels.nc", r"levels\.nc: cannot be read"),
        (netcdf_before_2024, "1.nc", r"1\.nc: .*cannot be read"),
    ],
)
def test_torn_files_are_named(tmp_path, store, form, name, message):
    source, content = form(store, tmp_path), (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) * 9 // 10])
    with pytest.raises(InputError, match=message):
        prepare(source, tmp_path)


def test_values_in_two_files_and_other_grids_are_refused_with_both_names(tmp_path, store):
    source = str(tmp_path / "*.nc")
    netcdf(store, tmp_path / "a.nc")
    netcdf(store.isel(time=[3])[["surface_pressure"]], tmp_path / "b.nc")
    with pytest.raises(InputError, match="more than once: surface_pressure on 2000-01-01T18:00"):
        prepare(source, tmp_path)
    netcdf(store.isel(longitude=slice(0, 8, 2)), tmp_path / "b.nc")
    with pytest.raises(InputError, match=r"b\.nc: is on another grid than .*a\.nc"):
        prepare(source, tmp_path)


def test_grib_messages_that_cannot_be_used_are_refused(tmp_path, store):
    values = store["surface_pressure"].isel(time=4).values.copy()
    message_of = partial(message, "surface_pressure", values, TIMES[4], None)
    (tmp_path / "twice.grib").write_bytes(message_of() * 2)
    with pytest.raises(InputError, match="more than once: surface_pressure on 2000-01-02T00:00"):
        prepare(str(tmp_path / "twice.grib"), tmp_path)
    (tmp_path / "turned.grib").write_bytes(message_of(jPointsAreConsecutive=1))
    with pytest.raises(InputError, match="is regular_ll, not regular_ll row by row"):
        prepare(str(tmp_path / "turned.grib"), tmp_path)
    (tmp_path / "spectral.grib").write_bytes(spectral("t"))
    with pytest.raises(InputError, match=r"the grid of temperature is sh, not regular_ll"):
        prepare(str(tmp_path / "spectral.grib"), tmp_path)
    values[2, 3] = 9999
    (tmp_path / "holes.grib").write_bytes(message_of(bitmapPresent=1, missingValue=9999))
    write_grib(store.drop_vars("surface_pressure"), tmp_path / "a.grib")
    write_grib(store[["surface_pressure"]].drop_sel(time=TIMES[4]), tmp_path / "b.grib")
    with pytest.raises(InputError, match="surface_pressure on 2000-01-02T00:00 has missing values"):
        prepare(" ".join(f"{tmp_path}/{name}.grib" for name in ("a", "b", "holes")), tmp_path)
