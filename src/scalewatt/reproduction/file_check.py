"""The second check: compare stored files, and regenerated ones, with the manifest."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.common.files import file_sha256
from scalewatt.reproduction.check_result import REGENERATED, STORED, Finding, compared, not_checked
from scalewatt.reproduction.manifests import FOLDERS, FileEntry, Manifest, files_below
from scalewatt.reproduction.regenerate import NotRemadeError, Remaking, error_line


def file_findings(manifest: Manifest, place: Remaking) -> list[Finding]:
    """Return two rows for each file of the manifest, stored and regenerated; one for each other file."""
    stored, remade = [], []
    for entry in manifest.files:
        found, again = _pair(entry, place)
        stored.append(found)
        remade.append(again)
    return [*stored, *_unknown(manifest, place.results), *remade]


def _pair(entry: FileEntry, place: Remaking) -> tuple[Finding, Finding]:
    """Compare a stored and a regenerated file; the one that is as recorded shows where the other differs."""
    stored = place.results / entry.path
    has = file_sha256(stored) if stored.is_file() else None
    remade, made, why = None, None, ""
    try:
        remade = place.remade(entry)
        made = file_sha256(remade)
    except NotRemadeError as error:
        again = not_checked(REGENERATED, entry.path, str(error))
        return _compared(STORED, entry, has, stored, None), again
    # The code of a changed figure may raise anything: that is a difference, and the next file follows.
    except Exception as error:
        why = f"regenerating it fails: {error_line(error)}"
    own = _compared(STORED, entry, has, stored, remade if made == entry.sha256 else None)
    original = stored if has == entry.sha256 else None
    return own, _compared(REGENERATED, entry, made, remade, original, why)


def _compared(
    check: str,
    entry: FileEntry,
    sha256: str | None,
    path: Path | None,
    original: Path | None,
    absent: str = "the file does not exist any more",
) -> Finding:
    """Compare a file's hash with the manifest's; `original` is one that is as recorded, if there is any."""
    if sha256 is None or path is None:
        where = absent
    elif sha256 != entry.sha256 and original is not None:
        where = difference(original, path)
    else:
        where = "where it differs is unknown: no file is as recorded"
    return compared(check, entry.path, entry.sha256, sha256, where)


def _unknown(manifest: Manifest, results: Path) -> Iterator[Finding]:
    """Yield the files that the manifest does not name."""
    known = {entry.path for entry in manifest.files}
    for folder in FOLDERS:
        for path in files_below(results, folder):
            if path not in known:
                yield not_checked(STORED, path, "the manifest does not name it")


# --- where two files differ -----------------------------------------------------------------------

MOST = 3
"""Differing values that are named."""


def difference(expected: Path, found: Path) -> str:
    """Return in one sentence where `found` differs from `expected`; their bytes differ.

    Of tables (CSV, Parquet) the first differing values, else the first differing byte.
    """
    read = _TABLES.get(expected.suffix)
    try:
        parts = [] if read is None else _of_tables(read(expected), read(found))
    except (OSError, ValueError, csv.Error, pa.ArrowException) as error:
        words = " ".join(str(error).split())
        parts = [f"one of them is no readable table ({words})"]
    return "; ".join(parts) or _bytes(expected, found)


@dataclass(frozen=True)
class _Table:
    """A table's columns and rows; of Parquet also its metadata."""

    names: Sequence[str]
    rows: Sequence[Sequence[Any]]
    metadata: Mapping[bytes, bytes] | None = None


def _csv(path: Path) -> _Table:
    with open(path, encoding="utf-8", errors="replace", newline="") as handle:
        names, *rows = [*csv.reader(handle)] or [[]]
    return _Table(names, rows)


def _parquet(path: Path) -> _Table:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    columns = [column.to_pylist() for column in table.columns]
    return _Table(table.schema.names, list(zip(*columns, strict=True)), table.schema.metadata or {})


_TABLES: dict[str, Callable[[Path], _Table]] = {".csv": _csv, ".parquet": _parquet}


def _of_tables(own: _Table, other: _Table) -> list[str]:
    """Return where two tables differ; nothing for two CSV files whose values are the same."""
    if own.names != other.names:
        return _columns(own.names, other.names)
    differences = _values(own.names, own.rows, other.rows)
    if differences or own.metadata is None:
        return differences
    what = (
        "the file's metadata differ" if own.metadata != other.metadata else "their encoding differs"
    )
    return [f"all values are the same; {what}"]


def _columns(own: Sequence[str], other: Sequence[str]) -> list[str]:
    missing = [name for name in own if name not in other]
    more = [name for name in other if name not in own]
    differences = [f"column {name} is missing" for name in missing[:MOST]]
    differences += [f"column {name} is new" for name in more[:MOST]]
    return differences or ["the columns are in another order"]


def _values(
    names: Sequence[str], own: Sequence[Sequence[Any]], other: Sequence[Sequence[Any]]
) -> list[str]:
    """Return the first values that differ; rows count from 1, the first row of data."""
    differences: list[str] = []
    count = 0
    for number, (one, two) in enumerate(zip(own, other, strict=False), 1):
        for name, value, now in zip(names, one, two, strict=False):
            if not same_value(value, now):
                count += 1
                if len(differences) < MOST:
                    differences.append(f"row {number}, {name}: {_text(value)} is now {_text(now)}")
    if count > MOST:
        differences.append(f"{count - MOST} more values differ")
    if len(own) != len(other):
        differences.append(f"{len(own)} rows are now {len(other)}")
    return differences


def same_value(one: Any, two: Any) -> bool:
    """Return True if two values are the same: NaN equals NaN, -0.0 does not equal 0.0."""
    if isinstance(one, float) and isinstance(two, float):
        return one.hex() == two.hex()
    return type(one) is type(two) and bool(one == two)


def _text(value: Any) -> str:
    text = "null" if value is None else "an empty cell" if value == "" else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _bytes(expected: Path, found: Path) -> str:
    own, other = expected.read_bytes(), found.read_bytes()
    at = next(
        (i for i, (a, b) in enumerate(zip(own, other, strict=False)) if a != b),
        min(len(own), len(other)),
    )
    sizes = f"{len(own)} bytes" if len(own) == len(other) else f"{len(own)} and {len(other)} bytes"
    return f"the first difference is at byte {at + 1} ({sizes})"
