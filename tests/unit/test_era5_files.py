"""ERA5 from the Climate Data Store's files: GRIB, netCDF old and new, split in whatever way."""

from __future__ import annotations

import eccodes
import h5py
import numpy as np
import pytest
import xarray as xr
from era5_data import expected_fields, fields, marked_store, short_name

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5.channels import year_times
from scalewatt.datasets.era5_preparation.prepare_era5 import prepare_year

TIMES = year_times(2000)[:6]
CDS_NAMES = {"10u": "u10", "10v": "v10", "2t": "t2m"}  # where netCDF's short names are not GRIB's


@pytest.fixture(scope="module")
def store():
    return marked_store(years=(2000,), steps=6)


@pytest.fixture(scope="module")
def expected(store):
    return expected_fields(store, TIMES)


def prepare(tmp_path, *patterns, times=TIMES):
    path = tmp_path / "prepared" / "2000.h5"
    source = {"files": [str(tmp_path / pattern) for pattern in patterns]}
    prepare_year(source, 2000, path, times=times, grid=[4, 8])
    return path


def split(store):
    """Surface and pressure levels apart, with netCDF's short names."""
    aloft = [name for name, array in store.data_vars.items() if "level" in array.dims]
    parts = store.drop_vars([*aloft, "level"]), store[aloft]
    names = {name: CDS_NAMES.get(short_name(name), short_name(name)) for name in store.data_vars}
    return [part.rename({n: names[n] for n in part.data_vars}) for part in parts]


def write_new(store, folder):
    """As since 2024: netCDF-4, compressed, new names, members and versions as coordinates."""
    folder.mkdir(exist_ok=True)
    for part, kind in zip(split(store), ("surface", "levels"), strict=True):
        part = part.isel(level=[2, 0, 3, 1]) if "level" in part.dims else part
        part = part.rename(
            time="valid_time", **({"level": "pressure_level"} if "level" in part.dims else {})
        )
        part = part.assign_coords(
            number=0, expver=("valid_time", np.full(part.sizes["valid_time"], "0001"))
        )
        encoding = {
            name: {
                "zlib": True,
                "chunksizes": (3, *array.shape[1:]),
                "_FillValue": np.float32("nan"),
            }
            for name, array in part.data_vars.items()
        }
        part.to_netcdf(folder / f"{kind}.nc", engine="h5netcdf", encoding=encoding)


def write_old(store, path, **options):
    """As before 2024: netCDF-3, packed to 16 bits."""
    packing = {
        name: {
            "dtype": "int16",
            "scale_factor": (float(array.max()) - float(array.min())) / 65000,
            "add_offset": (float(array.max()) + float(array.min())) / 2,
            "_FillValue": np.int16(-32767),
        }
        for name, array in store.data_vars.items()
    }
    time = {"time": {"units": "hours since 1900-01-01", "dtype": "int32"}}
    store.to_netcdf(
        path, engine="scipy", format="NETCDF3_64BIT", encoding=packing | time, **options
    )
    return packing


def write_grib(store, path, edition=1):
    """All variables of the store as messages of a file, time by time."""
    with path.open("wb") as file:
        for time in store.time.values:
            for name, array in store.data_vars.items():
                for level in store.level.values if "level" in array.dims else [None]:
                    now = (
                        array.sel(time=time) if level is None else array.sel(time=time, level=level)
                    )
                    file.write(message(name, now.values, time, level, edition))


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


def test_netcdf_as_since_2024_is_read(tmp_path, store, expected):
    write_new(store, tmp_path / "new")
    path = prepare(tmp_path, "new/*.nc")
    np.testing.assert_array_equal(fields(path), expected)
    with h5py.File(path) as file:
        assert "ice below" in file.attrs["relative_humidity_over"]


def test_netcdf_as_before_2024_is_read_and_unpacked(tmp_path, store, expected):
    packings = [write_old(part, tmp_path / f"{i}.nc") for i, part in enumerate(split(store))]
    found = fields(prepare(tmp_path, "[01].nc"))
    largest = max(entry["scale_factor"] for packing in packings for entry in packing.values())
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=0.51 * largest)
    narrow = packings[0]["t2m"]["scale_factor"]
    np.testing.assert_allclose(found[:, 2], expected[:, 2], rtol=1e-6, atol=0.51 * narrow)


@pytest.mark.parametrize("edition", [1, 2])
def test_grib_of_both_editions_is_read(tmp_path, store, expected, edition):
    write_grib(store, tmp_path / "all.grib", edition)
    path = prepare(tmp_path, "all.grib")
    span = np.ptp(expected, axis=(2, 3), keepdims=True)
    assert (np.abs(fields(path) - expected) <= 1e-6 * (span + np.abs(expected))).all()


