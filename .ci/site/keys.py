"""Write every key of campaign and cluster files and of descriptions of tables into their pages.

    python .ci/site/keys.py

Tables are made from the JSON schemas. Run it after a change of one; tests/unit/test_keys.py holds the pages
against them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scalewatt.common.schema_validation import schema

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {kind: DOCS / f"your-{kind}.md" for kind in ("campaign", "cluster")} | {
    "columns": DOCS / "recordings.md"
}
UNREFERENCED = {
    "common": "models.<model of your own>",
    "command": "models.<name> with workload: command",
}
"""Definitions that `models` takes besides those it names, with the place where they stand."""
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true` or `false`",
    "null": "`null`",
    "object": "keys",
}
_SIGNS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


@dataclass(frozen=True)
class Key:
    """One key: its path within its section, what it takes, its default ('' if none), what it is."""

    path: str
    allowed: str
    default: str
    description: str


@dataclass(frozen=True)
class Section:
    """The keys of an object, and the places in the file where such an object stands."""

    places: tuple[str, ...]
    description: str
    keys: tuple[Key, ...]


def keys_text(kind: str) -> str:
    """Return the Markdown of all keys of `kind`, between its markers, with a line end."""
    parts = [_section_text(section) for section in _merged(sections(kind))]
    return "\n\n".join([_begin(kind), *parts, _end(kind)]) + "\n"


def written(kind: str, text: str) -> str:
    """Return a page with the keys of `kind` between its markers."""
    before, _, rest = text.partition(_begin(kind))
    _, _, after = rest.partition(_end(kind) + "\n")
    return before + keys_text(kind) + after


def _begin(kind: str) -> str:
    return f"<!-- keys: {kind} (made by `python .ci/site/keys.py`) -->"


def _end(kind: str) -> str:
    return f"<!-- end of keys: {kind} -->"


# --- sections of a schema -----------------------------------------------------------------------


def sections(kind: str) -> list[Section]:
    """Return the sections of the file `kind`: its top level, then what it refers to, in its order."""
    root = schema(kind)
    found: list[Section] = []

    def add(part: dict[str, Any], place: str) -> None:
        referred: list[tuple[dict[str, Any], str]] = []
        keys = tuple(_keys(root, part, place, "", referred))
        found.append(Section((place,), part.get("description", ""), keys))
        for inner in referred:
            add(*inner)

    add(root, "")
    if kind == "campaign":
        for name, place in UNREFERENCED.items():
            add(root["$defs"][name], place)
    order = ["", *root["properties"]]
    return sorted(found, key=lambda section: order.index(section.places[0].partition(".")[0]))


def _keys(
    root: dict[str, Any],
    part: dict[str, Any],
    place: str,
    prefix: str,
    referred: list[tuple[dict[str, Any], str]],
) -> Iterator[Key]:
    """Yield the keys of an object, and of lists, objects and named objects within it.

    Definitions, with their places, are added to `referred`.
    """
    for name, entry in part.get("properties", {}).items():
        path = f"{prefix}{name}"
        where = f"{place}.{path}" if place else path
        if "$ref" in entry:
            referred.append((_definition(root, entry), where))
            continue
        default = f"`{_plain(entry['default'])}`" if "default" in entry else ""
        needed = "needed" if name in part.get("required", ()) else default
        yield Key(path, _allowed(entry), needed, entry.get("description", "").rstrip("."))
        yield from _keys(root, entry, place, f"{path}.", referred)
        yield from _keys(root, entry.get("items", {}), place, f"{path}[].", referred)
        named = entry.get("additionalProperties")
        for choice in named.get("oneOf", [named]) if isinstance(named, dict) else ():
            if "$ref" not in choice:
                yield from _keys(root, choice, place, f"{path}.<name>.", referred)
                continue
            definition = _definition(root, choice)
            constant = definition.get("properties", {}).get("format", {}).get("const")
            of = f" with format: {constant}" if constant else ""
            referred.append((definition, f"{where}.<name>{of}"))


def _definition(root: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    return root["$defs"][entry["$ref"].removeprefix("#/$defs/")]


# --- a key --------------------------------------------------------------------------------------


def _allowed(entry: dict[str, Any]) -> str:
    """Return what a key takes, as text."""
    if "anyOf" in entry:
        return " or ".join(_allowed(one) for one in entry["anyOf"])
    if "enum" in entry:
        return ", ".join(f"`{_plain(value)}`" for value in entry["enum"])
    if "const" in entry:
        return f"`{_plain(entry['const'])}`"
    types = entry.get("type", "string")
    words = [types] if isinstance(types, str) else types
    return " or ".join(_of_type(word, entry) for word in words)


def _of_type(word: str, entry: dict[str, Any]) -> str:
    if word == "array":
        least, most = entry.get("minItems", 0), entry.get("maxItems")
        count = f"{least} × " if most is not None and least == most else ""
        return f"list of {count}{_allowed(entry.get('items', {}))}"
    named = entry.get("additionalProperties")
    if word == "object" and isinstance(named, dict) and "type" in named:
        return f"name: {_allowed(named)}"
    if word not in ("integer", "number"):
        return _TYPES[word]
    bounds = [f"{sign} {_plain(entry[name])}" for name, sign in _SIGNS.items() if name in entry]
    return " ".join([_TYPES[word], ", ".join(bounds)]).rstrip()


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# --- Markdown -----------------------------------------------------------------------------------


def _merged(found: list[Section]) -> list[Section]:
    """Merge sections that differ only in places and defaults; unequal defaults name their place."""
    groups: dict[Any, list[Section]] = {}
    for section in found:
        shape = tuple(replace(key, default="") for key in section.keys)
        groups.setdefault(shape, []).append(section)
    return [_one(group) for group in groups.values()]


def _one(group: list[Section]) -> Section:
    places = tuple(place for section in group for place in section.places)
    keys = []
    for alike in zip(*(section.keys for section in group), strict=True):
        defaults = [key.default for key in alike]
        if len(set(defaults)) == 1:
            keys.append(alike[0])
            continue
        last = [section.places[0].rpartition(".")[2] for section in group]
        text = ", ".join(f"{d} ({p})" for d, p in zip(defaults, last, strict=True))
        keys.append(replace(alike[0], default=text))
    descriptions = {section.description for section in group}
    return Section(places, descriptions.pop() if len(descriptions) == 1 else "", tuple(keys))


def _section_text(section: Section) -> str:
    head = ", ".join(f"`{place}`" for place in section.places if place) or "Top level"
    rows = [
        f"| `{key.path}` | {_cell(key.allowed)} | {_cell(key.default)} | {_cell(key.description)} |"
        for key in section.keys
    ]
    table = ["| key | takes | default | what it is |", "| --- | --- | --- | --- |", *rows]
    return "\n\n".join(
        part for part in (f"### {head}", _prose(section.description), "\n".join(table)) if part
    )


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|") or "–"


def _prose(text: str) -> str:
    """Return text of a schema as Markdown: escaped outside code, with documents as links."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([<*])", r"\\\1", part) for part in parts[::2]]
    return re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", "`".join(parts))


if __name__ == "__main__":
    for kind, page in PAGES.items():
        page.write_text(written(kind, page.read_text(encoding="utf-8")), encoding="utf-8")
