"""Records of one size: each is there whole or not at all."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scalewatt.recordings import record_file as records
from scalewatt.recordings.record_file import (
    Field,
    RecordWriter,
    last_record_s,
    read_records,
)

FIELDS = [Field("power", "<u4"), Field("counter", "<u8"), Field("share", "<f4")]
SIZE = 8 + 8 + 4 + 8 + 4 + 4


def write(folder: Path, n: int = 5, fields: list[Field] = FIELDS) -> Path:
    """Write n records; record i holds i in every field."""
    writer = RecordWriter(folder, "a", "records", {"host": "n1"}, fields)
    for i in range(n):
        assert writer.append(100.0 + i, float(i), [i] * sum(f.width for f in fields))
    return folder / "a.records"


def body(path: Path) -> int:
    """Return where the records begin."""
    return path.read_bytes().index(b"\n") + 1


def test_what_is_written_is_read(tmp_path: Path) -> None:
    found = read_records(write(tmp_path))
    assert found.header["host"] == "n1" and found.damaged == 0
    assert found.column("t").tolist() == [100, 101, 102, 103, 104]
    for name in ("mono", "power", "counter", "share"):
        assert found.column(name).tolist() == [0, 1, 2, 3, 4]


def stored(folder: Path, dtype: str, values: list[Any]) -> list[float]:
    """Values as they are read again."""
    writer = RecordWriter(folder, "a", "records", {}, [Field("x", dtype)])
    for i, value in enumerate(values):
        assert writer.append(i, i, [value])
    return [float(value) for value in read_records(folder / "a.records").column("x")]


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [
        ("|u1", 0, 2**8 - 2),
        ("<u2", 0, 2**16 - 2),
        ("<u4", 0, 2**32 - 2),
        ("<i4", -(2**31), 2**31 - 1),
    ],
)
def test_the_least_and_most_that_fit_are_kept_and_what_is_beyond_is_missing(
    tmp_path: Path, dtype: str, least: int, most: int
) -> None:
    found = stored(tmp_path, dtype, [least, most, least - 1, most + 1])
    np.testing.assert_equal(found, [least, most, math.nan, math.nan])


@pytest.mark.parametrize("kept", range(1, SIZE))
def test_a_torn_last_record_is_left_out(tmp_path: Path, kept: int) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[: body(path) + 4 * SIZE + kept])
    found = read_records(path)
    assert found.column("power").tolist() == [0, 1, 2, 3] and found.damaged == 0
    assert last_record_s(path) == 103


@pytest.mark.parametrize("zeros", [1, SIZE - 1, SIZE, 3 * SIZE + 5])
def test_a_tail_of_zeros_is_torn_and_not_damaged(tmp_path: Path, zeros: int) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes() + bytes(zeros))
    assert read_records(path).rows.size == 5 and read_records(path).damaged == 0
    assert last_record_s(path) == 104


def test_a_changed_record_in_the_middle_is_left_out_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path)
    data = bytearray(path.read_bytes())
    data[body(path) + 2 * SIZE + 20] ^= 1
    path.write_bytes(data)
    found = read_records(path)
    assert found.column("power").tolist() == [0, 1, 3, 4] and found.damaged == 1


def test_fields_of_several_devices_are_columns(tmp_path: Path) -> None:
    fields = [Field("temperature", "<u1", 3), Field("clock", "<u2")]
    writer = RecordWriter(tmp_path, "a", "records", {}, fields)
    writer.append(1, 1, [30, None, 32, 1400])
    found = read_records(tmp_path / "a.records")
    np.testing.assert_equal(found.column("temperature"), [[30, np.nan, 32]])
    assert found.column("clock").tolist() == [1400]


class FullDisk:
    """Stands in for os.write: only `room` bytes fit, until there is room again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 10**6
        self._write = os.write
        monkeypatch.setattr(records.os, "write", self)

    def __call__(self, file: int, data: bytes) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, "no space left")
        written = self._write(file, data[: self.room])
        self.room -= written
        return written


def refuse(*_: Any) -> None:
    """Stands in for os.ftruncate."""
    raise OSError(errno.EIO, "input/output error")


@pytest.mark.parametrize("truncate_fails", [False, True])
@pytest.mark.parametrize("room", [0, 1, SIZE - 1])
def test_a_full_disk_loses_samples_and_leaves_no_torn_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, truncate_fails: bool
) -> None:
    disk = FullDisk(monkeypatch)
    writer = RecordWriter(tmp_path, "a", "records", {}, FIELDS)
    assert writer.append(1, 1, [1, 1, 1])
    disk.room = room
    truncate = os.ftruncate
    if truncate_fails:
        monkeypatch.setattr(records.os, "ftruncate", refuse)
    assert not writer.append(2, 2, [2, 2, 2])
    assert not writer.append(3, 3, [3, 3, 3])
    monkeypatch.setattr(records.os, "ftruncate", truncate)
    disk.room = 10**6
    assert writer.append(4, 4, [4, 4, 4]) and isinstance(writer.error, OSError)
    found = read_records(tmp_path / "a.records")
    assert found.column("t").tolist() == [1, 4] and found.damaged == 0


def test_a_file_without_a_record_has_no_last_one(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[: body(path)])
    assert last_record_s(path) is None and read_records(path).rows.size == 0
