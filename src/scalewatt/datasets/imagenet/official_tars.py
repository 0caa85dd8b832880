"""ImageNet-2012 from the three files as distributed to train/<class>/ and val/<class>/.

Classes are extracted to `.extracting` below the data folder, each renamed when it is complete; they
become train/ and val/ when all are there and the MD5 of the files are right. An extraction that was
ended goes on with the classes that are missing, if the files still have the sizes and times recorded
in `.extracting/tars.json` (later `tars.json`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import waiting_lock
from scalewatt.common.files import read_json_object, require_space, write_json
from scalewatt.common.processes import die_with
from scalewatt.common.termination import say
from scalewatt.datasets.imagenet.devkit import Devkit, read_devkit

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
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
"""JPEG, and PNG: one of the official images is a PNG named as a JPEG."""


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
        else:
            _extract(tars, definition, folder, devkit)


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


# --- extraction ---------------------------------------------------------------------------------


def _extract(tars: Tars, definition: dict[str, Any], folder: Path, devkit: Devkit) -> None:
    members = _class_tars(tars.path("train"), devkit)
    root = folder / EXTRACTING
    record = _begin(tars, folder)
    wanted = {"train": devkit.train_images, "val": devkit.validation_images()}
    todo = {split: _missing(folder, split, counts) for split, counts in wanted.items()}
    size = sum(members[name].size for name in todo["train"])
    size += record["validation"]["bytes"] if todo["val"] else 0
    _check_space(root, size, sum(wanted[split][name] for split in todo for name in todo[split]))
    say(f"{folder}: extracting {sum(map(len, todo.values()))} class folders from {tars.folder}")
    pool = ProcessPoolExecutor(
        len(os.sched_getaffinity(0)), get_context("spawn"), die_with, (os.getpid(),)
    )
    try:
        # A digest reads a whole file and takes longest, so it begins first.
        digests: dict[Future[Any], str] = {
            pool.submit(md5_of, tars.path(kind)): kind for kind in TARS if not record[kind]["md5"]
        }
        classes: list[Future[Any]] = [
            pool.submit(
                extract_class,
                *(tars.path("train"), members[name], root / "train" / name, wanted["train"][name]),
            )
            for name in todo["train"]
        ]
        if todo["val"]:
            path = tars.path("validation")
            classes.append(pool.submit(extract_validation, path, root / "val", devkit.validation))
        for future in as_completed([*digests, *classes]):
            result = future.result()
            if future in digests:
                record[digests[future]]["md5"] = result
                write_json(root / RECORD, record)
                _check_digests(tars, definition, record)
    except (OSError, BrokenProcessPool) as error:
        reason = error.strerror if isinstance(error, OSError) else "a process was killed"
        raise InputError(f"{root}: the extraction stopped: {reason or error}") from error
    finally:
        pool.shutdown(cancel_futures=True)
    _check_digests(tars, definition, record)
    for kind, entry in record.items():
        entry["md5_checked"] = tars.expected_md5(kind, definition)[1]
        if entry["md5_checked"] == "unchecked":
            say(f"{folder}: MD5 of {TARS[kind]} recorded, not checked: no md5 was given")
    write_json(root / RECORD, record)
    for split, names in todo.items():
        (folder / split).mkdir(exist_ok=True)
        for name in names:
            if (root / split / name).exists():  # else renamed before a kill
                os.rename(root / split / name, folder / split / name)
    os.replace(root / RECORD, folder / RECORD)
    shutil.rmtree(root)


def _class_tars(path: Path, devkit: Devkit) -> dict[str, tarfile.TarInfo]:
    """Return the tars of classes in the tar of the training images, which must be the devkit's."""
    with _readable(path), tarfile.open(path) as tar:
        members = {Path(member.name).stem: member for member in tar if member.isfile()}
    if odd := sorted(members.keys() ^ devkit.train_images.keys()):
        shown = ", ".join(odd[:_SHOWN]) + (" …" if len(odd) > _SHOWN else "")
        raise InputError(f"{path}: its class tars are not those of the devkit; differing: {shown}")
    return members


