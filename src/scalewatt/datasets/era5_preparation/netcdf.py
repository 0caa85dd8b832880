"""ERA5 in netCDF files of the Climate Data Store, from before and after its change of format in 2024."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5.channels import ALOFT, CHANNEL_SOURCES, SHORT_NAMES
from scalewatt.datasets.era5_preparation.labelled_fields import (
    DIMENSION_NAMES,
    FieldSource,
    Index,
    Piece,
    decode_levels,
    decode_times,
)

if TYPE_CHECKING:
    import xarray as xr

NETCDF3, NETCDF4 = b"CDF", b"\x89HDF"


def open_netcdf(path: Path) -> FieldSource:
    """Return the pieces of a file, its grid, and the units of relative humidity.

    In a file without pressure levels, what should have some is skipped: `z` is orography there.
    InputError if the file is none, torn, or of a kind that cannot be told.
    """
    import xarray as xr

    engine = "scipy" if path.open("rb").read(3) == NETCDF3 else "h5netcdf"
    try:
        dataset = xr.open_dataset(
            path,
            engine=engine,
            mask_and_scale=False,
            decode_times=False,
            cache=False,
            drop_variables=["step"],
        )
    except Exception as error:  # the engines' many
        raise InputError(f"{path}: cannot be read as netCDF ({error})") from error
    dataset = _renamed(dataset, path)
    variables, skipped = _variables(dataset), {}
    if "level" not in dataset.coords:
        skipped = {
            variable: f"{path}: {variables.pop(variable)} has no pressure levels"
            for variable in sorted(ALOFT & variables.keys())
        }
    if not variables:
        return FieldSource(str(path), skipped=skipped)
    for name in ("time", "latitude", "longitude"):
        if name not in dataset.coords:
            raise InputError(f"{path}: missing {name}")
    times = decode_times(dataset["time"].values, dataset["time"].attrs, str(path))
    levels: tuple[int, ...] = ()
    if "level" in dataset.coords:
        levels = decode_levels(dataset["level"].values, dataset["level"].attrs, str(path))
    pieces = {}
    for variable, name in variables.items():
        array = dataset[name]
        if variable in ALOFT and "level" not in array.dims and len(levels) > 1:
            raise InputError(f"{path}: {name} has no dimension of its pressure levels")
        pieces[variable] = [
            _piece(
                _without_members(array, path),
                path,
                times,
                levels if variable in ALOFT else (None,),
                _experiment_versions(dataset) if "expver" in array.dims else (0,),
            )
        ]
    humidity = variables.get("relative_humidity")
    units = str(dataset[humidity].attrs.get("units", "unknown")) if humidity else "unknown"
    grid = dataset["latitude"].values, dataset["longitude"].values
    return FieldSource(str(path), *grid, pieces, units, skipped=skipped)


def _piece(
    array: xr.DataArray,
    path: Path,
    times: np.ndarray,
    levels: tuple[int | None, ...],
    versions: tuple[int, ...],
) -> Piece:
    def select(positions: dict[str, Index]) -> np.ndarray:
        return array.isel(positions).values

    return Piece(
        where=str(path),
        times=times,
        levels=levels,
        dimensions=tuple(map(str, array.dims)),
        chunks=_chunks(array),
        attributes=array.attrs,
        select=select,
        files=(str(path),),
        versions=versions,
    )


def _renamed(dataset: xr.Dataset, path: Path) -> xr.Dataset:
    """Rename dimensions to our names; of two times, the valid time counts."""
    if "valid_time" in dataset.variables and "time" in dataset.variables:
        reference = dataset["time"]
        if dataset["valid_time"].dims not in ((), ("time",)):
            raise InputError(f"{path}: valid_time has more dimensions than time: no analysis")
        attributes = dataset["valid_time"].attrs or reference.attrs
        valid = (reference.dims, dataset["valid_time"].values, attributes)
        dataset = dataset.drop_vars(["time", "valid_time"]).assign_coords(time=valid)
    names = {old: new for old, new in DIMENSION_NAMES.items() if old in dataset.variables}
    dataset = dataset.rename({o: n for o, n in names.items() if n not in dataset.variables})
    coordinates = ("time", "level", "latitude", "longitude", "expver", "number")
    return dataset.set_coords([name for name in coordinates if name in dataset.variables])


def _variables(dataset: xr.Dataset) -> dict[str, str]:
    """Return the file's name of each variable that we use."""
    known = {variable for variable, _ in CHANNEL_SOURCES.values()}
    found = {}
    for name in map(str, dataset.data_vars):
        variable = SHORT_NAMES.get(name, name)
        if variable in known:
            found[variable] = name
    return found


def _without_members(array: xr.DataArray, path: Path) -> xr.DataArray:
    """Remove other dimensions of length one; InputError for an ensemble."""
    known = {"time", "level", "latitude", "longitude", "expver"}
    for name in [name for name in array.dims if name not in known]:
        if array.sizes[name] > 1:
            raise InputError(
                f"{path}: {array.name} has {array.sizes[name]} along {name}; needed is one"
            )
        array = array.isel({name: 0})
    return array


def _experiment_versions(dataset: xr.Dataset) -> tuple[int, ...]:
    """Return positions along `expver`, final (1) before preliminary (5)."""
    versions = [int(version) for version in np.atleast_1d(dataset["expver"].values)]
    return tuple(int(at) for at in np.argsort(versions))


def _chunks(array: xr.DataArray) -> dict[str, int]:
    sizes: Any = array.encoding.get("chunksizes") or ()
    return dict(zip(map(str, array.dims), sizes, strict=False))
