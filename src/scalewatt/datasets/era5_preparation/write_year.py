"""One year of a source, and writing it to a partial file that is renamed when it is complete."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import waiting_lock
from scalewatt.common.files import require_space, write_at
from scalewatt.datasets.era5.channels import CHANNELS, Z500
from scalewatt.datasets.era5.statistics import Moments, store_moments
from scalewatt.datasets.era5_preparation.field_checks import check_field

SPARE_BYTES = 64 * 2**20
BLOCK_BYTES = 16 * 2**20
"""Decoded at once. The C library reuses allocations up to this size; larger ones are zeroed anew."""

HUMIDITY = "water above 0 °C, ice below -23 °C, both between (ECMWF)"
"""What the relative humidity of ECMWF's own files is defined over."""

AS_STORED: Mapping[str, Any] = {
    "relative_humidity": "%",
    "relative_humidity_over": HUMIDITY,
    "relative_humidity_source_units": "unknown",
    "relative_humidity_converted_from_fraction": False,
    "geopotential_converted_from_height": False,
    "latitude_reversed": False,
    "longitude_shifted": 0,
}
"""A prepared file's attributes about its source's humidity, units and orientation, if all are ours."""

Block = tuple[int, dict[int, np.ndarray]]
"""First time's position, and fields (time, latitude, longitude), float32, by channel."""


@dataclass(frozen=True)
class YearReader:
    """A year of a source, opened and checked."""

    name: str
    """Of the source; messages begin with it."""
    grid: tuple[np.ndarray, np.ndarray]
    """Latitudes and longitudes."""
    attributes: Mapping[str, Any]
    """What the prepared file states about its origin, see `AS_STORED`."""
    files: tuple[str, ...]
    """Local files that are read for it."""
    blocks: Callable[[np.ndarray], Iterator[Block]]
    """Yield all fields at these times; those of a channel in the order of time."""
    link: tuple[Path, int] | None = None
    """The file whose `fields` are used in place, and their steps; None to write them."""

    @property
    def state(self) -> str:
        """Names, sizes and modification times of the files as they are now."""
        return "; ".join(map(_state, sorted(set(self.files))))


def _state(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError as error:
        return f"{path} {error.strerror}"
    return f"{path} {status.st_size} {status.st_mtime_ns}"


BLOCKS_AHEAD = 3


def write_year(
    path: Path, times: np.ndarray, open_reader: Callable[[], YearReader], source: str | None = None
) -> None:
    """Write the prepared file `path` of a source's `times`, all or nothing.

    Waits for another process that makes the same year. `source` replaces the reader's name in the
    file. InputError for values that are missing or implausible, by name and date, for a source that
    is changed meanwhile, and for a full disk.
    """
    if path.exists():
        return
    reader = open_reader()
    path.parent.mkdir(parents=True, exist_ok=True)
    waiting = f"scalewatt: waiting for another preparation of {path}"
    with waiting_lock(path.with_name(f".{path.stem}.lock"), waiting):
        if path.exists():
            return
        before = reader.state
        partial = path.with_name(f".{path.name}.partial")
        partial.unlink(missing_ok=True)  # of a job that was killed
        try:
            _write(partial, times, reader, source or reader.name)
            if reader.state != before:
                raise InputError(f"{reader.name}: was changed while {path.name} was made from it")
        except BaseException as error:
            partial.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise InputError(f"{path}: the disk is full or the quota used up") from error
            raise
        os.replace(partial, path)


def _write(partial: Path, times: np.ndarray, reader: YearReader, source: str) -> None:
    latitude, longitude = reader.grid
    shape = (len(times), len(CHANNELS), len(latitude), len(longitude))
    if reader.link is None:
        needed = 4 * int(np.prod(shape)) + SPARE_BYTES
        require_space(partial.parent, needed, str(partial.parent), "this year's fields")
    with h5py.File(partial, "w") as file:
        steps = times
        if reader.link is not None:  # the file linked to may have more times than what is used
            steps = times[0] + np.arange(reader.link[1]) * np.timedelta64(6, "h")
        file["time"] = steps.astype("datetime64[s]").astype(np.int64)
        file["latitude"], file["longitude"] = latitude, longitude
        for key, value in {**reader.attributes, "source": source, "channels": CHANNELS}.items():
            file.attrs[key] = value
        start = None
        if reader.link is None:
            start = _allocate(file, shape)
        else:
            file["fields"] = h5py.ExternalLink(str(reader.link[0]), "/fields")
    with open(partial, "r+b", buffering=0) as target:
        moments = _write_fields(target.fileno(), start, times, reader)
        assert (moments.count == shape[0] * shape[2] * shape[3]).all()
        os.fsync(target)
    with h5py.File(partial, "r+") as file:
        store_moments(file, moments, len(times))


def _allocate(file: h5py.File, shape: tuple[int, ...]) -> int:
    """Allocate the fields; return their offset, where they are written past HDF5.

    HDF5 itself crashes where the disk is full.
    """
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    offset: int = file.create_dataset("fields", shape, np.float32, dcpl=creation).id.get_offset()
    return offset


def _write_fields(target: int, start: int | None, times: np.ndarray, reader: YearReader) -> Moments:
    """Check all fields and write them from `start` on, month by month; return their moments."""
    moments = Moments()
    for month in _months(times):
        for first, block in _ahead(reader.blocks(times[month])):
            for channel, steps in block.items():
                for step, values in enumerate(
                    map(np.ascontiguousarray, steps), month.start + first
                ):
                    low, high = float(values.min()), float(values.max())
                    check_field(channel, low, high, times[step], reader.name)
                    moments.add_field(channel, values)
                    if channel == Z500:
                        moments.add_z500(values)
                    if start is not None:
                        at = start + (step * len(CHANNELS) + channel) * values.nbytes
                        write_at(target, values, at)
    return moments


def _months(times: np.ndarray) -> Iterator[slice]:
    """Yield the steps of every month."""
    month = times.astype("datetime64[M]")
    starts = [0, *(np.flatnonzero(month[1:] != month[:-1]) + 1).tolist(), len(month)]
    yield from (slice(first, last) for first, last in pairwise(starts))


def _ahead(blocks: Iterator[Block]) -> Iterator[Block]:
    """Yield the blocks, reading the next ones while one is processed."""
    reading = ThreadPoolExecutor(1, thread_name_prefix="era5")
    try:
        coming = deque(reading.submit(next, blocks, None) for _ in range(BLOCKS_AHEAD))
        while (block := coming.popleft().result()) is not None:
            coming.append(reading.submit(next, blocks, None))
            yield block
    finally:
        reading.shutdown(cancel_futures=True)
