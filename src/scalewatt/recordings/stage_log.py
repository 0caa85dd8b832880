"""Stages of a run as events, written as they happen. Imports nothing but the standard library."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

STAGES = (
    *("startup", "stage_data", "train", "evaluate_train", "validate"),
    *("checkpoint", "shutdown"),
)
EVALUATIONS = ("validate", "evaluate_train")
"""In the order in which a training makes them."""
Row = dict[str, Any]


class EventLog:
    """Appends the stages of one segment to a JSON-lines file; a stage ends where the next begins.

    Without a path (ranks other than 0) it keeps nothing.
    """

    def __init__(self, path: Path | None, segment: int, started_s: float | None = None) -> None:
        self._path, self._segment = path, segment
        self.enter("startup", at_s=started_s)

    def end(self) -> None:
        """End the last stage."""
        self.enter(None)

    def enter(self, stage: str | None, epoch: int | None = None, at_s: float | None = None) -> None:
        """End the current stage and begin `stage`; times are Unix wall-clock seconds."""
        now = time.time() if at_s is None else at_s
        mark = {"segment": self._segment, "stage": stage, "epoch": epoch, "start_s": now}
        if self._path:
            append_line(self._path, mark)


def append_line(path: Path, row: Row) -> None:
    """Append an object in one call where the system takes it whole: a kill leaves no half of a line.

    Half a line that is there already, of a process that died or a disk that was full, is ended first.
    """
    with open(path, "a+b") as file:
        if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
            file.write(b"\n")
        file.write(json.dumps(row).encode() + b"\n")


def read_json_lines(path: Path) -> list[Row]:
    """Objects of a JSON-lines file without torn lines; none where it does not exist."""
    rows = []
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        with suppress(TypeError, ValueError):
            rows.append(dict(json.loads(line)))
    return rows


def final_reports(path: Path) -> list[Row]:
    """Reports of epochs by a script, in order, that belong to the attempt that came furthest.

    A segment that reports an epoch has trained from there anew: earlier segments' reports of it and of
    later ones do not count.
    """
    kept: dict[int, Row] = {}
    for report in read_json_lines(path):
        epoch, segment = report["epoch"], report["segment"]
        kept = {e: row for e, row in kept.items() if e < epoch or row["segment"] == segment}
        kept[epoch] = report
    return [kept[epoch] for epoch in sorted(kept)]


def stages_between(marks: Sequence[Row], segment_ends_s: dict[int, float]) -> list[Row]:
    """Stages of a run as rows (segment, stage, epoch, start_s, end_s), in order of time, from its marks.

    A stage that was cut off ends where its segment's recording ends (`segment_ends_s`, by segment),
    or has no length where nothing was recorded.
    """
    rows = []
    for mark, following in zip_longest(marks, marks[1:]):
        if mark["stage"] is None:
            continue
        end = segment_ends_s.get(mark["segment"], mark["start_s"])
        if following is not None and following["segment"] == mark["segment"]:
            end = following["start_s"]
        rows.append({**mark, "end_s": max(end, mark["start_s"])})
    return rows
