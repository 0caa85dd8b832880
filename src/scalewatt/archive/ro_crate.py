"""ro-crate-metadata.json: what an archive is, in the terms of RO-Crate 1.1 and schema.org.

Specification: https://w3id.org/ro/crate/1.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from scalewatt.archive.bag import Packed

Node = dict[str, Any]
METADATA = "ro-crate-metadata.json"
CONFORMS_TO = "https://w3id.org/ro/crate/1.1"
CONTEXT = [f"{CONFORMS_TO}/context", {"sha256": "https://schema.org/sha256"}]
"""The terms of RO-Crate 1.1, and one of schema.org that these lack."""
PAPER = "https://arxiv.org/abs/2508.07706"
PAPERS_AUTHORS = (
    *("Philipp Huber", "David Li", "Juan Pedro Gutiérrez Hermosillo Muriedas"),
    *("Deifilia Kieckhefen", "Markus Götz", "Achim Streit", "Charlotte Debus"),
)


def metadata(
    files: Mapping[str, Packed],
    name: str,
    description: str,
    day: str,
    license_: str | None = None,
    authors: Sequence[str] = (),
) -> bytes:
    """Content of the file for an archive of these files.

    `day`: when it was published, by ISO 8601; `license_`: a URL, or a short name of SPDX.
    """
    parts = [
        {
            "@id": quote(path),
            "@type": "File",
            "name": PurePosixPath(path).name,
            "contentSize": str(file.size),
            "sha256": file.sha256,
        }
        for path, file in sorted(files.items())
    ]
    terms = {"@id": "#no-license", "name": "No licence was given: ask before you use it"}
    if license_ is not None:
        url = license_ if "://" in license_ else f"https://spdx.org/licenses/{quote(license_)}"
        terms = {"@id": url, "name": license_}
    terms["@type"] = "CreativeWork"
    paper = {
        "@id": PAPER,
        "@type": "ScholarlyArticle",
        "name": "Energy Consumption in Parallel Neural Network Training",
        "identifier": "arXiv:2508.07706",
        "author": _references(map(_person, PAPERS_AUTHORS)),
    }
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": name,
        "description": description,
        "datePublished": day,
        "license": {"@id": terms["@id"]},
        "citation": {"@id": PAPER},
        "hasPart": _references(parts),
        **({"author": _references(map(_person, authors))} if authors else {}),
    }
    descriptor = {
        "@id": METADATA,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": CONFORMS_TO},
    }
    people = map(_person, dict.fromkeys([*authors, *PAPERS_AUTHORS]))
    content = {"@context": CONTEXT, "@graph": [descriptor, root, *parts, terms, *people, paper]}
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def _person(name: str) -> Node:
    return {"@id": "#" + quote(name.replace(" ", "-")), "@type": "Person", "name": name}


def _references(nodes: Iterable[Node]) -> Node | list[Node]:
    """References to nodes; a single one is no list, as RO-Crate recommends."""
    references = [{"@id": node["@id"]} for node in nodes]
    return references[0] if len(references) == 1 else references
