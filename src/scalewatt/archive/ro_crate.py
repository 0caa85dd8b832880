"""ro-crate-metadata.json: what an archive is, in the terms of RO-Crate 1.1 and schema.org.

Specification: https://w3id.org/ro/crate/1.1. Hashes and sizes of files are the bag's to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

Node = dict[str, Any]
METADATA = "ro-crate-metadata.json"
CONFORMS_TO = "https://w3id.org/ro/crate/1.1"
CONTEXT = f"{CONFORMS_TO}/context"
PAPER = "https://arxiv.org/abs/2508.07706"


def metadata(
    files: Iterable[str],
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
        {"@id": quote(path), "@type": "File", "name": PurePosixPath(path).name}
        for path in sorted(files)
    ]
    people = [
        {"@id": "#" + quote(author.replace(" ", "-")), "@type": "Person", "name": author}
        for author in authors
    ]
    terms = {"@id": "#no-license", "name": "No licence was given: ask before you use it"}
    if license_ is not None:
        url = license_ if "://" in license_ else f"https://spdx.org/licenses/{quote(license_)}"
        terms = {"@id": url, "name": license_}
    paper = {
        "@id": PAPER,
        "@type": "ScholarlyArticle",
        "name": "Energy Consumption in Parallel Neural Network Training",
        "identifier": "arXiv:2508.07706",
    }
    root: Node = {
        "@id": "./",
        "@type": "Dataset",
        "name": name,
        "description": description,
        "datePublished": day,
        "license": _reference(terms),
        "citation": _reference(paper),
        "hasPart": list(map(_reference, parts)),
    }
    if people:
        references = list(map(_reference, people))
        root["author"] = references if len(references) > 1 else references[0]
    descriptor = {
        "@id": METADATA,
        "@type": "CreativeWork",
        "about": _reference(root),
        "conformsTo": {"@id": CONFORMS_TO},
    }
    graph = [descriptor, root, *parts, {**terms, "@type": "CreativeWork"}, *people, paper]
    content = {"@context": CONTEXT, "@graph": graph}
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def _reference(node: Node) -> Node:
    return {"@id": node["@id"]}
