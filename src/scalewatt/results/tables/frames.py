"""Tables: read, written, and as pandas DataFrames with Arrow-backed columns, in which null, NaN and 0 differ.

The Arrow schema is the contract where a table is read and where it is written; the table's metadata
(docs/tables/index.md) are in `DataFrame.attrs`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from scalewatt.common.columns import METADATA_KEY
from scalewatt.common.errors import InputError
from scalewatt.common.files import parse_json, write_table_with_csv

RUN_KEY = ["configuration", "repeat"]
"""What a row of the table of runs stands for."""
PUBLISHED = "published"
FLOAT = pd.ArrowDtype(pa.float64())


# --- files ----------------------------------------------------------------------------------------


def read_checked(path: Path | str, schema: pa.Schema) -> pa.Table:
    """Read a table with the columns of `schema`, and its metadata, from Parquet or CSV.

    InputError for a file that does not exist, is damaged, or lacks a column, or has one of another type.
    """
    path = Path(path)
    with _unreadable_refused(path):
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
            table.validate(full=True)  # texts may not be UTF-8
        _check_columns(table.column_names, schema.names)
        metadata(table)
        return table.select(schema.names).cast(schema.with_metadata(table.schema.metadata))


@contextmanager
def opened_parquet(path: Path | str, columns: Sequence[str]) -> Iterator[Any]:
    """Open a Parquet file with these columns; InputError if it is, or proves, unreadable."""
    path = Path(path)
    with _unreadable_refused(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        _check_columns(file.schema_arrow.names, columns)
        yield file


@contextmanager
def _unreadable_refused(path: Path) -> Iterator[None]:
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


def metadata(table: pa.Table) -> dict[str, Any]:
    """Metadata stored with a table (docs/tables/index.md); empty without any."""
    stored = (table.schema.metadata or {}).get(METADATA_KEY)
    return parse_json(stored) if stored else {}


def stored_metadata(path: Path) -> dict[str, Any]:
    """Metadata of a table's file; empty if it is damaged."""
    try:
        return metadata(pq.read_schema(path).empty_table())
    except (OSError, ValueError, pa.ArrowException):
        return {}


def with_metadata(table: pa.Table, added: Mapping[str, Any]) -> pa.Table:
    """Store metadata in a table."""
    return table.replace_schema_metadata({METADATA_KEY: json.dumps(added).encode()})


def read_frame(path: Path | str, schema: pa.Schema) -> pd.DataFrame:
    """Read a table that has the columns of `schema`; InputError as of `read_checked`."""
    return to_frame(read_checked(path, schema))


def write_frame(
    frame: pd.DataFrame,
    path: Path | str,
    schema: pa.Schema,
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """Write a table as Parquet, and as CSV beside it; its metadata are `attributes`, or `frame.attrs`."""
    chosen = frame.attrs if attributes is None else attributes
    stored = {str(key): value for key, value in chosen.items()}
    write_table_with_csv(with_metadata(to_table(frame, schema), stored), path)


# --- frames ---------------------------------------------------------------------------------------


class _Shared(dict[str, Any]):
    """What copies of a frame share: pandas deep-copies `attrs` in every operation, which takes long."""

    def __deepcopy__(self, memo: object) -> _Shared:
        return self


def to_frame(table: pa.Table) -> pd.DataFrame:
    """Convert an Arrow table to a DataFrame, with its metadata as `attrs`."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    stored = metadata(table)
    if "definition" in stored:  # by far the largest
        stored["definition"] = _Shared(stored["definition"])
    frame.attrs.update(stored)
    return frame


def to_table(frame: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    """Convert the columns of `schema` to an Arrow table; KeyError if one is missing."""
    return pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)


def frame_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pd.DataFrame:
    """Make a DataFrame of the columns of `schema` from rows; KeyError if a row lacks one."""
    chosen = [{name: row[name] for name in schema.names} for row in rows]
    return to_frame(pa.Table.from_pylist(chosen, schema=schema))


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Convert rows to dicts of Python's values, None for null."""
    columns = {str(name): values(column) for name, column in frame.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def values(column: pd.Series) -> list[Any]:
    """Convert a column to a list of Python's values, null as None."""
    if isinstance(column.dtype, pd.ArrowDtype):
        plain: list[Any] = pa.array(column).to_pylist()
    else:
        plain = column.astype(object).where(column.notna(), None).tolist()
    return plain


def column_of(items: Iterable[Any], type_: pa.DataType, index: pd.Index | None = None) -> pd.Series:
    """Make an Arrow-backed column of values, None as null."""
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.array(list(items), type_)), index=index)


def equal(a: pd.Series, b: pd.Series) -> pd.Series:
    """Compare two columns cell by cell; null equals null alone."""
    return (a == b).fillna(False) | (a.isna() & b.isna())
