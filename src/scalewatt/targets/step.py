"""A light step of the workflow, as the scripts of workflow/scripts/ run it, and what a failed one prints."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.redaction import without_logins

_LAST = 5
"""Lines of a log that are shown."""


@contextmanager
def logged(snakemake: Any) -> Iterator[Path]:
    """Write what a rule's script prints to its log, and give the script the path of its first output.

    An input error is a single line of the log, and ends the step.
    """
    path = snakemake.log[0]
    with open(path, "w", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        try:
            yield Path(snakemake.output[0])
        except InputError as error:
            print(f"scalewatt: error: {without_logins(str(error))}", file=log)
            raise SystemExit(1) from None
        except Exception:
            traceback.print_exc(file=log)
            raise SystemExit(1) from None


def failure_lines(job: str, logs: Sequence[str]) -> list[str]:
    """Name a failed job, the last lines of its log, and the log's path."""
    lines = [f"scalewatt: failed: {job}"]
    for log in logs:
        path = Path(log)
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        last = [line for line in text.splitlines() if line.strip()][-_LAST:]
        lines += [*(f"  {line}" for line in last), f"  log: {log}"]
    return lines
