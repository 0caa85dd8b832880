"""Parquet files put together of columns that pyarrow has encoded one by one.

pyarrow's writer encodes every row of every column, also of one that another row group has the same
values of, or that has one value throughout. Here each column of a row group is a file of its own in
memory, whose pages may go into as many row groups as they fit. All encodings are pyarrow's; what is
made here is the footer, of its parts: where the pages lie, in Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

_MAGIC = b"PAR1"
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = {"i16": 4, "i32": 5, "i64": 6}

# Fields of Parquet's ColumnMetaData, by number.
_UNCOMPRESSED, _COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE = 6, 7, 9, 11
_OFFSETS, _BEFORE_OFFSETS = (_DATA_PAGE, _DICTIONARY_PAGE), 7

Struct = dict[int, tuple[int, Any]]
"""Type and value of each field, by its number in Parquet's definition; a list's value is the type of its
elements and these. A struct that is only written may be its bytes."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """One column of one row group, encoded; its ColumnMetaData but for the offsets of its pages."""

    rows: int
    pages: memoryview
    uncompressed: int
    before: bytes
    """The fields of the ColumnMetaData before the offsets, and those after them."""
    after: bytes
    offsets: tuple[tuple[int, int], ...]
    """Number and value of the fields that are offsets, here from the first page."""

    def column(self, offset: int) -> bytes:
        """Return its ColumnChunk where its first page lies at an offset of the file."""
        content, last = bytearray(b"\x26\x00\x1c" + self.before), _BEFORE_OFFSETS
        for number, value in self.offsets:
            last = _put_field(content, last, number, _INTEGERS["i64"], offset + value)
        return bytes(content + self.after + b"\x00\x00")


class ChunkedParquet:
    """Writes row groups of encoded columns to an open file; `close` ends it with the footer."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, **options: Any) -> None:
        """Take the options of pyarrow's writer; those by column hold for the columns that they name."""
        self._file, self._schema, self._options = file, schema, options
        self._groups: list[bytes] = []
        self._rows = 0
        self._offset = file.write(_MAGIC)

    def encode(self, name: str, values: pa.Array) -> Chunk:
        """Encode a column of a row group."""
        schema = pa.schema([self._schema.field(name)])
        table = pa.Table.from_arrays([values], schema=schema)
        content = self._written(table, store_schema=False)
        (group,) = _footer(content)[4][1][1]
        (chunk,) = group[1][1][1]
        about: Struct = chunk[3][1]
        found = [(number, about[number][1]) for number in _OFFSETS if number in about]
        first = min(offset for _, offset in found)
        parts = bytearray(), bytearray()
        last = [0, found[-1][0]]
        for number in sorted(set(about) - set(_OFFSETS)):
            part = number > _BEFORE_OFFSETS
            last[part] = _put_field(parts[part], last[part], number, *about[number])
        return Chunk(
            rows=len(values),
            pages=content[first : first + about[_COMPRESSED][1]],
            uncompressed=about[_UNCOMPRESSED][1],
            before=bytes(parts[0]),
            after=bytes(parts[1]),
            offsets=tuple((number, offset - first) for number, offset in found),
        )

    def write(self, chunks: Sequence[Chunk]) -> None:
        """Write a row group: the columns in the order of the schema, all of the same length."""
        columns, begin = [], self._offset
        for chunk in chunks:
            columns.append(chunk.column(self._offset))
            self._offset += self._file.write(chunk.pages)
        group: Struct = {
            1: (_LIST, (_STRUCT, columns)),
            2: _integer("i64", sum(chunk.uncompressed for chunk in chunks)),
            3: _integer("i64", chunks[0].rows),
            5: _integer("i64", begin),
            6: _integer("i64", self._offset - begin),
        }
        content = bytearray()
        _put(content, _STRUCT, group)
        self._groups.append(bytes(content))
        self._rows += chunks[0].rows

    def close(self) -> None:
        """Write the footer: that of a file without rows, with these row groups."""
        footer = _footer(self._written(self._schema.empty_table()))
        footer[3] = _integer("i64", self._rows)
        footer[4] = _LIST, (_STRUCT, self._groups)
        content = bytearray()
        _put(content, _STRUCT, footer)
        self._file.write(content + struct.pack("<I", len(content)) + _MAGIC)

    def _written(self, table: pa.Table, **more: Any) -> memoryview:
        """Return a file that pyarrow writes of a table of one row group."""
        sink, names = pa.BufferOutputStream(), set(table.schema.names)
        options = {name: _of_columns(one, names) for name, one in self._options.items()}
        with pq.ParquetWriter(sink, table.schema, **options, **more) as writer:
            writer.write_table(table, row_group_size=max(len(table), 1))
        return memoryview(sink.getvalue())