def _begin(tars: Tars, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the record of the tars, after removing what was extracted from other files than these.

    InputError if that is a finished train/ or val/.
    """
    root = folder / EXTRACTING
    now: dict[str, dict[str, Any]] = {}
    for kind, name in TARS.items():
        stat = tars.path(kind).stat()
        now[kind] = {"file": name, "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "md5": None}
    for path in filter(Path.exists, (folder / RECORD, root / RECORD)):
        known = read_json_object(path, *TARS)
        if all(
            known[kind][key] == now[kind][key] for kind in TARS for key in ("bytes", "mtime_ns")
        ):
            for kind in TARS:
                now[kind]["md5"] = known[kind]["md5"]
        elif path == folder / RECORD:
            raise InputError(
                f"{path}: train and val were extracted from other files than are in {tars.folder} "
                f"now; restore those files, or remove train, val and {RECORD} to extract again"
            )
        else:
            shutil.rmtree(root)
    root.mkdir(exist_ok=True)
    write_json(root / RECORD, now)
    return now


def _missing(folder: Path, split: str, counts: dict[str, int]) -> list[str]:
    """Return the classes that are not in a split yet; InputError for one with another number of files."""
    missing = []
    for name, count in counts.items():
        path = folder / split / name
        if not path.is_dir():
            missing.append(name)
        elif len(os.listdir(path)) != count:
            raise InputError(
                f"{path}: has {len(os.listdir(path))} files, expected {count}; it was changed, "
                "remove the folder to extract it again"
            )
    return missing


def _check_space(root: Path, size: int, files: int) -> None:
    """Refuse a disk with less free space or files than the images need."""
    disk = os.statvfs(root)
    needed = size + files * disk.f_frsize // 2  # a file's last block is half full on average
    advice = "; make room, or name another folder in data_roots"
    require_space(root, needed, str(root), "the images", advice)
    if disk.f_files and files > disk.f_favail:
        raise InputError(f"{root}: {disk.f_favail} more files are possible, {files} are needed")


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


# --- in a process of the pool ---------------------------------------------------------------------


def extract_class(tar: Path, member: tarfile.TarInfo, out: Path, count: int) -> None:
    """Write the images of a class, whose tar is `member` of `tar`, to the folder `out`, unless it is there.

    InputError if it is damaged or has not `count` images.
    """
    if out.exists():
        return
    with _partial(out) as partial, _readable(tar, member.name):
        with tarfile.open(tar) as outer, tarfile.open(fileobj=outer.extractfile(member)) as inner:
            found = sum(_write_image(inner, image, partial) for image in inner if image.isfile())
        if found != count:
            raise InputError(f"{tar}: {member.name}: has {found} images, the devkit says {count}")


def extract_validation(tar: Path, out: Path, classes: list[str]) -> None:
    """Write the validation images, the first of which is of the first of `classes`, to folders in `out`.

    Nothing is done if `out` is there. InputError if an image is missing, or too many.
    """
    if out.exists():
        return
    with _partial(out) as partial, _readable(tar), tarfile.open(tar) as images:
        for name in set(classes):
            (partial / name).mkdir()
        numbers = {f"ILSVRC2012_val_{n:08d}.JPEG": wnid for n, wnid in enumerate(classes, 1)}
        for image in images:
            if image.isfile():
                wnid = numbers.pop(Path(image.name).name, None)
                if wnid is None:
                    raise InputError(f"{tar}: {image.name} is not an image of the devkit")
                _write_image(images, image, partial / wnid)
        if numbers:
            shown = ", ".join(sorted(numbers)[:_SHOWN])
            raise InputError(f"{tar}: images missing: {len(numbers)} of {len(classes)}: {shown}")


def _write_image(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> bool:
    content = tar.extractfile(member).read()  # type: ignore[union-attr]
    name = Path(member.name).name
    if not content.startswith(_MAGIC):
        raise InputError(f"{member.name} is no JPEG or PNG image")
    try:
        with open(folder / name, "xb") as file:
            file.write(content)
    except FileExistsError as error:
        raise InputError(f"has a duplicate {name}") from error
    return True


@contextmanager
def _partial(out: Path) -> Iterator[Path]:
    """Yield a new folder that becomes `out` when the block ends well."""
    partial = out.with_name(f".partial-{out.name}")
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed process; the caller has the lock
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _readable(tar: Path, member: str = "") -> Iterator[None]:
    """Name the file in the error of what is damaged in it."""
    where = f"{tar}: {member}" if member else str(tar)
    try:
        yield
    except (tarfile.TarError, EOFError) as error:
        raise InputError(f"{where}: cannot be read as a tar file ({error})") from error
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(str(tar)) else f"{where}: {text}") from error


def md5_of(path: Path) -> str:
    """Return the MD5 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()
