"""ERA5 in netCDF files of the Climate Data Store, of before and after its change of 2024."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5.channels import ALOFT, CHANNEL_SOURCES, SHORT_NAMES
from scalewatt.datasets.era5_preparation.labelled_fields import OpenedFile
from scalewatt.datasets.era5_preparation.labels import (
    as_index,
    decode,
    decode_levels,
    decode_times,
    dimension_names,
)

if TYPE_CHECKING:
    import xarray as xr

NETCDF3, NETCDF4 = b"CDF", b"\x89HDF"


@dataclass(frozen=True)
class NetcdfPiece:
    """One variable of a file; `final` and `preliminary` are positions along `expver`."""

    where: str
    times: np.ndarray
    levels: tuple[int | None, ...]
    time_chunk: int
    level_chunk: int
    array: xr.DataArray
    expver: tuple[int, ...]

    @property
    def files(self) -> tuple[str, ...]:
        return (self.where,)

    def read(self, times: np.ndarray, levels: Sequence[int]) -> list[np.ndarray]:
        array = self.array
        if "time" in array.dims:
            array = array.isel(time=as_index(times))
        if "level" not in array.dims:
            return [self._merged(array)]
        order = np.argsort(levels)  # HDF5 reads in ascending order only
        fields = self._merged(array.isel(level=as_index(np.array(levels)[order])))
        return [fields[:, at] for at in np.argsort(order)]

    def _merged(self, array: xr.DataArray) -> np.ndarray:
        """(time, [level,] latitude, longitude); where final values are missing, preliminary ones."""
        names = ("expver", "time", "level", "latitude", "longitude")
        if "time" not in array.dims:
            array = array.expand_dims("time")
        array = array.transpose(*(name for name in names if name in array.dims))
        if not self.expver:
            return decode(array.values, array.attrs)
        parts = [decode(array.isel(expver=at).values, array.attrs) for at in self.expver]
        whole = parts[0]
        for part in parts[1:]:
            whole = np.where(np.isnan(whole), part, whole)
        return whole


def open_netcdf(path: Path) -> OpenedFile:
    """Pieces of a file, its grid, and the units of relative humidity.

    In a file without pressure levels, what should have some is passed over: `z` is orography there.
    InputError where the file is none, torn, or of a kind that cannot be told.
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
    variables, passed_over = _variables(dataset), {}
    if "level" not in dataset.coords:
        passed_over = {
            variable: f"{path}: {variables.pop(variable)} has no pressure levels"
            for variable in sorted(ALOFT & variables.keys())
        }
    if not variables:
        return OpenedFile(passed_over=passed_over)
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
        chunk = _chunks(array)
        piece = NetcdfPiece(
            where=str(path),
            times=times,
            levels=levels if variable in ALOFT else (None,),
            time_chunk=chunk.get("time", 1),
            level_chunk=chunk.get("level", 1),
            array=_without_members(array, path),
            expver=_experiment_versions(dataset) if "expver" in array.dims else (),
        )
        pieces[variable] = [piece]
    humidity = variables.get("relative_humidity")
    units = str(dataset[humidity].attrs.get("units", "unknown")) if humidity else "unknown"
    grid = dataset["latitude"].values, dataset["longitude"].values
    return OpenedFile(pieces, *grid, units, passed_over)


def _renamed(dataset: xr.Dataset, path: Path) -> xr.Dataset:
    """With our names of dimensions; of two times, the one that is valid counts."""
    if "valid_time" in dataset.variables and "time" in dataset.variables:
        reference = dataset["time"]
        if dataset["valid_time"].dims not in ((), ("time",)):
            raise InputError(f"{path}: valid_time has more dimensions than time: no analysis")
        attributes = dataset["valid_time"].attrs or reference.attrs
        valid = (reference.dims, dataset["valid_time"].values, attributes)
        dataset = dataset.drop_vars(["time", "valid_time"]).assign_coords(time=valid)
    names = {old: new for old, new in dimension_names().items() if old in dataset.variables}
    dataset = dataset.rename({o: n for o, n in names.items() if n not in dataset.variables})
    coordinates = ("time", "level", "latitude", "longitude", "expver", "number")
    return dataset.set_coords([name for name in coordinates if name in dataset.variables])


def _variables(dataset: xr.Dataset) -> dict[str, str]:
    """The file's name of each variable that we use."""
    known = {variable for variable, _ in CHANNEL_SOURCES.values()}
    found = {}
    for name in map(str, dataset.data_vars):
        variable = SHORT_NAMES.get(name, name)
        if variable in known:
            found[variable] = name
    return found


def _without_members(array: xr.DataArray, path: Path) -> xr.DataArray:
    """Without dimensions that select nothing; InputError for an ensemble or unknown dimensions."""
    known = {"time", "level", "latitude", "longitude", "expver"}
    for name in [name for name in array.dims if name not in known]:
        if array.sizes[name] > 1:
            raise InputError(
                f"{path}: {array.name} has {array.sizes[name]} along {name}; needed is one"
            )
        array = array.isel({name: 0})
    return array


def _experiment_versions(dataset: xr.Dataset) -> tuple[int, ...]:
    """Positions along `expver`, final (1) before preliminary (5)."""
    versions = [int(version) for version in np.atleast_1d(dataset["expver"].values)]
    return tuple(int(at) for at in np.argsort(versions))


def _chunks(array: xr.DataArray) -> dict[str, int]:
    sizes: Any = array.encoding.get("chunksizes") or ()
    return dict(zip(map(str, array.dims), sizes, strict=False))
