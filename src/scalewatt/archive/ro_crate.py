"""ro-crate-metadata.json: what an archive is, in the terms of RO-Crate 1.1 and schema.org.

Specification: https://w3id.org/ro/crate/1.1. It follows from the content alone: no date of writing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import parse_json
from scalewatt.reproduction.manifests import MANIFEST, Entry

METADATA = "ro-crate-metadata.json"
CONFORMS_TO = "https://w3id.org/ro/crate/1.1"
CONTEXT = (f"{CONFORMS_TO}/context", {"sha256": "http://schema.org/sha256"})
"""RO-Crate's terms, and one of schema.org that they lack."""
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

Node = dict[str, Any]


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
    activities: tuple[Node, ...] = ()
    """The activities that made them (`of_runs`), and their software."""
    about: tuple[str, ...] = ()
    """Ids of the activities among these."""


def metadata(files: Mapping[str, Entry], description: Description) -> bytes:
    """Return the file's content, of an archive of these files (itself and the manifest left out)."""
    root: Node = {
        "@id": "./",
        "@type": "Dataset",
        "name": description.name,
        "description": description.description,
        "datePublished": description.date_published,
        "license": _to(_license_id(description.license)),
        "citation": _to(PAPER),
        "hasPart": [],
    }
    if description.authors:
        root["author"] = [_to(_person_id(name)) for name in description.authors]
    if description.about:
        root["mentions"] = [_to(id_) for id_ in description.about]
    graph = [
        {
            "@id": METADATA,
            "@type": "CreativeWork",
            "about": _to("./"),
            "conformsTo": _to(CONFORMS_TO),
        },
        root,
        *_parts(files, description, root),
        _license(description.license),
        *(
            {"@id": _person_id(name), "@type": "Person", "name": name}
            for name in dict.fromkeys((*description.authors, *_AUTHORS))
        ),
        _paper(),
        *description.activities,
    ]
    content = {"@context": list(CONTEXT), "@graph": graph}
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


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
            root["hasPart"].append(_to(quote(folder)))
        whole = root if folder is None else folders[folder]
        whole["hasPart"].append(_to(one["@id"]))
    return [*folders.values(), *found]


def _folder(path: str) -> str | None:
    """Return campaigns/, or results/<name>/<kind>/; None of what lies above."""
    parts = path.split("/")
    if len(parts) == 1:
        return None
    return "/".join(parts[: min(3, len(parts) - 1)]) + "/"


def of_runs(
    provenances: Iterable[Mapping[str, Any]], object_id: str, result_ids: Iterable[str]
) -> tuple[tuple[Node, ...], tuple[str, ...], str | None]:
    """Return what runs were made with, from their provenances: nodes, the activity's id, its last day."""
    known = list(provenances)
    times = [s for one in known for s in one.get("segments") or () if isinstance(s, dict)]
    starts, ends = (
        [s[key] for s in times if isinstance(s.get(key), int | float)]
        for key in ("started_s", "ended_s")
    )
    software = sorted({pair for one in known for pair in _software(one)})
    simulated = any(one.get("simulated") for one in known)
    activity: Node = {
        "@id": "#runs",
        "@type": "CreateAction",
        "name": "Simulated runs" if simulated else "Runs under the energy monitor perun",
        "description": f"{len(known)} runs; the provenance.json of each records what it was made with.",
        "instrument": [_to(_software_id(*pair)) for pair in software],
        "object": [_to(object_id)],
        "result": [_to(id_) for id_ in result_ids],
    }
    if starts:
        activity["startTime"] = _moment(min(starts))
    if ends:
        activity["endTime"] = _moment(max(ends))
    nodes = [
        {
            "@id": _software_id(name, version),
            "@type": "SoftwareApplication",
            "name": name,
            "softwareVersion": version,
        }
        for name, version in software
    ]
    day = _moment(max(ends))[:10] if ends else None
    return (activity, *nodes), ("#runs",), day


def _software(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    packages = provenance.get("packages")
    found = [
        (str(name), str(version))
        for name, version in (packages.items() if isinstance(packages, dict) else ())
        if version is not None
    ]
    commit = provenance.get("commit")
    return [*found, *([("scalewatt, commit", str(commit))] if commit else [])]


def _software_id(name: str, version: str) -> str:
    return "#software-" + re.sub(r"[^A-Za-z0-9.]+", "-", f"{name}-{version}")


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _to(id_: str) -> Node:
    return {"@id": id_}


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
    return "#" + quote(name.replace(" ", "-"))


def _paper() -> Node:
    return {
        "@id": PAPER,
        "@type": "ScholarlyArticle",
        "name": "Energy Consumption in Parallel Neural Network Training",
        "author": [_to(_person_id(name)) for name in _AUTHORS],
        "datePublished": "2025",
        "identifier": "arXiv:2508.07706",
    }


def check_metadata(text: bytes, files: Mapping[str, Entry], where: str) -> None:
    """Check ro-crate-metadata.json against what RO-Crate 1.1 demands and the manifest's files.

    InputError names `where` and what is wrong.
    """
    try:
        nodes = {node["@id"]: node for node in parse_json(text)["@graph"]}
        descriptor, root = nodes[METADATA], nodes["./"]
        wrong = [
            f"its root has no {key}"
            for key in ("name", "description", "datePublished", "license", "hasPart")
            if not root.get(key)
        ]
        if descriptor["about"] != _to("./") or descriptor["conformsTo"] != _to(CONFORMS_TO):
            wrong.append(f"its descriptor does not conform to {CONFORMS_TO}")
        for path, entry in files.items():
            if path == METADATA:
                continue
            node = nodes.get(quote(path), {})
            stated = node.get("contentSize"), node.get("sha256")
            if stated != (str(entry.bytes), entry.sha256):
                wrong.append(f"it describes {path} otherwise than the manifest")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{where}: {METADATA}: is no RO-Crate ({error!r})") from error
    if wrong:
        raise InputError(f"{where}: {METADATA}: {wrong[0]}")
