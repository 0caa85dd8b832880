"""The lock of packages, envs/lock.txt, and how the installed packages differ from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name, canonicalize_version

from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256
from scalewatt.common.project_files import PROJECT_ROOT

LOCK = PROJECT_ROOT / "envs" / "lock.txt"
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[.*?\])?==([^\s;\\]+)", re.MULTILINE)
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
            metadata = distribution.metadata  # once, because each access reads the file again
            versions.setdefault(canonicalize_name(metadata["Name"]), metadata["Version"])
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
