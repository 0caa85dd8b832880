"""Check this environment, and the spec, data, packages and code that each stored run was made with."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.errors import InputError
from scalewatt.provenance.versions import (
    CODE,
    LOCK,
    bare_commit,
    differences,
    installed_versions,
    locked_versions,
    same_code,
)
from scalewatt.reproduction.findings import (
    DIFFERS,
    ENVIRONMENT,
    NOT_CHECKED,
    PROVENANCE,
    SAME,
    Finding,
    compare,
    skip,
)
from scalewatt.reproduction.manifest import Manifest, current_lock_sha256
from scalewatt.results.text.number_format import listed
from scalewatt.run_files.inventory import PROVENANCE as FILE
from scalewatt.run_files.inventory import json_object

LOCK_FILE = "list of packages (envs/lock.txt)"
_MOST = 6


def environment_findings(manifest: Manifest) -> Iterator[Finding]:
    """Compare Python, the lock and the installed packages with those of the results."""
    python = platform.python_version()
    is_same = python.split(".")[:2] == manifest.python.split(".")[:2]  # the patch does not count
    yield Finding(ENVIRONMENT, "Python", SAME if is_same else DIFFERS, manifest.python, python)
    sha256 = current_lock_sha256()
    if manifest.lock_sha256 is None or sha256 is None:
        where = "the manifest" if manifest.lock_sha256 is None else "this checkout"
        yield skip(ENVIRONMENT, LOCK_FILE, f"{where} has none")
    else:
        why = "the results were made with other packages than this checkout installs"
        yield compare(ENVIRONMENT, LOCK_FILE, manifest.lock_sha256, sha256, why)
    if sha256 is None:
        yield skip(ENVIRONMENT, "packages", f"{LOCK} does not exist here")
        return
    different = differences(locked_versions(), installed_versions())
    for row in different:
        yield Finding(ENVIRONMENT, row["package"], DIFFERS, row["locked"], row["installed"])
    if not different:
        yield Finding(ENVIRONMENT, "packages", SAME, detail="installed as locked")


# --- stored runs ----------------------------------------------------------------------------------


def run_findings(manifest: Manifest, results: Path) -> Iterator[Finding]:
    """Yield what of each stored run is as recorded: its spec, data, lock, packages and code."""
    for path in sorted((results / "runs").glob(f"*/*/{FILE}")):
        name = f"{path.parent.parent.name}/{path.parent.name}"
        record = json_object(path)
        lock = record.get("lock") or {}
        packages = None
        if "differences" in lock:
            others = (
                f"{row['package']} {row['installed']} ({row['locked'] or 'none'})"
                for row in lock["differences"]
            )
            packages = listed(others, _MOST) or "as locked"
        values = {
            "spec": (_spec_sha256(path.parent), record.get("spec_sha256")),
            "data": (_dataset_sha256(path.parent, results), record.get("dataset_sha256")),
            "lock": (manifest.lock_sha256, lock.get("sha256")),
            "packages": ("as locked", packages),
        }
        for what, (expected, actual) in values.items():
            if actual is None and expected is not None:
                yield skip(PROVENANCE, f"{name}: {what}", f"{FILE} does not record it")
            elif expected is not None or what == "spec":
                yield compare(PROVENANCE, f"{name}: {what}", expected, actual)
        commits = commits_of(record)  # a continued run has one of each segment
        if commits:
            yield compare_code(PROVENANCE, f"{name}: commit", commits[:1], commits)
        else:
            yield skip(PROVENANCE, f"{name}: commit", f"{FILE} does not record it")


def _spec_sha256(folder: Path) -> str | None:
    """Hash of a run's spec; None if it is damaged."""
    with suppress(InputError):
        return read_spec(folder / "spec.json").sha256
    return None


def _dataset_sha256(folder: Path, results: Path) -> str | None:
    """Hash of the campaign's dataset as it was last prepared; None if a run has none."""
    dataset = json_object(folder / "spec.json").get("dataset") or {}
    description = json_object(results / "datasets" / f"{dataset.get('name')}.json")
    sha256: str | None = description.get("content_sha256")
    return sha256


def commits_of(record: Mapping[str, Any]) -> list[str]:
    """Commits that published and trained a run, without `-dirty`; none if they are unknown."""
    rows = [record, *(record.get("segments") or ())]
    return list(dict.fromkeys(bare_commit(row["commit"]) for row in rows if row.get("commit")))


def compare_code(check: str, what: str, expected: Iterable[str], actual: Iterable[str]) -> Finding:
    """Compare the code of commits with that of others; each side has at least one."""
    before, now = list(expected), list(actual)
    alike = {same_code(commit, other) for commit in before for other in now}
    outcome = DIFFERS if False in alike else NOT_CHECKED if None in alike else SAME
    why = {
        DIFFERS: f"{', '.join(CODE)} differ between the commits: other code",
        NOT_CHECKED: "this clone does not have both commits, so their code cannot be compared",
    }
    return Finding(check, what, outcome, ", ".join(before), ", ".join(now), why.get(outcome))
