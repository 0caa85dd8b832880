"""Files of rows as people have them: CSV and Parquet, each row with where it stands."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError

Row = dict[str, Any]
Rows = list[tuple[str, Row]]


def csv_cells(path: Path) -> tuple[list[str], dict[int, list[str]]]:
    """Names of a CSV file's columns, and the cells of its rows by line, all as stripped text.

    Rows may have more or fewer cells than there are names; empty lines are left out. InputError if it
    cannot be read, or its first line names no column.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as handle:
            reader = csv.reader(handle, skipinitialspace=True, strict=True)
            lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: is not a readable CSV file ({error})") from error
    names = lines[0][1] if lines else []
    if not any(names):
        raise InputError(f"{path}: is empty; expected the names of columns in its first line")
    return names, dict(lines[1:])


def csv_rows(path: Path) -> Rows:
    """Rows of a CSV file, all cells as stripped text; InputError if the cells do not fit.

    Columns without a name and without content, as spreadsheets leave them at the end, are left out.
    """
    names, rows = csv_cells(path)
    width = len(names)
    while not names[-1] and not any(any(row[len(names) - 1 :]) for row in rows.values()):
        names.pop()
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: the column '{twice}' is there twice; allowed: once")
    for line, row in rows.items():
        if not len(names) <= len(row) <= width:
            raise InputError(
                f"{path}: line {line}: expected {len(names)} cells, as in the first line"
            )
    return [
        (f"{path}: line {line}", dict(zip(names, row, strict=False))) for line, row in rows.items()
    ]


def parquet_rows(path: Path) -> Rows:
    """Rows of a Parquet file; InputError if it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path, page_checksum_verification=True).to_pylist()
    except (OSError, ValueError, OverflowError, pa.ArrowException) as error:
        raise InputError(f"{path}: is not a readable Parquet file ({error})") from error
    return [(f"{path}: row {i}", row) for i, row in enumerate(rows)]
