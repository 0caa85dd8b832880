"""Stages as they happen: what is written, and what is read back after whatever happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scalewatt.recordings import stage_log as events
from scalewatt.recordings.stage_log import EventLog, read_events


class Clock:
    """A wall clock that goes on by one second whenever it is read."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "time", Clock())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def train(path: Path, segment: int, epochs: int, end: bool = True) -> EventLog:
    log = EventLog(path, segment, started_s=1000.0 * (segment + 1))
    for epoch in range(epochs):
        log.enter("train", epoch)
        log.enter("validate", epoch)
        log.enter("checkpoint", epoch)
    if end:
        log.enter("shutdown")
        log.end()
    return log


def stages(rows: list[dict[str, Any]]) -> list[tuple[int, str, int | None]]:
    return [(row["segment"], row["stage"], row["epoch"]) for row in rows]


def test_a_stage_ends_where_the_next_begins(path: Path) -> None:
    train(path, 0, 2)
    rows = read_events(path, {})
    assert stages(rows) == [
        (0, "startup", None),
        (0, "train", 0), (0, "validate", 0), (0, "checkpoint", 0),
        (0, "train", 1), (0, "validate", 1), (0, "checkpoint", 1),
        (0, "shutdown", None),
    ]  # fmt: skip
    assert [row["start_s"] for row in rows] == [1000.0 + i for i in range(8)]
    assert [row["end_s"] for row in rows] == [1001.0 + i for i in range(8)]


def test_startup_begins_when_the_process_did(path: Path) -> None:
    EventLog(path, 0, started_s=990.0).enter("train", 0)
    first = read_events(path, {})[0]
    assert (first["stage"], first["start_s"], first["end_s"]) == ("startup", 990.0, 1001.0)


def test_a_stage_that_was_cut_off_ends_where_its_segments_recording_ends(path: Path) -> None:
    train(path, 0, 1, end=False)
    rows = read_events(path, {0: 1234.5})
    assert rows[-1]["stage"] == "checkpoint"
    assert rows[-1]["end_s"] == 1234.5
    assert all(row["end_s"] <= row["start_s"] + 1 for row in rows[:-1])


def test_a_cut_stage_does_not_reach_into_the_next_segment(path: Path) -> None:
    train(path, 0, 1, end=False)
    train(path, 1, 1)
    rows = read_events(path, {0: 1100.0, 1: 9999.0})
    cut = next(row for row in rows if (row["segment"], row["stage"]) == (0, "checkpoint"))
    assert cut["end_s"] == 1100.0
    assert rows[rows.index(cut) + 1]["stage"] == "startup"


def test_a_torn_last_line_is_passed_over(path: Path) -> None:
    train(path, 0, 1, end=False)
    text = path.read_text()
    whole = read_events(path, {0: 2000.0})
    for length in range(1, len(text.splitlines()[-1])):
        path.write_text(text[: -length - 1])
        found = read_events(path, {0: 2000.0})
        assert stages(found) == stages(whole[:-1])
        assert found[-1]["end_s"] == 2000.0


def test_a_segment_after_a_torn_line_keeps_its_first_stage(path: Path) -> None:
    train(path, 0, 1, end=False)
    path.write_text(path.read_text()[:-20])  # the machine died while this was written
    train(path, 1, 1)
    found = stages(read_events(path, {0: 1100.0}))
    assert found[-5:] == [
        (1, "startup", None), (1, "train", 0), (1, "validate", 0), (1, "checkpoint", 0),
        (1, "shutdown", None),
    ]  # fmt: skip


def test_segments_follow_each_other_in_one_file(path: Path) -> None:
    for segment in (0, 1, 2):
        train(path, segment, 1)
    rows = read_events(path, {})
    assert [row["segment"] for row in rows] == [0] * 5 + [1] * 5 + [2] * 5
