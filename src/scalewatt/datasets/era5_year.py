"""Writing one year, month by month, so that it can be stopped anywhere and never looks complete.

The year grows in `.<year>.h5.partial`, whose structure is complete from the start: values are
written at their offsets, past the HDF5 library. What is finished, with its moments, is noted in
`.<year>.progress.npz` once the values are on the disk. At the end the year is checked and renamed.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np

from scalewatt.datasets.era5_channels import CHANNELS, Z500
from scalewatt.datasets.era5_checks import check_field
from scalewatt.datasets.era5_moments import Moments
from scalewatt.datasets.era5_pieces import Block
from scalewatt.datasets.era5_statistics import store_moments
from scalewatt.errors import InputError
from scalewatt.files import atomic_path
from scalewatt.locks import waiting_lock

FORMAT_VERSION = 1  # of a partial file and its progress
SPARE_BYTES = 64 * 2**20
BLOCKS_AHEAD = 3
FIELDS_UNDER_WAY = 8


class YearReader(Protocol):
    """One year of a source in our channels, units and orientation."""

    @property
    def name(self) -> str:
        """Begins messages."""
        ...

    @property
    def attributes(self) -> dict[str, Any]:
        """What the prepared file says of its origin."""
        ...

    @property
    def grid(self) -> tuple[np.ndarray, np.ndarray]:
        """Latitudes and longitudes."""
        ...

    @property
    def link(self) -> tuple[Path, int] | None:
        """The file whose `fields` are used in place, and their steps; None to write them."""
        ...

    def blocks(self, times: np.ndarray) -> Iterator[Block]:
        """All fields at `times`; those of a channel in the order of time."""
        ...


@dataclass(frozen=True)
class Layout:
    """What a year's file is to be."""

    times: np.ndarray
    latitude: np.ndarray
    longitude: np.ndarray
    attributes: dict[str, Any]
    link: tuple[Path, int] | None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of `fields` as written: (time, channel, latitude, longitude)."""
        return (len(self.times), len(CHANNELS), len(self.latitude), len(self.longitude))

    @property
    def bytes(self) -> int:
        """Of `fields`."""
        return 4 * int(np.prod(self.shape))

    @property
    def identity(self) -> str:
        """Whether a partial file is of this very year."""
        times = self.times.astype("datetime64[s]").astype(np.int64)
        described = [
            FORMAT_VERSION,
            [int(times[0]), int(times[-1]), *self.shape],
            {key: str(value) for key, value in self.attributes.items()},
            str(self.link),
        ]
        return json.dumps(described)


@dataclass
class Progress:
    """Months done, and the moments of their fields."""

    identity: str
    months: int
    moments: Moments

    @classmethod
    def load(cls, path: Path, identity: str) -> Progress:
        """What was noted; nothing done where it is missing, unreadable or of something else."""
        try:
            with np.load(path, allow_pickle=False) as noted:
                if str(noted["identity"]) != identity:
                    return cls(identity, 0, Moments())
                keys = ("count", "mean", "squares", "z500_sum")
                moments = Moments(*(noted[key] for key in keys))
                return cls(identity, int(noted["months"]), moments)
        except (OSError, ValueError, KeyError, EOFError):
            return cls(identity, 0, Moments())

    def save(self, path: Path) -> None:
        """Replace what was noted."""
        assert self.moments.z500_sum is not None
        with atomic_path(path) as temporary:
            np.savez(
                temporary,
                identity=self.identity,
                months=self.months,
                count=self.moments.count,
                mean=self.moments.mean,
                squares=self.moments.squares,
                z500_sum=self.moments.z500_sum,
            )


def write_year(
    path: Path, times: np.ndarray, open_reader: Callable[[], YearReader], source: str | None = None
) -> None:
    """Make the prepared file `path` of a source's `times`, all or nothing, going on where it was left.

    Waits for another process that makes the same year. `source` replaces the reader's name in the
    file. InputError for values that are missing or implausible, by name and date, and for a full
    disk.
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
        layout = Layout(times, *reader.grid, reader.attributes | attributes, reader.link)
        partial = path.with_name(f".{path.name}.partial")
        progress_path = path.with_name(f".{path.stem}.progress.npz")
        progress = Progress.load(progress_path, layout.identity)
        if layout.link is None:
            if not (progress.months and partial.exists()):
                progress = Progress(layout.identity, 0, Moments())
                _create(partial, layout)
            _check_space(partial, layout)
        try:
            _fill(partial, progress_path, layout, progress, reader)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise InputError(f"{path}: the disk is full or the quota used up") from error
            raise
        _check_counts(path, layout, progress.moments)
        if layout.link is None:
            _store_at_offsets(partial, progress.moments)
            _check_file(partial, layout)
            os.replace(partial, path)
        else:
            with atomic_path(path) as temporary, h5py.File(temporary, "w") as file:
                _describe(file, layout)
                file["fields"] = h5py.ExternalLink(str(layout.link[0]), "/fields")
                store_moments(file, progress.moments, len(times))
        progress_path.unlink(missing_ok=True)


# --- the partial file -----------------------------------------------------------------------------


def _create(partial: Path, layout: Layout) -> None:
    """An HDF5 file with everything but the values, which have their places already."""
    with atomic_path(partial) as temporary, h5py.File(temporary, "w") as file:
        _describe(file, layout)
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_layout(h5py.h5d.CONTIGUOUS)
        creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        creation.set_obj_track_times(False)
        moments = Moments(z500_sum=np.zeros(layout.shape[2:]))
        store_moments(file, moments, len(layout.times))
        space = h5py.h5s.create_simple(layout.shape)
        h5py.h5d.create(file.id, b"fields", h5py.h5t.NATIVE_FLOAT, space, creation)


