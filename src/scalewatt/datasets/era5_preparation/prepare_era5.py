"""ERA5 for FourCastNet: preparation of yearly HDF5 files from any of the sources.

Prepared format, one file `<year>.h5` a year: `fields` float32 (time, channel, latitude, longitude),
contiguous and uncompressed, not normalised; `time` int64 (Unix seconds), `latitude` descending,
`longitude`; `statistics` with the moments of every channel; attributes say which channels, from
where, and what was converted. For files of the original project, `fields` is a link to them.
"""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.files import parse_json
from scalewatt.datasets.era5.channels import all_years, part_years, year_times
from scalewatt.datasets.era5.statistics import (
    rounded_statistics,
    stored_moments,
    write_statistics,
)
from scalewatt.datasets.era5.year_layout import YearFile, check_origins, check_years
from scalewatt.datasets.era5_preparation.grib import GRIB, open_grib
from scalewatt.datasets.era5_preparation.labelled_fields import (
    FieldSource,
    Piece,
    open_labelled_year,
)
from scalewatt.datasets.era5_preparation.netcdf import NETCDF3, NETCDF4, open_netcdf
from scalewatt.datasets.era5_preparation.original_yearly import open_original_year
from scalewatt.datasets.era5_preparation.write_year import HUMIDITY, YearReader, write_year
from scalewatt.datasets.era5_preparation.zarr import open_zarr

LISTS = ".grib"
SOURCE_KEYS = ("zarr", "files", "hdf5")

Source = str | dict[str, Any]
"""A Zarr store's path or URL, or one of {zarr: URL}, {files: [GLOB, …]}, {hdf5: FOLDER}."""


def prepare(
    store: Source | None, folder: Path | str, definition: dict[str, Any], source: str | None = None
) -> None:
    """Make the yearly files that `definition` needs and their statistics in `folder`.

    Finished years are kept. `source` is recorded as the data's origin instead of `store`. InputError
    names what the store lacks, or the years that are missing where there is no store.
    """
    folder = Path(folder)
    require_source(definition, folder, store, all_years(definition))
    for year in all_years(definition):
        make_year(definition, folder, store, year, source)
    finish(folder, definition)


def make_year(
    definition: dict[str, Any],
    folder: Path,
    store: Source | None,
    year: int,
    source: str | None = None,
) -> None:
    """Make one of the years that `definition` needs, unless it is there."""
    path = folder / f"{year}.h5"
    if path.exists():
        refuse_original(path)
        return
    require_source(definition, folder, store, [year])
    assert store is not None
    times = year_times(year, definition["samples_per_year"])
    prepare_year(store, year, path, times=times, source=source, grid=definition["grid"])


def require_source(
    definition: dict[str, Any], folder: Path, store: Source | None, years: list[int]
) -> None:
    """Raise InputError if one of the years is missing and there is no source to make it from."""
    missing = [year for year in years if not (folder / f"{year}.h5").exists()]
    if missing and not store:
        raise InputError(
            f"{folder}: prepared ERA5 years {', '.join(map(str, missing))} are missing; say in the "
            f"cluster file what to make them from: sources: {{{definition['name']}: <url>}} of a "
            "Zarr store, or {files: [<glob>]}, or {hdf5: <folder>}"
        )


def finish(folder: Path, definition: dict[str, Any]) -> None:
    """Check all years and merge their statistics."""
    for year in all_years(definition):
        refuse_original(folder / f"{year}.h5")
    check_years(folder, definition)
    check_origins(folder, all_years(definition))
    years = list(part_years(definition, "train"))
    steps = {year: counted_steps(folder, definition, year) for year in years}
    write_statistics(folder, years, steps)


def counted_steps(folder: Path, definition: dict[str, Any], year: int) -> int:
    """Return the steps of a year that statistics count: those of its samples and their targets."""
    needed = len(year_times(year, definition["samples_per_year"]))
    return min(needed, YearFile.read(folder, year).steps)


