"""Text and JSON that people and other programs write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def printable(text: str) -> str:
    """Escape what would move a terminal's cursor or break its line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plain_text(path: Path | str) -> str:
    """Read the UTF-8 text of a file, without a byte order mark; OSError, or ValueError if it is none."""
    return Path(path).read_text(encoding="utf-8-sig")


def parse_json(text: str | bytes) -> Any:
    """Read a JSON text; ValueError if it is none, also for NaN and infinity."""
    text = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")
