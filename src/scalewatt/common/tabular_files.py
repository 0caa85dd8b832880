"""CSV files that people write."""

from __future__ import annotations

import csv
from pathlib import Path

from scalewatt.common.errors import InputError


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
