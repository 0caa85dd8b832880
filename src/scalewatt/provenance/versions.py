"""Code and packages that a run is made with, and how the packages differ from the lock, envs/lock.txt."""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name, canonicalize_version

from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256
from scalewatt.common.project_files import PROJECT_ROOT

CODE = ("src", "workflow", "envs", "Snakefile")
"""Files of a clone that a run's numbers come from; what the run is, its spec says."""
PACKAGES = ("scalewatt", "torch", "torchvision", "perun", "mpi4py", "mpich", "numpy", "h5py")
CLAIMS_TABLES = (
    *("claims.csv", "claim_checks.csv", "portable_checks.csv", "inconsistencies.csv"),
    *("tolerances.csv", "published_results.csv"),
)
"""Tables of `reference` that decide verdicts, in the order of their hash; the last has published spreads."""


def package_versions(names: Iterable[str] = PACKAGES) -> dict[str, str | None]:
    """Versions of Python and of packages, null if one is absent; by default those of a training."""
    versions = {"python": platform.python_version(), **dict.fromkeys(names)}
    for name in names:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def source_commit() -> str | None:
    """Commit of the clone that this code is from, `-dirty` where files differ; None without one.

    A container has no clone, but the commit in the file COMMIT, written when it was built.
    """
    if (PROJECT_ROOT / ".git").exists():
        return _git("describe", "--always", "--dirty", "--abbrev=12").stdout.strip() or None
    noted = PROJECT_ROOT / "COMMIT"
    return (noted.read_text(encoding="utf-8").strip() or None) if noted.is_file() else None


def bare_commit(commit: str) -> str:
    """A commit as `source_commit` writes it, without `-dirty`."""
    return commit.removesuffix("-dirty")


def is_clean(commit: str | None) -> bool | None:
    """Whether no tracked file differs from a commit of `source_commit`; None without one."""
    return None if commit is None else not commit.endswith("-dirty")


@cache
def same_code(commit: str, other: str) -> bool | None:
    """Whether the files that a run's numbers come from (CODE) are the same in two commits.

    Commits of documents, campaigns or exclusions change none of them. None if the clone lacks a commit.
    """
    if commit == other:
        return True
    done = _git("diff", "--quiet", "--end-of-options", commit, other, "--", *CODE)
    return {0: True, 1: False}.get(done.returncode)


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    """Run git in the project's clone; exit code 128, as of git's failures, where it cannot be run."""
    command = ["git", "-C", str(PROJECT_ROOT), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return subprocess.CompletedProcess(command, 128, "", "")


@cache
def claims_hash() -> str | None:
    """SHA-256 over the claims' tables, one after the other; None without any.

    So a run says by which tolerances it was going to be judged.
    """
    tables = [PROJECT_ROOT / "reference" / name for name in CLAIMS_TABLES]
    contents = [path.read_bytes() for path in tables if path.is_file()]
    return hashlib.sha256(b"".join(contents)).hexdigest() if contents else None


@cache
def made_with() -> dict[str, Any]:
    """Code and packages of this process by the keys of a run's provenance.

    Looked up once a process, because it reads the metadata of two hundred packages.
    """
    commit, installed = source_commit(), installed_versions()
    return {
        "commit": commit,
        "commit_clean": is_clean(commit),
        "packages_installed": installed,
        "lock": lock_note(installed),
        "claims_sha256": claims_hash(),
    }


# --- the lock -------------------------------------------------------------------------------------

LOCK = PROJECT_ROOT / "envs" / "lock.txt"
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[.*?\])?==([^\s;\\]+)", re.MULTILINE)
_FIELD = re.compile(r"^(Name|Version): *(\S+)", re.MULTILINE)
_INSTALLERS = {"scalewatt", "pip", "setuptools", "wheel", "uv"}
"""This project and what installs packages: in any version."""


def locked_versions(path: Path = LOCK) -> dict[str, str]:
    """{normalised package: version} of a lock; InputError if it pins nothing."""
    pins = _PIN.findall(path.read_text(encoding="utf-8"))
    if not pins:
        raise InputError(f"{path}: pins no package; expected lines such as numpy==2.2.6")
    return {canonicalize_name(name): version for name, version in pins}


def installed_versions() -> dict[str, str]:
    """{normalised package: version} of what this Python can import, sorted by name."""
    versions: dict[str, str] = {}
    for distribution in distributions():
        with suppress(Exception):  # a half-removed package
            # Not by `metadata`, which parses the whole description of each.
            text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
            fields = dict(_FIELD.findall(text.partition("\n\n")[0]))
            versions.setdefault(canonicalize_name(fields["Name"]), fields["Version"])
    return dict(sorted(versions.items()))


def differences(locked: Mapping[str, str], installed: Mapping[str, str]) -> list[dict[str, Any]]:
    """Installed packages of another version than the lock's (null: not in the lock), by name.

    What is not installed does not count, as environments have parts of the lock, nor does a local
    suffix ("2.7.0+cu126" for 2.7.0) or another spelling ("2025.01" for 2025.1).
    """
    return [
        {"package": name, "locked": locked.get(name), "installed": version}
        for name, version in sorted(installed.items())
        if name not in _INSTALLERS and _public(version) != _public(locked.get(name, ""))
    ]


def _public(version: str) -> str:
    return canonicalize_version(version.partition("+")[0])


def lock_note(installed: Mapping[str, str], path: Path = LOCK) -> dict[str, Any] | None:
    """`lock` of a run's provenance: SHA-256 and differences; None without a lock."""
    if not path.is_file():
        return None
    return {
        "sha256": file_sha256(path),
        "differences": differences(locked_versions(path), installed),
    }
