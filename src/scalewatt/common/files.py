"""Files: written whole or not at all, small JSON notes, CSV that people write, locks, and free space."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt.common.errors import InputError
from scalewatt.common.termination import say

if TYPE_CHECKING:
    import pyarrow as pa

_PASSING = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOLCK)
"""Errors of network file systems for files that are as they should be."""

Check = Callable[[], None]


# --- writing --------------------------------------------------------------------------------------


@contextmanager
def atomic_path(path: Path | str, check: Check | None = None) -> Iterator[Path]:
    """Yield a temporary sibling of `path`; flush and rename it to `path` if the block succeeds.

    `check` is called right before the file gets its name, and raises where it may not have it.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last, because some writers choose the format by it; a long name is cut.
    temporary = path.with_name(f".{path.stem[:100]}.{uuid.uuid4().hex[:8]}.tmp{path.suffix[:30]}")
    try:
        yield temporary
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        if check is not None:
            check()
        os.replace(temporary, path)
    except OSError as error:
        # A full disk's error names no file, another's the temporary one, which is gone.
        if error.filename in (None, str(temporary)):
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        with suppress(OSError):  # not in place of the error that led here
            temporary.unlink(missing_ok=True)


def write_text(path: Path | str, text: str, check: Check | None = None) -> None:
    """Write `text` as UTF-8; `check` as in `atomic_path`."""
    with atomic_path(path, check) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any, check: Check | None = None) -> None:
    """Write `value` as indented JSON; NaN and infinity are refused. `check` as in `atomic_path`."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n", check)


def replace_json(path: Path, value: Any) -> None:
    """Replace a JSON file at once, without waiting for the disk: for notes that are soon replaced again."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(value) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def write_table(table: pa.Table, path: Path | str, check: Check | None = None) -> None:
    """Write an Arrow table as Parquet (zstd, checksums in its pages); `check` as in `atomic_path`."""
    import pyarrow.parquet as pq

    with atomic_path(path, check) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def write_table_with_csv(table: pa.Table, path: Path | str) -> None:
    """Write an Arrow table as Parquet and, with the same name, as human-readable CSV."""
    import pyarrow.csv as pc

    write_table(table, path)
    with atomic_path(Path(path).with_suffix(".csv")) as temporary:
        pc.write_csv(table, temporary)


# --- reading --------------------------------------------------------------------------------------


def parse_json(text: str | bytes) -> Any:
    """Read a JSON text; ValueError if it is damaged, or holds NaN or infinity."""
    text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def read_json(path: Path | str) -> Any:
    """Read a JSON file; InputError if it is missing or damaged.

    OSError if its file system fails, which may pass by itself.
    """
    try:
        return parse_json(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _PASSING:
            raise
        raise InputError(f"{path}: is not a readable JSON file ({error})") from error


def read_json_object(path: Path | str, *required: str) -> dict[str, Any]:
    """Read a JSON file that holds an object with the keys `required`; errors as of `read_json`."""
    content = read_json(path)
    if not isinstance(content, dict) or not content.keys() >= {*required}:
        raise InputError(f"{path}: expected a JSON object with {', '.join(required) or 'keys'}")
    return content


def read_content(path: Path) -> Any:
    """Read a JSON file; None if it is missing or damaged."""
    with suppress(OSError, ValueError):
        return parse_json(path.read_bytes())
    return None


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits; InputError if it cannot be read."""
    try:
        with open(path, "rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def csv_rows(path: Path) -> dict[int, dict[str, str]]:
    """Rows of a CSV file by their lines, the cells as stripped text; empty rows are left out.

    So are cells without text in columns without a name, as spreadsheets leave them at the end.
    InputError if the file cannot be read, or a row has more or fewer cells than there are names.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, skipinitialspace=True, strict=True)
            rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: is not a readable CSV file ({error})") from error

    (_, names), *rows = [(line, cells) for line, cells in rows if any(cells)] or [(1, [])]
    if not names:
        raise InputError(f"{path}: is empty; expected the names of columns in its first line")
    twice = [name for name in names if name and names.count(name) > 1]
    if twice:
        raise InputError(f"{path}: the column '{twice[0]}' is there twice; allowed: once")
    for line, cells in rows:
        if len(cells) != len(names):
            raise InputError(
                f"{path}: line {line}: cells: {len(cells)}, columns: {len(names)}; expected a cell "
                "for each column, empty if it is not known, and a point for decimals"
            )
    return {
        line: {name: cell for name, cell in zip(names, cells, strict=True) if name or cell}
        for line, cells in rows
    }


# --- locks ----------------------------------------------------------------------------------------
# flock(2), or filelock's own where the file system has none: Lustre mounted without `-o flock` refuses every
# lock. There the lock file names its holder, and goes when that ends.


@contextmanager
def waiting_lock(path: Path, text: str) -> Iterator[None]:
    """Hold the lock of a file; say `text` before waiting.

    InputError if the file cannot be written or locked.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        try:
            held = lock.acquire(blocking=False)
        except Timeout:
            say(text)
            held = lock.acquire()
    except OSError as error:
        raise InputError(f"{path}: cannot be locked ({error.strerror})") from error
    with held:
        yield


# --- free space -----------------------------------------------------------------------------------

NO_ROOM = "no space is left on the file system"
"""Part of every reason that reports a full disk."""
_TRIED_BYTES = 1 << 20
ROOM_BYTES = 1 << 16
"""A file system with less room than this is full: not even the notes of a segment fit."""


def has_room(folder: Path) -> bool:
    """Tell whether the file system of `folder` has room for a few notes, or cannot be asked."""
    try:
        return shutil.disk_usage(folder).free >= ROOM_BYTES
    except OSError:
        return True


def try_writing(folder: Path) -> None:
    """Write a file in `folder` and delete it: a quota shows only where something is written; OSError."""
    with tempfile.TemporaryFile(dir=folder, prefix=".scalewatt-") as tried:
        tried.write(bytes(_TRIED_BYTES))
        tried.flush()
        os.fsync(tried.fileno())


def full_text(folder: Path) -> str:
    """Message about a full file system."""
    return (
        f"{NO_ROOM} of {folder}; the checkpoint before is whole: make room and start the run again"
    )


def require_space(folder: Path, needed_bytes: int, where: str, what: str, advice: str = "") -> None:
    """Raise InputError, beginning with `where`, unless `what` of this size fits in the file system."""
    free = shutil.disk_usage(folder).free
    if needed_bytes > free:
        raise InputError(
            f"{where}: {free / 1e9:.1f} GB are free, {what} need {needed_bytes / 1e9:.1f} GB{advice}"
        )
