"""Stages of a run as events, written as they happen."""

from __future__ import annotations

import json
import time
from itertools import zip_longest
from pathlib import Path
from typing import Any

from scalewatt.common.untrusted_text import parse_json

STAGES = (
    "startup",
    "stage_data",
    "train",
    "evaluate_train",
    "validate",
    "checkpoint",
    "shutdown",
)
EVALUATIONS = ("validate", "evaluate_train")
"""In the order in which a training makes them."""


class EventLog:
    """Appends the stages of one segment to a JSON-lines file; a stage ends where the next begins.

    Without a path (ranks other than 0) it keeps nothing.
    """

    def __init__(self, path: Path | None, segment: int, started_s: float | None = None) -> None:
        self._file = open(path, "a", encoding="utf-8") if path else None  # noqa: SIM115
        if self._file and path and path.stat().st_size and path.read_bytes()[-1:] != b"\n":
            self._file.write("\n")  # a segment before died in the middle of a line
        self._segment = segment
        self.enter("startup", at_s=started_s)

    def enter(self, stage: str, epoch: int | None = None, at_s: float | None = None) -> None:
        """End the current stage and begin `stage`; times are Unix wall-clock seconds."""
        now = time.time() if at_s is None else at_s
        self._write({"segment": self._segment, "stage": stage, "epoch": epoch, "start_s": now})

    def end(self) -> None:
        """End the last stage."""
        now = time.time()
        self._write({"segment": self._segment, "stage": None, "epoch": None, "start_s": now})
        if self._file:
            self._file.close()
            self._file = None

    def _write(self, event: dict[str, Any]) -> None:
        if self._file:
            self._file.write(json.dumps(event) + "\n")
            self._file.flush()


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON-lines file, skipping torn lines; none where it does not exist."""
    return _json_lines(path.read_text(encoding="utf-8")) if path.exists() else []


def final_reports(path: Path) -> list[dict[str, Any]]:
    """Return a script's reports of epochs, in order, that belong to the attempt that came furthest.

    A segment that reports an epoch has trained from there anew: earlier segments' reports of it and of
    later ones do not count.
    """
    kept: dict[int, dict[str, Any]] = {}
    for report in read_json_lines(path):
        epoch, segment = report["epoch"], report["segment"]
        kept = {e: row for e, row in kept.items() if e < epoch or row["segment"] == segment}
        kept[epoch] = report
    return [kept[epoch] for epoch in sorted(kept)]


def _json_lines(text: str) -> list[dict[str, Any]]:
    rows = []
    for line in text.splitlines():
        try:
            rows.append(parse_json(line))
        except ValueError:
            continue
    return rows


def read_events(path: Path, segment_ends_s: dict[int, float]) -> list[dict[str, Any]]:
    """Return the stages of a run as rows (segment, stage, epoch, start_s, end_s), in order of time.

    A stage that was cut off ends where its segment's recording ends (`segment_ends_s`, by segment),
    or has no length where nothing was recorded. A torn last line is skipped.
    """
    marks = _json_lines(path.read_text(encoding="utf-8"))
    rows = []
    for mark, following in zip_longest(marks, marks[1:]):
        if mark["stage"] is None:
            continue
        if following is not None and following["segment"] == mark["segment"]:
            end = following["start_s"]
        else:
            end = segment_ends_s.get(mark["segment"], mark["start_s"])
        rows.append({**mark, "end_s": max(end, mark["start_s"])})
    return rows
