"""ERA5 in files of the Climate Data Store, split in any way and selected by label."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5_preparation.grib import GRIB, open_grib
from scalewatt.datasets.era5_preparation.labelled_arrays import Piece
from scalewatt.datasets.era5_preparation.labelled_fields import FieldSource, OpenedFile
from scalewatt.datasets.era5_preparation.netcdf import NETCDF3, NETCDF4, open_netcdf

HUMIDITY = "water above 0 °C, ice below -23 °C, both between (ECMWF)"


def open_files(patterns: Sequence[str], lists: Path | None = None) -> FieldSource:
    """Open all GRIB and netCDF files that the patterns match; `lists` is a folder for lists of GRIB messages.

    InputError where a pattern matches nothing, a file is torn or of another format, or grids
    differ.
    """
    name = f"ERA5 files {', '.join(patterns)}"
    pieces: dict[str, list[Piece]] = {}
    skipped: dict[str, str] = {}
    grid: tuple[np.ndarray, np.ndarray] | None = None
    grid_of, units = "", "unknown"
    for path in _matches(patterns):
        found = _open(path, lists)
        skipped |= found.skipped
        if not found.pieces:
            continue
        here = found.latitude, found.longitude
        if grid is None:
            grid, grid_of = here, str(path)
        elif not all(map(_same, grid, here)):
            raise InputError(f"{path}: is on another grid than {grid_of}")
        for variable, some in found.pieces.items():
            pieces.setdefault(variable, []).extend(some)
        units = found.humidity_units if found.humidity_units != "unknown" else units
    if grid is None:
        more = "".join(f"; {text}" for text in skipped.values())
        raise InputError(f"{name}: hold none of the variables needed{more}")
    return FieldSource(name, *grid, pieces, units, HUMIDITY, skipped=skipped)


def _matches(patterns: Sequence[str]) -> list[Path]:
    paths: set[Path] = set()
    for pattern in patterns:
        matches = [Path(path) for path in glob.glob(pattern, recursive=True)]
        files = {path for path in matches if path.is_file()}
        if not files:
            raise InputError(f"{pattern}: there is no such ERA5 file")
        paths |= files
    return sorted(paths)


def _open(path: Path, lists: Path | None) -> OpenedFile:
    with path.open("rb") as file:
        start = file.read(4)
    if start == GRIB:
        return open_grib(path, lists)
    if start[:3] == NETCDF3 or start == NETCDF4:
        return open_netcdf(path)
    raise InputError(f"{path}: is neither GRIB nor netCDF (it begins with {start!r})")


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, atol=1e-4)
