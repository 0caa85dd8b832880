"""Compare stored files, and regenerated ones, with the manifest."""

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
    compared,
    not_checked,
)
from scalewatt.reproduction.manifest import FOLDERS, Manifest, files_below
from scalewatt.reproduction.regenerate import kept_tables

_LONGEST = 300


def file_findings(
    manifest: Manifest, results: Path, remade: Path | None, failure: str | None
) -> Iterator[Finding]:
    """Yield a row for each stored file of the manifest, each that it does not name, each regenerated one.

    `remade`: the results that were made again, None without a workflow; `failure`: how making them failed.
    """
    for path, sha256 in manifest.files.items():
        yield _compared(STORED, path, sha256, results, remade)
    for path in (path for folder in FOLDERS for path in files_below(results, folder)):
        if path not in manifest.files:
            yield not_checked(STORED, path, "the manifest does not name it")
    kept = {path.relative_to(results).as_posix() for path in kept_tables(results)}
    for path, sha256 in manifest.files.items():
        if not path.startswith(FOLDERS):  # a run's files are not made again
            continue
        if path in kept:
            yield not_checked(REGENERATED, path, "what it is made from is not among the results")
        elif remade is None:
            yield not_checked(REGENERATED, path, "the workflow is not here; call it in a clone")
        elif (remade / path).is_file():
            yield _compared(REGENERATED, path, sha256, remade, results)
        elif failure is not None:
            why = f"regenerating it fails: {failure}"
            yield Finding(REGENERATED, path, DIFFERS, sha256, None, why)
        else:
            why = "the workflow does not make it of the files that are here"
            yield not_checked(REGENERATED, path, why)


def _compared(check: str, path: str, sha256: str, folder: Path, other: Path | None) -> Finding:
    """Compare a file's hash with the manifest's; the `other` one shows where, if it is as recorded."""
    file = folder / path
    if not file.is_file():
        return compared(check, path, sha256, None, "the file does not exist any more")
    found = file_sha256(file)
    original = other and other / path
    where = "where it differs is unknown: no file is as recorded"
    if found != sha256 and original and original.is_file() and file_sha256(original) == sha256:
        where = difference(original, file)
    return compared(check, path, sha256, found, where)


def difference(expected: Path, found: Path) -> str:
    """Say where `found` differs from `expected`: a table's first value, else the first byte."""
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        ".csv": lambda path: pd.read_csv(path, dtype=str, keep_default_na=False),
        # As text with all digits, of which pandas shows few in its messages.
        ".parquet": lambda path: pd.read_parquet(path).astype(object).map(repr),
    }
    read = readers.get(expected.suffix)
    if read is None:
        pairs = enumerate(zip_longest(expected.read_bytes(), found.read_bytes()), 1)
        at = next((at for at, (a, b) in pairs if a != b), 0)
        sizes = f"{expected.stat().st_size} and {found.stat().st_size} bytes"
        return f"the first difference is at byte {at} ({sizes})"
    try:
        pd.testing.assert_frame_equal(read(expected), read(found), check_exact=True)
    except AssertionError as error:
        # pandas names the column twice, and shows it whole in both tables.
        text = re.sub(r"^(\S.*) are different \1 ", r"\1 ", " ".join(str(error).split()))
        return re.sub(r"\[index\].*(?=At positional)", "", text)[:_LONGEST]
    except (OSError, ValueError, pa.ArrowException) as error:
        return f"one of them is not a readable table ({' '.join(str(error).split())})"
    return "all values are the same; metadata or encoding differ"
