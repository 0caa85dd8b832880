"""Writing files so that a half-written one is never mistaken for a finished one."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt.common.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_PASSING = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOLCK)
"""What a network's file system says now and then of a file that is as it should be."""

Check = Callable[[], None]


class NoFolderError(InputError, OSError):
    """A file has no place: what is above it is not and cannot be made a folder."""


@contextmanager
def atomic_path(path: Path | str, check: Check | None = None) -> Iterator[Path]:
    """Yield a temporary sibling of `path`; flush and rename it to `path` if the block succeeds.

    `check` is called right before the file gets its name, and raises where it may not have it.
    NoFolderError, which is an InputError and an OSError, where it has no folder.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
        raise NoFolderError(
            f"{path}: cannot be written, {error.filename} cannot be made a folder ({error.strerror})"
        ) from None
    # The suffix stays last, because some writers choose the format by it.
    temporary = path.with_name(f".{path.stem}.{uuid.uuid4().hex[:8]}.tmp{path.suffix}")
    try:
        yield temporary
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        if check is not None:
            check()
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path | str, text: str, check: Check | None = None) -> None:
    """Write `text` as UTF-8; `check` as in `atomic_path`."""
    with atomic_path(path, check) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any, check: Check | None = None) -> None:
    """Write `value` as indented JSON; NaN and infinity are refused. `check` as in `atomic_path`."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n", check)


def read_json(path: Path | str) -> Any:
    """Read a JSON file; InputError where it is missing or is none.

    OSError where its file system fails, which may pass by itself.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _PASSING:
            raise
        raise InputError(f"{path}: is no readable JSON file ({error})") from error


def write_at(descriptor: int, content: Any, offset: int) -> None:
    """Write a contiguous buffer to an open file at `offset`, all of it."""
    rest = memoryview(content).cast("B")
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def write_table(table: pa.Table, path: Path | str, check: Check | None = None) -> None:
    """Write an Arrow table as Parquet (zstd); `check` as in `atomic_path`."""
    import pyarrow.parquet as pq

    with atomic_path(path, check) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def write_table_with_csv(table: pa.Table, path: Path | str) -> None:
    """Write an Arrow table as Parquet and, beside it, as CSV for people."""
    import pyarrow.csv as pc

    path = Path(path)
    with atomic_path(path.with_suffix(".csv")) as temporary:
        pc.write_csv(table, temporary)
    write_table(table, path)
