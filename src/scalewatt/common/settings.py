"""Settings as pydantic models: type, bound, default and sentence of a key stand in one line of code.

What pydantic refuses becomes one clause: where, what, and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import core_schema

from scalewatt.common.errors import InputError, one_of, shown

STRICT = ConfigDict(
    strict=True,
    extra="forbid",
    frozen=True,
    validate_by_name=True,
    validate_by_alias=True,
    allow_inf_nan=False,
    regex_engine="python-re",
    use_attribute_docstrings=True,
    defer_build=True,
)
"""No key that is not declared, no number for a text, no 4.0 for a whole number."""
_BOUNDS = {
    "greater_than_equal": "{ge:.15g} or more",
    "greater_than": "more than {gt:.15g}",
    "less_than_equal": "at most {le:.15g}",
    "less_than": "less than {lt:.15g}",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
    "string_too_long": "at most {max_length} letters",
}
"""What is allowed, by the type of pydantic's error."""
_UNKNOWN = ("extra_forbidden", "invalid_key", "unexpected_keyword_argument")


class Settings(BaseModel):
    """Base of all settings."""

    model_config = STRICT


def _as_written(value: Any, validate: Callable[[Any], Any]) -> Any:
    validate(value)
    return value


def _each_once(values: list[Any]) -> list[Any]:
    if any(values.count(value) > 1 for value in values):
        raise ValueError(f"{shown(values)} does not fit; allowed: each entry once")
    return values


@dataclass(frozen=True)
class Bounds:
    """Bounds of a number that stays as it is written: 4 is not made 4.0, nor is what is derived from it."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        """Schema of a number within these bounds."""
        bounds = {name: bound for name, bound in vars(self).items() if bound is not None}
        number = core_schema.float_schema(strict=True, allow_inf_nan=False, **bounds)
        return core_schema.no_info_wrap_validator_function(_as_written, number)


Number = Annotated[float, Bounds()]
EachOnce = AfterValidator(_each_once)
"""Of a list: no entry is given twice."""
Count = Annotated[int, Field(ge=1, le=10**12)]


def matching(pattern: str, words: str) -> Any:
    """Validator of texts that match a pattern, which is said in words."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{shown(text)} does not fit; allowed: {words}")
        return text

    return AfterValidator(check)


def validated(kind: Any, content: Any, where: str, key: str = "") -> Any:
    """Validate content as `kind`; InputError begins with `where` and names the key, below `key`."""
    try:
        return _adapter(kind).validate_python(content)
    except ValidationError as error:
        # A misspelt key explains a missing one; then the outermost counts.
        first = min(
            error.errors(),
            key=lambda e: (e["type"] in ("missing", "union_tag_not_found"), len(e["loc"])),
        )
        raise InputError(f"{where}: {_clause(kind, first, key)}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@cache
def json_schema(kind: Any) -> dict[str, Any]:
    """JSON schema of a kind of settings."""
    return _adapter(kind).json_schema()


def _clause(kind: Any, error: Any, above: str) -> str:
    """What is wrong and what is allowed, after the path to the key."""
    location, name = error["loc"], str(error["loc"][-1]) if error["loc"] else ""
    if error["type"] in (*_UNKNOWN, "missing"):
        location = location[:-1]
    keys, part = _located(json_schema(kind), location)
    path = above + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    problem = _problem(part, name, error)
    # What a validator says of a key below begins with that key.
    is_below = error["type"] == "value_error" and re.match(r"\w+(\.\w+)*: ", problem)
    return f"{path}{'.' if is_below else ': '}{problem}".lstrip(".").removeprefix(": ")


def _problem(part: dict[str, Any], name: str, error: Any) -> str:
    properties, value, problem = part.get("properties", {}), error["input"], error["type"]
    if problem == "value_error":
        return str(error["ctx"]["error"])
    if problem in _UNKNOWN:
        return f"unknown key '{name}'; {one_of(name, sorted(properties))}"
    if problem == "missing":
        return f"missing key '{name}'; expected: {_expected(properties.get(name, {}))}"
    if problem.startswith("union_tag"):
        key, tags = part["discriminator"]["propertyName"], list(part["discriminator"]["mapping"])
        if problem == "union_tag_not_found":
            return f"missing key '{key}'; expected: {', '.join(tags)}"
        return f"{key}: {shown(value[key])} is not known; {one_of(value[key], tags)}"
    if "enum" in part or "const" in part:
        allowed = one_of(value, part.get("enum", [part.get("const")]))
        return f"{shown(value)} is not known; {allowed}"
    if problem.endswith("_type") and "type" in part:
        return f"{shown(value)} should be of type {part['type']}"
    bound = _BOUNDS.get(problem)
    allowed = bound.format(**error["ctx"]) if bound else _expected(part)
    return f"{shown(value)} does not fit; allowed: {allowed}"


def _located(root: dict[str, Any], location: Iterable[str | int]) -> tuple[list[str | int], Any]:
    """Keys of a location that are in the content, and the schema of what is there.

    pydantic's locations also name the alternatives of a union, where the description says them all.
    """
    keys: list[str | int] = []
    part = _resolved(root, root)
    for key in location:
        inner = _inner(part, key)
        if inner is None:
            choices = (*part.get("oneOf", ()), *part.get("anyOf", ()))
            tagged = [c for c in (_resolved(root, c) for c in choices) if key in _tags(c)]
            if not tagged:
                break
            part = tagged[0]
            continue
        keys.append(key)
        part = _resolved(root, inner)
    return keys, part


def _tags(part: dict[str, Any]) -> tuple[Any, ...]:
    """Names by which pydantic tells an alternative of a union: of datasets the format, else the type."""
    return part.get("properties", {}).get("format", {}).get("const"), part.get("type")


def _inner(part: dict[str, Any], key: str | int) -> Any:
    """Schema of a key or an entry; None if the part has none."""
    if isinstance(key, int):
        return part.get("items") or (part.get("prefixItems") or {key: None})[key]
    named = part.get("additionalProperties")
    return part.get("properties", {}).get(key, named if isinstance(named, dict) else None)


def _resolved(root: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """A part with what it refers to; of a value that may be null, the value's."""
    if "$ref" in part:
        part = {**root["$defs"][part["$ref"].rpartition("/")[2]], **part}
    choices = [choice for choice in part.get("anyOf", ()) if choice.get("type") != "null"]
    if len(choices) == 1:
        part = {**_resolved(root, choices[0]), **{k: v for k, v in part.items() if k != "anyOf"}}
    return part


def _expected(part: dict[str, Any]) -> str:
    """Allowed values of a key, or its description, as it reads within a sentence."""
    if "enum" in part:
        return ", ".join(map(str, part["enum"]))
    text = " ".join(str(part.get("description") or part.get("type") or "another value").split())
    text = text.rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
