"""Settings as pydantic models: type, bound, default and sentence of a key stand in one line of code.

What pydantic refuses becomes one clause: where, what, and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import core_schema

from scalewatt.common.errors import InputError, nearest, one_of, shown

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


class Bounds:
    """Bounds (ge, gt, le, lt) of a number that stays as it is written: 4 is not made 4.0."""

    def __init__(self, **bounds: Any) -> None:
        self.bounds = bounds

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        """Schema of a number within these bounds."""
        number = core_schema.float_schema(strict=True, allow_inf_nan=False, **self.bounds)
        return core_schema.no_info_wrap_validator_function(_as_written, number)


Number = Annotated[float, Bounds()]
EachOnce = AfterValidator(_each_once)
"""Of a list: no entry is given twice."""
Count = Annotated[int, Field(ge=1, le=10**12)]


def matching(pattern: str, words: str) -> Any:
    """Validator of what matches a pattern as text; `words` say which."""

    def check(value: Any) -> Any:
        if not re.fullmatch(pattern, str(value)):
            raise ValueError(f"{shown(value)} does not fit; allowed: {words}")
        return value

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
        raise InputError(f"{where}: {_clause(kind, content, first, key)}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@cache
def json_schema(kind: Any) -> dict[str, Any]:
    """JSON schema of a kind of settings."""
    return _adapter(kind).json_schema()


def _clause(kind: Any, content: Any, error: Any, above: str) -> str:
    """The path to the key, and what is wrong there.

    Of the path only the keys that are in the content: pydantic also names alternatives of a union.
    """
    path = above
    for key in error["loc"][:-1] if error["type"] in _UNKNOWN else error["loc"]:
        with suppress(LookupError, TypeError):
            content = content[key]
            path += f"[{key}]" if isinstance(key, int) else f".{key}"
    problem = _problem(kind, error)
    # What a validator says of a key below begins with that key.
    is_below = error["type"] == "value_error" and re.match(r"\w+(\.\w+)*: ", problem)
    return f"{path}{'.' if is_below else ': '}{problem}".lstrip(".").removeprefix(": ")


def _problem(kind: Any, error: Any) -> str:
    """Name the problem, and what is allowed if that is a list of words."""
    value, problem, context = error["input"], error["type"], error.get("ctx", {})
    name = str(error["loc"][-1]) if error["loc"] else ""
    if problem == "value_error":
        return str(context["error"])
    if problem in _UNKNOWN:
        return f"unknown key '{name}'{nearest(name, {*_names(kind)} - {*error['loc']})}"
    if problem == "missing":
        return f"missing key '{name}'"
    if problem == "union_tag_not_found":
        return f"missing key {context['discriminator']}"
    if words := context.get("expected_tags") or context.get("expected"):
        word = context.get("tag", value)
        allowed = re.findall(r"'([^']+)'", words) or re.findall(r"\d+", words)
        return f"{shown(word)} is not known; {one_of(word, allowed)}"
    message = error["msg"]
    return f"{shown(value)} does not fit: {message[:1].lower()}{message[1:]}"


@cache
def _names(kind: Any) -> list[str]:
    """All keys of a kind of settings, at any depth."""
    root = json_schema(kind)
    parts = (root, *root.get("$defs", {}).values())
    return sorted({name for part in parts for name in part.get("properties", {})})
