"""manifest.json of an archive: what it is, and the SHA-256 and size of every other file in it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from scalewatt import __version__
from scalewatt.campaign.imported_campaign import NAME
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import shown

MANIFEST = "manifest.json"
METADATA = "ro-crate-metadata.json"
FORMAT = "scalewatt-archive"
VERSION = 1
CAMPAIGN, REFERENCE = "campaign", "reference"
KINDS = (CAMPAIGN, REFERENCE)
BLOCK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")

Given = Path | bytes
"""Where a file's content is: on disk, or here."""


@dataclass(frozen=True)
class Entry:
    """One file of an archive."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """What an archive says of itself."""

    name: str
    kind: str
    """`campaign`, or `reference`: the published rows."""
    files: dict[str, Entry]
    """By path in the archive, manifest.json left out."""
    runs: int = 0
    missing: tuple[str, ...] = ()
    """What the campaign asks for and the archive has not, in words."""
    scalewatt: str = __version__
    traces: bool = False

    def text(self) -> str:
        """The file's content."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "name": self.name,
            "scalewatt": self.scalewatt,
            "runs": self.runs,
            "traces": self.traces,
            "missing": list(self.missing),
            "files": {
                path: {"sha256": one.sha256, "bytes": one.bytes}
                for path, one in sorted(self.files.items())
            },
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def digest(stream: IO[bytes], most: int | None = None) -> Entry:
    """SHA-256 and length of what a stream gives; no more than `most` + 1 bytes are read."""
    found, count = hashlib.sha256(), 0
    while block := stream.read(BLOCK if most is None else min(BLOCK, most + 1 - count)):
        found.update(block)
        count += len(block)
        if most is not None and count > most:
            break
    return Entry(found.hexdigest(), count)


def entry_of(given: Given) -> Entry:
    """SHA-256 and length of a file; InputError where it cannot be read."""
    if isinstance(given, bytes):
        return Entry(hashlib.sha256(given).hexdigest(), len(given))
    try:
        with open(given, "rb") as stream:
            return digest(stream)
    except OSError as error:
        raise InputError(f"{given}: cannot be read ({error.strerror})") from error


def entries_of(files: Mapping[str, Given]) -> dict[str, Entry]:
    """SHA-256 and length of all files, by path."""
    return {path: entry_of(given) for path, given in sorted(files.items())}


def parse_manifest(text: bytes, where: str) -> Manifest:
    """Read manifest.json; InputError where it is none, or of a version that is not known here."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: is no readable JSON file ({error})") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{where}: is no manifest of an archive; expected what `scalewatt export`")
    if content.get("version") != VERSION:
        raise InputError(
            f"{where}: version {shown(content.get('version'))}; allowed: {VERSION}. A newer scalewatt "
            f"wrote it ({shown(content.get('scalewatt'))}, this is {__version__})"
        )
    name, kind, files = (content.get(key) for key in ("name", "kind", "files"))
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(
            f"{where}: name: {shown(name)}; allowed: lower-case letters, digits, hyphens"
        )
    if kind not in KINDS:
        raise InputError(f"{where}: kind: {shown(kind)}; allowed: {', '.join(KINDS)}")
    if not isinstance(files, dict):
        raise InputError(f"{where}: files: expected an object of paths")
    missing = content.get("missing")
    return Manifest(
        name=name,
        kind=kind,
        files={path: _entry(path, one, where) for path, one in files.items()},
        runs=content["runs"] if type(content.get("runs")) is int else 0,
        missing=tuple(map(str, missing)) if isinstance(missing, list) else (),
        scalewatt=str(content.get("scalewatt")),
        traces=content.get("traces") is True,
    )


def _entry(path: str, one: Any, where: str) -> Entry:
    if not is_plain(path) or path == MANIFEST:
        raise InputError(
            f"{where}: files: {shown(path)}; allowed: relative paths without '..', other than itself"
        )
    sha256, count = (one.get(key) if isinstance(one, dict) else None for key in ("sha256", "bytes"))
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise InputError(f"{where}: files: {path}: has no SHA-256")
    if type(count) is not int or count < 0:
        raise InputError(f"{where}: files: {path}: bytes: {shown(count)}; expected a number")
    return Entry(sha256, count)


def is_plain(path: str) -> bool:
    """Whether a path leads to a place below the archive, on any system, by the one way to write it."""
    if not path or "\\" in path or ":" in path or not path.isprintable():
        return False
    parts = path.split("/")
    return not PurePosixPath(path).is_absolute() and not {"", ".", ".."} & set(parts)
