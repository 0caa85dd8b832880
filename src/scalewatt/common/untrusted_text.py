"""Read text and JSON that anybody may have written: bounded, and with a plain reason where it is refused."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

MOST_BYTES = 256 << 20
"""Of a file of text."""
MOST_DIGITS = 40
"""Of a whole number. No count has so many, and numbers of hundreds of digits fit no float."""
MOST_DEPTH = 64
"""Of arrays and objects in each other; what is written here has less than ten."""
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""What may be half a character, which no file and no terminal takes."""


def printable(text: str) -> str:
    """Return a text with everything escaped that would move a terminal's cursor or break its line.

    Names in foreign files and paths may hold such characters, and halves of characters too.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plain_text(path: Path | str, most: int = MOST_BYTES) -> str:
    """Return the UTF-8 text of a plain file of at most `most` bytes, without a byte order mark.

    OSError as `open` raises it. ValueError, whose message is the reason, for a pipe or a device, which
    would be waited for or never end, for larger files, and for what is no UTF-8.
    """
    with _plain_file(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most} bytes")
    return _decoded(content)


def plain_tail(path: Path | str, most: int) -> str:
    """Return the last `most` bytes of a plain file as text; what is no UTF-8 in it is replaced.

    OSError and ValueError as `plain_text`, but of a long file.
    """
    with _plain_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        return file.read(most).decode(errors="replace")


def unreadable(path: Path | str) -> str | None:
    """Return why a plain file cannot be read, such as "does not exist"; None where it can be."""
    if os.path.isdir(path):
        return "is a folder"
    try:
        with _plain_file(path):
            return None
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return f"cannot be read ({reason})"


@contextmanager
def _plain_file(path: Path | str) -> Iterator[BinaryIO]:
    # Opening a pipe would wait for its writer.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no plain file")
        yield file


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; ValueError, whose message is the reason, for any that is none.

    Beyond JSON's own rules it refuses what breaks later, far from its file: a key given twice, NaN and
    infinity, whole numbers of more than MOST_DIGITS digits, others beyond a float's range, halves of
    characters, and arrays and objects deeper than MOST_DEPTH.
    """
    text = _decoded(text) if isinstance(text, bytes) else text.removeprefix("\ufeff")
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_depth(value)
    if _HALF.search(text):
        _check_characters(value)
    return value


def _decoded(content: bytes) -> str:
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > MOST_DIGITS:
        raise ValueError(f"a whole number has {len(text)} digits; allowed: at most {MOST_DIGITS}")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:30]} is beyond the largest number")
    return value


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:60]!r} stands there twice")
    return found


_DECODER = json.JSONDecoder(
    parse_int=_integer, parse_float=_float, parse_constant=_constant, object_pairs_hook=_object
)


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        if depth > MOST_DEPTH:
            raise ValueError("it is nested too deeply")
        level = [part for one in level for part in (one.values() if isinstance(one, dict) else one)]


def _check_characters(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it has half a character (an escape \\ud800 to \\udfff alone)") from None