def test_files_may_be_split_by_time_variable_level_and_format(tmp_path, store, expected):
    surface, levels = split(store)
    surface.isel(time=slice(0, 2)).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    surface.isel(time=slice(2, None)).to_netcdf(tmp_path / "b.nc", engine="scipy")
    levels.isel(time=2).to_netcdf(tmp_path / "c.nc", engine="h5netcdf")  # a scalar time
    others = levels.isel(time=[0, 1, 3, 4, 5])
    others.sel(level=[50, 500]).to_netcdf(tmp_path / "d.nc", engine="h5netcdf")
    others.sel(level=850).to_netcdf(tmp_path / "e.nc", engine="h5netcdf")  # a scalar level
    aloft = [name for name, array in store.data_vars.items() if "level" in array.dims]
    write_grib(store[aloft].isel(time=[0, 1, 3, 4, 5]).sel(level=[1000]), tmp_path / "f.grib")
    found = fields(prepare(tmp_path, "*.nc", "f.grib"))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)


def test_final_values_come_before_preliminary_ones(tmp_path, store, expected):
    surface, levels = split(store)
    late = surface.time >= TIMES[3]
    final, preliminary = surface.where(~late), surface.where(late)
    both = xr.concat([preliminary, final], xr.DataArray([5, 1], dims="expver", name="expver"))
    both.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    levels.to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    np.testing.assert_array_equal(fields(prepare(tmp_path, "*.nc")), expected)


def cut(path, share=0.9):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def test_torn_files_are_named(tmp_path, store):
    write_grib(store, tmp_path / "a.grib")
    cut(tmp_path / "a.grib")
    with pytest.raises(InputError, match=r"a\.grib: is no whole GRIB file after \d+ messages"):
        prepare(tmp_path, "a.grib")
    write_new(store, tmp_path / "new")
    cut(tmp_path / "new" / "levels.nc")
    with pytest.raises(InputError, match=r"levels\.nc: cannot be read as netCDF"):
        prepare(tmp_path, "new/*.nc")
    write_old(store, tmp_path / "old.nc")
    cut(tmp_path / "old.nc")
    with pytest.raises(InputError, match=r"old\.nc: .*cannot be read"):
        prepare(tmp_path, "old.nc")


def ensemble(store):
    return store.expand_dims(number=[0, 1])


def without_levels(store):
    return store[["temperature"]].isel(level=0, drop=True).rename(temperature="t")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (ensemble, "has 2 along number; needed is one"),
        (without_levels, r"hold none of the variables needed; .*new\.nc: t has no pressure levels"),
        (
            lambda s: s.assign(temperature=s["temperature"].isel(level=0)),
            "temperature has no dimension of its pressure levels",
        ),
        (lambda s: s.rename(latitude="y"), r"new\.nc: missing latitude"),
        (
            lambda s: s.isel(time=slice(0, 4)),
            "is missing 2 times: 2000-01-02T00:00, 2000-01-02T06:00",
        ),
        (lambda s: s.drop_vars("geopotential"), "missing geopotential"),
        (lambda s: s.sel(level=[50, 500, 1000]), r"missing levels \[850\] hPa"),
        (lambda s: s[[]], "hold none of the variables needed"),
        (lambda s: s.isel(latitude=slice(0, 4)), "has 4 latitudes × 8 longitudes"),
    ],
)
def test_files_that_cannot_be_used_are_refused_by_name(tmp_path, store, change, message):
    change(store).to_netcdf(tmp_path / "new.nc", engine="h5netcdf")
    with pytest.raises(InputError, match=message):
        prepare(tmp_path, "new.nc")


def test_values_in_two_files_are_refused_with_both_names(tmp_path, store):
    store.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    store.isel(time=[3])[["surface_pressure"]].to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    with pytest.raises(
        InputError, match=r"surface_pressure on 2000-01-01T18:00 is in both .*a\.nc"
    ):
        prepare(tmp_path, "*.nc")


def test_files_on_other_grids_are_refused(tmp_path, store):
    store.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    store.isel(longitude=slice(0, 8, 2)).to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    with pytest.raises(InputError, match=r"b\.nc: is on another grid than .*a\.nc"):
        prepare(tmp_path, "*.nc")


def test_other_grib_grids_and_repeated_messages_are_refused(tmp_path, store):
    values = store["surface_pressure"].isel(time=0).values
    one = message("surface_pressure", values, TIMES[0], None)
    (tmp_path / "twice.grib").write_bytes(one + one)
    with pytest.raises(InputError, match="surface_pressure more than once on 2000-01-01T00:00"):
        prepare(tmp_path, "twice.grib")
    turned = message("surface_pressure", values, TIMES[0], None, jPointsAreConsecutive=1)
    (tmp_path / "turned.grib").write_bytes(turned)
    with pytest.raises(InputError, match="needed is a regular latitude-longitude grid"):
        prepare(tmp_path, "turned.grib")


def test_missing_grib_values_are_refused_with_their_date(tmp_path, store):
    surface = store[["surface_pressure"]]
    write_grib(store.drop_vars("surface_pressure"), tmp_path / "a.grib")
    write_grib(surface.isel(time=[0, 1, 2, 3, 5]), tmp_path / "b.grib")
    holes = surface["surface_pressure"].isel(time=4).values.copy()
    holes[2, 3] = 9999
    (tmp_path / "c.grib").write_bytes(
        message("surface_pressure", holes, TIMES[4], None, bitmapPresent=1, missingValue=9999)
    )
    with pytest.raises(InputError, match="surface_pressure has missing values on 2000-01-02T00:00"):
        prepare(tmp_path, "*.grib")
