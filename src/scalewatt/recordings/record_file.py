"""Files of records of one size, appended one by one and readable whatever tore them.

The first line is a JSON object (UTF-8) that says what the file is, with `fields`: a list of
[name, numpy type] or [name, numpy type, width]; last in it stands `header_crc32`, over the line's
bytes before its comma. After it stand packed little-endian
records: first `t` (unix s) and `mono` (monotonic s), last `crc32` over the bytes before it. A missing
value is NaN, or an integer with all bits set.
"""

from __future__ import annotations

import errno
import json
import os
import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import parse_json
from scalewatt.recordings.series import Floats

_CODES = {"<u1": "B", "<u2": "H", "<u4": "I", "<u8": "Q", "<i4": "i", "<i8": "q"}
_CODES |= {"|u1": "B", "<f4": "f", "<f8": "d"}
_CHECK = "crc32"
_HEADER_CHECK = re.compile(rb',"header_crc32":"([0-9a-f]{8})"\}\n\Z')


class Field(NamedTuple):
    """One value of a record, or `width` of them."""

    name: str
    dtype: str
    width: int = 1


_STAMPS = (Field("t", "<f8"), Field("mono", "<f8"))


@dataclass(frozen=True, eq=False)
class Records:
    """The readable records of one file."""

    header: dict[str, Any]
    rows: NDArray[Any]
    damaged: int
    """Records left out because of a wrong checksum, a torn last one not counted."""

    def column(self, name: str) -> Floats:
        """Return a field as float64 with NaN where it is missing; (n,) or (n, width)."""
        raw = self.rows[name]
        values = raw.astype(np.float64)
        if raw.dtype.kind != "f":
            values[raw == missing(raw.dtype.str)] = np.nan
        return values


def missing(dtype: str) -> int | float:
    """Return what stands for a missing value: all bits set, or NaN."""
    if dtype[1] == "f":
        return float("nan")
    bits = 8 * int(dtype[2:])
    return -1 if dtype[1] == "i" else (1 << bits) - 1


def is_packable(dtype: str) -> bool:
    """Return True if records can hold values of a numpy type (its `str`)."""
    return dtype in _CODES


def new_path(folder: Path, stem: str, suffix: str) -> Path:
    """Return `<stem>.<suffix>`, or the first free `<stem>.N.<suffix>`."""
    path, number = folder / f"{stem}.{suffix}", 0
    while path.exists():
        number += 1
        path = folder / f"{stem}.{number}.{suffix}"
    return path


class RecordWriter:
    """Appends records to a file of its own; a failed one leaves no trace in the file.

    Each record is one unbuffered write, so it survives the death of every process. It is not synced,
    which may take seconds on a network's file system and would hold up sampling: should the node
    itself fail, its last records may be lost. The file appears with the first record.
    """

    def __init__(
        self, folder: Path, stem: str, suffix: str, header: dict[str, Any], fields: Iterable[Field]
    ) -> None:
        self._place = folder, stem, suffix
        self._fields = [*_STAMPS, *fields]
        self._header = _header_line(header, self._fields)
        self._pack = struct.Struct(
            "<" + "".join(_CODES[f.dtype] * f.width for f in self._fields)
        ).pack
        self._dtypes = [f.dtype for f in self._fields for _ in range(f.width)]
        self._file: int | None = None
        self._good, self._torn = 0, False
        self.error: OSError | None = None
        """Why the last record that could not be written could not, as on a full disk."""

    def append(self, t: float, mono: float, values: Sequence[Any]) -> bool:
        """Write one record; False if it could not be written. Values that do not fit are missing."""
        flat = (t, mono, *values)
        packed = self._pack(*map(_fitting, flat, self._dtypes))
        try:
            if self._file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
                self._file = os.open(new_path(*self._place), flags, 0o644)
            if self._good == 0:
                self._write(self._file, self._header)
            self._write(self._file, packed + struct.pack("<I", zlib.crc32(packed)))
        except OSError as error:
            self.error = error
            return False
        return True

    def _write(self, file: int, data: bytes) -> None:
        if self._torn:
            os.ftruncate(file, self._good)
            self._torn = False
        if os.write(file, data) == len(data):
            self._good += len(data)
            return
        # The disk is full: take the torn record back, now or before the next one.
        self._torn = True
        with suppress(OSError):
            os.ftruncate(file, self._good)
            self._torn = False
        raise OSError(errno.ENOSPC, "no space left for a record")


