"""Reading a table back, as Parquet or CSV: what is wrong in it is named, with the row.

Rows count from 1, the first row of data. A table that a person has edited is expected here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import nearest
from scalewatt.common.tabular_files import csv_rows
from scalewatt.results.tables.table_schema import metadata
from scalewatt.results.tables.value_ranges import ROUNDING, metric_range, value_range

Row = dict[str, Any]

RUN_KEY = ("configuration", "repeat")
CONFIGURATION_KEY = ("configuration",)
POINT_KEY = ("figure", "panel", "series", "configuration", "energy_origin")
"""What a row of a table stands for: it may be there once."""

PUBLISHED = "published"
_NEVER_NULL = ("figure", "panel", "series", "configuration", "repeat", "gpus")
_METRICS = ("metric_last", "metric_best", "metric_persistence", "metric_climatology")
_METRIC_COLUMNS = {f"{name}{end}" for name in _METRICS for end in ("", "_mean")}
_COUNTS = frozenset({"gpus", "nodes", "local_batch_size", "global_batch_size", "dataset_samples"})
_LARGEST = 1e100
"""Of any number: nothing is so large, and the square of a larger one may be no number."""


def read_checked(
    path: Path | str,
    schema: pa.Schema,
    *,
    unique: Sequence[str] = (),
    optional: Sequence[str] = (),
    empty: Sequence[str] = (),
) -> pa.Table:
    """Read a table with exactly the columns of `schema`, and its metadata; `optional` ones may be missing.

    Columns that say where a row belongs must have a value in every row, but for those in `empty`.

    InputError, with file and row: a column is missing or of another type, `unique` columns repeat, a
    number is NaN or infinite, an energy, a power or a duration is below 0 or beyond all bounds, or a
    metric is out of the range that its name allows.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: does not exist; expected a table (Parquet or CSV)")
    read = _from_csv if path.suffix == ".csv" else _from_parquet
    table = read(path, schema, optional)
    check_table(path, table, unique, empty)
    return table


def check_table(
    path: Path | str, table: pa.Table, unique: Sequence[str] = (), empty: Sequence[str] = ()
) -> None:
    """Raise InputError as `read_checked` does, for a table in memory; `path` is for the messages."""
    _check_described(path, table)
    _check_present(path, table, empty)
    _check_finite(path, table)
    _check_ranges(path, table)
    _check_counts(path, table)
    _check_intervals(path, table)
    _check_metrics(path, table)
    if unique:
        _check_unique(path, table, unique)


def read_columns(path: Path | str, columns: Sequence[str]) -> pa.Table:
    """Read some columns of a Parquet table that is too long to look at its values; InputError as above."""
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
    return InputError(f"{path}: is no readable Parquet file ({' '.join(str(error).split())})")


# --- columns and types ----------------------------------------------------------------------------


def _from_parquet(path: Path, schema: pa.Schema, optional: Sequence[str]) -> pa.Table:
    import pyarrow.parquet as pq

    try:
        # Of small files twice as fast as `read_table`, and than with threads by a quarter.
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            found = file.read(use_threads=False)
        found.validate(full=True)  # texts may be none
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    _check_columns(path, found.column_names, schema.names, optional)
    for name in set(optional) - set(found.column_names):
        found = found.append_column(name, pa.nulls(len(found)))
    columns = [_cast(path, field, found[field.name]) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema.with_metadata(found.schema.metadata))


def _check_columns(
    path: Path, found: Sequence[str], wanted: Sequence[str], optional: Sequence[str] = ()
) -> None:
    missing = [name for name in wanted if name not in (*found, *optional)]
    if not missing:
        return
    extra = [name for name in found if name not in wanted]
    similar = nearest(extra[0], missing) if extra else ""
    has = f"; it has {extra[0]}{similar}" if similar else ""
    raise InputError(
        f"{path}: lacks the column{_s(missing)} {_listed(missing, 3, 'columns')}{has}; "
        "expected: all columns that docs/tables.md links to"
    )


