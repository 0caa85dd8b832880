"""The second check: compare stored files, and regenerated ones, with the manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scalewatt.common.files import file_sha256
from scalewatt.reproduction.check_result import (
    DIFFERS,
    REGENERATED,
    SAME,
    STORED,
    Finding,
    not_checked,
)
from scalewatt.reproduction.file_diff import difference
from scalewatt.reproduction.manifests import (
    FOLDERS,
    FileEntry,
    Manifest,
    files_below,
)
from scalewatt.reproduction.regenerate import NotRemadeError, Remaking, said_of


def file_findings(manifest: Manifest, place: Remaking) -> list[Finding]:
    """Return two rows for each file of the manifest, stored and regenerated; one for each other file."""
    stored, remade = [], []
    for entry in manifest.files:
        found, again = _pair(entry, place)
        stored.append(found)
        remade.append(again)
    return [*stored, *_unknown(manifest, place.results), *remade]


def _pair(entry: FileEntry, place: Remaking) -> tuple[Finding, Finding]:
    """Compare a stored and a regenerated file; the one that is as recorded shows where the other differs."""
    stored = place.results / entry.path
    has = file_sha256(stored) if stored.is_file() else None
    try:
        regenerated: Path | None = place.remade(entry)
        why = None
    except NotRemadeError as error:
        regenerated, why = None, not_checked(REGENERATED, entry.path, str(error))
    # The code of a changed figure may raise anything: that is a difference, and the next file follows.
    except Exception as error:
        regenerated = None
        said = f"regenerating it fails: {said_of(error)}"
        why = Finding(REGENERATED, entry.path, DIFFERS, entry.sha256, None, said)
    made = None if regenerated is None else file_sha256(regenerated)
    original = regenerated if made == entry.sha256 else None
    found = _compared(STORED, entry, has, stored, original, "the file does not exist any more")
    if why is not None:
        return found, why
    original = stored if has == entry.sha256 else None
    return found, _compared(REGENERATED, entry, made, regenerated, original, "")


def _compared(
    check: str,
    entry: FileEntry,
    sha256: str | None,
    path: Path | None,
    original: Path | None,
    absent: str,
) -> Finding:
    """Compare a file's hash with the manifest's; `original` is one that is as recorded, if there is any."""
    if sha256 == entry.sha256:
        return Finding(check, entry.path, SAME, entry.sha256, sha256)
    if sha256 is None or path is None:
        return Finding(check, entry.path, DIFFERS, entry.sha256, None, absent)
    where = "where it differs is unknown: no file is as recorded"
    if original is not None:
        where = difference(original, path)
    return Finding(check, entry.path, DIFFERS, entry.sha256, sha256, where)


def _unknown(manifest: Manifest, results: Path) -> Iterator[Finding]:
    """Yield the files that the manifest does not name."""
    known = {entry.path for entry in manifest.files}
    for folder in FOLDERS:
        for path in files_below(results, folder):
            if path not in known:
                yield not_checked(STORED, path, "the manifest does not name it")
