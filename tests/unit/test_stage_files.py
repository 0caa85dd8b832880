"""Tables of stages: every format means the same, and whatever is wrong is refused in one line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalewatt.common.errors import InputError
from scalewatt.recordings.stage_log import EventLog
from scalewatt.recordings.stages import EVENTS_SCHEMA, read_stages

ROWS: list[dict[str, Any]] = [
    {"segment": 0, "stage": "startup", "epoch": None, "start_s": 10.0, "end_s": 12.5},
    {"segment": 0, "stage": "train", "epoch": 0, "start_s": 12.5, "end_s": 20.0},
    {"segment": 1, "stage": "validate", "epoch": 0, "start_s": 30.0, "end_s": 31.0},
]
PLACES = {".parquet": "row 1", ".csv": "line 3"}
"""Formats, and how a message names the second row."""


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows in the format that the suffix names."""
    columns = {key: None for row in rows for key in row}
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([columns | row for row in rows]), path)
    else:
        with open(path, "w", newline="") as handle:
            writer = csv.writer(handle)
            writer.writerow(columns)
            writer.writerows([_cell((columns | row)[key]) for key in columns] for row in rows)
    return path


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def refusal(path: Path, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_stages(path, **more)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message and len(message) < 600
    return message


@pytest.mark.parametrize("suffix", PLACES)
def test_every_format_says_the_same(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"stages{suffix}"
    table = read_stages(write(path, ROWS))
    assert table.schema == EVENTS_SCHEMA and table.to_pylist() == ROWS
    least = [{key: row[key] for key in ("stage", "start_s", "end_s")} for row in ROWS]
    table = read_stages(write(path, least), segments=[7])
    assert table["segment"].to_pylist() == table["epoch"].to_pylist() == [None] * 3
    assert table["stage"].to_pylist() == [row["stage"] for row in ROWS]


TORN = '{"segment": 0, "sta'


@pytest.mark.parametrize("torn", ["", TORN])
def test_a_trainings_own_marks_are_stages(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path, 0, started_s=10.0)
    log.enter("train", epoch=0, at_s=12.5)
    log.end()
    path.write_text(path.read_text() + torn)
    first, second = read_stages(path).to_pylist()
    assert first == ROWS[0] and second["end_s"] > 12.5
    assert (second["stage"], second["epoch"], second["start_s"]) == ("train", 0, 12.5)


# --- what is wrong ----------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"stage": "training"}, 'stage: "training" is not known; allowed: startup'),
    ({"stage": "unattributed"}, 'stage: "unattributed" is not known'),
    ({"stage": None}, "missing key 'stage'"),
    ({"end_s": None}, "missing key 'end_s'"),
    ({"start_s": "2026-11-18T12:00:00"}, 'start_s: "2026-11-18T12:00:00" does not fit'),
    ({"end_s": float("inf")}, "should be a finite number"),
    ({"end_s": 12.0}, "end_s: 12.0; expected a time after start_s"),
    ({"epoch": -1}, "should be greater than or equal to 0"),
    ({"epoch": 1.5}, "should be a valid integer"),
    ({"segment": 2**31}, "should be less than 2147483648"),
    ({"segment": None}, "missing key 'segment'"),
    ({"begin_s": 1.0}, "unknown key 'begin_s'; did you mean"),
]


@pytest.mark.parametrize("suffix", PLACES)
@pytest.mark.parametrize(("change", "words"), WRONG, ids=[str(change) for change, _ in WRONG])
def test_a_wrong_row_is_refused_by_row_key_and_value(
    tmp_path: Path, suffix: str, change: dict[str, Any], words: str
) -> None:
    if suffix == ".parquet" and isinstance(change.get("start_s"), str):
        pytest.skip("a column of Parquet has one type")
    rows = [ROWS[0], {**ROWS[1], **change}, ROWS[2]]
    message = refusal(write(tmp_path / f"stages{suffix}", rows))
    assert f"{PLACES[suffix]}: " in message and words in message


def test_a_stage_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "stages.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path, compression="none", use_dictionary=False)
    path.write_bytes(path.read_bytes().replace(b"validate", b"\xf3alidate"))
    assert "no readable table of stages" in refusal(path)
