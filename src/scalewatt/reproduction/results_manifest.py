"""The manifest of a campaign's tables and figures: their SHA-256, and what each is made from."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from scalewatt import __version__
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, read_json, write_json
from scalewatt.common.schema_validation import check
from scalewatt.provenance.package_lock import LOCK, lock_sha256
from scalewatt.provenance.versions import source_commit

MANIFEST = "manifest.json"
VERSION = 1
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

    path: str
    sha256: str
    size_bytes: int
    step: str
    """How it is made: figure, run page, text (a table's CSV, Markdown, LaTeX), runs, claims, …"""
    made_from: tuple[str, ...]
    """What files it is made from; of a table of runs those that its `definition` names."""


@dataclass(frozen=True)
class Manifest:
    """What a campaign's files were when they were made."""

    campaign: str
    scalewatt: str
    commit: str | None
    """Of the code that recorded it, with `-dirty` where files differ."""
    python: str
    lock_sha256: str | None
    """Of the list of packages that the environment is made from; null where there is none."""
    files: tuple[FileEntry, ...]


def write_manifest(results: Path) -> Path:
    """Write `results`/manifest.json of what there is in tables/ and figures/, whole or not at all.

    InputError where there is neither: `results` is no campaign's folder.
    """
    path = results / MANIFEST
    write_json(path, {"manifest_version": VERSION, **asdict(record(results))})
    return path


def record(results: Path) -> Manifest:
    """The manifest of the files as they are now; the same each time, as long as they are."""
    found = [path for name in FOLDERS for path in files_below(results, name)]
    if not found:
        raise InputError(
            f"{results}: has no file in tables/ or figures/; expected results/<campaign>, with what "
            "`snakemake all` made"
        )
    entries = tuple(_entry(results, path) for path in found)
    return Manifest(
        results.resolve().name,
        __version__,
        source_commit(),
        platform.python_version(),
        current_lock_sha256(),
        entries,
    )


def files_below(results: Path, folder: str) -> list[str]:
    """The files in a folder of the campaign, sorted, with / whatever the machine; no temporary ones."""
    return sorted(
        path.relative_to(results).as_posix()
        for path in (results / folder).rglob("*")
        if path.is_file() and not path.name.startswith(".")
    )


def current_lock_sha256() -> str | None:
    """SHA-256 of the lock that this checkout has; None where it has none."""
    return lock_sha256() if LOCK.exists() else None


def _entry(results: Path, path: str) -> FileEntry:
    file = results / path
    return FileEntry(path, file_sha256(file), file.stat().st_size, *made(path))


def made(path: str) -> tuple[str, tuple[str, ...]]:
    """How a file is made, by its place: the step, and the files that it is made from."""
    folder, _, name = path.partition("/")
    stem, _, suffix = name.rpartition(".")
    if path.startswith(PAGES):
        run = stem.removeprefix("runs/")
        return RUN_PAGE, (f"runs/{run}", f"energy/{run}.parquet", f"traces/{run}.parquet")
    if folder == "figures":
        return FIGURE, (f"tables/{stem}.parquet",)
    if stem == "claims":
        return CLAIMS, tuple(f"tables/{one}.parquet" for one in ALL_RUNS)
    if stem == "plan" and suffix == "md":
        return PLAN, ()
    if suffix != "parquet":
        return TEXT, (f"tables/{stem}.parquet",)
    if stem == "prediction":
        return PREDICTION, ("tables/configurations.parquet",)
    return _OWN_STEP.get(stem, RUNS), ()


_ENTRY = tuple(field.name for field in fields(FileEntry))
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["manifest_version", "campaign", "files"],
    "properties": {
        "manifest_version": {"const": VERSION},
        "campaign": {"type": "string"},
        **{name: {"type": "string"} for name in ("scalewatt", "python")},
        **{name: {"type": ["string", "null"]} for name in ("commit", "lock_sha256")},
        "files": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": list(_ENTRY),
                "properties": {
                    "path": {"type": "string", "pattern": r"^(tables|figures)/(?!.*\.\.)"},
                    "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                    "size_bytes": {"type": "integer", "minimum": 0},
                    "step": {"type": "string"},
                    "made_from": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
}


def read_manifest(results: Path) -> Manifest:
    """A campaign's manifest; InputError where there is none, or it is damaged."""
    path = results / MANIFEST
    if not path.exists():
        raise InputError(
            f"{path}: does not exist, so there is nothing to hold results against; `snakemake all` with "
            "the campaign's profile writes it when it has made everything, "
            f"`scalewatt manifest --results {results}` at once"
        )
    found = read_json(path)
    check(found, _SCHEMA, str(path), _SCHEMA)
    # Keys that are not known here are passed over: what changes a meaning has another version.
    entries = tuple(
        FileEntry(**{name: one[name] for name in _ENTRY} | {"made_from": tuple(one["made_from"])})
        for one in found["files"]
    )
    rest = {name: found.get(name) for name in ("commit", "lock_sha256")}
    known = {name: found.get(name, "unknown") for name in ("scalewatt", "python")}
    return Manifest(found["campaign"], **known, **rest, files=entries)
