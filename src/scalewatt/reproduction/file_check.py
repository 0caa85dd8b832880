"""The second check: compare stored files, and regenerated ones, with the manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
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
    read = {".csv": _csv_texts, ".parquet": _parquet_texts}.get(expected.suffix)
    if read is None:
        return _bytes(expected, found)
    try:
        before, now = read(expected), read(found)
    except (OSError, ValueError, pa.ArrowException) as error:
        return f"one of them is not a readable table ({' '.join(str(error).split())})"
    if list(before) != list(now):
        missing = [f"column {name} is missing" for name in before if name not in now]
        new = [f"column {name} is new" for name in now if name not in before]
        return "; ".join([*missing[:MOST], *new[:MOST]]) or "the columns are in another order"
    rows = min(len(before), len(now))
    was, becomes = before[:rows].to_numpy(), now[:rows].to_numpy()
    cells = np.argwhere(was != becomes)
    names = list(map(str, before))
    parts = [
        f"row {row + 1}, {names[column]}: {was[row, column]} is now {becomes[row, column]}"
        for row, column in cells[:MOST]
    ]
    parts += [f"{len(cells) - MOST} more values differ"] if len(cells) > MOST else []
    parts += [f"{len(before)} rows are now {len(now)}"] if len(before) != len(now) else []
    return "; ".join(parts) or "all values are the same; metadata or encoding differ"


def _csv_texts(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype=str, keep_default_na=False).map(repr)


def _parquet_texts(path: Path) -> pd.DataFrame:
    import pyarrow.parquet as pq

    columns = pq.read_table(path).to_pydict()
    return pd.DataFrame(columns, dtype=object).map(repr)


def _bytes(expected: Path, found: Path) -> str:
    own, other = expected.read_bytes(), found.read_bytes()
    at = next(
        (i for i, (a, b) in enumerate(zip(own, other, strict=False)) if a != b),
        min(len(own), len(other)),
    )
    return f"the first difference is at byte {at + 1} ({len(own)} and {len(other)} bytes)"
