"""Tables of stages, whoever wrote them: Parquet, CSV, or the marks of a training itself."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.common.errors import InputError, nearest, one_of, shown
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
    "stage": ", ".join(STAGES),
    "epoch": "an epoch's number, from 0, or nothing",
    "start_s": "a time in unix seconds",
    "end_s": "a time in unix seconds",
}
_TIMES, _NUMBERS = ["start_s", "end_s"], ["segment", "epoch"]
_MOST = 2**31 - 1


def read_stages(
    path: Path, *, segments: Collection[int] | None = None, own: bool = False
) -> pa.Table:
    """Read a table of stages as STAGES_SCHEMA has them (unix s), in the order of the file.

    A Parquet or CSV file, or a training's own events.jsonl. `segment` is null, for any, if no row
    states it; `segments`, where given, are the ones that may be stated. Only a run's `own` table may be
    empty, and may have stages that never ended (`end_s` null). InputError names file, row, key and what
    is allowed.
    """
    rows = _rows(path)
    if unknown := [key for key in rows if key not in _ALLOWED]:
        raise InputError(f"{path}: unknown key {shown(unknown[0])}; {one_of(unknown[0], _ALLOWED)}")
    if rows.empty and not own:
        raise InputError(f"{path}: has no row; expected one for each stage")
    may_be_missing = {"segment", "epoch"} | ({"end_s"} if own and "end_s" in rows else set())
    rows = rows.reindex(columns=[*_ALLOWED])
    given = rows.notna() & (rows != "")
    if given["segment"].any():
        may_be_missing.remove("segment")
    numbers = rows[_TIMES + _NUMBERS].apply(pd.to_numeric, errors="coerce").astype("float64")
    counts = numbers[_NUMBERS].apply(lambda n: n.between(0, _MOST) & (n % 1 == 0))
    valid = {"stage": rows["stage"].isin(STAGES)}
    valid |= {key: np.isfinite(numbers[key]) for key in _TIMES}
    valid |= {key: counts[key] for key in _NUMBERS}
    for key in ("stage", *_TIMES, *_NUMBERS):
        missing = ~given[key] & (key not in may_be_missing)
        _refuse(path, rows, missing | (given[key] & ~valid[key]), key, f"allowed: {_ALLOWED[key]}")
    is_negative = numbers["end_s"] < numbers["start_s"]
    _refuse(path, rows, is_negative, "end_s", "expected a time after start_s")
    if segments is not None:
        recorded = f"recorded: {', '.join(map(str, sorted(segments)))}"
        unknown_segment = given["segment"] & ~numbers["segment"].isin([*segments])
        _refuse(path, rows, unknown_segment, "segment", recorded)
    arrays = [
        pa.array(numbers.get(field.name, rows[field.name]), field.type, from_pandas=True)
        for field in STAGES_SCHEMA
    ]
    return pa.table(arrays, schema=STAGES_SCHEMA)


def _refuse(path: Path, rows: pd.DataFrame, bad: pd.Series[bool], key: str, hint: str) -> None:
    """Raise an InputError that names the first of some bad rows, if there is one."""
    if bad.any():
        value = rows[key][bad].iloc[0]
        is_missing = value is None or value != value or value == ""
        problem = f"missing key '{key}'" if is_missing else f"{key}: {shown(value)} does not fit"
        near = nearest(value, STAGES) if key == "stage" else ""
        raise InputError(f"{path}: {rows.index[bad][0]}: {problem}; {hint}{near}")


def _rows(path: Path) -> pd.DataFrame:
    """Cells of a table as they stand, by names of the rows."""
    suffix = path.suffix.lower()
    if suffix not in (".parquet", ".csv", ".jsonl"):
        raise InputError(f"{path}: not a table of stages; allowed: .parquet, .csv, .jsonl")
    try:
        if suffix == ".csv":
            rows = pd.read_csv(
                path,
                dtype=str,
                keep_default_na=False,
                skipinitialspace=True,
                skip_blank_lines=False,
            )
            rows.index = [f"line {i}" for i in range(2, len(rows) + 2)]
            return rows[(rows != "").any(axis=1)]
        if suffix == ".parquet":
            table = pq.read_table(path, page_checksum_verification=True)
            rows = pd.DataFrame(table.to_pylist(), columns=table.column_names, dtype=object)
        else:
            rows = pd.DataFrame(stages_between(read_json_lines(path), {}), dtype=object)
    except (OSError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InputError(f"{path}: {reason}; expected {', '.join(_ALLOWED)}") from error
    return rows.set_axis([f"row {i}" for i in range(len(rows))])
