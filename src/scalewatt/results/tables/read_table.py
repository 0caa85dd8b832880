"""Reading a table back, as Parquet or CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.common.errors import InputError
from scalewatt.results.tables.table_schema import metadata

RUN_KEY = ("configuration", "repeat")
"""What a row of the table of runs stands for."""
PUBLISHED = "published"
_NEVER_NULL = ("figure", "panel", "series", "configuration", "repeat", "gpus")


def read_checked(path: Path | str, schema: pa.Schema, *, empty: Sequence[str] = ()) -> pa.Table:
    """Read a table with the columns of `schema`, and its metadata.

    Columns that say where a row belongs have a value in every row, but for those in `empty`. InputError
    for a file that is not there, damaged, or lacks a column, or has one of another type or such a null.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: does not exist; expected a table (Parquet or CSV)")
    try:
        table = _from_csv(path, schema) if path.suffix == ".csv" else _from_parquet(path)
        _check_columns(path, table.column_names, schema.names)
        found = table.select(schema.names).cast(schema.with_metadata(table.schema.metadata))
        metadata(found)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    for name in set(_NEVER_NULL).intersection(schema.names).difference(empty):
        if found[name].null_count:
            row = found[name].is_null().index(True).as_py() + 1
            raise InputError(f"{path}: row {row}: {name} is empty; expected a value in every row")
    return found


def read_columns(path: Path | str, columns: Sequence[str]) -> pa.Table:
    """Read some columns of a long Parquet table; InputError as above."""
    with opened_parquet(path, columns) as file:
        found: pa.Table = file.read(columns=list(columns))
        return found


@contextmanager
def opened_parquet(path: Path | str, columns: Sequence[str]) -> Iterator[Any]:
    """Open a Parquet file with these columns; InputError if it is, or proves, unreadable."""
    import pyarrow.parquet as pq

    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: does not exist; expected a table (Parquet)")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            _check_columns(path, file.schema_arrow.names, columns)
            yield file
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    form = "CSV" if path.suffix == ".csv" else "Parquet"
    return InputError(
        f"{path}: is no readable {form} file ({' '.join(str(error).split())}); expected "
        "the columns and types that docs/tables.md links to"
    )


def _from_parquet(path: Path) -> pa.Table:
    import pyarrow.parquet as pq

    # Of small files twice as fast as `read_table`, and than with threads by a quarter.
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        found: pa.Table = file.read(use_threads=False)
    found.validate(full=True)  # texts may be none
    return found


def _from_csv(path: Path, schema: pa.Schema) -> pa.Table:
    import pyarrow.csv as pc

    types = pc.ConvertOptions(
        column_types={field.name: field.type for field in schema},
        strings_can_be_null=True,
        null_values=[""],
    )
    return pc.read_csv(path, convert_options=types)


def _check_columns(path: Path, found: Sequence[str], wanted: Sequence[str]) -> None:
    if missing := [name for name in wanted if name not in found]:
        more = ", …" if len(missing) > 3 else ""
        raise InputError(
            f"{path}: lacks the column {', '.join(missing[:3])}{more}; expected: all columns that "
            "docs/tables.md links to"
        )
