"""The last lines of a log that anybody may have written, fit to be shown."""

from __future__ import annotations

import re
from pathlib import Path

from scalewatt.common.redaction import lines_with_keys
from scalewatt.common.untrusted_text import plain_tail, printable

LINES = 15
_BYTES = 1 << 15
_WIDTH = 500
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""What tells a terminal a colour, or to clear a line."""
_HIDDEN = "(a line with a key or password)"


def last_lines(log: Path, lines: int = LINES) -> list[str]:
    """Return the last lines of a log that are not empty; of one that cannot be read, the reason.

    Of a progress bar the last state is shown. Colours are left out, other control characters are escaped,
    and lines with a part of a key of a known form are not shown.
    """
    try:
        text = plain_tail(log, _BYTES)
        if log.stat().st_size > _BYTES:
            text = _from_next_line(text)
    except (OSError, ValueError) as error:
        return [f"(cannot be read: {getattr(error, 'strerror', None) or error})"]
    rows = _COLOUR.sub("", text).replace("\r\n", "\n").split("\n")
    shown = [row.rstrip("\r").rpartition("\r")[2].replace("\t", "    ") for row in rows]
    secret = lines_with_keys("\n".join(shown))
    safe = [_HIDDEN if n in secret else _cut(printable(row)) for n, row in enumerate(shown, 1)]
    return [row for row in safe if row.strip()][-lines:]


def _from_next_line(text: str) -> str:
    """Return a text from its second line on: what is left of a key whose begin is cut off looks like none."""
    return "".join(re.split(r"[\r\n]", text, maxsplit=1)[1:])


def _cut(row: str) -> str:
    return row if len(row) <= _WIDTH else f"{row[: _WIDTH - 1]}…"
