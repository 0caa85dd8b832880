"""Tables of stages, whoever wrote them: Parquet, CSV, or the marks of a training itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from scalewatt.common.columns import schema
from scalewatt.common.errors import InputError
from scalewatt.common.files import csv_rows
from scalewatt.common.settings import validated
from scalewatt.recordings.stage_log import STAGES, read_json_lines, stages_between

EVENTS_SCHEMA = schema("events")
"""Columns of a table of stages, such as a published run's `events.parquet`; times in Unix seconds."""
Number = Annotated[int, Field(ge=0, lt=2**31)]


@with_config(ConfigDict(extra="forbid", allow_inf_nan=False))
class Stage(TypedDict):
    """A row of a table of stages; texts of numbers count as these."""

    segment: NotRequired[Number]
    stage: Literal[*STAGES]  # type: ignore[valid-type]
    epoch: NotRequired[Number]
    start_s: float
    end_s: NotRequired[float]


def read_stages(
    path: Path, *, segments: Collection[int] | None = None, unended: bool = False
) -> pa.Table:
    """Read a table of stages as EVENTS_SCHEMA has them (unix s), in the order of the file.

    A Parquet or CSV file, or a training's own events.jsonl. `segment` is null, for any, if no row
    states it; `segments`, where given, are the ones that may be stated. With `unended`, as of a run's
    own events, stages may never have ended (`end_s` null), and there may be none. InputError names
    file, row and key.
    """
    rows = {where: validated(Stage, row, where) for where, row in _rows(path).items()}
    if not rows and not unended:
        raise InputError(f"{path}: has no row; expected one for each stage")
    needed = {"segment"} if any("segment" in row for row in rows.values()) else set()
    needed |= set() if unended else {"end_s"}
    for where, row in rows.items():
        if missing := sorted(needed - row.keys()):
            raise InputError(f"{where}: missing key '{missing[0]}'")
        if row.get("end_s", row["start_s"]) < row["start_s"]:
            raise InputError(f"{where}: end_s: {row['end_s']}; expected a time after start_s")
        if segments is not None and "segment" in row and row["segment"] not in segments:
            recorded = ", ".join(map(str, sorted(segments)))
            raise InputError(f"{where}: segment: {row['segment']}; recorded: {recorded}")
    return pa.Table.from_pylist([*rows.values()], schema=EVENTS_SCHEMA)


def _rows(path: Path) -> dict[str, Mapping[str, Any]]:
    """Rows of a table, without empty cells, by their names in messages."""
    suffix = path.suffix.lower()
    if suffix == ".csv":
        rows = {f"line {line}": row for line, row in csv_rows(path).items()}
    elif suffix in (".parquet", ".jsonl"):
        try:
            is_table = suffix == ".parquet"
            marks = [] if is_table else read_json_lines(path)  # of a training itself
            read = pq.read_table(path).to_pylist() if is_table else stages_between(marks, {})
        except (OSError, LookupError, TypeError, UnicodeError, pa.ArrowException) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{path}: is no readable table of stages ({reason})") from error
        rows = {f"row {number}": row for number, row in enumerate(read)}
    else:
        raise InputError(f"{path}: not a table of stages; allowed: .parquet, .csv, .jsonl")
    return {
        f"{path}: {name}": {
            key: cell for key, cell in row.items() if cell is not None and cell != ""
        }
        for name, row in rows.items()
    }
