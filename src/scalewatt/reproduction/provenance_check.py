"""Check this environment, and the spec, data, code and packages that each stored run was made with."""

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
from scalewatt.run_files.inventory import PROVENANCE as FILE
from scalewatt.run_files.inventory import json_object

LOCK_FILE = "list of packages (envs/lock.txt)"


def environment_findings(manifest: Manifest) -> list[Finding]:
    """Compare Python, the lock and the installed packages with those of the results."""
    sha256 = current_lock_sha256()
    findings = [_python_finding(manifest), lock_finding(manifest, sha256)]
    if sha256 is None:
        return [*findings, not_checked(ENVIRONMENT, "packages", f"{LOCK} does not exist here")]
    locked = locked_versions()
    detail = "another version"
    different = [
        Finding(ENVIRONMENT, row["package"], DIFFERS, row["locked"], row["installed"], detail)
        for row in differences(locked, installed_versions())
    ]
    as_locked = Finding(ENVIRONMENT, "packages", SAME, f"{len(locked)} in the lock", "none differs")
    return findings + (different or [as_locked])


def _python_finding(manifest: Manifest) -> Finding:
    """Compare Python's version; the patch version is shown, but does not count."""
    now, then = platform.python_version(), manifest.python
    if then == "unknown":
        return not_checked(ENVIRONMENT, "Python", "the manifest does not record it", found=now)
    outcome = SAME if now.split(".")[:2] == then.split(".")[:2] else DIFFERS
    detail = None if now == then else "the minor version is what counts"
    return Finding(ENVIRONMENT, "Python", outcome, then, now, detail)


def lock_finding(manifest: Manifest, sha256: str | None) -> Finding:
    """Compare the lock of this checkout with that of the results."""
    if manifest.lock_sha256 is None or sha256 is None:
        where = "the manifest" if manifest.lock_sha256 is None else "this checkout"
        return not_checked(ENVIRONMENT, LOCK_FILE, f"{where} has none")
    detail = "the results were made with other packages than this checkout installs"
    return compared(ENVIRONMENT, LOCK_FILE, manifest.lock_sha256, sha256, detail)


# --- stored runs ----------------------------------------------------------------------------------

_MOST = 6
_AS_LOCKED = "as locked"


def run_findings(manifest: Manifest, results: Path) -> list[Finding]:
    """A row for each difference of a stored run from its spec, data and manifest; without any, one."""
    folders = sorted(path.parent for path in (results / "runs").glob(f"*/*/{FILE}"))
    return [row for folder in folders for row in _findings_of_run(folder, manifest, results)]


def _findings_of_run(folder: Path, manifest: Manifest, results: Path) -> list[Finding]:
    name = f"{folder.parent.name}/{folder.name}"
    provenance = json_object(folder / FILE)
    if not provenance:
        return [Finding(PROVENANCE, name, DIFFERS, detail=f"{FILE} holds no JSON object")]
    findings = dict(_compared(folder, provenance, manifest, results))
    rows = [row for row in findings.values() if row is not None and row.outcome != SAME]
    if unknown := [what for what, row in findings.items() if row is None]:
        rows.append(not_checked(PROVENANCE, name, f"{FILE} does not record: {listed(unknown)}"))
    return rows or [Finding(PROVENANCE, name, SAME, detail=f"the same: {listed(findings)}")]


def _compared(
    folder: Path, provenance: Mapping[str, Any], manifest: Manifest, results: Path
) -> Iterator[tuple[str, Finding | None]]:
    """Yield what is compared of a run, with its finding; None if the run does not record it."""

    def finding(what: str, expected: Any, why: str, recorded: Any) -> tuple[str, Finding | None]:
        row = compared(PROVENANCE, f"{run}: {what}", expected, recorded, why)
        return what, None if recorded is None else row

    run = f"{folder.parent.name}/{folder.name}"
    why = "the run was made with another spec than its spec.json"
    yield finding("spec", _spec_sha256(folder), why, provenance.get("spec_sha256"))
    if (data := _dataset_sha256(folder, results)) is not None:
        why = "the run learnt from other data than the campaign's"
        yield finding("data", data, why, provenance.get("dataset_sha256"))
    if manifest.commit is not None:
        before, now = [bare_commit(manifest.commit)], commits_of(provenance)
        row = code_finding(PROVENANCE, f"{run}: commit", before, now) if now else None
        yield "commit", row
    lock = provenance.get("lock") or {}
    if manifest.lock_sha256 is not None:
        why = "the run was made with another list of packages than the manifest was recorded with"
        yield finding("lock", manifest.lock_sha256, why, lock.get("sha256"))
    why = "in parentheses the version in the lock"
    yield finding("packages", _AS_LOCKED, why, _packages(lock))


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
    return json_object(results / "datasets" / f"{dataset.get('name')}.json").get("content_sha256")


def commits_of(provenance: Mapping[str, Any]) -> list[str]:
    """Commits that published and trained a run, without `-dirty`; none: unknown."""
    rows = [provenance, *(provenance.get("segments") or ())]
    return list(dict.fromkeys(bare_commit(row["commit"]) for row in rows if row.get("commit")))


def code_finding(check: str, what: str, expected: Iterable[str], found: Iterable[str]) -> Finding:
    """Compare the code of commits with that of others, of which each side has at least one."""
    before, now = list(expected), list(found)
    alike = {same_code(one, other) for one in before for other in now}
    outcome = DIFFERS if False in alike else NOT_CHECKED if None in alike else SAME
    why = {
        DIFFERS: f"{', '.join(CODE)} differ between the commits: other code",
        NOT_CHECKED: "this clone does not have both commits, so whether their code is the same is not known",
    }
    return Finding(check, what, outcome, ", ".join(before), ", ".join(now), why.get(outcome))
