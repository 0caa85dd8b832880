"""Hold values against a JSON schema, with human-readable messages."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError

PACKAGE = Path(__file__).resolve().parents[1]
INSTALLED = not (PACKAGE.parents[1] / "pyproject.toml").is_file()
"""Whether a wheel is installed, which has the files that links in `project` lead to; else a checkout."""
PROJECT_ROOT = PACKAGE / "project" if INSTALLED else PACKAGE.parents[1]
"""The folder of config.yaml, schemas, profiles, campaigns and reference."""
_SHOWN = 100
"""Letters of a wrong value in a message."""
_ALLOWED = {
    "minimum": "{} or more",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "minItems": "at least {} entries",
    "minProperties": "at least {} entries",
    "maxItems": "at most {} entries",
    "maxLength": "at most {} letters",
    "uniqueItems": "each entry once",
}
"""What a rule of a schema allows."""


@cache
def schema(name: str) -> dict[str, Any]:
    """The JSON schema `name` of workflow/schemas."""
    path = PROJECT_ROOT / "workflow" / "schemas" / f"{name}.schema.json"
    return json.loads(path.read_text(encoding="utf-8"))


def shipped(name: str) -> Path:
    """Path of a project's file or folder: in the working directory, else what came along."""
    # os.path: a name that no file can have is answered too.
    return Path(name) if os.path.exists(name) else PROJECT_ROOT / name


def project_path(path: Path) -> Path:
    """Name of a file in results: one that came along by its place in the project.

    Where a package is installed tells about a machine, and nothing about the file.
    """
    return path.relative_to(PROJECT_ROOT) if path.is_relative_to(PROJECT_ROOT) else path


def shown(value: Any) -> str:
    """A value in a message, cut to a length that can be read."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def nearest(word: object, allowed: Iterable[object]) -> str:
    """'; did you mean …?' or nothing."""
    close = difflib.get_close_matches(str(word), [str(a) for a in allowed], n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def one_of(word: object, allowed: Iterable[object]) -> str:
    """'allowed: a, b; did you mean 'a'?'"""
    names = [str(a) for a in allowed]
    return f"allowed: {', '.join(names) or 'nothing'}{nearest(word, names)}"


@cache
def _strict() -> Any:
    """The validator. JSON Schema takes 4.0 for an integer, which here is a mistake."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, v: type(v) is int)
    return extend(Draft202012Validator, type_checker=types)


def check(content: Any, part: dict[str, Any], where: str, root: dict[str, Any]) -> None:
    """Hold `content` against schema `part` of `root`; InputError names file, key and what is allowed."""
    from jsonschema.exceptions import best_match, relevance

    def key(error: Any) -> Any:  # an alternative is of another kind where a constant differs
        return (error.parent is not None and error.validator == "const", relevance(error))

    definitions = root.get("$defs", {})
    error = best_match(_strict()({**part, "$defs": definitions}).iter_errors(content), key)
    if error is not None:
        if error.parent is not None and "description" in error.parent.schema:
            error = error.parent  # of alternatives, all of which are described there
        keys = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.absolute_path)
        path = "".join(keys).removeprefix(".")
        raise InputError(f"{where}: {f'{path}: ' if path else ''}{_problem(error, definitions)}")


def _problem(error: Any, definitions: dict[str, Any]) -> str:
    """Text that says what is wrong with a value, and what is allowed in its stead."""
    rule, value = error.validator_value, shown(error.instance)
    match error.validator:
        case "additionalProperties":
            known = sorted(error.schema.get("properties", {}))
            unknown = next(key for key in error.instance if key not in known)
            return f"unknown key '{unknown}'; {one_of(unknown, known)}"
        case "required":
            missing = [key for key in rule if key not in error.instance]
            hints = [_expected(error.schema, key, definitions) for key in missing]
            if len(missing) > 1:
                hints = [f"{key}: {hint}" for key, hint in zip(missing, hints, strict=True)]
            return f"missing key {', '.join(map(repr, missing))}; expected: {'; '.join(hints)}"
        case "enum" | "const":
            allowed = rule if error.validator == "enum" else [rule]
            return f"{value} is not known; {one_of(error.instance, allowed)}"
        case "type":
            return f"{value} should be of type {rule}"
    allowed = _ALLOWED.get(error.validator, "").format(rule) or _description(error.schema) or rule
    return f"{value} does not fit; allowed: {allowed}"


def _expected(part: dict[str, Any], key: str, definitions: dict[str, Any]) -> str:
    """Description of a missing key, or its allowed values."""
    entry = part.get("properties", {}).get(key, {})
    if "$ref" in entry:
        entry = definitions[entry["$ref"].rpartition("/")[2]] | entry
    if "enum" in entry:
        return ", ".join(map(str, entry["enum"]))
    return (_description(entry) or str(entry.get("type", "see the schema"))).rstrip(".")


def _description(part: dict[str, Any]) -> str:
    """A schema's description as it reads within a sentence."""
    text = str(part.get("description", ""))
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def defaults(part: dict[str, Any]) -> dict[str, Any]:
    """Defaults of an object's schema by key."""
    entries = part.get("properties", {}).items()
    return {key: entry["default"] for key, entry in entries if "default" in entry}
