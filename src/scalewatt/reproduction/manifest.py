"""The manifest of a campaign's results: SHA256SUMS, and manifest.json with what made them."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from scalewatt import __version__
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, read_json_object, write_json, write_text
from scalewatt.provenance.versions import LOCK, source_commit

MANIFEST, SUMS = "manifest.json", "SHA256SUMS"
FOLDERS = ("tables", "figures")
_RUN_FILES = ("spec.json", "history.parquet", "events.parquet", "provenance.json")


@dataclass(frozen=True)
class Manifest:
    """A campaign's files as they were when they were made."""

    campaign: str
    scalewatt: str
    commit: str | None
    """Of the code that recorded it, with `-dirty` if files differ."""
    python: str
    lock_sha256: str | None
    """Of the list of packages that the environment is made from; null if there is none."""
    files: dict[str, str]
    """SHA-256 of each file by its path below the campaign's folder."""


def write_manifest(results: Path) -> None:
    """Write SHA256SUMS and manifest.json of the files in `results` as they are now.

    InputError if there are no tables and figures: `results` is not a campaign's folder.
    """
    made = [path for folder in FOLDERS for path in files_below(results, folder)]
    if not made:
        raise InputError(
            f"{results}: has no file in tables/ or figures/; expected results/<campaign>, with what "
            "`snakemake all` made"
        )
    runs = [
        path
        for path in files_below(results, "runs")
        if path.count("/") == 3 and path.endswith(_RUN_FILES)
    ]
    files = {path: file_sha256(results / path) for path in [*made, *runs]}
    write_text(results / SUMS, "".join(f"{sha256}  {path}\n" for path, sha256 in files.items()))
    made_by = {
        "campaign": results.absolute().name,
        "scalewatt": __version__,
        "commit": source_commit(),
        "python": platform.python_version(),
        "lock_sha256": current_lock_sha256(),
    }
    write_json(results / MANIFEST, made_by)


def read_manifest(results: Path) -> Manifest:
    """Read a campaign's manifest; InputError if there is none, or it is damaged."""
    for path in (results / SUMS, results / MANIFEST):
        if not path.exists():
            raise InputError(
                f"{path}: does not exist, so there is nothing to compare results with; `snakemake all` "
                "with the campaign's profile writes it when it has made everything"
            )
    try:
        lines = (results / SUMS).read_text(encoding="utf-8").splitlines()
        files = {path: sha256 for sha256, path in (line.split("  ", 1) for line in lines)}
        return Manifest(**read_json_object(results / MANIFEST), files=files)
    except (TypeError, ValueError) as error:
        raise InputError(f"{results / SUMS}: is damaged; `snakemake all` writes it") from error


def files_below(results: Path, folder: str) -> list[str]:
    """Files in a folder of the campaign, sorted, without temporary ones."""
    paths = (path for path in (results / folder).rglob("*") if path.is_file())
    names = (path.relative_to(results).as_posix() for path in paths)
    return sorted(name for name in names if "/." not in name)


def current_lock_sha256() -> str | None:
    """SHA-256 of the lock that this checkout has; None if it has none."""
    return file_sha256(LOCK) if LOCK.exists() else None
