"""Write every key of campaign and cluster files and of descriptions of tables into docs/keys.

    python .ci/site/keys.py

Tables are made from the settings. Run it after a change of one; tests/unit/test_docs.py holds the pages
against them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_file import CampaignFile
from scalewatt.campaign.cluster import Cluster
from scalewatt.campaign.model_registry import MODELS, Command, ModelSettings
from scalewatt.common.settings import json_schema
from scalewatt.recordings.tables import TableDescription

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {kind: DOCS / "keys" / f"{kind}.md" for kind in ("campaign", "cluster", "columns")}
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true` or `false`",
    "null": "`null`",
    "object": "keys",
}
_SIGNS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}

Schema = dict[str, Any]


def sections(kind: str) -> list[tuple[list[str], Schema]]:
    """Objects of the file `kind` with the places where they stand, in the file's order."""
    if kind == "columns":
        return list(_objects(json_schema(TableDescription)))
    sections = list(_objects(json_schema(Cluster if kind == "cluster" else CampaignFile)))
    if kind == "campaign":
        models = {f"models.{key}": settings for key, settings in MODELS.items()}
        models["models.<model of your own>"] = ModelSettings
        models["models.<name> with workload: command"] = Command
        sections += [([place], json_schema(settings)) for place, settings in models.items()]
    return sections


def _objects(root: Schema) -> Iterator[tuple[list[str], Schema]]:
    """Yield the root and every definition with keys that it leads to, each once."""
    places: dict[str, list[str]] = {}

    def visit(part: Schema, place: str) -> None:
        for name, entry in part.get("properties", {}).items():
            for inner, suffix in _inner(entry):
                path = ".".join(filter(None, (place, name + suffix)))
                if "$ref" in inner:
                    definition = inner["$ref"].rpartition("/")[2]
                    places.setdefault(definition, []).append(path)
                    if len(places[definition]) == 1:
                        visit(root["$defs"][definition], path)

    yield [""], root
    visit(root, "")
    for definition, where in places.items():
        yield where, root["$defs"][definition]


def _inner(entry: Schema) -> Iterator[tuple[Schema, str]]:
    """Yield the schemas of a value, its entries and its named values, with what each adds to the path."""
    yield entry, ""
    for choice in (*entry.get("anyOf", ()), *entry.get("oneOf", ())):
        yield from _inner(choice)
    for key, suffix in (("items", "[]"), ("additionalProperties", ".<name>")):
        if isinstance(entry.get(key), dict):
            yield from ((inner, suffix + rest) for inner, rest in _inner(entry[key]))


# --- a key ------------------------------------------------------------------------------------------


def rows(part: Schema, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield path, allowed values, default ('' if none, needed) and description of each key of an object."""
    for name, entry in part.get("properties", {}).items():
        default = f"`{_plain(entry['default'])}`" if "default" in entry else ""
        if default == "`null`":
            default = ""
        if name in part.get("required", ()):
            default = "needed"
        description = " ".join(entry.get("description", "").split()).rstrip(".")
        if not description and default != "needed":  # a section says all of it
            continue
        yield f"{prefix}{name}", _allowed(entry), default, description
        yield from rows(entry, f"{prefix}{name}.")
        yield from rows(entry.get("items", {}), f"{prefix}{name}[].")
        if isinstance(entry.get("additionalProperties"), dict):
            yield from rows(entry["additionalProperties"], f"{prefix}{name}.<name>.")


def _allowed(entry: Schema) -> str:
    """What a key takes, as text."""
    choices = entry.get("anyOf") or entry.get("oneOf")
    if choices:
        words = [_allowed(choice) for choice in choices if choice != {"type": "null"}]
        return " or ".join(dict.fromkeys(words))
    if "enum" in entry:
        return ", ".join(f"`{_plain(value)}`" for value in entry["enum"])
    if "const" in entry:
        return f"`{_plain(entry['const'])}`"
    types = entry.get("type", "object")
    return " or ".join(
        _of_type(word, entry) for word in ([types] if isinstance(types, str) else types)
    )


def _of_type(word: str, entry: Schema) -> str:
    if word == "array":
        least, most = entry.get("minItems", 0), entry.get("maxItems")
        count = f"{least} × " if most is not None and least == most else ""
        return f"list of {count}{_allowed(entry.get('items', {}))}"
    named = entry.get("additionalProperties")
    if word == "object" and isinstance(named, dict):
        return f"name: {_allowed(named)}"
    if word not in ("integer", "number"):
        return _TYPES[word]
    bounds = [f"{sign} {_plain(entry[name])}" for name, sign in _SIGNS.items() if name in entry]
    return " ".join([_TYPES[word], ", ".join(bounds)]).rstrip()


def _plain(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value)


# --- Markdown ---------------------------------------------------------------------------------------


def keys_text(kind: str) -> str:
    """Markdown of all keys of `kind`, between its markers, with a line end."""
    parts = [_section_text(places, part) for places, part in sections(kind)]
    return "\n\n".join([_begin(kind), *filter(None, parts), _end(kind)]) + "\n"


def written(kind: str, text: str) -> str:
    """A page with the keys of `kind` between its markers."""
    before, _, rest = text.partition(_begin(kind))
    _, _, after = rest.partition(_end(kind) + "\n")
    return before + keys_text(kind) + after


def _begin(kind: str) -> str:
    return f"<!-- keys: {kind} (made by `python .ci/site/keys.py`) -->"


def _end(kind: str) -> str:
    return f"<!-- end of keys: {kind} -->"


def _section_text(paths: list[str], part: Schema) -> str:
    lines = [f"| `{path}` | " + " | ".join(map(_cell, cells)) + " |" for path, *cells in rows(part)]
    if not lines:
        return ""
    head = ", ".join(f"`{place}`" for place in paths if place) or "Top level"
    if "const" in (kind := part["properties"].get("format", {})):
        head += f" with format: {kind['const']}"
    table = ["| key | takes | default | what it is |", "| --- | --- | --- | --- |", *lines]
    text = [f"### {head}", _prose(" ".join(part.get("description", "").split())), "\n".join(table)]
    return "\n\n".join(filter(None, text))


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|") or "–"


def _prose(text: str) -> str:
    """Text as Markdown: escaped outside code, with documents as links."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([<*])", r"\\\1", part) for part in parts[::2]]
    return re.sub(r"docs/([\w/-]+\.md)", r"[\1](../\1)", "`".join(parts))


if __name__ == "__main__":
    for kind, page in PAGES.items():
        page.write_text(written(kind, page.read_text(encoding="utf-8")), encoding="utf-8")
