"""Check this environment, and the spec, data, code and packages that each stored run was made with."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.errors import InputError
from scalewatt.provenance.package_lock import (
    LOCK,
    Difference,
    differences,
    environment_name,
    installed_versions,
    locked_versions,
)
from scalewatt.provenance.versions import CODE, bare_commit, same_code
from scalewatt.reproduction.check_result import (
    DIFFERS,
    ENVIRONMENT,
    NOT_CHECKED,
    PROVENANCE,
    SAME,
    Finding,
    compared,
    not_checked,
)
from scalewatt.reproduction.manifests import Manifest, current_lock_sha256
from scalewatt.results.text.number_format import listed
from scalewatt.run_files.run_inventory import PROVENANCE as FILE
from scalewatt.run_files.run_inventory import json_object

LOCK_FILE = "list of packages (envs/lock.txt)"


def environment_findings(manifest: Manifest) -> list[Finding]:
    """Return the packages that differ from the lock, or that none does; Python; and the lock itself."""
    sha256 = current_lock_sha256()
    recorded = [*python_findings(manifest), *lock_findings(manifest, sha256)]
    if sha256 is None:
        return [*recorded, not_checked(ENVIRONMENT, "packages", f"{LOCK} does not exist here")]
    locked, installed = locked_versions(), installed_versions()
    found = differences(locked, installed, environment_name(sys.prefix))
    return [*recorded, *package_findings(found, len(locked))]


def python_findings(manifest: Manifest) -> list[Finding]:
    """Compare Python's version with the manifest's; the patch version is shown, but does not count."""
    now, then = platform.python_version(), manifest.python
    if then == "unknown":
        return [not_checked(ENVIRONMENT, "Python", "the manifest does not record it", found=now)]
    outcome = SAME if now.split(".")[:2] == then.split(".")[:2] else DIFFERS
    detail = None if now == then else "the minor version is what counts"
    return [Finding(ENVIRONMENT, "Python", outcome, then, now, detail)]


def lock_findings(manifest: Manifest, found: str | None) -> list[Finding]:
    """Compare the lock of this checkout with the one that the results were made with."""
    if manifest.lock_sha256 is None or found is None:
        where = "the manifest" if manifest.lock_sha256 is None else "this checkout"
        return [not_checked(ENVIRONMENT, LOCK_FILE, f"{where} has none")]
    detail = "the results were made with other packages than this checkout installs"
    return [compared(ENVIRONMENT, LOCK_FILE, manifest.lock_sha256, found, detail)]


def package_findings(found: Iterable[Any], locked: int) -> list[Finding]:
    """Return one row for each package that differs; one for all of `locked` where none does."""
    rows = [
        Finding(
            ENVIRONMENT,
            one.package,
            DIFFERS,
            one.locked,
            one.installed,
            "not installed" if one.installed is None else "another version",
        )
        for one in found
    ]
    if rows:
        return rows
    return [Finding(ENVIRONMENT, "packages", SAME, f"{locked} in the lock", "none differs")]


# --- stored runs ----------------------------------------------------------------------------------

_MOST = 6
_AS_LOCKED = "as locked"


@dataclass(frozen=True)
class _Against:
    """The references that all runs are compared with."""

    results: Path
    manifest: Manifest
    lock_sha256: str | None
    """Of this checkout's lock."""
    locked: Mapping[str, str]
    """Its packages."""


def run_findings(manifest: Manifest, results: Path) -> list[Finding]:
    """Return a row for each difference of a stored run; one for a run without any."""
    folders = sorted(path.parent for path in (results / "runs").glob(f"*/*/{FILE}"))
    sha256 = current_lock_sha256()
    against = _Against(results, manifest, sha256, locked_versions() if sha256 else {})
    return [one for folder in folders for one in _of_run(folder, against)]


def commits_of(provenance: Mapping[str, Any]) -> list[str]:
    """Return the commits that published and trained a run, without `-dirty`; none: unknown."""
    segments = provenance.get("segments")
    of = [provenance, *(segments if isinstance(segments, list) else ())]
    named = [one.get("commit") for one in of if isinstance(one, Mapping)]
    return list(dict.fromkeys(bare_commit(str(one)) for one in named if one))


