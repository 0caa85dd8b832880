"""One year of a source, and writing it month by month: it can be stopped anywhere and never looks complete.

The values go to `.<year>.h5.partial`. Finished months, with their moments, are recorded in
`.<year>.progress.npz` once the values are on the disk (`partial_file`). At the end the year is
checked and renamed.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import waiting_lock
from scalewatt.common.files import atomic_path
from scalewatt.datasets.era5.channels import CHANNELS, Z500
from scalewatt.datasets.era5.statistics import Moments, store_moments
from scalewatt.datasets.era5_preparation.field_checks import check_field
from scalewatt.datasets.era5_preparation.partial_file import (
    FieldWriter,
    Layout,
    Progress,
    check_space,
    checksum,
    create_partial,
    describe,
    is_intact,
    store_at_offsets,
)

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
    """Write the prepared file `path` of a source's `times`, atomically, resuming unfinished work.

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
        attributes = {"source": source or reader.name, "channels": list(CHANNELS)}
        described = {**reader.attributes, **attributes}
        layout = Layout(times, *reader.grid, described, reader.link, reader.state)
        record = path.with_name(f".{path.stem}.progress.npz")
        partial = path.with_name(f".{path.name}.partial") if layout.link is None else None
        progress = _begin(partial, record, layout)
        try:
            _fill(partial, record, layout, progress, reader)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise InputError(f"{path}: the disk is full or the quota used up") from error
            raise
        _check_end(path, partial, record, layout, progress, reader)
        _publish(path, partial, layout, progress.moments)
        record.unlink(missing_ok=True)


def _begin(partial: Path | None, record: Path, layout: Layout) -> Progress:
    """Return the progress of the year, and create the partial file if there is to be one."""
    progress = Progress.load(record, layout.identity)
    if partial is None:
        return progress
    if not (progress.months and is_intact(partial, layout, progress)):
        record.unlink(missing_ok=True)
        progress = Progress(layout.identity)
        create_partial(partial, layout, progress.token)
    check_space(partial, layout)
    return progress


def _fill(
    partial: Path | None, record: Path, layout: Layout, progress: Progress, reader: YearReader
) -> None:
    """Process the months that are not finished."""
    target = None if partial is None else FieldWriter(partial)
    try:
        for month in layout.months[progress.months :]:
            last = [0] * len(CHANNELS)
            for first, fields in _ahead(reader.blocks(layout.times[month])):
                for channel, block in fields.items():
                    for step, values in enumerate(block, month.start + first):
                        values = np.ascontiguousarray(values)
                        _count(values, channel, layout.times[step], reader, progress.moments)
                        if target is not None:
                            target.write(values, step, channel)
                        if step == month.stop - 1:
                            last[channel] = checksum(values)
            if target is not None:
                target.flush()
            progress.months += 1
            progress.checksums.append(last)
            progress.save(record)
    finally:
        if target is not None:
            target.close()


def _count(
    values: np.ndarray, channel: int, time: np.datetime64, reader: YearReader, moments: Moments
) -> None:
    check_field(channel, float(values.min()), float(values.max()), time, reader.name)
    moments.add_field(channel, values)
    if channel == Z500:
        moments.add_z500(values)


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


# --- the end --------------------------------------------------------------------------------------


def _check_end(
    path: Path,
    partial: Path | None,
    record: Path,
    layout: Layout,
    progress: Progress,
    reader: YearReader,
) -> None:
    """Raise InputError, and discard all progress, if the source or the partial file has changed."""
    problem = None
    if reader.state != layout.state:
        problem = f"{reader.name}: was changed while {path.name} was made from it"
    elif partial is not None and not is_intact(partial, layout, progress):
        problem = f"{partial}: does not contain what was written to it"
    if problem:
        record.unlink(missing_ok=True)
        raise InputError(f"{problem}; the next start prepares the year from the beginning")
    right = layout.shape[0] * layout.shape[2] * layout.shape[3]
    if (progress.moments.count != right).any():
        record.unlink(missing_ok=True)
        raise AssertionError(f"{path}: {progress.moments.count} values a channel, not {right}")


def _publish(path: Path, partial: Path | None, layout: Layout, moments: Moments) -> None:
    if partial is not None:
        store_at_offsets(partial, moments)
        os.replace(partial, path)
        return
    assert layout.link is not None
    with atomic_path(path) as temporary, h5py.File(temporary, "w") as file:
        describe(file, layout)
        file["fields"] = h5py.ExternalLink(str(layout.link[0]), "/fields")
        store_moments(file, moments, len(layout.times))
