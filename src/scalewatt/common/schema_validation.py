"""Hold values against a JSON schema, with human-readable messages."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator
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
"""Characters of a wrong value in a message."""
_CAPITAL = re.compile(r"[A-Z][a-z-]*(?=[\s,.:;]|$)")
"""A first word that has a capital as it begins a sentence, and no abbreviation."""
_PROPER = frozenset({"Slurm"})
"""First words of descriptions that keep their capital."""
_SCIENTIFIC = re.compile(r"([-+]?[0-9]+)(e[-+]?[0-9]+)", re.IGNORECASE)
"""A number for people, a text for YAML: without a point."""


@cache
def schema(name: str) -> dict[str, Any]:
    """Return the JSON schema `name` of workflow/schemas."""
    path = PROJECT_ROOT / "workflow" / "schemas" / f"{name}.schema.json"
    return json.loads(path.read_text(encoding="utf-8"))


def shipped(name: str) -> Path:
    """Return the path of a project's file or folder: the working directory's own, else what came along."""
    # os.path: a name that no file can have is answered too.
    return Path(name) if os.path.exists(name) else PROJECT_ROOT / name


def project_path(path: Path) -> Path:
    """Return what a file is called in results: one that came along by its place in the project.

    Where a package is installed tells about a machine, and nothing about the file.
    """
    return path.relative_to(PROJECT_ROOT) if path.is_relative_to(PROJECT_ROOT) else path


def shown(value: Any) -> str:
    """Return a value in a message, cut to a length that can be read."""
    try:
        text = json.dumps(value, default=str)
    except (RecursionError, ValueError):
        return "what is given"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def nearest(word: object, allowed: Iterable[object]) -> str:
    """'; did you mean …?' or nothing."""
    close = difflib.get_close_matches(str(word), [str(a) for a in allowed], n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def one_of(word: object, allowed: Iterable[object]) -> str:
    """'allowed: a, b; did you mean 'a'?'"""
    names = [str(a) for a in allowed]
    return f"allowed: {', '.join(names) or 'nothing'}{nearest(word, names)}"


def _is_integer(_checker: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_checker: Any, value: Any) -> bool:
    return _is_integer(_checker, value) or (isinstance(value, float) and math.isfinite(value))


def check(content: Any, part: dict[str, Any], where: str, root: dict[str, Any]) -> None:
    """Hold `content` against schema `part` of `root`; InputError names file, key and what is allowed."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    # JSON Schema takes 4.0 for an integer, and YAML knows numbers that are none.
    types = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_integer, "number": _is_number}
    )
    strict = extend(Draft202012Validator, type_checker=types)
    validator = strict({**part, "$defs": root.get("$defs", {})})
    try:
        errors = list(validator.iter_errors(content))
    except (RecursionError, ValueError) as error:  # Python shows no number of 4300 digits
        raise InputError(
            f"{where}: a value is nested too deeply or has too many digits; allowed: what "
            "the documents show"
        ) from error
    if errors:
        first = min(errors, key=lambda e: (len(e.path), str(list(e.path))))
        raise InputError(_message(first, where, root))


