"""ro-crate-metadata.json: what an archive is, in the terms of RO-Crate 1.1 and schema.org.

Specification: https://w3id.org/ro/crate/1.1. It follows from the content alone: no date of writing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from scalewatt.reproduction.manifests import MANIFEST, Entry

Node = dict[str, Any]
METADATA = "ro-crate-metadata.json"
CONFORMS_TO = "https://w3id.org/ro/crate/1.1"
CONTEXT = (f"{CONFORMS_TO}/context", {"sha256": "http://schema.org/sha256"})
"""RO-Crate's terms, and the one of schema.org that they lack."""
PAPER = "https://arxiv.org/abs/2508.07706"
NO_LICENSE = "#no-license"
_TYPES = {
    ".parquet": "application/vnd.apache.parquet",
    ".json": "application/json",
    ".csv": "text/csv",
    ".md": "text/markdown",
    ".tex": "text/x-tex",
    ".yaml": "application/yaml",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".pdf": "application/pdf",
}
_AUTHORS = (
    *("Philipp Huber", "David Li", "Juan Pedro Gutiérrez Hermosillo Muriedas"),
    *("Deifilia Kieckhefen", "Markus Götz", "Achim Streit", "Charlotte Debus"),
)


@dataclass(frozen=True)
class Description:
    """Describe an archive: title, authors, licence and source."""

    name: str
    description: str
    date_published: str
    """ISO 8601, a day."""
    license: str | None = None
    """A URL, or a short name of SPDX."""
    authors: tuple[str, ...] = ()
    descriptions: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of single files and folders, by path."""


def to(id_: str) -> Node:
    """Return a reference to the entity of this id."""
    return {"@id": id_}


def metadata(files: Mapping[str, Entry], description: Description) -> bytes:
    """Return the file's content, of an archive of these files (itself and the manifest left out)."""
    root: Node = {
        "@id": "./",
        "@type": "Dataset",
        "name": description.name,
        "description": description.description,
        "datePublished": description.date_published,
        "license": to(_license_id(description.license)),
        "citation": to(PAPER),
        "hasPart": [],
    }
    if description.authors:
        root["author"] = [to(_person_id(name)) for name in description.authors]
    people = (*description.authors, *_AUTHORS)
    graph = [
        {
            "@id": METADATA,
            "@type": "CreativeWork",
            "about": to("./"),
            "conformsTo": to(CONFORMS_TO),
        },
        root,
        *_parts(files, description, root),
        _license(description.license),
        *(
            {"@id": _person_id(name), "@type": "Person", "name": name}
            for name in dict.fromkeys(people)
        ),
        _paper(),
    ]
    content = {"@context": list(CONTEXT), "@graph": [_plain(node) for node in graph]}
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def _plain(node: Node) -> Node:
    """Return a node whose lists of one are that one, as RO-Crate 1.1 recommends."""
    return {
        key: value[0] if isinstance(value, list) and len(value) == 1 else value
        for key, value in node.items()
    }


def _parts(files: Mapping[str, Entry], description: Description, root: Node) -> list[Node]:
    """Return files and their top folders; each is part of its folder, and those of the archive."""
    found: list[Node] = []
    folders: dict[str, Node] = {}
    for path, entry in sorted({**files, MANIFEST: None}.items()):
        place = PurePosixPath(path)
        one: Node = {
            "@id": quote(path),
            "@type": "File",
            "name": place.name,
            "encodingFormat": _TYPES.get(place.suffix, "application/octet-stream"),
        }
        if entry is not None:
            one |= {"contentSize": str(entry.bytes), "sha256": entry.sha256}
        if path in description.descriptions:
            one["description"] = description.descriptions[path]
        found.append(one)
        folder = _folder(path)
        if folder is not None and folder not in folders:
            folders[folder] = {
                "@id": quote(folder),
                "@type": "Dataset",
                "name": folder.rstrip("/"),
                "description": description.descriptions.get(folder, "Files of the archive"),
                "hasPart": [],
            }
            root["hasPart"].append(to(quote(folder)))
        whole = root if folder is None else folders[folder]
        whole["hasPart"].append(to(one["@id"]))
    return [*folders.values(), *found]


def _folder(path: str) -> str | None:
    """Return campaigns/, or results/<name>/<kind>/; None of what lies above."""
    parts = path.split("/")
    if len(parts) == 1:
        return None
    return "/".join(parts[: min(3, len(parts) - 1)]) + "/"


def _license_id(given: str | None) -> str:
    if given is None:
        return NO_LICENSE
    return given if "://" in given else f"https://spdx.org/licenses/{quote(given)}"


def _license(given: str | None) -> Node:
    node = {"@id": _license_id(given), "@type": "CreativeWork", "name": given}
    if given:
        return node
    why = "The authors of the archive gave no licence: ask before you use it."
    return {**node, "name": "No licence was given", "description": why}


def _person_id(name: str) -> str:
    """Return the id of a person, which follows from the name."""
    return "#" + quote(name.replace(" ", "-"))


def _paper() -> Node:
    return {
        "@id": PAPER,
        "@type": "ScholarlyArticle",
        "name": "Energy Consumption in Parallel Neural Network Training",
        "author": [to(_person_id(name)) for name in _AUTHORS],
        "datePublished": "2025",
        "identifier": "arXiv:2508.07706",
    }
