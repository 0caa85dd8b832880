"""Software in the metadata of an archive: scalewatt itself, and Python packages by their pages."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

Node = dict[str, Any]
_PYPI = "https://pypi.org/project"
_PYTHON = "https://www.python.org/"
_RELEASES = "https://docs.python.org/release"
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RELEASE = re.compile(r"[0-9][A-Za-z0-9.]*")
"""A version without a local suffix, such as +cu126: one that has a page."""


def to(id_: str) -> Node:
    """Return a reference to the entity of this id."""
    return {"@id": id_}


def package_nodes(versions: Mapping[str, str]) -> list[Node]:
    """Return Python and packages of PyPI, from their versions by name."""
    return [_package(name, version) for name, version in sorted(versions.items())]


def _package(name: str, version: str) -> Node:
    page = _PYTHON if name == "python" else f"{_PYPI}/{quote(name)}/"
    id_ = _local_id(name, version)
    if _PACKAGE.fullmatch(name) and _RELEASE.fullmatch(version):
        id_ = f"{_RELEASES}/{version}/" if name == "python" else f"{page}{version}/"
    named = {"name": name, "softwareVersion": version, "url": page}
    return {"@id": id_, "@type": "SoftwareApplication", **named}


def scalewatt_node(version: str | None, commit: str | None, packages: Iterable[Node]) -> Node:
    """Return scalewatt, with its commit as part of the version, and the packages that it needs."""
    known = [f"commit {commit}"] if commit else []
    said = ", ".join([*([version] if version else []), *known])
    needed = [to(one["@id"]) for one in packages]
    return {
        "@id": _local_id("scalewatt", said, short_hash("".join(one["@id"] for one in needed))),
        "@type": "SoftwareApplication",
        "name": "scalewatt",
        **({"softwareVersion": said} if said else {}),
        **({"softwareRequirements": needed} if needed else {}),
    }


def _local_id(*parts: str) -> str:
    return "#software-" + re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(filter(None, parts)))


def short_hash(text: str) -> str:
    """Return the first digits of a text's SHA-256, which tell ids of other texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
