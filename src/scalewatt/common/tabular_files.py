"""Files of rows as people have them: CSV and Parquet, each row with where it stands."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import shown

Row = dict[str, Any]
Rows = list[tuple[str, Row]]


def csv_rows(path: Path) -> Rows:
    """Return the rows of a CSV file, all cells as stripped text; InputError if the cells do not fit.

    Columns without a name and without content, as spreadsheets leave them at the end, are left out.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as handle:
            reader = csv.reader(handle, skipinitialspace=True, strict=True)
            names = [name.strip() for name in next(reader, ())]
            rows = [
                (f"{path}: line {reader.line_num}", [cell.strip() for cell in row])
                for row in reader
                if row
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: is no readable CSV file ({error})") from error
    if not any(names):
        raise InputError(f"{path}: is empty; expected the names of columns in its first line")
    width = len(names)
    while not names[-1] and not any(any(row[len(names) - 1 :]) for _, row in rows):
        names.pop()
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: the column {shown(twice)} stands there twice; allowed: once")
    for where, row in rows:
        if not len(names) <= len(row) <= width:
            raise InputError(f"{where}: expected {len(names)} cells, as in the first line")
    return [(where, dict(zip(names, row, strict=False))) for where, row in rows]


def parquet_rows(path: Path) -> Rows:
    """Return the rows of a Parquet file; InputError if it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path, page_checksum_verification=True).to_pylist()
    except (OSError, ValueError, OverflowError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: is no readable Parquet file ({reason})") from error
    return [(f"{path}: row {i}", row) for i, row in enumerate(rows)]
