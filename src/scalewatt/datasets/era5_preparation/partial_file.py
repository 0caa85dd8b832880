"""The unfinished file of a year, and the record of its progress.

The file's structure is complete from the start: values are written at their offsets, bypassing the
HDF5 library. A random negative token, stored in place of the counts until the end, ties file and
record together, so that a record is never applied to a file that was created anew. For every
finished month the record has the checksums of its last step, which are compared before the month
is relied on.
"""

from __future__ import annotations

import json
import os
import secrets
import zipfile
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scalewatt.common.files import atomic_path, require_space, write_at
from scalewatt.datasets.era5.channels import CHANNELS
from scalewatt.datasets.era5.statistics import Moments, store_moments

FORMAT_VERSION = 2  # of a partial file and its progress
SPARE_BYTES = 64 * 2**20
FIELDS_UNDER_WAY = 8


@dataclass(frozen=True)
class Layout:
    """The layout of a year's file."""

    times: np.ndarray
    latitude: np.ndarray
    longitude: np.ndarray
    attributes: dict[str, Any]
    link: tuple[Path, int] | None
    state: str
    """Of the source's files, as the reader gives it."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of `fields` as written: (time, channel, latitude, longitude)."""
        return (len(self.times), len(CHANNELS), len(self.latitude), len(self.longitude))

    @property
    def bytes(self) -> int:
        """Size of `fields`."""
        return 4 * int(np.prod(self.shape))

    @property
    def months(self) -> list[slice]:
        """Return the steps of every month."""
        month = self.times.astype("datetime64[M]")
        starts = [0, *(np.flatnonzero(month[1:] != month[:-1]) + 1).tolist(), len(month)]
        return [slice(first, last) for first, last in pairwise(starts)]

    @property
    def identity(self) -> str:
        """Return what a record must contain to belong to this year, from unchanged files."""
        times = self.times.astype("datetime64[s]").astype(np.int64)
        described = [
            FORMAT_VERSION,
            [int(times[0]), int(times[-1]), *self.shape],
            {key: str(value) for key, value in self.attributes.items()},
            str(self.link),
            self.state,
        ]
        return json.dumps(described)


@dataclass
class Progress:
    """Months done, the moments of their fields, and checksums (month, channel) of their last steps."""

    identity: str
    token: int = field(default_factory=lambda: -1 - secrets.randbits(62))
    months: int = 0
    moments: Moments = field(default_factory=Moments)
    checksums: list[list[int]] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path, identity: str) -> Progress:
        """Read the record; nothing is done where it is missing, unreadable or of another year."""
        try:
            with np.load(path, allow_pickle=False) as noted:
                if str(noted["identity"]) != identity:
                    return cls(identity)
                return cls(
                    identity,
                    int(noted["token"]),
                    int(noted["months"]),
                    Moments(*(noted[key] for key in ("count", "mean", "squares", "z500_sum"))),
                    noted["checksums"].tolist(),
                )
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return cls(identity)

    def save(self, path: Path) -> None:
        """Replace the record."""
        assert self.moments.z500_sum is not None
        with atomic_path(path) as temporary:
            np.savez(
                temporary,
                identity=self.identity,
                token=self.token,
                months=self.months,
                count=self.moments.count,
                mean=self.moments.mean,
                squares=self.moments.squares,
                z500_sum=self.moments.z500_sum,
                checksums=np.array(self.checksums, np.int64).reshape(-1, len(CHANNELS)),
            )


def checksum(values: np.ndarray) -> int:
    """Return the CRC-32 of a contiguous field."""
    return zlib.crc32(values.data.cast("B"))


def create_partial(partial: Path, layout: Layout, token: int) -> None:
    """Create an HDF5 file with everything but the values, for which space is allocated."""
    with atomic_path(partial) as temporary, h5py.File(temporary, "w") as file:
        describe(file, layout)
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_layout(h5py.h5d.CONTIGUOUS)
        creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        creation.set_obj_track_times(False)
        count = np.full(len(CHANNELS), token, np.int64)
        moments = Moments(count, z500_sum=np.zeros(layout.shape[2:]))
        store_moments(file, moments, len(layout.times))
        space = h5py.h5s.create_simple(layout.shape)
        h5py.h5d.create(file.id, b"fields", h5py.h5t.NATIVE_FLOAT, space, creation)


def describe(file: h5py.File, layout: Layout) -> None:
    """Write labels and attributes."""
    times = layout.times
    if layout.link is not None:  # the file linked to may have more times than what is used
        times = times[0] + np.arange(layout.link[1]) * np.timedelta64(6, "h")
    file["time"] = times.astype("datetime64[s]").astype(np.int64)
    file["latitude"], file["longitude"] = layout.latitude, layout.longitude
    for key, value in layout.attributes.items():
        file.attrs[key] = value


def is_intact(partial: Path, layout: Layout, progress: Progress) -> bool:
    """Return True if the record belongs to the file, which has the values of all finished months."""
    try:
        with h5py.File(partial, "r") as file:
            fields = file["fields"]
            right = fields.shape == layout.shape and fields.dtype == np.float32
            if not right or (file["statistics/count"][...] != progress.token).any():
                return False
            if partial.stat().st_size < fields.id.get_offset() + layout.bytes:
                return False
            if len(progress.checksums) != progress.months:
                return False
            for month, noted in zip(layout.months, progress.checksums, strict=False):
                last = fields[month.stop - 1]
                if [checksum(values) for values in last] != noted:
                    return False
    except (OSError, KeyError, ValueError):
        return False
    return True


def check_space(partial: Path, layout: Layout) -> None:
    """Raise InputError unless there is space for the remaining values."""
    needed = layout.bytes - 512 * partial.stat().st_blocks + SPARE_BYTES
    require_space(partial.parent, needed, str(partial.parent), "this year's fields")


class FieldWriter:
    """Writes fields to their offsets in a partial file, in a thread of its own."""

    def __init__(self, partial: Path) -> None:
        with h5py.File(partial, "r") as file:
            self.start = file["fields"].id.get_offset()
        self.file = os.open(partial, os.O_WRONLY)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="era5-write")
        self.under_way: deque[Future[None]] = deque()

    def write(self, values: np.ndarray, step: int, channel: int) -> None:
        """Queue a contiguous field; raises the OSError of an earlier one."""
        at = self.start + (step * len(CHANNELS) + channel) * values.nbytes
        self.under_way.append(self.thread.submit(write_at, self.file, values, at))
        if len(self.under_way) > FIELDS_UNDER_WAY:
            self.under_way.popleft().result()

    def flush(self) -> None:
        """Wait until everything is on the disk."""
        while self.under_way:
            self.under_way.popleft().result()
        os.fsync(self.file)

    def close(self) -> None:
        """Drop what is not written yet."""
        self.thread.shutdown(cancel_futures=True)
        os.close(self.file)


def store_at_offsets(partial: Path, moments: Moments) -> None:
    """Write the moments in place, so that the file's structure on the disk stays as it is."""
    with h5py.File(partial, "r") as file:
        group = file["statistics"]
        places = {key: group[key].id.get_offset() for key in group}
    target = os.open(partial, os.O_WRONLY)
    try:
        for key, at in places.items():
            write_at(target, np.ascontiguousarray(getattr(moments, key)), at)
        os.fsync(target)
    finally:
        os.close(target)
