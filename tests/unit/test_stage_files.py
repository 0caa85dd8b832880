"""Tables of stages: every format means the same, and whatever is wrong is refused in one line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from scalewatt.common.errors import InputError
from scalewatt.recordings.stage_log import EventLog
from scalewatt.recordings.stages import STAGES_SCHEMA, read_stages

ROWS: list[dict[str, Any]] = [
    {"segment": 0, "stage": "startup", "epoch": None, "start_s": 10.0, "end_s": 12.5},
    {"segment": 0, "stage": "train", "epoch": 0, "start_s": 12.5, "end_s": 20.0},
    {"segment": 1, "stage": "validate", "epoch": 0, "start_s": 30.0, "end_s": 31.0},
]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows in the format that the suffix names."""
    columns = {key: None for row in rows for key in row}
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([columns | row for row in rows]), path)
    elif path.suffix == ".csv":
        with open(path, "w", newline="") as handle:
            writer = csv.writer(handle)
            writer.writerow(columns)
            writer.writerows([_cell((columns | row)[key]) for key in columns] for row in rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def refusal(path: Path, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_stages(path, **more)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message and len(message) < 600
    return message


SUFFIXES = [".parquet", ".csv", ".json", ".jsonl"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_says_the_same(tmp_path: Path, suffix: str) -> None:
    table = read_stages(write(tmp_path / f"stages{suffix}", ROWS))
    assert table.schema == STAGES_SCHEMA and table.to_pylist() == ROWS


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_segments_and_epochs_may_be_left_out(tmp_path: Path, suffix: str) -> None:
    rows = [{k: row[k] for k in ("stage", "start_s", "end_s")} for row in ROWS]
    table = read_stages(write(tmp_path / f"stages{suffix}", rows), segments=[7])
    assert table["segment"].to_pylist() == table["epoch"].to_pylist() == [None] * 3
    assert table["stage"].to_pylist() == [row["stage"] for row in ROWS]


@pytest.mark.parametrize("torn", ["", '{"segment": 0, "sta'])
def test_a_trainings_own_marks_are_stages(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path, 0, started_s=10.0)
    log.enter("train", epoch=0, at_s=12.5)
    log.end()
    path.write_text(path.read_text() + torn)
    first, second = read_stages(path).to_pylist()
    assert first == ROWS[0]
    assert (second["stage"], second["epoch"], second["start_s"]) == ("train", 0, 12.5)
    assert second["end_s"] > 12.5


# --- what is wrong ----------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"stage": "training"}, ["stage", '"training"', "allowed: startup", "did you mean 'train'"]),
    ({"stage": "unattributed"}, ["stage", "allowed: startup"]),
    ({"stage": None}, ["missing key 'stage'"]),
    ({"start_s": None}, ["missing key 'start_s'", "unix seconds"]),
    ({"end_s": None}, ["missing key 'end_s'", "unix seconds"]),
    ({"start_s": "2026-11-18T12:00:00"}, ["start_s: ", "2026-11-18T12:00:00", "unix seconds"]),
    ({"end_s": "2026-11-18"}, ["end_s: ", "2026-11-18", "unix seconds"]),
    ({"start_s": float("nan")}, ["start_s", "unix seconds"]),
    ({"end_s": float("inf")}, ["end_s: ", "Infinity", "unix seconds"]),
    ({"end_s": 12.0}, ["end_s: ", "12.0", "is before start_s"]),
    ({"epoch": 99999999999}, ["epoch: ", "99999999999", "from 0"]),
    ({"epoch": -1}, ["epoch: ", "-1", "from 0"]),
    ({"epoch": 1.5}, ["epoch: ", "1.5", "from 0"]),
    ({"segment": 2**31}, ["segment: ", "2147483648", "from 0"]),
    ({"segment": None}, ["missing key 'segment'"]),
    ({"begin_s": 1.0}, ['unknown key "begin_s"', "did you mean"]),
]  # fmt: skip


WRONG_FILES = [
    (suffix, change, parts)
    for suffix in SUFFIXES
    for change, parts in WRONG
    if suffix != ".parquet" or not {"2026-11-18T12:00:00", "2026-11-18"} & set(change.values())
]  # a column of Parquet has one type
PLACES = {".parquet": "row 1", ".csv": "line 3", ".json": "row 1", ".jsonl": "line 2"}


@pytest.mark.parametrize(
    ("suffix", "change", "parts"), WRONG_FILES, ids=lambda one: str(one).partition(", ")[0]
)
def test_a_wrong_row_is_refused_by_row_key_and_value(
    tmp_path: Path, suffix: str, change: dict[str, Any], parts: list[str]
) -> None:
    rows = [ROWS[0], {**ROWS[1], **change}, ROWS[2]]
    message = refusal(write(tmp_path / f"stages{suffix}", rows))
    assert all(part in message for part in parts), message
    # A key of which nobody knows is wrong in a table's first row.
    assert PLACES[suffix] in message or "unknown key" in message


@pytest.mark.parametrize("own", [True, False])
def test_only_a_runs_own_stages_may_be_none_or_never_end(tmp_path: Path, own: bool) -> None:
    path = tmp_path / "events.parquet"
    cases: list[tuple[list[dict[str, Any]], str]] = [
        ([], "has no row"),
        ([{**ROWS[0], "end_s": None}], "row 0: missing key 'end_s'"),
    ]
    for rows, reason in cases:
        pq.write_table(pa.Table.from_pylist(rows, schema=STAGES_SCHEMA), path)
        if own:
            assert read_stages(path, own=True).to_pylist() == rows
        else:
            assert reason in refusal(path)
    pq.write_table(pa.table({"stage": ["train"], "start_s": [1.0]}), path)
    assert "missing key 'end_s'" in refusal(path, own=own)


def marks(*stages: tuple[int, str | None]) -> list[str]:
    return [
        json.dumps({"segment": n, "stage": stage, "epoch": None, "start_s": 100.0 + i})
        for i, (n, stage) in enumerate(stages)
    ]


TORN = '{"segment": 0, "sta'


def test_a_torn_mark_is_left_out_where_a_segment_may_have_died_writing_it(tmp_path: Path) -> None:
    first, second = marks((0, "startup"), (0, "train")), marks((1, "startup"), (1, None))
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join([*first, TORN, *second, TORN]))
    assert [row["stage"] for row in read_stages(path).to_pylist()] == [
        "startup",
        "train",
        "startup",
    ]
