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


def read_checked(path: Path | str, schema: pa.Schema) -> pa.Table:
    """Read a table with the columns of `schema`, and its metadata.

    InputError for a file that is not there, damaged, or lacks a column, or has one of another type.
    """
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    path = Path(path)
    with _one_error(path):
        if path.suffix == ".csv":
            types = {field.name: field.type for field in schema}
            options = pc.ConvertOptions(
                column_types=types, strings_can_be_null=True, null_values=[""]
            )
            table = pc.read_csv(path, convert_options=options)
        else:
            # Of small files twice as fast as `read_table`, and than with threads by a quarter.
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                table = file.read(use_threads=False)
            table.validate(full=True)  # texts may be none
        _check_columns(table.column_names, schema.names)
        metadata(table)
        return table.select(schema.names).cast(schema.with_metadata(table.schema.metadata))


@contextmanager
def opened_parquet(path: Path | str, columns: Sequence[str]) -> Iterator[Any]:
    """Open a Parquet file with these columns; InputError if it is, or proves, unreadable."""
    import pyarrow.parquet as pq

    with _one_error(Path(path)), pq.ParquetFile(path, page_checksum_verification=True) as file:
        _check_columns(file.schema_arrow.names, columns)
        yield file


@contextmanager
def _one_error(path: Path) -> Iterator[None]:
    """Turn whatever makes a table unreadable into one InputError."""
    if not path.is_file():
        raise InputError(f"{path}: does not exist; expected a table")
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(
            f"{path}: is not a readable table ({' '.join(str(error).split())}); expected the columns and "
            "types that docs/tables/index.md links to"
        ) from error


def _check_columns(names: Sequence[str], wanted: Sequence[str]) -> None:
    if missing := [name for name in wanted if name not in names]:
        more = ", …" if len(missing) > 3 else ""
        raise ValueError(f"lacks the column {', '.join(missing[:3])}{more}")
