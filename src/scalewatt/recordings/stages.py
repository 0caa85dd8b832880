"""Tables of stages, whoever wrote them: Parquet, CSV, JSON, or the marks of a training itself."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import one_of, shown
from scalewatt.recordings.stage_log import STAGES, read_json_lines, stages_between

EVENTS_SCHEMA = pa.schema(
    [
        pa.field("segment", pa.int32(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("epoch", pa.int32()),
        pa.field("start_s", pa.float64(), nullable=False),
        pa.field("end_s", pa.float64(), nullable=False),
    ]
)
"""Columns of a published run's `events.parquet`; times in Unix seconds."""
STAGES_SCHEMA = pa.schema(
    field.with_nullable(field.name not in ("stage", "start_s")) for field in EVENTS_SCHEMA
)
"""Columns of a table of stages that anybody may write."""

_ALLOWED = {
    "segment": "a segment's number, from 0",
    "stage": f"one of {', '.join(STAGES)}",
    "epoch": "an epoch's number, from 0, or nothing",
    "start_s": "a time in unix seconds",
    "end_s": "a time in unix seconds",
}
_TIMES, _NUMBERS = ["start_s", "end_s"], ["segment", "epoch"]
_MARK = {"segment", "stage", "epoch", "start_s"}
_MOST = 2**31 - 1


def read_stages(
    path: Path, *, segments: Collection[int] | None = None, own: bool = False
) -> pa.Table:
    """Read a table of stages as STAGES_SCHEMA has them (unix s), in the order of the file.

    A Parquet or CSV file, a JSON list or lines of rows, or a training's own events.jsonl. `segment`
    is null, for any, if no row states it; `segments`, where given, are the ones that may be stated.
    Only a run's `own` table may be empty, and may have stages that never ended (`end_s` null).
    InputError, in one line, names file, row, key and what is allowed.
    """
    rows = _rows(path)
    if unknown := [key for key in rows if key not in _ALLOWED]:
        raise InputError(f"{path}: unknown key {shown(unknown[0])}; {one_of(unknown[0], _ALLOWED)}")
    if rows.empty and not own:
        raise InputError(f"{path}: has no row; expected one for each stage")
    required = ["stage", "start_s"] if own and "end_s" in rows else ["stage", *_TIMES]
    rows = rows.reindex(columns=[*_ALLOWED])
    given = rows.notna() & (rows != "")
    refuse = partial(_refuse, path, rows)
    for key in required:
        refuse(~given[key], key)
    refuse(~rows["stage"].isin(STAGES), "stage")
    numbers = rows[_TIMES + _NUMBERS].apply(pd.to_numeric, errors="coerce").astype("float64")
    for key in _TIMES:
        refuse(given[key] & ~np.isfinite(numbers[key]), key)
    refuse(numbers["end_s"] < numbers["start_s"], "end_s", "is before start_s")
    for key in _NUMBERS:
        counts = numbers[key].between(0, _MOST) & (numbers[key] % 1 == 0)
        refuse(given[key] & ~counts, key)
    if given["segment"].any():
        refuse(~given["segment"], "segment", "in some rows only")
        if segments is not None:
            others = f"was not recorded, but {', '.join(map(str, sorted(segments)))}"
            refuse(~numbers["segment"].isin([*segments]), "segment", others)
    columns = {
        field.name: pa.array(
            numbers.get(field.name, rows[field.name]), field.type, from_pandas=True
        )
        for field in STAGES_SCHEMA
    }
    return pa.table(columns, schema=STAGES_SCHEMA)


def _refuse(
    path: Path, rows: pd.DataFrame, bad: pd.Series[bool], key: str, why: str = "is wrong"
) -> None:
    """Raise an InputError that names the first of some bad rows, if there is one."""
    if not bad.any():
        return
    first = int(np.argmax(bad))
    value = rows[key].iloc[first]
    is_missing = value is None or value != value or value == ""
    problem = f"missing key '{key}'" if is_missing else f"{key}: {shown(value)} {why}"
    hint = one_of(value, STAGES) if key == "stage" else f"allowed: {_ALLOWED[key]}"
    raise InputError(f"{path}: {rows.index[first]}: {problem}; {hint}")


def _rows(path: Path) -> pd.DataFrame:
    """Cells of a table as they stand, by names of the rows."""
    suffix = path.suffix.lower()
    if suffix not in (".parquet", ".csv", ".json", ".jsonl"):
        raise InputError(
            f"{path}: is not a table of stages; allowed: .parquet, .csv, .json, .jsonl"
        )
    try:
        if suffix == ".csv":
            options = {"skipinitialspace": True, "skip_blank_lines": False}
            rows = pd.read_csv(path, dtype=str, keep_default_na=False, **options)  # type: ignore[call-overload]
            rows.index = [f"line {i}" for i in range(2, len(rows) + 2)]
            return rows[(rows != "").any(axis=1)]
        if suffix == ".parquet":
            table = pq.read_table(path, page_checksum_verification=True)
            rows = pd.DataFrame(table.to_pylist(), columns=table.column_names, dtype=object)
        else:
            text = path.read_text(encoding="utf-8")
            if not text.lstrip().startswith("["):
                return _rows_of_lines(path, text)
            rows = pd.DataFrame(json.loads(text), dtype=object)
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InputError(f"{path}: {reason}; expected {', '.join(_ALLOWED)}") from error
    return rows.set_axis([f"row {i}" for i in range(len(rows))])


def _rows_of_lines(path: Path, text: str) -> pd.DataFrame:
    """Rows of JSON lines, or the stages between a training's marks, of which lines may be torn."""
    marks = read_json_lines(path)
    if marks and all(mark.keys() == _MARK for mark in marks):
        rows = pd.DataFrame(stages_between(marks, {}), dtype=object)
        return rows.set_axis([f"stage {i}" for i in range(len(rows))])
    lines = {f"line {i}": line for i, line in enumerate(text.splitlines(), start=1) if line.strip()}
    rows_by_line = {}
    for name, line in lines.items():
        try:
            rows_by_line[name] = dict(json.loads(line))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} is not a JSON object") from error
    return pd.DataFrame.from_dict(rows_by_line, orient="index", dtype=object)