def _describe(file: h5py.File, layout: Layout) -> None:
    times = layout.times
    if layout.link is not None:  # the file linked to may go on longer than what is used
        times = times[0] + np.arange(layout.link[1]) * np.timedelta64(6, "h")
    file["time"] = times.astype("datetime64[s]").astype(np.int64)
    file["latitude"], file["longitude"] = layout.latitude, layout.longitude
    for key, value in layout.attributes.items():
        file.attrs[key] = value


def _check_space(partial: Path, layout: Layout) -> None:
    needed = layout.bytes - 512 * partial.stat().st_blocks + SPARE_BYTES
    free = shutil.disk_usage(partial.parent).free
    if needed > free:
        raise InputError(
            f"{partial.parent}: {needed / 1e9:.1f} GB are needed for this year, "
            f"{free / 1e9:.1f} GB are free"
        )


def _fill(
    partial: Path, progress_path: Path, layout: Layout, progress: Progress, reader: YearReader
) -> None:
    """Go through the months that are not done."""
    target = None if layout.link else FieldWriter(partial)
    try:
        for month in _months(layout.times)[progress.months :]:
            for first, fields in _ahead(reader.blocks(layout.times[month])):
                for channel, block in fields.items():
                    for step, values in enumerate(block, month.start + first):
                        values = np.ascontiguousarray(values)
                        _count(values, channel, layout.times[step], reader, progress.moments)
                        if target is not None:
                            target.write(values, step, channel)
            if target is not None:
                target.flush()
            progress.months += 1
            progress.save(progress_path)
    finally:
        if target is not None:
            target.close()


class FieldWriter:
    """Writes fields to their places in a partial file, in a thread of its own."""

    def __init__(self, partial: Path) -> None:
        with h5py.File(partial, "r") as file:
            self.start = file["fields"].id.get_offset()
        self.file = os.open(partial, os.O_WRONLY)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="era5-write")
        self.under_way: deque[Future[None]] = deque()

    def write(self, values: np.ndarray, step: int, channel: int) -> None:
        """Hand over a contiguous field; OSError of an earlier one."""
        at = self.start + (step * len(CHANNELS) + channel) * values.nbytes
        self.under_way.append(self.thread.submit(_write, self.file, values, at))
        if len(self.under_way) > FIELDS_UNDER_WAY:
            self.under_way.popleft().result()

    def flush(self) -> None:
        """Return when all is on the disk."""
        while self.under_way:
            self.under_way.popleft().result()
        os.fsync(self.file)

    def close(self) -> None:
        """Give up what is not written yet."""
        self.thread.shutdown(cancel_futures=True)
        os.close(self.file)


def _count(
    values: np.ndarray, channel: int, time: np.datetime64, reader: YearReader, moments: Moments
) -> None:
    check_field(channel, float(values.min()), float(values.max()), time, reader.name)
    moments.add_field(channel, values)
    if channel == Z500:
        moments.add_z500(values)


def _write(target: int, values: np.ndarray, at: int) -> None:
    data = memoryview(values.data).cast("B")
    while data:
        written = os.pwrite(target, data, at)
        data, at = data[written:], at + written


def _months(times: np.ndarray) -> list[slice]:
    month = times.astype("datetime64[M]")
    starts = [0, *(np.flatnonzero(month[1:] != month[:-1]) + 1).tolist(), len(times)]
    return [slice(first, last) for first, last in pairwise(starts)]


def _ahead(blocks: Iterator[Block]) -> Iterator[Block]:
    """The same blocks, the next ones being read while one is worked on."""
    reading = ThreadPoolExecutor(1, thread_name_prefix="era5")
    try:
        coming = deque(reading.submit(next, blocks, None) for _ in range(BLOCKS_AHEAD))
        while (block := coming.popleft().result()) is not None:
            coming.append(reading.submit(next, blocks, None))
            yield block
    finally:
        reading.shutdown(cancel_futures=True)


# --- the end --------------------------------------------------------------------------------------


def _check_counts(path: Path, layout: Layout, moments: Moments) -> None:
    right = layout.shape[0] * layout.shape[2] * layout.shape[3]
    if (moments.count != right).any():
        raise AssertionError(f"{path}: {moments.count} values a channel were seen, not {right}")


def _store_at_offsets(partial: Path, moments: Moments) -> None:
    """Write the moments to their places, so that the file's structure stays as it is on the disk."""
    with h5py.File(partial, "r") as file:
        group = file["statistics"]
        places = {key: group[key].id.get_offset() for key in group}
    target = os.open(partial, os.O_WRONLY)
    try:
        for key, at in places.items():
            _write(target, np.ascontiguousarray(getattr(moments, key)), at)
        os.fsync(target)
    finally:
        os.close(target)


def _check_file(partial: Path, layout: Layout) -> None:
    """InputError unless the file reads as it should and has all its bytes."""
    with h5py.File(partial, "r") as file:
        fields = file["fields"]
        end = fields.id.get_offset() + layout.bytes
        mean = file["statistics/mean"][...]
        right = fields.shape == layout.shape and fields.dtype == np.float32
    if not right or partial.stat().st_size < end or not np.isfinite(mean).all():
        raise InputError(f"{partial}: is not what was written; remove it to start anew")
