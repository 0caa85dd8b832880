"""ERA5 in GRIB files of the Climate Data Store, message by message.

A file's messages are listed once by their headers; the list is kept beside the prepared years, so
that other jobs need not scan the files again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import waiting_lock
from scalewatt.common.files import read_json, write_json
from scalewatt.datasets.era5.channels import ALOFT, SHORT_NAMES
from scalewatt.datasets.era5_preparation.labelled_fields import FieldSource, Index, Piece

GRIB = b"GRIB"
LIST_VERSION = 1
GRID_KEYS = (
    "Ni",
    "Nj",
    "latitudeOfFirstGridPointInDegrees",
    "latitudeOfLastGridPointInDegrees",
    "longitudeOfFirstGridPointInDegrees",
    "longitudeOfLastGridPointInDegrees",
)

Messages = dict[tuple[int, int | None], tuple[int, int]]
"""(time in s, level) -> (offset, bytes)."""


def open_grib(path: Path, lists: Path | None) -> FieldSource:
    """Return the pieces of a file and its grid; `lists` is the folder where lists are kept.

    InputError if the file is torn or has another grid than a regular one.
    """
    listed = _listed(path, lists)
    grid, rows = listed["grid"], listed["messages"]
    if grid is None:
        return FieldSource(str(path))
    columns_, rows_, north, south, west, east = grid
    latitude = np.linspace(north, south, rows_)
    longitude = np.linspace(west, east if east >= west else east + 360, columns_)
    by_variable: dict[str, Messages] = {}
    for variable, seconds, level, offset, size in rows:
        messages = by_variable.setdefault(variable, {})
        if (seconds, level) in messages:
            when = str(np.datetime64(seconds, "s"))[:16]
            raise InputError(f"{path}: has {variable} more than once on {when}")
        messages[seconds, level] = (offset, size)
    shape = (rows_, columns_)
    pieces = {v: list(_pieces(path, m, shape)) for v, m in by_variable.items()}
    return FieldSource(str(path), latitude, longitude, pieces, "%")


def _pieces(path: Path, messages: Messages, shape: tuple[int, int]) -> Iterator[Piece]:
    """Yield one piece for all times with the same levels."""
    at: dict[int, list[int | None]] = {}
    for seconds, level in messages:
        at.setdefault(seconds, []).append(level)
    groups: dict[tuple[int | None, ...], list[int]] = {}
    for seconds, levels in at.items():
        groups.setdefault(tuple(sorted(levels, key=lambda x: x or 0)), []).append(seconds)
    for levels_, times in groups.items():
        yield Piece(
            where=str(path),
            times=np.array(times, "datetime64[s]").astype("datetime64[ns]"),
            levels=levels_,
            dimensions=("time", "level", "latitude", "longitude"),
            chunks={},
            attributes={},
            select=partial(_select, path, messages, np.array(times), levels_, shape),
            files=(str(path),),
        )


def _select(
    path: Path,
    messages: Messages,
    times: np.ndarray,
    levels: tuple[int | None, ...],
    shape: tuple[int, int],
    positions: dict[str, Index],
) -> np.ndarray:
    """Read the messages at some of the times (s) and levels: (time, level, latitude, longitude)."""
    seconds = times[positions["time"]].tolist()
    wanted = [levels[at] for at in np.arange(len(levels))[positions["level"]].tolist()]
    fields = np.empty((len(seconds), len(wanted), *shape), np.float32)
    with open(path, "rb") as file:
        for step, time in enumerate(seconds):
            for number, level in enumerate(wanted):
                offset, size = messages[time, level]
                file.seek(offset)
                fields[step, number] = _values(file.read(size)).reshape(shape)
    return fields


def _values(message: bytes) -> np.ndarray:
    """Return a message's values in the order of the grid, NaN where missing."""
    import eccodes

    handle = eccodes.codes_new_from_message(message)
    try:
        values = eccodes.codes_get_values(handle)
        if eccodes.codes_get(handle, "bitmapPresent"):
            missing = eccodes.codes_get_double(handle, "missingValue")
            values = np.where(values == missing, np.nan, values)
        return values
    finally:
        eccodes.codes_release(handle)


def _listed(path: Path, lists: Path | None) -> dict[str, Any]:
    """List the file's messages: {"grid": [...], "messages": [[variable, s, level, at, bytes]]}.

    A file is listed by one process; others wait for the list.
    """
    status = path.stat()
    state = {"version": LIST_VERSION, "bytes": status.st_size, "mtime_ns": status.st_mtime_ns}
    if lists is None:
        return _scan(path)
    kept = lists / f"{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}.json"
    if (listed := _kept(kept, state)) is not None:
        return listed
    lists.mkdir(parents=True, exist_ok=True)
    waiting = f"scalewatt: waiting for another process that lists the messages of {path}"
    with waiting_lock(kept.with_suffix(".lock"), waiting):
        if (listed := _kept(kept, state)) is None:
            listed = {"file": state} | _scan(path)
            write_json(kept, listed)
        return listed


def _kept(kept: Path, state: dict[str, int]) -> dict[str, Any] | None:
    """Return the list of a file in this state; None if there is none, or it is damaged."""
    try:
        listed = read_json(kept)
        return listed if listed["file"] == state else None
    except (InputError, KeyError, TypeError):
        return None


def _scan(path: Path) -> dict[str, Any]:
    import eccodes

    grid: list[float] | None = None
    messages: list[list[Any]] = []
    with open(path, "rb") as file:
        while True:
            try:
                handle = eccodes.codes_grib_new_from_file(file, headers_only=True)
            except Exception as error:  # eccodes'
                raise InputError(
                    f"{path}: is no whole GRIB file after {len(messages)} messages ({error})"
                ) from error
            if handle is None:
                break
            try:
                found = _describe(handle, path)
                if found is None:
                    continue
                here = _grid(handle, path)
            finally:
                eccodes.codes_release(handle)
            if grid is not None and here != grid:
                raise InputError(f"{path}: has messages on different grids")
            grid = here
            messages.append(found)
    return {"grid": grid, "messages": messages}


def _describe(handle: Any, path: Path) -> list[Any] | None:
    """Return [variable, time in s, level, offset, bytes]; None for what is not used."""
    from eccodes import codes_get as get

    variable = SHORT_NAMES.get(get(handle, "shortName"))
    if variable is None:
        return None
    kind = get(handle, "typeOfLevel")
    level = {"isobaricInhPa": 1.0, "isobaricInPa": 0.01}.get(kind)
    if (level is not None) != (variable in ALOFT):
        return None
    text = f"{get(handle, 'validityDate'):08d}{get(handle, 'validityTime'):04d}+0000"
    seconds = int(datetime.strptime(text, "%Y%m%d%H%M%z").timestamp())
    hpa = None if level is None else round(get(handle, "level") * level)
    return [variable, seconds, hpa, get(handle, "offset", int), get(handle, "totalLength")]


def _grid(handle: Any, path: Path) -> list[float]:
    from eccodes import codes_get as get

    order = ("iScansNegatively", "jPointsAreConsecutive", "alternativeRowScanning")
    if get(handle, "gridType") != "regular_ll" or any(get(handle, key) for key in order):
        raise InputError(
            f"{path}: its grid is {get(handle, 'gridType')}, or not row by row from west to east; "
            "needed is a regular latitude-longitude grid"
        )
    return [get(handle, key) for key in GRID_KEYS]