def prepare_year(
    store: Source,
    year: int,
    out_path: Path | str,
    *,
    times: np.ndarray | None = None,
    source: str | None = None,
    grid: Sequence[int] | None = None,
) -> None:
    """Make one year's file from a source, all or nothing; nothing happens where it exists.

    `times` defaults to the whole year, 6-hourly; `grid` (rows and columns used) to the source's.
    Everything is selected by label; a store may hold more times, levels and variables, latitude in
    either direction and longitude from 0 or -180. Missing variables, levels or times and values that
    are not finite or not plausible are refused by name and date (InputError).
    """
    out_path = Path(out_path)
    times = year_times(year) if times is None else times
    kind, where = parse_source(store)

    def open_reader() -> YearReader:
        if kind == "hdf5":
            return open_original_year(Path(where), year, times, grid)
        lists = out_path.parent / LISTS
        opened = open_files(where, lists) if kind == "files" else open_zarr(where)
        return open_labelled_year(opened, times, grid)

    text = where if isinstance(where, str) else " ".join(where)
    write_year(out_path, times, open_reader, source or text)


def parse_source(store: Source) -> tuple[str, Any]:
    """Return a source's kind (zarr, files or hdf5) and place: a string, for files a list; else InputError."""
    if isinstance(store, str) and store.lstrip().startswith("{"):
        store = parse_json(store)
    if isinstance(store, str):
        return "zarr", store
    if len(store) != 1 or next(iter(store)) not in SOURCE_KEYS:
        raise InputError(
            f"ERA5 source {json.dumps(store)}: needed is exactly one of {', '.join(SOURCE_KEYS)}"
        )
    ((kind, where),) = store.items()
    if kind == "files" and isinstance(where, str):
        where = [where]
    texts = where if kind == "files" else [where]
    if not (isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts)):
        raise InputError(
            f"ERA5 source {kind}: {json.dumps(where)} is no "
            f"{'list of patterns' if kind == 'files' else 'text'}"
        )
    return kind, where


def refuse_original(path: Path) -> None:
    """Raise InputError if a file in the data root is one of the original project."""
    try:
        with h5py.File(path, "r") as file:
            unlabelled = "fields" in file and "time" not in file
    except OSError:
        return  # check_years says what it is
    if unlabelled:
        raise InputError(
            f"{path}: has fields but no time, as the original project's files; name their folder in "
            "the cluster file as sources: {<dataset>: {hdf5: <folder>}}, and another as data root"
        )


# --- what identifies the data ---------------------------------------------------------------------


def describe_year(folder: Path, definition: dict[str, Any], year: int) -> dict[str, Any]:
    """Return the shape of a prepared year and a digest of its moments, None if none are stored."""
    file = YearFile.read(folder, year)
    steps = counted_steps(folder, definition, year)
    moments = stored_moments(file.path, steps)
    digest = None
    if moments is not None:
        values = [[f"{x:.10g}" for x in array] for array in (moments.mean, moments.squares)]
        digest = hashlib.sha256(json.dumps(values).encode()).hexdigest()
    return {"steps": steps, "grid": [file.latitudes, file.longitudes], "moments_sha256": digest}


def content_of(folder: Path, definition: dict[str, Any]) -> dict[str, str]:
    """Return what identifies each prepared file's content, without paths and the last bits of sums."""
    content = {
        f"{year}.h5": json.dumps(describe_year(folder, definition, year), sort_keys=True)
        for year in all_years(definition)
    }
    statistics = json.dumps(rounded_statistics(folder), sort_keys=True)
    return content | {"statistics.json": hashlib.sha256(statistics.encode()).hexdigest()}


def count_samples(definition: dict[str, Any], folder: Path) -> tuple[int, int]:
    """Return the training and validation samples that have a 6 h target; each training sample must."""
    from scalewatt.datasets.era5.era5_dataset import (
        Era5Dataset,  # and with it PyTorch, which the years need not
    )

    train, validation = (
        len(
            Era5Dataset(
                folder,
                part_years(definition, part),
                lead_steps=1,
                samples_per_year=definition["samples_per_year"],
                require_targets=part == "train",
                known_years=all_years(definition),
            )
        )
        for part in ("train", "validation")
    )
    return train, validation


def open_files(patterns: Sequence[str], lists: Path | None = None) -> FieldSource:
    """Open all GRIB and netCDF files that the patterns match; `lists` is a folder for lists of GRIB messages.

    InputError if a pattern matches nothing, a file is torn or of another format, or grids
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


def _open(path: Path, lists: Path | None) -> FieldSource:
    with path.open("rb") as file:
        start = file.read(4)
    if start == GRIB:
        return open_grib(path, lists)
    if start[:3] == NETCDF3 or start == NETCDF4:
        return open_netcdf(path)
    raise InputError(f"{path}: is neither GRIB nor netCDF (it begins with {start!r})")


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, atol=1e-4)
