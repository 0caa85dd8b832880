"""What a script of a run marks, and how a process is that has not been asked to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scalewatt import events
from scalewatt.common.termination import StopRequest
from scalewatt.recordings.stage_log import read_json_lines


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new process is: not asked to stop."""
    monkeypatch.setattr(events, "_stop", StopRequest())


def history(folder: Path) -> list[dict[str, Any]]:
    """The last report of each epoch."""
    rows = read_json_lines(folder / events.HISTORY_FILE)
    return list({row["epoch"]: row for row in rows}.values())


def stages(folder: Path) -> list[tuple[str, int | None]]:
    return [(m["stage"], m["epoch"]) for m in read_json_lines(folder / events.EVENTS_FILE)]
