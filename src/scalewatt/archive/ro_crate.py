"""ro-crate-metadata.json: what an archive is, in the terms of RO-Crate 1.1 and schema.org.

Specification: https://w3id.org/ro/crate/1.1. It follows from the content alone: no date of writing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

Node = dict[str, Any]
METADATA = "ro-crate-metadata.json"
CONFORMS_TO = "https://w3id.org/ro/crate/1.1"
CONTEXT = (f"{CONFORMS_TO}/context", {"sha256": "http://schema.org/sha256"})
"""RO-Crate's terms, and the one of schema.org that they lack."""
PAPER = "https://arxiv.org/abs/2508.07706"
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
_NO_LICENSE = {
    "@id": "#no-license",
    "@type": "CreativeWork",
    "name": "No licence was given",
    "description": "The authors of the archive gave no licence: ask before you use it.",
}


@dataclass(frozen=True)
class Description:
    """Title, authors and licence of an archive."""

    name: str
    description: str
    date_published: str
    """ISO 8601, a day."""
    license: str | None = None
    """A URL, or a short name of SPDX."""
    authors: tuple[str, ...] = ()


def metadata(sha256: Mapping[str, str], sizes: Mapping[str, int], about: Description) -> bytes:
    """Content of the file, for an archive of files with these hashes and sizes in bytes."""
    files = [
        {
            "@id": quote(path),
            "@type": "File",
            "name": PurePosixPath(path).name,
            "encodingFormat": _TYPES.get(PurePosixPath(path).suffix, "text/plain"),
            "contentSize": str(sizes[path]),
            "sha256": digest,
        }
        for path, digest in sha256.items()
    ]
    license_ = _license(about.license)
    root: Node = {
        "@id": "./",
        "@type": "Dataset",
        "name": about.name,
        "description": about.description,
        "datePublished": about.date_published,
        "license": _to(license_),
        "citation": {"@id": PAPER},
        "hasPart": [_to(file) for file in files],
    }
    people = {name: _person(name) for name in (*about.authors, *_AUTHORS)}
    if about.authors:
        authors = [_to(people[name]) for name in about.authors]
        root["author"] = authors if len(authors) > 1 else authors[0]
    described = {
        "@id": METADATA,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": CONFORMS_TO},
    }
    paper = {
        "@id": PAPER,
        "@type": "ScholarlyArticle",
        "name": "Energy Consumption in Parallel Neural Network Training",
        "author": [_to(people[name]) for name in _AUTHORS],
        "datePublished": "2025",
        "identifier": "arXiv:2508.07706",
    }
    graph = [described, root, *files, license_, *people.values(), paper]
    content = {"@context": list(CONTEXT), "@graph": graph}
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def _to(node: Node) -> Node:
    """Reference to an entity."""
    return {"@id": node["@id"]}


def _license(given: str | None) -> Node:
    if given is None:
        return _NO_LICENSE
    id_ = given if "://" in given else f"https://spdx.org/licenses/{quote(given)}"
    return {"@id": id_, "@type": "CreativeWork", "name": given}


def _person(name: str) -> Node:
    return {"@id": "#" + quote(name.replace(" ", "-")), "@type": "Person", "name": name}
