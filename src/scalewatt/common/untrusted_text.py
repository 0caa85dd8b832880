"""Text and JSON that people and other programs write: read whole, or refused with a plain reason."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def printable(text: str) -> str:
    """Return a text with everything escaped that would move a terminal's cursor or break its line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plain_text(path: Path | str) -> str:
    """Return the UTF-8 text of a file, without a byte order mark.

    OSError as `open` raises it; ValueError, whose message is the reason, for what is no UTF-8.
    """
    return _decoded(Path(path).read_bytes())


def unreadable(path: Path | str) -> str | None:
    """Return why a file cannot be read, such as "does not exist"; None where it can be."""
    if os.path.isdir(path):
        return "is a folder"
    try:
        with open(path, "rb"):
            return None
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    except (OSError, ValueError) as error:
        return f"cannot be read ({getattr(error, 'strerror', None) or error})"


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; ValueError, whose message is the reason, for any that is none.

    Beyond JSON's own rules it refuses what breaks later, far from its file: a key given twice, and NaN
    and infinity.
    """
    text = _decoded(text) if isinstance(text, bytes) else text.removeprefix("\ufeff")
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _decoded(content: bytes) -> str:
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is given twice")
    return content


_DECODER = json.JSONDecoder(parse_constant=_constant, object_pairs_hook=_object)
