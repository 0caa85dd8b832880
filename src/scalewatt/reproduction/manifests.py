"""Manifests: the SHA-256 and size of every file, of a campaign's results and of an archive.

results/<campaign>/manifest.json also records how each table and figure is made; manifest.json of an
archive what the archive is, and every other file in it.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Annotated

from pydantic import Field

from scalewatt import __version__
from scalewatt.common.errors import InputError, shown
from scalewatt.common.files import file_sha256, read_json, write_json
from scalewatt.common.settings import matching, validated
from scalewatt.provenance.package_lock import LOCK
from scalewatt.provenance.versions import source_commit

MANIFEST = "manifest.json"

# --- of a campaign's results ----------------------------------------------------------------------

RESULTS_VERSION = 1
FOLDERS = ("tables", "figures")
PAGES = "figures/runs/"

FIGURE, RUN_PAGE, TEXT, RUNS = "figure", "run page", "text", "runs"
CLAIMS, PLAN, PREDICTION, IDLE = "claims", "plan", "prediction", "idle"
_OWN_STEP = {"claims": CLAIMS, "plan": PLAN, "prediction": PREDICTION, "idle": IDLE}
"""Tables that are not made from a definition of runs."""
ALL_RUNS = ("runs", "configurations", "scaling", "comparisons")
"""Tables of all runs, made together; the claims are made from them, besides figure 5's."""


@dataclass(frozen=True)
class FileEntry:
    """One file, below the campaign's folder."""

    path: Annotated[
        str, matching(r"(tables|figures)/(?!.*\.\.)[^\x00-\x1f\\]+", "a file of the results")
    ]
    sha256: Annotated[str, matching("[0-9a-f]{64}", "a SHA-256")]
    size_bytes: Annotated[int, Field(ge=0)]
    step: str
    """How it is made: figure, run page, text (a table's CSV, Markdown, LaTeX), runs, claims, …"""
    made_from: tuple[str, ...]
    """What files it is made from; of a table of runs those that its `definition` names."""


@dataclass(frozen=True)
class Manifest:
    """A campaign's files as they were when they were made."""

    campaign: str
    scalewatt: str
    commit: str | None
    """Of the code that recorded it, with `-dirty` where files differ."""
    python: str
    lock_sha256: str | None
    """Of the list of packages that the environment is made from; null if there is none."""
    files: Annotated[tuple[FileEntry, ...], Field(min_length=1)]


def write_manifest(results: Path) -> Path:
    """Write `results`/manifest.json of what there is in tables/ and figures/, whole or not at all.

    InputError if there is neither: `results` is not a campaign's folder.
    """
    path = results / MANIFEST
    write_json(path, {"manifest_version": RESULTS_VERSION, **asdict(record(results))})
    return path


def record(results: Path) -> Manifest:
    """Return the manifest of the files as they are now; the same each time, as long as they are."""
    found = [path for name in FOLDERS for path in files_below(results, name)]
    if not found:
        raise InputError(
            f"{results}: has no file in tables/ or figures/; expected results/<campaign>, with what "
            "`snakemake all` made"
        )
    return Manifest(
        results.resolve().name,
        __version__,
        source_commit(),
        platform.python_version(),
        current_lock_sha256(),
        tuple(
            FileEntry(path, file_sha256(file), file.stat().st_size, *made(path))
            for path in found
            for file in [results / path]
        ),
    )


def files_below(results: Path, folder: str) -> list[str]:
    """Return the files in a folder of the campaign, sorted, with / on every system; no temporary ones."""
    return sorted(
        path.relative_to(results).as_posix()
        for path in (results / folder).rglob("*")
        if path.is_file() and not path.name.startswith(".")
    )


def current_lock_sha256() -> str | None:
    """Return the SHA-256 of the lock that this checkout has; None if it has none."""
    return file_sha256(LOCK) if LOCK.exists() else None


def made(path: str) -> tuple[str, tuple[str, ...]]:
    """Return how a file is made, by its place: the step, and the files that it is made from."""
    folder, _, name = path.partition("/")
    stem, _, suffix = name.rpartition(".")
    if path.startswith(PAGES):
        run = stem.removeprefix("runs/")
        return RUN_PAGE, (f"runs/{run}", f"energy/{run}.parquet", f"traces/{run}.parquet")
    if folder == "figures":
        return FIGURE, (f"tables/{name.partition('.')[0]}.parquet",)
    if stem == "claims":
        return CLAIMS, tuple(f"tables/{one}.parquet" for one in ALL_RUNS)
    if stem == "plan" and suffix == "md":
        return PLAN, ()
    if suffix != "parquet":
        return TEXT, (f"tables/{stem}.parquet",)
    if stem == "prediction":
        return PREDICTION, ("tables/configurations.parquet",)
    return _OWN_STEP.get(stem, RUNS), ()


def read_manifest(results: Path) -> Manifest:
    """Read a campaign's manifest; InputError if there is none, or it is damaged."""
    path = results / MANIFEST
    if not path.exists():
        raise InputError(
            f"{path}: does not exist, so there is nothing to compare results with; `snakemake all` with "
            "the campaign's profile writes it when it has made everything"
        )
    content = read_json(path)
    version = content.get("manifest_version") if isinstance(content, dict) else None
    if version != RESULTS_VERSION:
        raise InputError(f"{path}: manifest_version: {shown(version)} is not known; allowed: 1")
    # Unknown keys are ignored: what changes a meaning has another version.
    defaults = {"commit": None, "lock_sha256": None, "scalewatt": "unknown", "python": "unknown"}
    manifest: Manifest = validated(Manifest, defaults | content, str(path))
    return manifest


# --- of an archive --------------------------------------------------------------------------------

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
