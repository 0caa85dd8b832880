"""Folders: whether they can be written to, how much is free, and whose disk they are on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from scalewatt.doctor.doctor_types import (
    LIMITED,
    MISSING,
    OK,
    UNKNOWN,
    Check,
    CheckFunction,
    Commands,
    Machine,
    PlannedChecks,
    Profile,
    unknown,
)
from scalewatt.doctor.subprocess_runner import Answer, Subprocesses

_SHARED = re.compile(r"nfs|lustre|gpfs|beegfs|ceph|afs|cifs|smb|wekafs|pvfs|orangefs|9p|glusterfs")


@dataclass(frozen=True)
class Folder:
    """A folder that runs use."""

    name: str
    path: Path
    written: bool
    """True if runs write there; a dataset's may be read-only."""
    min_free_gib: float = 0.0
    is_shared: bool | None = None
    """True if all nodes must see it, False if it must be the node's own."""


def folders_of(profile: Profile, results: Path) -> list[Folder]:
    """Return the folders of a profile's runs, except its scratch."""
    cluster = profile.cluster
    shared = True if profile.submits else None
    free = cluster.min_free_gib
    found = [
        Folder("work", Path(cluster.work_root), True, free, shared),
        Folder("results", results, True, free, shared),
        Folder("data", Path("data"), True, 0.0, shared),
    ]
    roots = (Folder(f"data.{k}", Path(v), False, 0, shared) for k, v in cluster.data_roots.items())
    return [*found, *roots]


def plan_folder_checks(
    machine: Machine, programs: Subprocesses, profile: Profile, results: Path
) -> PlannedChecks:
    """Return the checks of folders, by name."""
    mounts = {one.mountpoint: one.fstype for one in psutil.disk_partitions(all=True)}

    def check(folder: Folder) -> CheckFunction:
        command = machine.probe("folder", str(folder.path.absolute()))
        limit_s = machine.limits.command_s
        return lambda: [assess_folder(folder, programs.run(command, limit_s), mounts)]

    planned: PlannedChecks = {
        (f"folder_{one.name}",): check(one) for one in folders_of(profile, results)
    }
    scratch = profile.cluster.scratch
    if scratch is None:
        return planned
    resolved = re.sub(
        r"\$\{?(\w+)\}?", lambda one: machine.environment.get(one[1], one[0]), scratch
    )
    if "$" in resolved:
        planned["folder_scratch",] = lambda: [_unset_scratch(scratch, machine.job)]
    else:
        planned["folder_scratch",] = check(Folder("scratch", Path(resolved), True, 0.0, False))
    return planned


def assess_folder(folder: Folder, answer: Answer, mounts: Mapping[str, str]) -> Check:
    """Assess the probe of a folder; `mounts` are the types of file systems by mount point."""
    name, needed = f"folder_{folder.name}", folder.written and folder.name != "scratch"
    if not answer.objects:
        hangs = "; its file system may hang" if answer.timed_out else ""
        reason = f"{folder.path}: {answer.problem or 'no answer'}{hangs}"
        return unknown(name, reason, needed)
    tried = answer.objects[-1]
    kind = type_of(Path(tried["tried"]).resolve(), mounts)
    facts = {"path": str(folder.path), "file_system": kind, "shared": is_shared(kind), **tried}
    free = tried["free_gib"]
    found = (
        f"{folder.path}: {'?' if free is None else f'{free:.0f}'} GiB free on {kind or 'a disk'}"
    )
    if tried["exists"] is None and not folder.written:
        text = f"{folder.path}: cannot be searched ({tried['error']})"
        fix: Commands = (f"ls -ld {tried['tried']}",)
        ask = ("its owner, or another data_roots entry",)
        return Check(name, MISSING, text, "its data cannot be read", fix, False, facts, ask)
    if tried["exists"] is False:
        if not folder.written:
            ask = (f"scalewatt prepare --folder {folder.path} …, or another data_roots entry",)
            means = "data are prepared there when a run needs them"
            return Check(
                name, LIMITED, f"{folder.path}: does not exist", means, facts=facts, ask=ask
            )
        found += ", created when needed"
    if tried["error"] and not folder.written:
        means = "prepared data may be read-only; nothing can be prepared there"
        return Check(name, OK, f"{found}; read-only", means, facts=facts)
    if tried["error"]:
        fix, ask = (f"ls -ld {tried['tried']}; quota",), ("another folder, in the cluster file",)
        text = f"{folder.path}: cannot be written to ({tried['error']})"
        return Check(name, MISSING, text, "no run can leave its results", fix, needed, facts, ask)
    if free is not None and free < folder.min_free_gib:
        fix = (f"du -sh {tried['tried']}/* | sort -h",)
        ask = ("make room, or min_free_gib: another value",)
        means = f"nothing is started: min_free_gib is {folder.min_free_gib:g}"
        return Check(name, MISSING, found, means, fix, needed, facts, ask)
    if folder.is_shared is True and is_shared(kind) is False:
        ask = ("a folder that all nodes see, in the cluster file (work_root, data_roots)",)
        means = "a disk of this node alone: jobs on other nodes do not see it"
        return Check(name, LIMITED, found, means, (), needed, facts, ask)
    if folder.is_shared is False and (is_shared(kind) or kind in ("tmpfs", "ramfs")):
        what = "is memory" if kind in ("tmpfs", "ramfs") else "is shared, no disk of the node's own"
        ask = ("scratch: null, or a folder on a disk of the node's own",)
        return Check(name, LIMITED, found, f"{what}: staging may not help", (), needed, facts, ask)
    return Check(name, OK, found, needed=needed, facts=facts)


def _unset_scratch(scratch: str, job: str | None) -> Check:
    facts = {"path": scratch}
    if job:
        ask = ("scratch: another variable or folder of this cluster's nodes, or null",)
        found = f"{scratch}: is not set in this job"
        return Check("folder_scratch", MISSING, found, "runs are refused", (), True, facts, ask)
    found = f"{scratch}: is not set here; it may be in a job"
    return Check("folder_scratch", UNKNOWN, found, "run the doctor inside a job", facts=facts)


def type_of(path: Path, mounts: Mapping[str, str]) -> str | None:
    """Return the type of the file system that a path is on; None if unknown."""
    found = (mounts[str(one)] for one in (path, *path.parents) if str(one) in mounts)
    return next(found, None)


def is_shared(kind: str | None) -> bool | None:
    """Return True if several nodes see this type of file system; None if unknown."""
    if kind is None or kind.startswith("fuse"):
        return None
    return bool(_SHARED.search(kind))
