"""Lines of MLPerf's logging format, as results and power logs of MLPerf Training have them.

A line holds `:::MLLOG` and a JSON object {"time_ms", "event_type", "key", "value", "metadata"}; before
it may stand a rank (`0: `), and other lines may stand between. Times are unix milliseconds.
Format: github.com/mlcommons/logging, mlperf_logging/mllog.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import parse_json
from scalewatt.recordings.formats.text_columns import read_text
from scalewatt.recordings.series import LATEST_S, finite_number

MARK = ":::MLLOG"


@dataclass(frozen=True)
class LogLine:
    """One event."""

    time_s: float
    key: str
    value: Any
    metadata: dict[str, Any]


@dataclass(frozen=True)
class MlperfLog:
    """The events of one log, in the order of the file."""

    lines: tuple[LogLine, ...]
    damaged: int
    """Lines with the mark that hold no event, but for a torn last one."""
    torn: bool
    """True if the file ends within a line."""

    def of(self, key: str) -> list[LogLine]:
        """Return the events of one key."""
        return [line for line in self.lines if line.key == key]

    def first(self, key: str) -> LogLine | None:
        """Return the first event of a key, which ranks may log several times; None without one."""
        return next((line for line in self.lines if line.key == key), None)


def read_mlperf_log(path: Path) -> MlperfLog:
    """Read a log. Raises InputError if it cannot be read, is too long, or holds no event."""
    text = read_text(path)
    lines: list[LogLine] = []
    damaged = 0
    last_is_bad = False
    for event in _events(text):
        last_is_bad = event is None
        if event is None:
            damaged += 1
        else:
            lines.append(event)
    torn = last_is_bad and not text.endswith("\n")
    if not lines:
        raise InputError(f"{path}: holds no event of MLPerf's log; expected lines with {MARK}")
    return MlperfLog(tuple(lines), damaged - torn, torn)


def _events(text: str) -> Iterator[LogLine | None]:
    """Yield the event of each line with the mark; None for one that holds none."""
    for line in text.splitlines():
        _, mark, body = line.partition(MARK)
        if mark:
            yield _event(body)


def _event(body: str) -> LogLine | None:
    try:
        content = parse_json(body.strip())
    except ValueError:
        return None
    if not isinstance(content, dict) or not isinstance(content.get("key"), str):
        return None
    time_ms = finite_number(content.get("time_ms"))
    if time_ms is None or not 0 < time_ms < LATEST_S * 1e3:
        return None
    metadata = content.get("metadata")
    return LogLine(
        time_ms / 1e3,
        content["key"],
        content.get("value"),
        metadata if isinstance(metadata, dict) else {},
    )
