"""Files of rows as people have them: CSV and Parquet, each row with where it stands."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import shown

Row = dict[str, Any]
Rows = list[tuple[str, Row]]


@dataclass(frozen=True)
class Cells:
    """The cells of a CSV file as stripped texts; rows may have more or fewer than there are names."""

    names: tuple[str, ...]
    rows: tuple[tuple[int, list[str]], ...]
    """Each with its line in the file; without empty lines."""


def csv_cells(path: Path, separators: str = ",") -> Cells:
    """Return the cells of a CSV file, between which is the separator that its first line has most of.

    InputError if it cannot be read, or its first line names no column.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as handle:
            first = handle.readline()
            reader = csv.reader(
                chain([first], handle),
                delimiter=max(separators, key=first.count),
                skipinitialspace=True,
                strict=True,
            )
            names = tuple(name.strip() for name in next(reader, ()))
            rows = tuple((reader.line_num, [cell.strip() for cell in row]) for row in reader if row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: is no readable CSV file ({error})") from error
    if not any(names):
        raise InputError(f"{path}: is empty; expected the names of columns in its first line")
    return Cells(names, rows)


def csv_rows(path: Path) -> Rows:
    """Return the rows of a CSV file, all cells as stripped text; InputError if the cells do not fit.

    Columns without a name and without content, as spreadsheets leave them at the end, are left out.
    """
    cells = csv_cells(path)
    names = list(cells.names)
    rows = [(f"{path}: line {line}", row) for line, row in cells.rows]
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
