"""Folders: whether they can be written to, how much is free, and whose disk they are on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.doctor.host import Machine, Profile
from scalewatt.doctor.host_check import LIMITED, MISSING, OK, UNKNOWN, Check, Mend, unknown
from scalewatt.doctor.subprocess_runner import Answer, Children

_SHARED = re.compile(r"nfs|lustre|gpfs|beegfs|ceph|afs|cifs|smb|wekafs|pvfs|orangefs|9p|glusterfs")
_ESCAPED = re.compile(r"\\(\d{3})")


@dataclass(frozen=True)
class Folder:
    """A folder that runs use."""

    name: str
    path: Path
    written: bool
    """Whether runs write there; a dataset's may be read-only."""
    min_free_gib: float = 0.0
    is_shared: bool | None = None
    """Whether all nodes must see it (True), or it must be the node's own (False)."""


def folders_of(profile: Profile, results: Path) -> list[Folder]:
    """The folders of a profile's runs, but for its scratch."""
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


def folder_questions(
    machine: Machine, children: Children, profile: Profile, results: Path
) -> dict[tuple[str, ...], Callable[[], list[Check]]]:
    """What is asked of each folder, by the name of the check that answers it."""
    mounts = read_mounts(machine.read("proc/self/mountinfo"))

    def asked(folder: Folder) -> Callable[[], list[Check]]:
        return lambda: [judge_folder(folder, _try(machine, children, folder.path), mounts)]

    questions: dict[tuple[str, ...], Callable[[], list[Check]]] = {
        (f"folder_{one.name}",): asked(one) for one in folders_of(profile, results)
    }
    scratch = profile.cluster.scratch
    if scratch is None:
        return questions
    resolved = re.sub(
        r"\$\{?(\w+)\}?", lambda one: machine.environment.get(one[1], one[0]), scratch
    )
    if "$" in resolved:
        questions["folder_scratch",] = lambda: [_unset_scratch(scratch, machine.job)]
    else:
        questions["folder_scratch",] = asked(Folder("scratch", Path(resolved), True, 0.0, False))
    return questions


def _try(machine: Machine, children: Children, path: Path) -> Answer:
    command = [machine.python, "-m", "scalewatt.doctor.folder_child", str(path.absolute())]
    return children.ask(command, machine.limits.command_s)


def judge_folder(folder: Folder, answer: Answer, mounts: Mapping[str, str]) -> Check:
    """What came of the trial; `mounts` are the types of file systems by mount point."""
    name, needed = f"folder_{folder.name}", folder.written and folder.name != "scratch"
    try:
        tried: dict[str, Any] = json.loads(answer.output)
    except ValueError:
        hangs = "; its file system may hang" if answer.is_silent else ""
        reason = f"{folder.path}: {answer.trouble or 'no answer'}{hangs}"
        return unknown(name, reason, needed)
    kind = type_of(Path(tried["tried"]).resolve(), mounts)
    facts = {"path": str(folder.path), "file_system": kind, "shared": is_shared(kind), **tried}
    free = tried["free_gib"]
    found = (
        f"{folder.path}: {'?' if free is None else f'{free:.0f}'} GiB free on {kind or 'a disk'}"
    )
    if tried["exists"] is None and not folder.written:
        text = f"{folder.path}: cannot be looked at ({tried['error']})"
        mend: Mend = (f"ls -ld {tried['tried']}",)
        ask = ("whoever owns it, or another data_roots entry",)
        return Check(name, MISSING, text, "its data cannot be read", mend, False, facts, ask)
    if tried["exists"] is False:
        if not folder.written:
            ask = (f"scalewatt prepare --folder {folder.path} …, or another data_roots entry",)
            means = "data are prepared there when a run needs them"
            return Check(name, LIMITED, f"{folder.path}: is not there", means, facts=facts, ask=ask)
        found += ", is made when needed"
    if tried["error"] and not folder.written:
        means = "prepared data may be read-only; nothing can be prepared there"
        return Check(name, OK, f"{found}; read-only", means, facts=facts)
    if tried["error"]:
        mend, ask = (f"ls -ld {tried['tried']}; quota",), ("another folder, in the cluster file",)
        text = f"{folder.path}: cannot be written to ({tried['error']})"
        return Check(name, MISSING, text, "no run can leave its results", mend, needed, facts, ask)
    if free is not None and free < folder.min_free_gib:
        mend = (f"du -sh {tried['tried']}/* | sort -h",)
        ask = ("make room, or min_free_gib: another value",)
        means = f"nothing is started: min_free_gib is {folder.min_free_gib:g}"
        return Check(name, MISSING, found, means, mend, needed, facts, ask)
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
    found = f"{scratch}: is not set here; in a job it may be"
    return Check("folder_scratch", UNKNOWN, found, "ask inside a job", facts=facts)


def read_mounts(mountinfo: str) -> dict[str, str]:
    """Types of file systems by mount point, of /proc/self/mountinfo."""
    mounts = {}
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        words = before.split()
        if dash and len(words) > 4 and after:
            point = _ESCAPED.sub(lambda one: chr(int(one[1], 8)), words[4])
            mounts[point] = after.split()[0]
    return mounts


def type_of(path: Path, mounts: Mapping[str, str]) -> str | None:
    """Type of the file system that a path is on; None where unknown."""
    found = (mounts[str(one)] for one in (path, *path.parents) if str(one) in mounts)
    return next(found, None)


def is_shared(kind: str | None) -> bool | None:
    """Whether a type of file system is one that several nodes see; None where unknown."""
    if kind is None or kind.startswith("fuse"):
        return None
    return bool(_SHARED.search(kind))