def _of_columns(option: Any, names: set[str]) -> Any:
    """Return an option of pyarrow's for some columns of those that it names."""
    if isinstance(option, dict):
        return {name: one for name, one in option.items() if name in names} or None
    if isinstance(option, list):
        return [name for name in option if name in names] or False
    return option


def _integer(kind: str, value: int) -> tuple[int, int]:
    return _INTEGERS[kind], value


def _footer(content: memoryview) -> Struct:
    """Return the FileMetaData of a Parquet file."""
    (length,) = struct.unpack("<I", content[-8:-4])
    return _Reader(content[-8 - length : -8]).value(_STRUCT)


class _Reader:
    """Reads values in Thrift's compact protocol."""

    def __init__(self, content: memoryview) -> None:
        self._content, self._place = content, 0

    def value(self, kind: int) -> Any:
        """Return the next value, of a type; of a list or struct with the types of its elements."""
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._bytes(1)
        if kind in _INTEGERS.values():
            number = self._number()
            return (number >> 1) ^ -(number & 1)
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind == _BINARY:
            return self._bytes(self._number())
        if kind in (_LIST, _SET):
            head = self._bytes(1)[0]
            size = head >> 4 if head >> 4 < 15 else self._number()
            return head & 15, [self.value(head & 15) for _ in range(size)]
        if kind == _STRUCT:
            return self._struct()
        raise ValueError(f"a footer holds the type {kind}")

    def _struct(self) -> Struct:
        found: Struct = {}
        number = 0
        while head := self._bytes(1)[0]:
            number = number + (head >> 4) if head >> 4 else self.value(_INTEGERS["i16"])
            found[number] = head & 15, self.value(head & 15)
        return found

    def _number(self) -> int:
        found = shift = 0
        while True:
            byte = self._bytes(1)[0]
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found

    def _bytes(self, count: int) -> bytes:
        self._place += count
        return bytes(self._content[self._place - count : self._place])


def _put(content: bytearray, kind: int, value: Any) -> None:
    """Add a value as `_Reader.value` returns it."""
    if kind in _INTEGERS.values():
        _put_number(content, (value << 1) ^ (value >> 63))
    elif kind == _BINARY:
        _put_number(content, len(value))
        content += value
    elif kind in (_BYTE, _DOUBLE):
        content += value
    elif kind in (_LIST, _SET):
        of, values = value
        content.append(min(len(values), 15) << 4 | of)
        if len(values) >= 15:
            _put_number(content, len(values))
        for one in values:
            _put(content, of, one)
    elif kind == _STRUCT and isinstance(value, bytes):
        content += value
    elif kind == _STRUCT:
        last = 0
        for number in sorted(value):
            last = _put_field(content, last, number, *value[number])
        content.append(0)


def _put_field(content: bytearray, last: int, number: int, kind: int, value: Any) -> int:
    """Add a field of a struct after the field `last`; return its number."""
    content.append(number - last << 4 | kind)
    if kind not in (_TRUE, _FALSE):
        _put(content, kind, value)
    return number


def _put_number(content: bytearray, value: int) -> None:
    while value > 127:
        content.append(value & 127 | 128)
        value >>= 7
    content.append(value)
