"""What a run was done with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("scalewatt", "torch", "torchvision", "perun", "mpi4py", "mpich", "numpy", "h5py")


def package_versions() -> dict[str, str | None]:
    """Versions of the packages that matter for a training, null where one is absent."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


def cpu_name() -> str:
    """The CPU's name as Linux tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
