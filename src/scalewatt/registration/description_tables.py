"""Tables that describe runs: CSV, YAML or Parquet, one row per run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import read_yaml, schema
from scalewatt.common.tabular_files import Row, Rows, csv_rows, parquet_rows


def table_rows(table: Path) -> list[tuple[str, Path, Row]]:
    """Where each row stands, the recording that it describes, and its keys.

    InputError for a table that cannot be read, and for a row without a path.
    """
    kinds = {".csv": _csv_rows, ".yaml": _yaml_rows, ".yml": _yaml_rows, ".parquet": _parquet_rows}
    if table.suffix not in kinds:
        raise InputError(f"{table}: is no table; allowed: .csv, .yaml, .parquet")
    if not table.is_file():
        raise InputError(f"{table}: cannot be read (there is no such file)")
    rows = []
    for where, row in kinds[table.suffix](table):
        path = row.get("path")
        if not isinstance(path, str) or not path:
            raise InputError(f"{where}: missing key 'path'; allowed: a recording's path")
        rows.append((where, table.parent / path, row))
    if not rows:
        raise InputError(f"{table}: has no row; expected one for each run")
    return rows


def shared_rows(content: dict[str, Any], file: Path) -> Rows:
    """The runs listed in a YAML file under `runs`; the keys beside it hold for all of them."""
    runs = content["runs"]
    if not isinstance(runs, list) or not runs or not all(isinstance(r, dict) for r in runs):
        raise InputError(f"{file}: runs: expected a list of descriptions (keys and values)")
    shared = {key: value for key, value in content.items() if key != "runs"}
    return [(f"{file}: runs[{i}]", {**shared, **run}) for i, run in enumerate(runs)]


def _yaml_rows(table: Path) -> Rows:
    content = read_yaml(table)
    if "runs" not in content:
        raise InputError(f"{table}: missing key 'runs'; allowed: a list of descriptions with path")
    return shared_rows(content, table)


def _csv_rows(table: Path) -> Rows:
    return [(where, _given(row)) for where, row in csv_rows(table)]


def _parquet_rows(table: Path) -> Rows:
    return [(where, _given(row)) for where, row in parquet_rows(table)]


def _given(row: Row) -> Row:
    """A row without its empty cells, each value in the type of its key."""
    return {key: _typed(key, value) for key, value in row.items() if not _is_empty(value)}


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _typed(key: str, value: Any) -> Any:
    """A cell's value as the schema has its key; what does not fit stays, and is refused later."""
    kind = _types().get(key)
    if kind == "string" or kind is None:
        return value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)  # a column of integers with empty cells is one of floats
    return value


def _types() -> dict[str, str]:
    properties = schema("registration")["properties"]
    return {key: entry.get("type", "object") for key, entry in properties.items()}
