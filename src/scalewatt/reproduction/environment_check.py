"""The first check: compare this environment with the lock, and with the manifest's."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from typing import Any

from scalewatt.provenance.package_lock import (
    LOCK,
    differences,
    environment_name,
    installed_versions,
    locked_versions,
)
from scalewatt.reproduction.check_result import (
    DIFFERS,
    ENVIRONMENT,
    SAME,
    Finding,
    compared,
    not_checked,
)
from scalewatt.reproduction.manifests import Manifest, current_lock_sha256

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