def _cast(path: Path, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in the schema's type; a number is never made of text, nor text of a number."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    known = pa.types.is_null(column.type) or _kind(column.type) == _kind(field.type)
    if not known:
        first = column.is_valid().index(True).as_py() + 1 or 1
        raise InputError(
            f"{path}: row {first}: column {field.name} is of type {column.type}; "
            f"expected {field.type}"
        )
    return _converted(path, field, column)


def _kind(type_: pa.DataType) -> str:
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return "number"
    return "text" if pa.types.is_string(type_) or pa.types.is_large_string(type_) else str(type_)


def _converted(path: Path, field: pa.Field, column: Any) -> Any:
    """Return a column in the schema's type, text parsed; InputError for the first value that does not fit."""
    try:
        return _as(column, field.type)
    except pa.ArrowInvalid:
        for row, value in enumerate(column.to_pylist(), 1):
            try:
                _as(pa.array([value], column.type), field.type)
            except pa.ArrowInvalid:
                shown = f"'{value}'" if isinstance(value, str) else value
                raise InputError(
                    f"{path}: row {row}: {field.name} is {shown}; expected {_words(field.type)}"
                ) from None
        raise


def _as(column: Any, type_: pa.DataType) -> Any:
    if pa.types.is_string(column.type) and pa.types.is_integer(type_):
        column = column.cast(pa.float64())  # spreadsheets write 4 as 4.0
    return column.cast(type_)


def _words(type_: pa.DataType) -> str:
    if pa.types.is_integer(type_):
        return f"a whole number that fits {type_}"
    if pa.types.is_floating(type_):
        return "a number, or an empty cell"
    return "true or false (1 or 0)" if pa.types.is_boolean(type_) else f"{type_}"


def _from_csv(path: Path, schema: pa.Schema, optional: Sequence[str]) -> pa.Table:
    rows = [row for _, row in csv_rows(path)]
    _check_columns(path, list(rows[0]) if rows else _header(path), schema.names, optional)
    texts = {name: [row.get(name) or None for row in rows] for name in schema.names}
    columns = [_converted(path, one, pa.array(texts[one.name], pa.string())) for one in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _header(path: Path) -> list[str]:
    with open(path, encoding="utf-8-sig", newline="") as handle:
        return [name.strip().strip('"') for name in handle.readline().split(",")]


# --- what rows say ---------------------------------------------------------------------------------


def _check_present(path: Path | str, table: pa.Table, empty: Sequence[str]) -> None:
    for name in _NEVER_NULL:
        if name not in empty and name in table.column_names and table[name].null_count:
            row = table[name].is_null().index(True).as_py() + 1
            raise InputError(f"{path}: row {row}: {name} is empty; expected a value in every row")


def _check_finite(path: Path | str, table: pa.Table) -> None:
    import pyarrow.compute as pc

    for field in table.schema:
        if not pa.types.is_floating(field.type):
            continue
        row = pc.is_finite(table[field.name]).index(False).as_py()
        if row >= 0:
            kind = "NaN" if math.isnan(table[field.name][row].as_py()) else "infinite"
            raise InputError(
                f"{path}: row {row + 1}: {field.name} is {kind}; expected a number, "
                "or an empty cell (null) where it is not known"
            )
        row = pc.less_equal(pc.abs(table[field.name]), _LARGEST).index(False).as_py()
        if row >= 0:
            raise InputError(
                f"{path}: row {row + 1}: {field.name} is {table[field.name][row].as_py():g}; expected a "
                f"number of at most {_LARGEST:g}"
            )


def _check_ranges(path: Path | str, table: pa.Table) -> None:
    """Raise InputError for an energy, power, share or duration that cannot be."""
    import pyarrow.compute as pc

    for field in table.schema:
        if not pa.types.is_floating(field.type):
            continue
        low, high = value_range(field.name)
        if math.isinf(high) and math.isinf(low):
            continue
        column = table[field.name]
        outside = pc.or_(pc.less(column, low), pc.greater(column, high))
        row = outside.index(True).as_py()
        if row >= 0:
            _check_range(f"{path}: row {row + 1}: {field.name}", column[row].as_py(), low, high)
    for name, axis in (("x_name", "x"), ("y_name", "y")):
        if {name, axis} <= set(table.column_names):
            pairs = zip(table[name].to_pylist(), table[axis].to_pylist(), strict=True)
            for row, (called, value) in enumerate(pairs, 1):
                _check_range(f"{path}: row {row}: {called}", value, *value_range(called or ""))


def _check_described(path: Path | str, table: pa.Table) -> None:
    with suppress(ValueError):
        if isinstance(metadata(table), dict):
            return
    raise InputError(f"{path}: its metadata are damaged; expected an object as JSON")


def _check_counts(path: Path | str, table: pa.Table) -> None:
    """Raise InputError for a run on no GPU, or a batch of no sample."""
    for name in _COUNTS.intersection(table.column_names):
        for row, value in enumerate(table[name].to_pylist(), 1):
            if value is not None and value < 1:
                raise InputError(f"{path}: row {row}: {name} is {value}; expected: 1 or more")


def _check_intervals(path: Path | str, table: pa.Table) -> None:
    """Raise InputError for an interval whose lower end is above its upper one."""
    for low in (name for name in table.column_names if name.endswith("_low")):
        if (high := f"{low.removesuffix('_low')}_high") not in table.column_names:
            continue
        pairs = zip(table[low].to_pylist(), table[high].to_pylist(), strict=True)
        for row, (begin, end) in enumerate(pairs, 1):
            if None not in (begin, end) and begin > end:
                raise InputError(
                    f"{path}: row {row}: {low} {begin:g} is above {high} {end:g}; expected: at most it"
                )


def _check_range(where: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        expected = f"{max(low, 0.0):g} or more" if value < low else f"{high:g} at most"
        raise InputError(f"{where} is {value:g}; expected: {expected}")


def _check_metrics(path: Path | str, table: pa.Table) -> None:
    found = [name for name in table.column_names if name in _METRIC_COLUMNS]
    if {"y", "y_name"} <= set(table.column_names):
        found.append("y")
    if not found:
        return
    names = [metadata(table).get("metric_name") or ""] * len(table)
    if "metric_name" in table.column_names:
        names = [name or "" for name in table["metric_name"].to_pylist()]
    for column in found:
        called = table["y_name"].to_pylist() if column == "y" else [column] * len(table)
        values = zip(table[column].to_pylist(), called, names, strict=True)
        for row, (value, name, metric) in enumerate(values, 1):
            if column != "y" or name in _METRICS:
                check_metric(f"{path}: row {row}: {name}", value, metric)


def check_metric(where: str, value: float | None, metric: str) -> None:
    """Raise InputError, which begins with `where`, for a metric out of the range of its name."""
    low, high = metric_range(metric)
    if value is not None and not low - ROUNDING <= value <= high + ROUNDING:
        expected = f"{low:g} to {high:g}" if high < math.inf else f"{low:g} or more"
        raise InputError(
            f"{where} is {value:g}, but {metric} is {expected}; expected: a metric in that range"
        )


def _check_unique(path: Path | str, table: pa.Table, unique: Sequence[str]) -> None:
    first: dict[tuple[Any, ...], int] = {}
    for row, key in enumerate(zip(*(table[n].to_pylist() for n in unique), strict=True), 1):
        before = first.setdefault(key, row)
        if before != row:
            text = ", ".join(f"{n} {v}" for n, v in zip(unique, key, strict=True))
            raise InputError(
                f"{path}: row {row} stands for the same as row {before}: {text}; expected: each once"
            )


def _listed(rows: Sequence[object], most: int = 6, word: str = "rows") -> str:
    shown = ", ".join(map(str, rows[:most]))
    return shown if len(rows) <= most else f"{shown}, … ({len(rows)} {word})"


def _s(several: Sequence[Any]) -> str:
    return "s" if len(several) > 1 else ""
