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

from scalewatt.archive.bag import METADATA

Node = dict[str, Any]
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


@dataclass(frozen=True)
class Description:
    """Title, date, authors and licence of an archive."""

    name: str
    description: str
    date_published: str
    """A day by ISO 8601."""
    license: str | None = None
    """A URL, or a short name of SPDX."""
    authors: tuple[str, ...] = ()

    def metadata(self, sha256: Mapping[str, str], sizes: Mapping[str, int]) -> bytes:
        """Content of the file for an archive of files with these hashes and sizes in bytes."""
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
        people = [
            {"@id": "#" + quote(name.replace(" ", "-")), "@type": "Person", "name": name}
            for name in self.authors
        ]
        terms = _license(self.license)
        root: Node = {
            "@id": "./",
            "@type": "Dataset",
            "name": self.name,
            "description": self.description,
            "datePublished": self.date_published,
            "license": _reference(terms),
            "citation": {"@id": PAPER},
            "hasPart": list(map(_reference, files)),
        }
        if people:
            authors = list(map(_reference, people))
            root["author"] = authors if len(authors) > 1 else authors[0]
        descriptor = {
            "@id": METADATA,
            "@type": "CreativeWork",
            "about": {"@id": "./"},
            "conformsTo": {"@id": CONFORMS_TO},
        }
        paper = {
            "@id": PAPER,
            "@type": "ScholarlyArticle",
            "name": "Energy Consumption in Parallel Neural Network Training",
            "identifier": "arXiv:2508.07706",
        }
        graph = [descriptor, root, *files, terms, *people, paper]
        content = {"@context": list(CONTEXT), "@graph": graph}
        return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def _reference(node: Node) -> Node:
    return {"@id": node["@id"]}


def _license(name: str | None) -> Node:
    if name is None:
        why = "The authors of the archive gave no licence: ask before you use it."
        node = {"@id": "#no-license", "name": "No licence was given", "description": why}
    else:
        url = name if "://" in name else f"https://spdx.org/licenses/{quote(name)}"
        node = {"@id": url, "name": name}
    return {**node, "@type": "CreativeWork"}
