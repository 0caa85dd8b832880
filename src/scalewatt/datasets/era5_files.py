"""ERA5 in files of the Climate Data Store, split in whatever way, by their labels."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scalewatt.datasets.era5_grib import GRIB, open_grib
from scalewatt.datasets.era5_netcdf import NETCDF3, NETCDF4, open_netcdf
from scalewatt.datasets.era5_pieces import FieldSource, Piece
from scalewatt.errors import InputError

HUMIDITY = "water above 0 °C, ice below -23 °C, both between (ECMWF)"


def open_files(patterns: Sequence[str], lists: Path | None = None) -> FieldSource:
    """All GRIB and netCDF files that the patterns match; `lists` keeps lists of GRIB messages.

    InputError where a pattern matches nothing, a file is torn or of another format, or grids
    differ.
    """
    name = f"ERA5 files {', '.join(patterns)}"
    pieces: dict[str, list[Piece]] = {}
    grid: tuple[np.ndarray, np.ndarray] | None = None
    grid_of, units = "", "unknown"
    for path in _matches(patterns):
        found, latitude, longitude, here = _open(path, lists)
        if not found:
            continue
        if grid is None:
            grid, grid_of = (latitude, longitude), str(path)
        elif not all(map(_same, grid, (latitude, longitude))):
            raise InputError(f"{path}: is on another grid than {grid_of}")
        for variable, some in found.items():
            pieces.setdefault(variable, []).extend(some)
        units = here if here != "unknown" else units
    if grid is None:
        raise InputError(f"{name}: hold none of the variables needed")
    facts = {"relative_humidity_over": HUMIDITY}
    return FieldSource(name, *grid, pieces, units, facts)


def _matches(patterns: Sequence[str]) -> list[Path]:
    paths: set[Path] = set()
    for pattern in patterns:
        matches = [Path(path) for path in glob.glob(pattern, recursive=True)]
        files = {path for path in matches if path.is_file()}
        if not files:
            raise InputError(f"{pattern}: there is no such ERA5 file")
        paths |= files
    return sorted(paths)


def _open(
    path: Path, lists: Path | None
) -> tuple[dict[str, list[Piece]], np.ndarray, np.ndarray, str]:
    with path.open("rb") as file:
        start = file.read(4)
    if start == GRIB:
        grib, latitude, longitude = open_grib(path, lists)
        return {v: list(some) for v, some in grib.items()}, latitude, longitude, "%"
    if start[:3] == NETCDF3 or start == NETCDF4:
        netcdf, latitude, longitude, units = open_netcdf(path)
        return {v: [piece] for v, piece in netcdf.items()}, latitude, longitude, units
    raise InputError(f"{path}: is neither GRIB nor netCDF (it begins with {start!r})")


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, atol=1e-4)
