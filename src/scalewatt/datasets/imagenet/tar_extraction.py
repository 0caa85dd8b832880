"""What one process does while ImageNet's tars are extracted: a class at a time, or a digest.

Imported by every process of the pool, so without numpy and its like.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from scalewatt.common.errors import InputError
from scalewatt.datasets.imagenet.image_types import SUFFIXES, is_image, write_file
from scalewatt.datasets.imagenet.tar_members import Member, Part, RangeReader, walk

_DIGEST_READ = 1 << 22


class Abandoned(Exception):
    """Nobody wants the result of this work any more."""


_abandoned: Callable[[], bool] = bool
"""Whether this process is to leave its work; without a pool it never is."""


def obey(abandoned: Callable[[], bool]) -> None:
    """Have this process leave its work with `Abandoned` once `abandoned` says so."""
    global _abandoned
    _abandoned = abandoned


def _go_on() -> None:
    if _abandoned():
        raise Abandoned


@dataclass(frozen=True)
class ClassTask:
    """Images of one class to extract to `split`/`name`.

    They are all members of `part` of the file `tar`, `count` of them; or `members` where those of
    a class stand scattered.
    """

    tar: str
    split: str
    name: str
    part: Part
    count: int
    members: tuple[Member, ...] | None = None


def extract_class(task: ClassTask, root: str) -> int:
    """Write a class's images below `root`; how many bytes.

    Its folder has its name only once it is complete.
    """
    partial = Path(root, f".partial-{task.split}-{task.name}")
    if partial.exists():  # of a process that was killed; the caller holds the lock
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    descriptor = os.open(task.tar, os.O_RDONLY)
    try:
        if task.members is None:
            reader = RangeReader(descriptor)
            written = _write(walk(reader, task.part), reader, partial, task)
        else:
            written = _write(task.members, RangeReader(descriptor, ahead=0), partial, task)
        os.rename(partial, Path(root, task.split, task.name))
        return written
    finally:
        os.close(descriptor)
        shutil.rmtree(partial, ignore_errors=True)


def _write(members: Iterable[Member], reader: RangeReader, folder: Path, task: ClassTask) -> int:
    written = 0
    names: set[str] = set()
    folder_descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for member in members:
            _go_on()
            name = os.path.basename(member.name)
            content = reader.read(member.offset, member.size)
            if len(content) < member.size:
                raise InputError(f"{task.part.name}: ends within {name}; the file is truncated")
            if name in names:
                raise InputError(f"{task.part.name}: holds {name} twice")
            if not name.lower().endswith(SUFFIXES) or not is_image(content):
                raise InputError(f"{task.part.name}: {name} is no JPEG or PNG image")
            names.add(name)
            write_file(name, content, folder_descriptor)
            written += member.size
    finally:
        os.close(folder_descriptor)
    if len(names) != task.count:
        raise InputError(
            f"{task.part.name}: holds {len(names)} images of class {task.name}, "
            f"the devkit says {task.count}"
        )
    return written


def md5_of(path: str) -> str:
    """MD5 of a file, read once from its beginning to its end."""
    digest, buffer = hashlib.md5(usedforsecurity=False), bytearray(_DIGEST_READ)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while count := file.readinto(buffer):
            _go_on()
            digest.update(view[:count])
    return digest.hexdigest()