def _message(error: Any, where: str, root: dict[str, Any]) -> str:
    alternatives_of_objects = isinstance(error.instance, dict)
    if error.validator in ("oneOf", "anyOf") and error.context and alternatives_of_objects:
        deepest = _deepest(error)
        if deepest.path or deepest.validator not in ("type", "const", "enum"):
            error = deepest  # else none of the alternatives is an object
    key = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path)
    place = f"{where}: {key.lstrip('.')}" if key else where
    value = shown(error.instance)
    rule = error.validator_value
    match error.validator:
        case "additionalProperties":
            allowed = sorted(error.schema.get("properties", {}))
            unknown = next(k for k in error.instance if k not in allowed)
            return f"{place}: unknown key '{unknown}'; {one_of(unknown, allowed)}"
        case "required":
            missing = [k for k in rule if k not in error.instance]
            hints = [_allowed(error.schema, key, root) for key in missing]
            if len(missing) > 1:
                hints = [f"{key}: {hint}" for key, hint in zip(missing, hints, strict=True)]
            named = ", ".join(repr(key) for key in missing)
            return f"{place}: missing key {named}; expected: {'; '.join(hints)}"
        case "enum" | "const":
            allowed = rule if error.validator == "enum" else [rule]
            return f"{place}: {value} is not known; {one_of(error.instance, allowed)}"
        case "type":
            return f"{place}: {value} should be of type {rule}{_written(error.instance, rule)}"
        case "minimum":
            return f"{place}: {value} is too small; allowed: {rule} or more"
        case "exclusiveMinimum":
            return f"{place}: {value} is too small; allowed: more than {rule}"
        case "maximum":
            return f"{place}: {value} is too large; allowed: at most {rule}"
        case "exclusiveMaximum":
            return f"{place}: {value} is too large; allowed: less than {rule}"
        case "uniqueItems":
            twice = next(one for n, one in enumerate(error.instance) if one in error.instance[:n])
            return f"{place}: {shown(twice)} stands there twice; allowed: once"
        case "maxItems" | "maxProperties":
            return f"{place}: has {len(error.instance)} entries; allowed: at most {rule}"
        case "maxLength":
            return f"{place}: has {len(error.instance)} letters; allowed: at most {rule}"
        case "anyOf":
            return (
                f"{place}: {value} does not fit; allowed: {_description(error.schema, str(rule))}"
            )
        case "pattern":
            hint = _description(error.schema, f"the pattern {rule}")
            return f"{place}: {value} does not fit; allowed: {hint}"
        case _:
            hint = _description(error.schema, "")
            said = error.message if len(error.message) <= 2 * _SHOWN else f"{value} does not fit"
            return f"{place}: {said}{f'; allowed: {hint}' if hint else ''}"


def _written(value: Any, rule: Any) -> str:
    """Return how a number is written that YAML took for a text, or nothing."""
    found = _SCIENTIFIC.fullmatch(value) if isinstance(value, str) else None
    wanted = {"number", "integer"} & ({rule} if isinstance(rule, str) else set(rule))
    return f"; to YAML it is a text: write {found[1]}.0{found[2]}" if found and wanted else ""


def _allowed(part: dict[str, Any], key: str, root: dict[str, Any]) -> str:
    """Return what may stand at a missing key; where a condition requires it, by its definition."""
    definitions = root.get("$defs", {})
    places = (place.get("properties", {}) for place in (part, root, *definitions.values()))
    entry: dict[str, Any] = next((place[key] for place in places if key in place), {})
    if "$ref" in entry:
        entry = definitions[entry["$ref"].rpartition("/")[2]] | entry
    if "enum" in entry:
        return ", ".join(map(str, entry["enum"]))
    kind = entry.get("type", "see the schema")
    kind = kind if isinstance(kind, str) else " or ".join(kind)
    return _description(entry, kind).rstrip(".")


def _description(part: dict[str, Any], otherwise: str) -> str:
    """Return a schema's description as it reads within a sentence."""
    text = str(part.get("description", otherwise))
    found = _CAPITAL.match(text)
    return text[0].lower() + text[1:] if found and found[0] not in _PROPER else text


def _deepest(error: Any) -> Any:
    """Return the most telling of the alternatives' errors: that of the one that fits best."""
    alternatives: dict[int, list[Any]] = {}
    for sub in error.context:
        alternatives.setdefault(sub.schema_path[0], []).append(sub)

    def misfit(errors: list[Any]) -> tuple[bool, int]:
        return (any(e.validator == "const" and e.path for e in errors), len(errors))

    return min(alternatives.values(), key=misfit)[0]


def defaults(part: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the keys of an object's schema that have a default, with it."""
    for key, entry in part.get("properties", {}).items():
        if "default" in entry:
            yield key, entry["default"]
