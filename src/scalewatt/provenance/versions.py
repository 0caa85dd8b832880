"""What a run was done with."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from scalewatt.common.schema_validation import PROJECT_ROOT
from scalewatt.provenance.package_lock import installed_versions, lock_note

CODE = ("src", "workflow", "envs", "Snakefile")
"""What of a clone a run's numbers come from; what the run is, its spec says."""
_COMMIT = re.compile(r"[0-9A-Za-z][0-9A-Za-z._/-]*")
PACKAGES = ("scalewatt", "torch", "torchvision", "perun", "mpi4py", "mpich", "numpy", "h5py")
CLAIMS_TABLES = (
    "claims.csv",
    "claim_checks.csv",
    "portable_checks.csv",
    "inconsistencies.csv",
    "tolerances.csv",
    "published_results.csv",
)
"""Those of `reference` that decide verdicts, in the order of their hash; the last has published spreads."""


def package_versions() -> dict[str, str | None]:
    """Versions of the packages that matter for a training, null if one is absent."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


def source_commit() -> str | None:
    """Return the commit of the clone that this code is from, `-dirty` where files differ; None without one.

    Of a container, which has no clone, the one noted in the file COMMIT when it was built.
    """
    if not (PROJECT_ROOT / ".git").exists():
        noted = PROJECT_ROOT / "COMMIT"
        return (noted.read_text(encoding="utf-8").strip() or None) if noted.is_file() else None
    command = ["git", "-C", str(PROJECT_ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def bare_commit(commit: str) -> str:
    """Return a commit as `source_commit` says it without `-dirty`."""
    return commit.removesuffix("-dirty")


@cache
def same_code(one: str, other: str) -> bool | None:
    """Return True if the files that a run's numbers come from (CODE) are the same in two commits.

    Commits of documents, campaigns or exclusions change none of them. None if the clone does not tell: it
    has no history, or not these commits.
    """
    if one == other:
        return True
    if not (_COMMIT.fullmatch(one) and _COMMIT.fullmatch(other)):
        return None
    command = ["git", "-C", str(PROJECT_ROOT), "diff", "--quiet", one, other, "--", *CODE]
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return {0: True, 1: False}.get(done.returncode)


def is_clean(commit: str | None) -> bool | None:
    """Return True if no tracked file differs from a commit as `source_commit` says it; None without one."""
    return None if commit is None else not commit.endswith("-dirty")


@cache
def claims_hash() -> str | None:
    """Return the SHA-256 over the claims' tables, one after the other; None without any.

    So a run says by which tolerances it was going to be judged.
    """
    tables = [PROJECT_ROOT / "reference" / name for name in CLAIMS_TABLES]
    found = [path.read_bytes() for path in tables if path.is_file()]
    return hashlib.sha256(b"".join(found)).hexdigest() if found else None


@cache
def made_with() -> dict[str, Any]:
    """Return the code and packages of this process, by the keys of a run's provenance.

    commit, commit_clean, packages_installed, lock, claims_sha256.

    Looked up once a process: it reads the metadata of a hundred packages.
    """
    commit, installed = source_commit(), installed_versions()
    return {
        "commit": commit,
        "commit_clean": is_clean(commit),
        "packages_installed": installed,
        "lock": lock_note(installed),
        "claims_sha256": claims_hash(),
    }


@dataclass(frozen=True)
class Gpu:
    """The properties that decide which sensors a GPU has; None if unknown."""

    index: int | None
    """NVML's, which perun's sensors carry; CUDA's own may be masked."""
    uuid: str | None
    """As NVML writes it."""
    name: str | None = None


def gpu_identity(device: Any) -> Gpu:
    """Index and uuid of a CUDA device, found by its uuid."""
    import torch

    try:
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    except (AttributeError, RuntimeError, AssertionError):
        return Gpu(None, None)
    try:
        import pynvml

        pynvml.nvmlInit()
        return Gpu(int(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid))), uuid)
    except Exception:  # no NVML, or a partitioned GPU: perun has no sensor of that one either
        return Gpu(None, uuid)


def visible_gpu(torch_device: str, local_rank: int) -> Gpu | None:
    """Return the GPU that a program takes for the one of its local rank, without a context on it.

    None if there is none to take (`cpu`, or `auto` on a machine without one).
    """
    if torch_device == "cpu":
        return None
    unknown = Gpu(None, None) if torch_device == "cuda" else None
    try:
        import pynvml

        pynvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        words = [word.strip() for word in visible.split(",")] if visible is not None else []
        count = len(words) if visible is not None else pynvml.nvmlDeviceGetCount()
        if not count:
            return unknown
        word = words[local_rank % count] if words else str(local_rank % count)
        if word.isdigit():
            handle = pynvml.nvmlDeviceGetHandleByIndex(int(word))
        else:
            handle = pynvml.nvmlDeviceGetHandleByUUID(word)
        name, uuid = (
            text.decode() if isinstance(text, bytes) else text
            for text in (pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle))
        )
        return Gpu(int(pynvml.nvmlDeviceGetIndex(handle)), uuid, name)
    except Exception:  # no NVML, or a partitioned GPU: perun has no sensor of that one either
        return unknown


def held_gpus(places: Iterable[tuple[str, Gpu | None]]) -> dict[str, Any]:
    """{"gpus": {host: indices}, "gpu_uuids": {host: uuids}} of the ranks' hosts and GPUs.

    A host's are null if those of one rank are unknown, and both are null without GPUs.
    """
    on_gpu = [(host, gpu) for host, gpu in places if gpu is not None]
    return {
        "gpus": _by_host((host, gpu.index) for host, gpu in on_gpu),
        "gpu_uuids": _by_host((host, gpu.uuid) for host, gpu in on_gpu),
    }


def joined_gpus(described: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """`held_gpus` of several segments together; what is unknown in one is unknown."""
    segments = list(described)
    return {
        name: _by_host(
            (host, one)
            for segment in segments
            for host, known in (segment.get(name) or {}).items()
            for one in (known if known is not None else [None])
        )
        for name in ("gpus", "gpu_uuids")
    }


def _by_host(found: Iterable[tuple[str, Any]]) -> dict[str, list[Any] | None] | None:
    sets: dict[str, set[Any]] = {}
    for host, one in found:
        sets.setdefault(host, set()).add(one)
    return {h: None if None in sets[h] else sorted(sets[h]) for h in sorted(sets)} or None


def cpu_name() -> str:
    """Return the CPU's name as Linux tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
