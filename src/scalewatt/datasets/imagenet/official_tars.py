"""ImageNet-2012 from the three files as distributed to train/<class>/ and val/<class>/.

Nothing is copied on the way: each class's images are read at their offsets in the tars and written
once. Extraction takes place in `.extracting` below the data folder, which becomes train/ and val/
only when counts and digests are right; classes that are missing in a finished train/ or val/ are
added. A killed extraction resumes: finished classes and digests are kept as long as the tars have
the size and time recorded in `.extracting/tars.json` (later `tars.json`).
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import waiting_lock
from scalewatt.common.files import read_json_object, require_space, write_json
from scalewatt.common.termination import say
from scalewatt.datasets.imagenet.devkit import Devkit, read_devkit
from scalewatt.datasets.imagenet.tar_extraction import (
    ClassTask,
    Member,
    Part,
    RangeReader,
    run_tasks,
    walk,
)

TARS = {
    "train": "ILSVRC2012_img_train.tar",
    "validation": "ILSVRC2012_img_val.tar",
    "devkit": "ILSVRC2012_devkit_t12.tar.gz",
}
OFFICIAL_MD5 = {
    "train": "1d675b47d978889d74fa0da5fadfb00e",
    "validation": "29b22e2961454d5413ddabcf34fc5622",
    "devkit": "fa75699e90414af021442c21a62c3abf",
}
_OFFICIAL_NUMBERS = (1_281_167, 50_000, 1000)
_SPLITS_OF = {"train": ("train",), "validation": ("val",), "devkit": ("val",)}
"""What is extracted anew where a file was replaced; the devkit assigns val images to classes."""
RECORD = "tars.json"
EXTRACTING = ".extracting"
_SHOWN = 5


@dataclass(frozen=True)
class Tars:
    """A folder with the three files, and the MD5 that the user gives for them."""

    folder: Path
    md5: dict[str, str]

    def path(self, kind: str) -> Path:
        """Return the path of train, validation or devkit."""
        return self.folder / TARS[kind]

    def expected_md5(self, kind: str, definition: dict[str, Any]) -> tuple[str | None, str]:
        """Return the MD5 that a file must have, and its origin: given by the user, official or unchecked."""
        if kind in self.md5:
            return self.md5[kind].lower(), "given"
        numbers = tuple(definition[k] for k in ("train_samples", "validation_samples", "classes"))
        if numbers == _OFFICIAL_NUMBERS:
            return OFFICIAL_MD5[kind], "official"
        return None, "unchecked"


def extract_tars(tars: Tars, definition: dict[str, Any], folder: Path) -> None:
    """Extract train/ and val/ into `folder` from the tars, unless that was done.

    InputError names what is missing, damaged, of another number than the devkit or the definition
    says, or has another digest, or that the disk is too small.
    """
    absent = [str(tars.path(kind)) for kind in TARS if not tars.path(kind).is_file()]
    if absent:
        raise InputError(
            f"{', '.join(absent)}: missing; expected {', '.join(TARS.values())} in {tars.folder}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with waiting_lock(
        folder / ".extracting.lock", f"{folder}: another process extracts here; waiting for it"
    ):
        _refuse_others(folder)
        devkit = read_devkit(tars.path("devkit"))
        check_devkit(devkit, definition, tars.path("devkit"))
        if _is_done(folder, devkit):
            shutil.rmtree(folder / EXTRACTING, ignore_errors=True)
            check_recorded(tars, folder)
            return
        tasks = [*_train_tasks(tars, devkit), *_validation_tasks(tars, devkit)]
        _extract(tars, definition, folder, tasks)


def check_recorded(tars: Tars, folder: Path) -> None:
    """Refuse an MD5 given for a tar that train/ and val/ in `folder` were not extracted from."""
    if not tars.md5:
        return
    if not (folder / RECORD).exists():
        raise InputError(
            f"{folder / RECORD}: missing, so the images cannot be checked against the md5 in the "
            "cluster file; expected images that were extracted from the tars, or no md5"
        )
    record = read_json_object(folder / RECORD, *tars.md5)
    for kind, given in tars.md5.items():
        if (found := record[kind]["md5"]) != given.lower():
            splits = " and ".join(str(folder / split) for split in _SPLITS_OF[kind])
            raise InputError(
                f"{folder / RECORD}: {splits} come from a {TARS[kind]} of MD5 {found}, expected "
                f"{given.lower()} (in the cluster file); correct it, or remove {splits} and "
                f"{folder / 'manifest.json'} to extract the right file"
            )


def _is_done(folder: Path, devkit: Devkit) -> bool:
    """Return True if everything was extracted and every class's folder is still there."""
    if (folder / EXTRACTING / RECORD).exists() or not (folder / RECORD).exists():
        return False
    return all(
        (folder / s).is_dir() and devkit.train_images.keys() <= set(os.listdir(folder / s))
        for s in ("train", "val")
    )


