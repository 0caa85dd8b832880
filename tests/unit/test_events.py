"""Stages as they happen: what is written, and what is read back after whatever happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from scalewatt.recordings import stage_log
from scalewatt.recordings.stage_log import EventLog, read_json_lines, stages_between

EPOCH = ("train", "validate", "checkpoint")


class Clock:
    """A wall clock that goes on by one second whenever it is read."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_log, "time", Clock())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def train(path: Path, segment: int, epochs: int = 1, end: bool = True) -> None:
    log = EventLog(path, segment, started_s=1000.0 * (segment + 1))
    for epoch in range(epochs):
        for stage in EPOCH:
            log.enter(stage, epoch)
    if end:
        log.enter("shutdown")
        log.end()


def whole(segment: int, epochs: int = 1) -> list[tuple[int, str, int | None]]:
    """Stages of a segment that ended."""
    stages = [(segment, stage, epoch) for epoch in range(epochs) for stage in EPOCH]
    return [(segment, "startup", None), *stages, (segment, "shutdown", None)]


def stages(path: Path, **ends: float) -> list[tuple[int, str, int | None]]:
    rows = stages_between(
        read_json_lines(path), {int(name[1:]): end_s for name, end_s in ends.items()}
    )
    return [(row["segment"], row["stage"], row["epoch"]) for row in rows]


def test_a_stage_ends_where_the_next_begins(path: Path) -> None:
    train(path, 0, epochs=2)
    assert stages(path) == whole(0, epochs=2)
    rows = stages_between(read_json_lines(path), {})
    assert [row["start_s"] for row in rows] == [1000.0 + i for i in range(8)]
    assert [row["end_s"] for row in rows] == [1001.0 + i for i in range(8)]


def test_a_stage_that_was_cut_off_ends_where_its_segments_recording_ends(path: Path) -> None:
    train(path, 0, end=False)
    train(path, 1)
    assert stages(path) == [*whole(0)[:-1], *whole(1)]
    cut = stages_between(read_json_lines(path), {0: 1100.0, 1: 9999.0})[3]
    assert (cut["segment"], cut["stage"], cut["end_s"]) == (0, "checkpoint", 1100.0)
