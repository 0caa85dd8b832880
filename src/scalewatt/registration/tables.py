"""Tables that describe runs: CSV, YAML or Parquet, one row per run, and tables of stages."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

from scalewatt.campaign.validation import read_yaml, schema
from scalewatt.errors import InputError

Row = dict[str, Any]


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


def shared_rows(content: dict[str, Any], file: Path) -> list[tuple[str, dict[str, Any]]]:
    """The runs listed in a YAML file under `runs`; the keys beside it hold for all of them."""
    runs = content["runs"]
    if not isinstance(runs, list) or not runs or not all(isinstance(r, dict) for r in runs):
        raise InputError(f"{file}: runs: expected a list of descriptions (keys and values)")
    shared = {key: value for key, value in content.items() if key != "runs"}
    return [(f"{file}: runs[{i}]", {**shared, **run}) for i, run in enumerate(runs)]


def stage_rows(path: Path) -> list[Row]:
    """The rows of a table of stages (Parquet, CSV or a JSON list of objects), as they stand there."""
    if path.suffix == ".csv":
        return [row for _, row in _csv_rows(path)]
    if path.suffix == ".parquet":
        return [row for _, row in _parquet_rows(path)]
    if path.suffix != ".json":
        raise InputError(f"{path}: is no table of stages; allowed: .parquet, .csv, .json")
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: is no readable JSON file ({error})") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: expected a JSON list of objects, one for each stage")
    return rows


def _yaml_rows(table: Path) -> list[tuple[str, Row]]:
    content = read_yaml(table)
    if "runs" not in content:
        raise InputError(f"{table}: missing key 'runs'; allowed: a list of descriptions with path")
    return shared_rows(content, table)


def _csv_rows(table: Path) -> list[tuple[str, Row]]:
    try:
        with open(table, encoding="utf-8-sig", newline="") as handle:
            reader = csv.DictReader(handle, skipinitialspace=True, strict=True)
            rows = [(f"{table}: line {reader.line_num}", row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{table}: is no readable CSV file ({error})") from error
    for where, row in rows:
        if None in row or any(value is None for value in row.values()):
            raise InputError(
                f"{where}: expected {len(reader.fieldnames or ())} cells, as in the first line"
            )
    return [(where, _given({k.strip(): v.strip() for k, v in row.items()})) for where, row in rows]


def _parquet_rows(table: Path) -> list[tuple[str, Row]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(table).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{table}: is no readable Parquet file ({error})") from error
    return [(f"{table}: row {i}", _given(row)) for i, row in enumerate(rows)]


def _given(row: Row) -> Row:
    """A row without its empty cells, each value in the type of its key."""
    return {key: _typed(key, value) for key, value in row.items() if not _is_empty(value)}


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _typed(key: str, value: Any) -> Any:
    """A cell's value as the schema has its key; what does not fit stays, and is refused later."""
    kind = {**_STAGE_TYPES, **_types()}.get(key)
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


_STAGE_TYPES = {"segment": "integer", "epoch": "integer", "start_s": "number", "end_s": "number"}


def _types() -> dict[str, str]:
    properties = schema("registration")["properties"]
    return {key: entry.get("type", "object") for key, entry in properties.items()}
