"""The members of a tar file by offset, including a tar inside a tar, without copying it."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scalewatt.common.errors import InputError

BLOCK = 512
_READ_AHEAD = 1 << 20
_EMPTY = bytes(BLOCK)
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_PAX, _PAX_GLOBAL = tarfile.XHDTYPE, tarfile.XGLTYPE
_LONG_NAME, _LONG_LINK = tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK


@dataclass(frozen=True)
class Member:
    """A regular file in a tar: where its data begin in the (outer) file, and their bytes."""

    name: str
    offset: int
    size: int


class RangeReader:
    """Reads parts of an open file through one buffer; a part is valid until the next is read."""

    def __init__(self, descriptor: int, ahead: int = _READ_AHEAD) -> None:
        self._descriptor, self._ahead = descriptor, ahead
        self._buffer = memoryview(bytearray(max(ahead, BLOCK)))
        self._start = self._end = 0

    def read(self, offset: int, size: int) -> memoryview:
        """Return `size` bytes from `offset`; fewer where the file ends before."""
        if offset < self._start or offset + size > self._end:
            self._fill(offset, size)
        begin = offset - self._start
        return self._buffer[begin : min(begin + size, self._end - self._start)]

    def _fill(self, offset: int, size: int) -> None:
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        wanted, got = max(size, self._ahead), 0
        while got < size:
            count = os.preadv(self._descriptor, [self._buffer[got:wanted]], offset + got)
            if count == 0:
                break
            got += count
        self._start, self._end = offset, offset + got


@dataclass(frozen=True)
class Part:
    """Where a tar lies in an open file (all of it, or a member); `name` is for messages."""

    name: str
    start: int
    end: int

    @classmethod
    def whole(cls, path: Path | str) -> Part:
        """Return the part that is all of a file."""
        return cls(str(path), 0, os.stat(path).st_size)


def walk(reader: RangeReader, part: Part) -> Iterator[Member]:
    """Yield the regular files of a tar in order; InputError where it is damaged or truncated.

    A tar without its end mark ends with its last member, as for GNU tar, so the caller has to check
    that none is missing. (`tarfile` silently ends at a damaged header.)
    """
    offset, last = part.start, "its beginning"
    given: dict[str, str] = {}
    while offset + BLOCK <= part.end:
        header = bytes(reader.read(offset, BLOCK))
        if header == _EMPTY:
            return
        try:
            info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            place = offset - part.start
            raise InputError(
                f"{part.name}: no tar header at byte {place}, after {last} ({error}); "
                "the file is damaged"
            ) from error
        name = given.get("path", info.name)
        size = int(given.get("size", info.size))
        data = offset + BLOCK
        if data + size > part.end:
            raise InputError(
                f"{part.name}: ends within {name}, {data + size - part.end} bytes too early; "
                "the file is truncated"
            )
        offset = data + -(-size // BLOCK) * BLOCK
        if info.type == _PAX:
            given |= _pax_values(bytes(reader.read(data, size)))
            continue
        if info.type == _LONG_NAME:
            given["path"] = os.fsdecode(bytes(reader.read(data, size)).rstrip(b"\0"))
            continue
        if info.type in (_PAX_GLOBAL, _LONG_LINK):
            continue
        given, last = {}, name
        if info.type in _FILES:
            yield Member(name, data, size)
        elif info.type != tarfile.DIRTYPE:
            raise InputError(f"{part.name}: {name} is no regular file; expected files only")


def _pax_values(text: bytes) -> dict[str, str]:
    """Return the records `length key=value` of an extended header."""
    values = {}
    while text:
        length, _, _ = text.partition(b" ")
        if not length.isdigit() or int(length) == 0:
            break
        record, text = text[len(length) + 1 : int(length) - 1], text[int(length) :]
        key, _, value = record.partition(b"=")
        values[key.decode()] = os.fsdecode(value)
    return values
