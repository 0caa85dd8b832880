"""The lock of packages, envs/lock.txt, and how what is installed differs from it."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_content
from scalewatt.common.schema_validation import PROJECT_ROOT

LOCK = PROJECT_ROOT / "envs" / "lock.txt"
ENVIRONMENT_FILE = "scalewatt-environment.json"
"""Below an environment's prefix: {"environment": "training" or "analysis", "lock_sha256": …}."""
ENVIRONMENTS = ("training", "analysis")
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;\\]+)")
_BOOTSTRAP = frozenset({"scalewatt", "pip", "setuptools", "wheel", "uv"})
"""May be installed beside the lock: this project itself, and what sets an environment up."""


@dataclass(frozen=True)
class Difference:
    """A package that is not as the lock has it."""

    package: str
    locked: str | None
    """The lock's version; None: not in the lock."""
    installed: str | None
    """None: not installed."""


def normalised(name: str) -> str:
    """Return a package's one name (PEP 503): lower case, one "-" for runs of "-", "_" and "."."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked_versions(path: Path = LOCK) -> dict[str, str]:
    """{normalised package: version} of a lock; InputError if it cannot be read or pins nothing."""
    found = {}
    for line in _content(path).decode("utf-8", "replace").splitlines():
        if pin := _PIN.match(line):
            found[normalised(pin[1])] = pin[2]
    if not found:
        raise InputError(f"{path}: pins no package; expected lines such as numpy==2.2.6")
    return found


def lock_sha256(path: Path = LOCK) -> str:
    """SHA-256 of a lock's bytes, in hexadecimal digits; InputError if it cannot be read."""
    return hashlib.sha256(_content(path)).hexdigest()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); expected the lock of the checkout"
        ) from error


def installed_versions() -> dict[str, str]:
    """{normalised package: version} of what this Python can import, sorted by name.

    The first of several on the path counts, as for an import; one without readable metadata is
    left out.
    """
    found: dict[str, str] = {}
    for one in distributions():
        try:
            stated = one.metadata  # once: it is read anew each time
            name, version = stated["Name"], stated["Version"]
        except Exception:  # a damaged or half-removed package
            continue
        if name and version:
            found.setdefault(normalised(name), version)
    return dict(sorted(found.items()))


def differences(
    locked: Mapping[str, str], installed: Mapping[str, str], environment: str | None
) -> list[Difference]:
    """Return what is missing, of another version, or installed beside the lock, sorted by package.

    In an "analysis" environment, which has a part of the lock, nothing counts as missing. A local
    suffix ("2.7.0+cu126" for 2.7.0) is no difference, nor is a way of writing ("2025.01" for 2025.1).
    """
    found = []
    for name in sorted({*locked, *installed}):
        own, wanted = installed.get(name), locked.get(name)
        if own is None:
            if environment != "analysis":
                found.append(Difference(name, wanted, None))
        elif wanted is None:
            if name not in _BOOTSTRAP:
                found.append(Difference(name, None, own))
        elif not is_version(own, wanted):
            found.append(Difference(name, wanted, own))
    return found


def is_version(installed: str, locked: str) -> bool:
    """Return True if an installed version is the locked one, which may leave the local suffix open."""
    from packaging.version import InvalidVersion, Version

    try:
        own, wanted = Version(installed), Version(locked)
    except InvalidVersion:
        return installed == locked
    return own == wanted or (wanted.local is None and Version(own.public) == wanted)


def environment_name(prefix: str | Path = sys.prefix) -> str | None:
    """ "training" or "analysis", as envs/install.sh noted below `prefix`; None if it did not."""
    name = _noted(prefix).get("environment")
    return name if name in ENVIRONMENTS else None


def _noted(prefix: str | Path) -> dict[str, Any]:
    return read_content(Path(prefix) / ENVIRONMENT_FILE) or {}


def lock_note(
    installed: Mapping[str, str], path: Path = LOCK, prefix: str | Path = sys.prefix
) -> dict[str, Any] | None:
    """Return what a run's provenance says of the lock under `lock`; None if there is no lock to read.

    sha256 (of the lock); environment; environment_lock_sha256 (of the lock that this environment was
    set up from, null if nobody noted it); differences: package, locked, installed.
    """
    environment = environment_name(prefix)
    made_from = _noted(prefix).get("lock_sha256")
    try:
        locked, sha256 = locked_versions(path), lock_sha256(path)
    except InputError:
        return None
    return {
        "sha256": sha256,
        "environment": environment,
        "environment_lock_sha256": made_from if isinstance(made_from, str) else None,
        "differences": [asdict(one) for one in differences(locked, installed, environment)],
    }
