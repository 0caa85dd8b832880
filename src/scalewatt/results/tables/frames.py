"""Tables as pandas DataFrames with Arrow-backed columns, in which null, NaN and 0 are three things.

The Arrow schema is the contract where a table is read and where it is written; the table's metadata
(docs/tables/index.md) are in `DataFrame.attrs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.common.files import write_table_with_csv
from scalewatt.results.tables.read_table import read_checked
from scalewatt.results.tables.table_schema import check_columns, metadata, table, with_metadata

FLOAT = pd.ArrowDtype(pa.float64())
TEXT = pd.ArrowDtype(pa.string())


def read_frame(path: Path | str, schema: pa.Schema) -> pd.DataFrame:
    """Read a table that has the columns of `schema`; InputError as of `read_checked`."""
    return to_frame(read_checked(path, schema))


def to_frame(stored: pa.Table) -> pd.DataFrame:
    """Return an Arrow table as a DataFrame, its metadata as `attrs`."""
    frame: pd.DataFrame = stored.to_pandas(types_mapper=pd.ArrowDtype)
    frame.attrs.update({key: _shared(value) for key, value in metadata(stored).items()})
    return frame


class _Shared:
    """What copies of a frame share: pandas deep-copies `attrs` in every operation, which takes long."""

    def __deepcopy__(self, memo: object) -> Any:
        return self


class _SharedDict(_Shared, dict[str, Any]):
    """An object of the metadata."""


class _SharedList(_Shared, list[Any]):
    """A list of the metadata."""


def _shared(value: Any) -> Any:
    if isinstance(value, dict):
        return _SharedDict(value)
    return _SharedList(value) if isinstance(value, list) else value


def frame_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pd.DataFrame:
    """Return rows as a DataFrame of exactly `schema`; a row with other columns is an error (ValueError)."""
    return to_frame(table(rows, schema))


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as dicts of Python's values, None for null."""
    names = [str(name) for name in frame]
    columns = [_plain(column) for _, column in frame.items()]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _plain(column: pd.Series) -> list[Any]:
    if isinstance(column.dtype, pd.ArrowDtype):
        return values(column)
    plain: list[Any] = column.astype(object).where(column.notna(), None).tolist()
    return plain


def to_table(frame: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    """Return a DataFrame as an Arrow table of exactly `schema`; other columns are an error (ValueError)."""
    check_columns(frame.columns, schema)
    return pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)


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


def values(column: pd.Series) -> list[Any]:
    """Return the values of a column as plain Python values, null as None."""
    plain: list[Any] = pa.array(column).to_pylist()
    return plain


def column_of(items: Iterable[Any], type_: pa.DataType, index: pd.Index | None = None) -> pd.Series:
    """Return values as an Arrow-backed column, None as null."""
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.array(list(items), type_)), index=index)


def equal(a: pd.Series, b: pd.Series) -> pd.Series:
    """Return where two columns agree; null agrees with null alone."""
    return (a == b).fillna(False) | (a.isna() & b.isna())
