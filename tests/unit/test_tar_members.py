"""Members of a tar by offset: the same as Python's tarfile finds, wherever the tar lies."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalewatt.common.errors import InputError
from scalewatt.datasets.imagenet.tar_extraction import Part, RangeReader, walk

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=120)
FORMATS = st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])


def written(members: list[tuple[str, bytes]], format_: int, mtime: float = 0) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format_) as tar:
        folder = tarfile.TarInfo("a folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), mtime
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def found(content: bytes, before: bytes = b"", ahead: int = 700) -> list[tuple[str, bytes]]:
    """Names and contents by our reader, of a tar that begins after other bytes."""
    with tempfile.TemporaryFile() as file:
        file.write(before + content + b"behind")
        file.flush()
        reader = RangeReader(file.fileno(), ahead)
        part = Part("made", len(before), len(before) + len(content))
        return [(m.name, bytes(reader.read(m.offset, m.size))) for m in walk(reader, part)]


@settings(max_examples=150)
@given(
    st.lists(st.tuples(NAMES, st.binary(max_size=1500)), max_size=6),
    FORMATS,
    st.binary(max_size=600),
    st.sampled_from([0, 100, 700, 1 << 20]),
    st.sampled_from([0, 1.5]),
)
def test_members_are_those_that_were_written(
    members: list[tuple[str, bytes]], format_: int, before: bytes, ahead: int, mtime: float
) -> None:
    try:
        content = written(members, format_, mtime)
    except ValueError:  # a name too long for ustar
        return
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        expected = [(m.name, tar.extractfile(m).read()) for m in tar if m.isfile()]  # type: ignore[union-attr]
    assert found(content, before, ahead) == expected
    assert len(expected) == len(members)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 3000)), max_size=20))
def test_a_range_is_the_content_of_the_file_there(ranges: list[tuple[int, int]]) -> None:
    content = os.urandom(4096)
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        reader = RangeReader(file.fileno(), ahead=1000)
        for offset, size in ranges:
            assert bytes(reader.read(offset, size)) == content[offset : offset + size]


@settings(max_examples=100)
@given(st.integers(0, 511), st.integers(1, 255))
def test_no_changed_header_passes(place: int, change: int) -> None:
    members = [("first", b"1" * 600), ("second", b"2")]
    content = bytearray(written(members, tarfile.GNU_FORMAT))
    start = 512 + 512 + 1024  # behind the folder and the first
    content[start + place] ^= change
    try:
        seen = found(bytes(content))
    except InputError as error:
        assert "made: " in str(error) and "\n" not in str(error)
    else:  # a blank or zero that pads the checksum, which says no more and no less
        assert 148 <= place < 156 and seen == members


def test_a_tar_that_ends_within_a_member_is_named() -> None:
    content = written([("first", b"1" * 600), ("second", b"2" * 700)], tarfile.GNU_FORMAT)
    with pytest.raises(InputError, match=r"made: ends within second, \d+ bytes too early"):
        found(content[: 512 * 4 + 512 + 100])


def test_a_link_is_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("link")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(InputError, match="link is no regular file"):
        found(out.getvalue())
