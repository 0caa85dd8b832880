"""Compare stored and regenerated files with the manifest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

import pandas as pd
import pyarrow as pa

from scalewatt.common.files import file_sha256
from scalewatt.reproduction.findings import (
    DIFFERS,
    REGENERATED,
    STORED,
    Finding,
    compare,
    skip,
)
from scalewatt.reproduction.manifest import FOLDERS, Manifest, files_below
from scalewatt.reproduction.regenerate import kept_tables

_LONGEST = 300


def stored_findings(manifest: Manifest, results: Path, remade: Path | None) -> Iterator[Finding]:
    """Yield a row for each file of the manifest, and for each table and figure that it does not name.

    `remade`: the results that were made again, which may show where a file differs.
    """
    for path, sha256 in manifest.files.items():
        yield _compare(STORED, path, sha256, results, remade)
    for path in (path for folder in FOLDERS for path in files_below(results, folder)):
        if path not in manifest.files:
            yield skip(STORED, path, "the manifest does not name it")


def regenerated_findings(
    manifest: Manifest, results: Path, remade: Path | None, failure: str | None
) -> Iterator[Finding]:
    """Yield a row for each table and figure of the manifest.

    `remade`: the results that were made again, None without a workflow; `failure`: how that failed.
    """
    kept = {path.relative_to(results).as_posix() for path in kept_tables(results)}
    for path, sha256 in manifest.files.items():
        if not path.startswith(FOLDERS):  # a run's files are not made again
            continue
        if path in kept:
            yield skip(REGENERATED, path, "what it is made from is not among the results")
        elif remade is None:
            yield skip(REGENERATED, path, "the workflow is not here; call it in a clone")
        elif (remade / path).is_file():
            yield _compare(REGENERATED, path, sha256, remade, results)
        elif failure is not None:
            why = f"making it again fails: {failure}"
            yield Finding(REGENERATED, path, DIFFERS, sha256, None, why)
        else:
            yield skip(REGENERATED, path, "the workflow does not make it from these files")


def _compare(check: str, path: str, sha256: str, folder: Path, other: Path | None) -> Finding:
    """Compare a file's hash with the manifest's; its copy in `other` shows where, if it is as recorded."""
    file = folder / path
    if not file.is_file():
        return compare(check, path, sha256, None, "the file does not exist any more")
    actual = file_sha256(file)
    original = other and other / path
    where = "where it differs is unknown: no file is as recorded"
    if actual != sha256 and original and original.is_file() and file_sha256(original) == sha256:
        where = difference(original, file)
    return compare(check, path, sha256, actual, where)


def difference(expected: Path, actual: Path) -> str:
    """Say where a file differs: the first value of a table, the first byte of any other file."""
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        ".csv": lambda path: pd.read_csv(path, dtype=str, keep_default_na=False),
        # As text with all digits, of which pandas shows few in its messages.
        ".parquet": lambda path: pd.read_parquet(path).astype(object).map(repr),
    }
    read = readers.get(expected.suffix)
    if read is None:
        pairs = enumerate(zip_longest(expected.read_bytes(), actual.read_bytes()), 1)
        at = next((at for at, (a, b) in pairs if a != b), 0)
        sizes = f"{expected.stat().st_size} and {actual.stat().st_size} bytes"
        return f"the first difference is at byte {at} ({sizes})"
    try:
        pd.testing.assert_frame_equal(read(expected), read(actual), check_exact=True)
    except AssertionError as error:
        # pandas names the column twice, and shows it whole in both tables.
        text = re.sub(r"^(\S.*) are different \1 ", r"\1 ", " ".join(str(error).split()))
        return re.sub(r"\[index\].*(?=At positional)", "", text)[:_LONGEST]
    except (OSError, ValueError, pa.ArrowException) as error:
        return f"one of them is not a readable table ({' '.join(str(error).split())})"
    return "all values are the same; metadata or encoding differ"
