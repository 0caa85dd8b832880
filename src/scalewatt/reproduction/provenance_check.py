"""Check this environment, and the spec, data and packages that each stored run was made with."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.errors import InputError
from scalewatt.provenance.package_lock import (
    LOCK,
    differences,
    installed_versions,
    locked_versions,
)
from scalewatt.provenance.versions import CODE, bare_commit, same_code
from scalewatt.reproduction.findings import (
    DIFFERS,
    ENVIRONMENT,
    NOT_CHECKED,
    PROVENANCE,
    SAME,
    Finding,
    compared,
    not_checked,
)
from scalewatt.reproduction.manifest import Manifest, current_lock_sha256
from scalewatt.results.text.number_format import listed
from scalewatt.run_files.inventory import PROVENANCE as FILE
from scalewatt.run_files.inventory import json_object

LOCK_FILE = "list of packages (envs/lock.txt)"
_MOST = 6
_AS_LOCKED = "as locked"


def environment_findings(manifest: Manifest) -> Iterator[Finding]:
    """Compare Python, the lock and the installed packages with those of the results."""
    now, then = platform.python_version(), manifest.python
    # The patch version is shown, but does not count.
    is_same = now.split(".")[:2] == then.split(".")[:2]
    detail = None if now == then else "the minor version is what counts"
    yield Finding(ENVIRONMENT, "Python", SAME if is_same else DIFFERS, then, now, detail)
    sha256 = current_lock_sha256()
    yield lock_finding(manifest, sha256)
    if sha256 is None:
        yield not_checked(ENVIRONMENT, "packages", f"{LOCK} does not exist here")
        return
    locked = locked_versions()
    different = differences(locked, installed_versions())
    for row in different:
        values = (row["locked"], row["installed"], "another version")
        yield Finding(ENVIRONMENT, row["package"], DIFFERS, *values)
    if not different:
        yield Finding(ENVIRONMENT, "packages", SAME, f"{len(locked)} in the lock", "none differs")


def lock_finding(manifest: Manifest, sha256: str | None) -> Finding:
    """Compare the lock of this checkout with that of the results."""
    if manifest.lock_sha256 is None or sha256 is None:
        where = "the manifest" if manifest.lock_sha256 is None else "this checkout"
        return not_checked(ENVIRONMENT, LOCK_FILE, f"{where} has none")
    detail = "the results were made with other packages than this checkout installs"
    return compared(ENVIRONMENT, LOCK_FILE, manifest.lock_sha256, sha256, detail)


# --- stored runs ----------------------------------------------------------------------------------


def run_findings(manifest: Manifest, results: Path) -> Iterator[Finding]:
    """Yield a row for each difference of a stored run from its spec, data and lock; without any, one."""
    for path in sorted((results / "runs").glob(f"*/*/{FILE}")):
        name = f"{path.parent.parent.name}/{path.parent.name}"
        provenance = json_object(path)
        if not provenance:
            yield Finding(PROVENANCE, name, DIFFERS, detail=f"{FILE} holds no JSON object")
            continue
        findings = dict(_compared(name, path.parent, provenance, manifest, results))
        rows = [row for row in findings.values() if row is not None and row.outcome != SAME]
        if unknown := [what for what, row in findings.items() if row is None]:
            rows.append(not_checked(PROVENANCE, name, f"{FILE} does not record: {listed(unknown)}"))
        yield from rows or [Finding(PROVENANCE, name, SAME, detail=f"the same: {listed(findings)}")]


def _compared(
    name: str, folder: Path, provenance: Mapping[str, Any], manifest: Manifest, results: Path
) -> Iterator[tuple[str, Finding | None]]:
    """Yield what is compared of a run, with its finding; None if the run does not record it."""
    lock = provenance.get("lock") or {}
    for what, expected, found, why in (
        (
            *("spec", _spec_sha256(folder), provenance.get("spec_sha256")),
            "the run was made with another spec than its spec.json",
        ),
        (
            *("data", _dataset_sha256(folder, results), provenance.get("dataset_sha256")),
            "the run learnt from other data than the campaign's",
        ),
        (
            *("lock", manifest.lock_sha256, lock.get("sha256")),
            "the run was made with another list of packages than the manifest was recorded with",
        ),
        ("packages", _AS_LOCKED, _packages(lock), "in parentheses the version in the lock"),
    ):
        if found is None:
            if expected is not None:
                yield what, None
        elif expected is not None or what == "spec":
            yield what, compared(PROVENANCE, f"{name}: {what}", expected, found, why)
    # A run that was continued has a commit of each segment.
    commits = commits_of(provenance)
    row = code_finding(PROVENANCE, f"{name}: commit", commits[:1], commits) if commits else None
    yield "commit", row


def _packages(lock: Mapping[str, Any]) -> str | None:
    """Packages of a run that are not as locked; None if they are not recorded."""
    if "differences" not in lock:
        return None
    words = [
        f"{row['package']} {row['installed']} ({row['locked'] or 'none'})"
        for row in lock["differences"]
    ]
    return listed(words, _MOST) or _AS_LOCKED


def _spec_sha256(folder: Path) -> str | None:
    """Hash of a run's spec; None if it is damaged."""
    try:
        return read_spec(folder / "spec.json").sha256
    except InputError:
        return None


def _dataset_sha256(folder: Path, results: Path) -> str | None:
    """Hash of the campaign's dataset as it was last prepared; None if a run has none."""
    dataset = json_object(folder / "spec.json").get("dataset") or {}
    sha256: str | None = json_object(results / "datasets" / f"{dataset.get('name')}.json").get(
        "content_sha256"
    )
    return sha256


def commits_of(provenance: Mapping[str, Any]) -> list[str]:
    """Commits that published and trained a run, without `-dirty`; none: unknown."""
    rows = [provenance, *(provenance.get("segments") or ())]
    return list(dict.fromkeys(bare_commit(row["commit"]) for row in rows if row.get("commit")))


def code_finding(check: str, what: str, expected: Iterable[str], found: Iterable[str]) -> Finding:
    """Compare the code of commits with that of others, of which each side has at least one."""
    before, now = list(expected), list(found)
    alike = {same_code(commit, other) for commit in before for other in now}
    outcome = DIFFERS if False in alike else NOT_CHECKED if None in alike else SAME
    why = {
        DIFFERS: f"{', '.join(CODE)} differ between the commits: other code",
        NOT_CHECKED: "this clone does not have both commits, so whether their code is the same is not known",
    }
    return Finding(check, what, outcome, ", ".join(before), ", ".join(now), why.get(outcome))
