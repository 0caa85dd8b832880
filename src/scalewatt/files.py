"""Writing files so that a half-written one is never taken for a finished one."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


@contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Yield a temporary sibling of `path`; flush and rename it to `path` if the block succeeds."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last, because some writers choose the format by it.
    temporary = path.with_name(f".{path.stem}.{uuid.uuid4().hex[:8]}.tmp{path.suffix}")
    try:
        yield temporary
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path | str, text: str) -> None:
    """Write `text` as UTF-8."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as indented JSON; NaN and infinity are refused."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path | str) -> Any:
    """Read a JSON file; InputError where it is missing or is none."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: is no readable JSON file ({error})") from error


def write_table(table: pa.Table, path: Path | str) -> None:
    """Write an Arrow table as Parquet (zstd)."""
    import pyarrow.parquet as pq

    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def write_table_with_csv(table: pa.Table, path: Path | str) -> None:
    """Write an Arrow table as Parquet and, beside it, as CSV for people."""
    import pyarrow.csv as pc

    path = Path(path)
    with atomic_path(path.with_suffix(".csv")) as temporary:
        pc.write_csv(table, temporary)
    write_table(table, path)