def write_records(
    path: Path, header: dict[str, Any], fields: Iterable[Field], columns: Iterable[NDArray[Any]]
) -> None:
    """Write a whole file of records at once: columns (n,) of `t`, `mono` and the fields, in order.

    Not synced, as a file that is appended to. FileExistsError where there is one.
    """
    named = [*_STAMPS, *fields]
    rows = np.empty(0, dtype=_dtype([*named, Field(_CHECK, "<u4")]))
    for field, column in zip(named, columns, strict=True):
        if not rows.size:
            rows = np.empty(len(column), rows.dtype)
        rows[field.name] = column
    data, size = rows.tobytes(), rows.dtype.itemsize
    rows[_CHECK] = _sums(data, size)
    with open(path, "xb") as file:
        file.write(_header_line(header, named))
        file.write(rows.tobytes())


def _header_line(header: dict[str, Any], fields: Iterable[Field]) -> bytes:
    types = [[f.name, f.dtype, f.width][: 3 if f.width > 1 else 2] for f in fields]
    text = {**header, "missing": "NaN or all bits set", "fields": [*types, [_CHECK, "<u4"]]}
    line = json.dumps(text, separators=(",", ":"), ensure_ascii=False).encode()[:-1]
    return line + b',"header_crc32":"%08x"}\n' % zlib.crc32(line)


def _dtype(fields: Iterable[Field]) -> np.dtype[Any]:
    return np.dtype([(f.name, f.dtype, f.width) if f.width > 1 else f[:2] for f in fields])


def _sums(data: bytes, size: int) -> NDArray[np.uint32]:
    """Return the checksum of each record without its last four bytes."""
    crc32 = zlib.crc32
    starts = range(0, len(data) // size * size, size)
    return np.fromiter((crc32(data[at : at + size - 4]) for at in starts), np.uint32)


def _fitting(value: Any, dtype: str) -> int | float:
    """Return `value` as a number that `dtype` can hold, or what stands for a missing one."""
    try:
        if dtype[1] == "f":
            number = float(value)
            struct.pack("<" + _CODES[dtype], number)
            return number
        whole = round(value.item() if isinstance(value, np.generic) else value)
        bits = 8 * int(dtype[2:])
        low, high = (-(1 << bits - 1), 1 << bits - 1) if dtype[1] == "i" else (0, 1 << bits)
        return whole if low <= whole < high else missing(dtype)
    except (TypeError, ValueError, OverflowError, struct.error):
        return missing(dtype)


def read_header(path: Path) -> tuple[dict[str, Any], np.dtype[Any], int]:
    """Return header, type of a record, and where the records begin. Raises InputError."""
    try:
        with open(path, "rb") as handle:
            line = handle.readline()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}); expected records") from error
    found = _HEADER_CHECK.search(line)
    if found is None or int(found[1], 16) != zlib.crc32(line[: found.start()]):
        raise InputError(f"{path}: begins with no whole header of records; is it another file?")
    header = parse_json(line)
    return header, _dtype(Field(*field) for field in header["fields"]), len(line)


def read_records(path: Path, first: int = 0) -> Records:
    """Read a file of records from the record `first` on, which counts from the end where negative.

    Raises InputError if the header is none.
    """
    header, dtype, start = read_header(path)
    size = dtype.itemsize
    try:
        with open(path, "rb") as handle:
            if first < 0:
                first = max((os.fstat(handle.fileno()).st_size - start) // size + first, 0)
            handle.seek(start + first * size)
            data = handle.read()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}); expected records") from error
    rows = np.frombuffer(data, dtype=dtype, count=len(data) // size)
    intact = _sums(data, size) == rows[_CHECK]
    if intact.all():
        return Records(header, rows, 0)
    written = np.frombuffer(data, np.uint8, count=rows.size * size).reshape(-1, size).any(axis=1)
    damaged = written & ~intact  # zeros are what a file system may leave after a crash
    torn = len(data) % size == 0 and damaged[-1]
    return Records(header, rows[intact], int(np.count_nonzero(damaged)) - int(torn))


def last_record_s(path: Path) -> float | None:
    """Return the unix time of the last intact record, reading only the file's end."""
    _, dtype, start = read_header(path)
    size = dtype.itemsize
    with open(path, "rb") as handle:
        count = (os.fstat(handle.fileno()).st_size - start) // size
        for number in range(count - 1, -1, -1):
            handle.seek(start + number * size)
            record = handle.read(size)
            if zlib.crc32(record[:-4]) == int.from_bytes(record[-4:], "little"):
                return float(np.frombuffer(record, dtype=dtype)["t"][0])
    return None


def even_clock(wall: Floats, mono: Floats) -> tuple[Floats, float]:
    """Return unix times that run as evenly as the monotonic clock, and the wall clock's jump in s.

    The monotonic stamps are shifted to the wall clock by the median difference, so a clock that is
    set during the run makes no energy.
    """
    if wall.size == 0 or not np.isfinite(mono).all() or np.any(np.diff(mono) <= 0):
        return wall, 0.0
    shift = wall - mono
    return mono + np.median(shift), float(np.ptp(shift))