def _refuse_others(folder: Path) -> None:
    ours = (folder / RECORD).exists() or (folder / EXTRACTING / RECORD).exists()
    for split in ("train", "val"):
        if (folder / split).exists() and not ours:
            raise InputError(
                f"{folder / split}: exists and was not extracted from the tars by scalewatt; name "
                "this folder as tree, or another one in data_roots"
            )


def check_devkit(devkit: Devkit, definition: dict[str, Any], where: Path) -> None:
    """Refuse a devkit of other numbers than the dataset's definition."""
    for key, found in (
        ("classes", len(devkit.train_images)),
        ("train_samples", sum(devkit.train_images.values())),
        ("validation_samples", len(devkit.validation)),
    ):
        if found != definition[key]:
            raise InputError(
                f"{where}: says {key} {found}, dataset {definition['name']} has {definition[key]}"
            )


# --- what is in the tars ------------------------------------------------------------------------


def _members(path: Path) -> list[Member]:
    """Return all members of a tar, reading only the headers."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return list(walk(RangeReader(descriptor, ahead=0), Part.whole(path)))
    finally:
        os.close(descriptor)


def _train_tasks(tars: Tars, devkit: Devkit) -> list[ClassTask]:
    path = tars.path("train")
    members = _members(path)
    names = [os.path.basename(member.name).removesuffix(".tar") for member in members]
    _compare(names, devkit.train_images, f"{path}: class tars")
    return [
        ClassTask(
            str(path),
            "train",
            name,
            Part(f"{path}: {member.name}", member.offset, member.offset + member.size),
            devkit.train_images[name],
        )
        for name, member in zip(names, members, strict=True)
    ]


def _validation_tasks(tars: Tars, devkit: Devkit) -> list[ClassTask]:
    path = tars.path("validation")
    found = _members(path)
    members = {os.path.basename(member.name): member for member in found}
    wanted = [f"ILSVRC2012_val_{n:08d}.JPEG" for n in range(1, len(devkit.validation) + 1)]
    _compare([os.path.basename(member.name) for member in found], wanted, f"{path}: images")
    of_class: dict[str, list[Member]] = {wnid: [] for wnid in devkit.train_images}
    for name, wnid in zip(wanted, devkit.validation, strict=True):
        of_class[wnid].append(members[name])
    part = Part.whole(path)
    return [
        ClassTask(str(path), "val", wnid, part, len(images), tuple(images))
        for wnid, images in of_class.items()
    ]


def _compare(found: list[str], wanted: Iterable[str], what: str) -> None:
    """Refuse missing, unknown and duplicate names."""
    known = set(wanted)
    for word, names in (
        ("missing", known - set(found)),
        ("not in the devkit", set(found) - known),
        ("duplicate", {name for name, count in Counter(found).items() if count > 1}),
    ):
        if names:
            shown = ", ".join(sorted(names)[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
            raise InputError(f"{what} {word}: {len(names)} of {len(known)}: {shown}")


# --- extraction ---------------------------------------------------------------------------------


def _extract(tars: Tars, definition: dict[str, Any], folder: Path, tasks: list[ClassTask]) -> None:
    root = folder / EXTRACTING
    record = _begin(tars, folder)
    _check_digests(tars, definition, record)
    todo = [task for task in tasks if not _is_extracted(task, folder)]
    for split in {task.split for task in todo}:
        (root / split).mkdir(parents=True, exist_ok=True)
    _check_space(root, todo)
    digests = [kind for kind in TARS if record[kind]["md5"] is None]
    if todo:
        say(f"{folder}: extracting {len(todo)} of {len(tasks)} class folders from {tars.folder}")

    def keep(kind: str, md5: str) -> None:
        record[kind]["md5"] = md5
        write_json(root / RECORD, record)
        _check_digests(tars, definition, record)

    run_tasks(root, todo, {kind: tars.path(kind) for kind in digests}, keep)
    for kind, entry in record.items():
        entry["md5_checked"] = tars.expected_md5(kind, definition)[1]
    unchecked = [
        TARS[kind] for kind, entry in record.items() if entry["md5_checked"] == "unchecked"
    ]
    if unchecked:
        say(f"{folder}: MD5 of {', '.join(unchecked)} recorded, not checked: no md5 was given")
    write_json(root / RECORD, record)
    _finish(folder, root)


def _begin(tars: Tars, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the record of the tars, after removing what was extracted from other files than these.

    InputError if that is a finished train/ or val/.
    """
    root = folder / EXTRACTING
    records = [path for path in (root / RECORD, folder / RECORD) if path.exists()]
    old = read_json_object(records[0]) if records else {}
    record: dict[str, dict[str, Any]] = {}
    outdated: set[str] = set()
    for kind, name in TARS.items():
        stat = tars.path(kind).stat()
        now = {"file": name, "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "md5": None}
        same = kind in old and all(old[kind][k] == now[k] for k in ("bytes", "mtime_ns"))
        record[kind] = {**now, "md5": old[kind]["md5"]} if same else now
        if same:
            continue
        outdated.update(_SPLITS_OF[kind])
        finished = [folder / split for split in _SPLITS_OF[kind] if (folder / split).exists()]
        if finished:
            raise InputError(
                f"{finished[0]}: was extracted from another {name} than is in {tars.folder} now; "
                "restore that file, or remove the folder to extract it again"
            )
    for split in outdated:
        shutil.rmtree(root / split, ignore_errors=True)
    root.mkdir(parents=True, exist_ok=True)
    write_json(root / RECORD, record)
    return record


def _check_digests(
    tars: Tars, definition: dict[str, Any], record: dict[str, dict[str, Any]]
) -> None:
    """Refuse digests that are known to be wrong; those not yet known pass."""
    for kind, entry in record.items():
        expected, whose = tars.expected_md5(kind, definition)
        if expected and entry["md5"] and entry["md5"] != expected:
            origin = "the official one" if whose == "official" else "in the cluster file"
            raise InputError(
                f"{tars.path(kind)}: MD5 is {entry['md5']}, expected {expected} ({origin}); the file "
                "is damaged or another one, and nothing extracted from it is used"
            )


def _is_extracted(task: ClassTask, folder: Path) -> bool:
    """Return True if a class's folder is complete; InputError if it has another number of files."""
    places = [folder / task.split / task.name, folder / EXTRACTING / task.split / task.name]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        return False
    if len(os.listdir(found)) != task.count:
        raise InputError(
            f"{found}: has {len(os.listdir(found))} files, expected {task.count}; it was "
            "changed, remove the folder to extract it again"
        )
    return True


def _check_space(root: Path, todo: list[ClassTask]) -> None:
    """Refuse a disk with less free space or files than the images need."""
    disk = os.statvfs(root)
    files = sum(task.count for task in todo)
    size = sum(
        sum(m.size for m in task.members) if task.members else task.part.end - task.part.start
        for task in todo
    )
    needed = size + files * disk.f_frsize // 2  # a file's last block is half full on average
    advice = "; make room, or name another folder in data_roots"
    require_space(root, needed, str(root), "the images", advice)
    if disk.f_files and files > disk.f_favail:
        raise InputError(f"{root}: {disk.f_favail} more files are possible, {files} are needed")


def _finish(folder: Path, root: Path) -> None:
    """Rename the folders; the next call completes what a kill interrupts."""
    for split in ("train", "val"):
        if (root / split).exists() and (folder / split).exists():
            for made in sorted((root / split).iterdir()):
                os.rename(made, folder / split / made.name)
        elif (root / split).exists():
            os.rename(root / split, folder / split)
    os.replace(root / RECORD, folder / RECORD)
    shutil.rmtree(root)