def code_finding(check: str, what: str, expected: Iterable[str], found: Iterable[str]) -> Finding:
    """Return whether the code of commits is that of others, of which each side has at least one."""
    before, now = list(expected), list(found)
    alike = {same_code(one, other) for one in before for other in now}
    outcome = DIFFERS if False in alike else NOT_CHECKED if None in alike else SAME
    why = {
        DIFFERS: f"{', '.join(CODE)} differ between the commits: other code",
        NOT_CHECKED: "this clone does not have both commits, so whether their code is the same is not known",
    }
    return Finding(check, what, outcome, ", ".join(before), ", ".join(now), why.get(outcome))


def _of_run(folder: Path, against: _Against) -> list[Finding]:
    name = f"{folder.parent.name}/{folder.name}"
    provenance = json_object(folder / FILE)
    if not provenance:
        return [Finding(PROVENANCE, name, DIFFERS, detail=f"{FILE} holds no JSON object")]
    try:
        pairs = dict(_pairs(folder, provenance, against))
    except (AttributeError, KeyError, TypeError) as error:
        why = f"{FILE} is damaged: not of the types that scalewatt writes ({error})"
        return [Finding(PROVENANCE, name, DIFFERS, detail=why)]
    known = {what: values for what, values in pairs.items() if values[1] is not None}
    found = [compared(PROVENANCE, f"{name}: {what}", *values) for what, values in known.items()]
    commits, manifest = commits_of(provenance), against.manifest
    if commits and manifest.commit is not None:
        then = [bare_commit(manifest.commit)]
        found.append(code_finding(PROVENANCE, f"{name}: commit", then, commits))
    rows = [one for one in found if one.outcome != SAME]
    if unknown := [what for what in pairs if what not in known]:
        rows.append(not_checked(PROVENANCE, name, f"{FILE} does not record: {listed(unknown)}"))
    return rows or [Finding(PROVENANCE, name, SAME, detail=f"the same: {listed(pairs)}")]


def _pairs(
    folder: Path, provenance: Mapping[str, Any], against: _Against
) -> Iterator[tuple[str, tuple[Any, Any, str]]]:
    """Yield what is compared of a run: what was expected, what is recorded, and what a difference means."""
    manifest = against.manifest
    why = "the run was made with another spec than its spec.json"
    try:
        spec = read_spec(folder / "spec.json").sha256
    except InputError:
        spec = None
    yield "spec", (spec, provenance.get("spec_sha256"), why)
    if (data := _dataset_sha256(folder, against.results)) is not None:
        why = "the run learnt from other data than the campaign's"
        yield "data", (data, provenance.get("dataset_sha256"), why)
    if manifest.commit is not None:
        # Whether it is recorded; what differs, `code_finding` says.
        yield "commit", (True, True if commits_of(provenance) else None, "")
    lock = provenance.get("lock") or {}
    if manifest.lock_sha256 is not None:
        why = "the run was made with another list of packages than the manifest was recorded with"
        yield "lock", (manifest.lock_sha256, lock.get("sha256"), why)
    why = "in parentheses the version in the lock; none: missing"
    yield "packages", (_AS_LOCKED, _packages(provenance, lock, against), why)


def _packages(
    provenance: Mapping[str, Any], lock: Mapping[str, Any], against: _Against
) -> str | None:
    """Return the packages of a run that are not as locked; None if they are not recorded.

    They are compared anew where this checkout still has its lock; else as the run recorded it.
    """
    installed = provenance.get("packages_installed")
    if not installed or "differences" not in lock:
        return None
    others = [Difference(**one) for one in lock["differences"]]
    if against.locked and lock.get("sha256") == against.lock_sha256:
        others = differences(against.locked, installed, lock.get("environment"))
    words = [f"{one.package} {one.installed or 'none'} ({one.locked or 'none'})" for one in others]
    return listed(words, _MOST) or _AS_LOCKED


def _dataset_sha256(folder: Path, results: Path) -> str | None:
    """Return the hash of the campaign's dataset as it was last prepared; None if a run has none."""
    dataset = json_object(folder / "spec.json").get("dataset") or {}
    prepared = json_object(results / "datasets" / f"{dataset.get('name')}.json")
    found = prepared.get("content_sha256")
    return found if isinstance(found, str) else None
