"""The manifest of an archive: the SHA-256 and size of every file in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from scalewatt import __version__
from scalewatt.common.errors import InputError
from scalewatt.reproduction.manifest import MANIFEST as MANIFEST

FORMAT = "scalewatt-archive"
ARCHIVE_VERSION = 1
CAMPAIGN, REFERENCE = "campaign", "reference"
BLOCK = 1 << 20

Given = Path | bytes
"""Where a file's content is: on disk, or here."""


@dataclass(frozen=True)
class Entry:
    """One file of an archive."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class ArchiveManifest:
    """The manifest of an archive."""

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
        """Return the file's content."""
        files = {path: asdict(one) for path, one in sorted(self.files.items())}
        head = {"format": FORMAT, "version": ARCHIVE_VERSION}
        names = ("kind", "name", "scalewatt", "runs", "traces", "missing")
        content = {**head, **{name: getattr(self, name) for name in names}, "files": files}
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def digest(stream: IO[bytes]) -> Entry:
    """Return SHA-256 and length of a stream."""
    found, count = hashlib.sha256(), 0
    while block := stream.read(BLOCK):
        found.update(block)
        count += len(block)
    return Entry(found.hexdigest(), count)


def entry_of(given: Given) -> Entry:
    """Return SHA-256 and length of a file; InputError if it cannot be read."""
    if isinstance(given, bytes):
        return Entry(hashlib.sha256(given).hexdigest(), len(given))
    try:
        with open(given, "rb") as stream:
            return digest(stream)
    except OSError as error:
        raise InputError(f"{given}: cannot be read ({error.strerror})") from error


def entries_of(files: Mapping[str, Given]) -> dict[str, Entry]:
    """Return SHA-256 and length of all files, by path."""
    return {path: entry_of(given) for path, given in sorted(files.items())}


def parse_archive_manifest(text: bytes, where: str) -> ArchiveManifest:
    """Read manifest.json of an archive; InputError if it is none, or of an unknown version."""
    try:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise ValueError
        version = content["version"]
        files = {path: Entry(one["sha256"], one["bytes"]) for path, one in content["files"].items()}
        name, kind, runs = str(content["name"]), str(content["kind"]), int(content["runs"])
        told = tuple(map(str, content["missing"])), str(content["scalewatt"])
        traces = bool(content["traces"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{where}: is not a manifest of an archive; expected what `scalewatt export` wrote"
        ) from error
    if version != ARCHIVE_VERSION:
        raise InputError(
            f"{where}: version {version}; expected {ARCHIVE_VERSION}. Import it with the scalewatt that "
            f"wrote it ({told[1]}, this is {__version__})"
        )
    return ArchiveManifest(name, kind, files, runs, *told, traces)


def is_plain(path: str) -> bool:
    """Return True if a path leads to a place below the archive on any system, written in the only way."""
    parts = path.split("/")
    return not {"", ".", ".."} & set(parts) and "\\" not in path and ":" not in path
