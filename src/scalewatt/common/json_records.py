"""Small notes as JSON files of flat dataclasses, which somebody else may be about to replace.

The notes of a run are named by its key.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

Note = TypeVar("Note")
_TYPES: dict[str, Any] = {"int": int, "float": (int, float), "str": str}


def read_content(path: Path) -> Any:
    """Return what a JSON file holds; None where it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def read_note(path: Path, kind: type[Note]) -> Note | None:
    """Return the note of a dataclass `kind`; None where it is missing, damaged or has other types.

    Fields of `kind` are int, float or str, or one of these and None. Further keys are ignored.
    """
    found = read_content(path)
    if not isinstance(found, dict):
        return None
    declared: Any = kind
    given: dict[str, Any] = {}
    for one in fields(declared):
        if one.name in found and _fits(found[one.name], str(one.type)):
            given[one.name] = found[one.name]
        elif one.name in found or one.default is MISSING:
            return None
    return kind(**given)


def _fits(value: Any, kind: str) -> bool:
    if value is None:
        return "None" in kind
    if isinstance(value, bool):
        return False
    return isinstance(value, _TYPES[kind.split(" ")[0]])
