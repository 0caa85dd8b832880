"""Tables of stages, whoever wrote them: Parquet, CSV, JSON, or the marks of a training itself."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import one_of, shown
from scalewatt.common.tabular_files import Row, Rows, csv_rows, parquet_rows
from scalewatt.recordings.series import finite_number
from scalewatt.recordings.stage_log import STAGES, read_events

STAGES_SCHEMA = pa.schema(
    [
        pa.field("segment", pa.int32()),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("epoch", pa.int32()),
        pa.field("start_s", pa.float64(), nullable=False),
        pa.field("end_s", pa.float64()),
    ]
)
"""Columns of a table of stages that anybody may write."""
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

_EXPECTED = f"expected {', '.join(STAGES_SCHEMA.names)}"
_KINDS = {
    "segment": "a segment's number, from 0",
    "stage": f"one of {', '.join(STAGES)}",
    "epoch": "an epoch's number, from 0, or nothing",
    "start_s": "a time in unix seconds",
    "end_s": "a time in unix seconds",
}
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
    readers: dict[str, Callable[[Path], Rows]] = {
        ".parquet": parquet_rows,
        ".csv": _csv_rows,
        ".json": _json_rows,
        ".jsonl": _json_rows,
    }
    suffix = path.suffix.lower()
    if suffix not in readers:
        raise InputError(f"{path}: is no table of stages; allowed: {', '.join(readers)}")
    if not path.is_file():
        raise InputError(f"{path}: cannot be read (there is no such file); {_EXPECTED}")
    try:
        rows = readers[suffix](path)
    except InputError as error:
        raise InputError(f"{error}; {_EXPECTED}") from error
    checked = [_checked(row, where, own) for where, row in rows]
    if not checked and not own:
        raise InputError(f"{path}: has no row; expected one for each stage")
    _check_segments(checked, [where for where, _ in rows], segments)
    return pa.Table.from_pylist(checked, schema=STAGES_SCHEMA)


def _csv_rows(path: Path) -> Rows:
    return [
        (where, {k: v if k == "stage" else _cell(v) for k, v in row.items()})
        for where, row in csv_rows(path)
    ]


def _cell(text: str) -> Any:
    """Return a cell as the number that it is, or as it stands."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text


def _json_rows(path: Path) -> Rows:
    try:
        text = path.read_text(encoding="utf-8")
        if not text.lstrip().startswith("["):
            return _json_lines(text, path)
        content = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: is no readable JSON ({error})") from error
    return [(f"{path}: row {i}", _object(row, f"{path}: row {i}")) for i, row in enumerate(content)]


def _json_lines(text: str, path: Path) -> Rows:
    rows, torn = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{path}: line {number}"
        try:
            rows.append((where, _object(json.loads(line), where)))
        except RecursionError as error:
            raise InputError(f"{where}: is nested too deeply") from error
        except ValueError as error:
            if line.strip():
                torn.append((len(rows), f"{where}: is no readable JSON ({error})"))
    marks = rows and all(row.keys() == _MARK for _, row in rows)
    damaged = [why for place, why in torn if not marks or not _may_be_torn(rows, place)]
    if damaged:
        raise InputError(damaged[0])
    return _from_marks(rows, path) if marks else rows


def _may_be_torn(marks: Rows, place: int) -> bool:
    """Return True if a line before the mark at `place` may be what a segment wrote when it died."""
    if place in (0, len(marks)):
        return place > 0
    return bool(marks[place - 1][1]["segment"] != marks[place][1]["segment"])


def _object(value: Any, where: str) -> Row:
    if not isinstance(value, dict):
        raise InputError(f"{where}: {shown(value)} should be an object, one for each stage")
    return value


def _from_marks(marks: Rows, path: Path) -> Rows:
    """Return the stages between a training's marks, of which one with stage null ends the last."""
    for where, mark in marks:
        stage = STAGES[-1] if mark["stage"] is None else mark["stage"]
        _checked({**mark, "stage": stage, "end_s": mark["start_s"]}, where, False)
    return [(f"{path}: stage {i}", row) for i, row in enumerate(read_events(path, {}))]


def _checked(row: Row, where: str, own: bool) -> Row:
    unknown = next((key for key in row if key not in _KINDS), None)
    if unknown is not None:
        raise InputError(f"{where}: unknown key {shown(unknown)}; {one_of(unknown, _KINDS)}")
    open_end = own and "end_s" in row and row["end_s"] is None
    for key in ("stage", "start_s", *(() if open_end else ("end_s",))):
        if row.get(key) in (None, ""):
            raise InputError(f"{where}: missing key '{key}'; allowed: {_KINDS[key]}")
    stage = row["stage"]
    if stage not in STAGES:
        raise InputError(f"{where}: stage: {shown(stage)} is not known; {one_of(stage, STAGES)}")
    start = _time(row, "start_s", where)
    end = None if open_end else _time(row, "end_s", where)
    if end is not None and end < start:
        raise InputError(
            f"{where}: end_s: {shown(row['end_s'])} is before start_s {shown(row['start_s'])}; "
            "allowed: the start or later"
        )
    numbers = {key: _number(row, key, where) for key in ("segment", "epoch")}
    return {"stage": stage, "start_s": start, "end_s": end, **numbers}


def _time(row: Row, key: str, where: str) -> float:
    seconds = finite_number(row[key])
    if seconds is None:
        raise _wrong(row, key, where)
    return seconds


def _number(row: Row, key: str, where: str) -> int | None:
    value = row.get(key)
    if value in (None, "") or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column of integers with empty cells is one of floats
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return value
    raise _wrong(row, key, where)


def _wrong(row: Row, key: str, where: str) -> InputError:
    return InputError(f"{where}: {key}: {shown(row[key])} is wrong; allowed: {_KINDS[key]}")


def _check_segments(rows: list[Row], places: list[str], segments: Collection[int] | None) -> None:
    if all(row["segment"] is None for row in rows):
        return
    for row, where in zip(rows, places, strict=True):
        if row["segment"] is None:
            raise InputError(
                f"{where}: missing key 'segment'; allowed: {_KINDS['segment']}, in every row or in "
                "none"
            )
        if segments is not None and row["segment"] not in segments:
            number = row["segment"]
            raise InputError(f"{where}: segment: {number}; {one_of(number, sorted(segments))}")
