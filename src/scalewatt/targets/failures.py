"""What is printed last of a job that failed: the end of its log, and where the rest is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_LAST = 5
"""Lines of a log that are shown."""


def failure_lines(job: str, logs: Sequence[str]) -> list[str]:
    """Lines that name a failed job, the last ones of its log, and the log's path."""
    lines = [f"scalewatt: failed: {job}"]
    for log in logs:
        path = Path(log)
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        last = [line for line in text.splitlines() if line.strip()][-_LAST:]
        lines += [*(f"  {line}" for line in last), f"  log: {log}"]
    return lines
