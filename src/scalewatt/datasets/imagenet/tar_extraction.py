"""Extraction of ImageNet's tars by one process per available core.

Every process of the pool imports this module, so it does without numpy and the like.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.processes import die_with
from scalewatt.common.termination import say

BLOCK = 512
_READ_AHEAD = 1 << 20
_EMPTY = bytes(BLOCK)
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_PAX, _PAX_GLOBAL = tarfile.XHDTYPE, tarfile.XGLTYPE
_LONG_NAME, _LONG_LINK = tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK


@dataclass(frozen=True)
class Member:
    """A regular file in a tar: where its data begin in the (outer) file, and their bytes."""

    name: str
    offset: int
    size: int


class RangeReader:
    """Reads parts of an open file through one buffer; a part is valid until the next is read."""

    def __init__(self, descriptor: int, ahead: int = _READ_AHEAD) -> None:
        self._descriptor, self._ahead = descriptor, ahead
        self._buffer = memoryview(bytearray(max(ahead, BLOCK)))
        self._start = self._end = 0

    def read(self, offset: int, size: int) -> memoryview:
        """Return `size` bytes from `offset`; fewer where the file ends before."""
        if offset < self._start or offset + size > self._end:
            self._fill(offset, size)
        begin = offset - self._start
        return self._buffer[begin : min(begin + size, self._end - self._start)]

    def _fill(self, offset: int, size: int) -> None:
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        wanted, got = max(size, self._ahead), 0
        while got < size:
            count = os.preadv(self._descriptor, [self._buffer[got:wanted]], offset + got)
            if count == 0:
                break
            got += count
        self._start, self._end = offset, offset + got


@dataclass(frozen=True)
class Part:
    """The place of a tar in an open file (all of it, or a member); `name` is for messages."""

    name: str
    start: int
    end: int

    @classmethod
    def whole(cls, path: Path | str) -> Part:
        """Return the part that is all of a file."""
        return cls(str(path), 0, os.stat(path).st_size)


def walk(reader: RangeReader, part: Part) -> Iterator[Member]:
    """Yield the regular files of a tar in order; InputError if it is damaged or truncated.

    A tar without its end mark ends with its last member, as for GNU tar, so the caller has to check
    that none is missing. (`tarfile` silently ends at a damaged header.)
    """
    offset, last = part.start, "its beginning"
    given: dict[str, str] = {}
    while offset + BLOCK <= part.end:
        header = bytes(reader.read(offset, BLOCK))
        if header == _EMPTY:
            return
        try:
            info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            place = offset - part.start
            raise InputError(
                f"{part.name}: no tar header at byte {place}, after {last} ({error}); "
                "the file is damaged"
            ) from error
        name = given.get("path", info.name)
        size = int(given.get("size", info.size))
        data = offset + BLOCK
        if data + size > part.end:
            raise InputError(
                f"{part.name}: ends within {name}, {data + size - part.end} bytes too early; "
                "the file is truncated"
            )
        offset = data + -(-size // BLOCK) * BLOCK
        if info.type == _PAX:
            given |= _pax_values(bytes(reader.read(data, size)))
            continue
        if info.type == _LONG_NAME:
            given["path"] = os.fsdecode(bytes(reader.read(data, size)).rstrip(b"\0"))
            continue
        if info.type in (_PAX_GLOBAL, _LONG_LINK):
            continue
        given, last = {}, name
        if info.type in _FILES:
            yield Member(name, data, size)
        elif info.type != tarfile.DIRTYPE:
            raise InputError(f"{part.name}: {name} is no regular file; expected files only")


def _pax_values(text: bytes) -> dict[str, str]:
    """Return the records `length key=value` of an extended header."""
    values = {}
    while text:
        length, _, _ = text.partition(b" ")
        if not length.isdigit() or int(length) == 0:
            break
        record, text = text[len(length) + 1 : int(length) - 1], text[int(length) :]
        key, _, value = record.partition(b"=")
        values[key.decode()] = os.fsdecode(value)
    return values


SUFFIXES = (".jpeg", ".jpg", ".png")
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
"""JPEG, and PNG: one of the official images is a PNG named as a JPEG."""
_DIGEST_READ = 1 << 22
_SHOWN = 3


def is_image(content: memoryview | bytes) -> bool:
    """Return True if the content begins as a JPEG or PNG file does."""
    return bytes(content[:8]).startswith(_MAGIC)


def write_file(
    name: Path | str, content: memoryview | bytes, folder_descriptor: int | None = None
) -> None:
    """Write a new file, by its path or by its name in an open folder; none may be there."""
    descriptor = os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder_descriptor
    )
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


# --- in a process of the pool ---------------------------------------------------------------------


class Abandoned(Exception):
    """The result of this work is no longer needed."""


_abandoned: Callable[[], bool] = bool
"""True if this process is to abandon its work; without a pool, never."""


def abandon_when(abandoned: Callable[[], bool]) -> None:
    """Have this process raise `Abandoned` in its work once `abandoned` returns True."""
    global _abandoned
    _abandoned = abandoned


def _check_abandoned() -> None:
    if _abandoned():
        raise Abandoned


@dataclass(frozen=True)
class ClassTask:
    """Images of one class to extract to `split`/`name`.

    They are all members of `part` of the file `tar`, `count` of them; or `members` where those of
    a class are scattered.
    """

    tar: str
    split: str
    name: str
    part: Part
    count: int
    members: tuple[Member, ...] | None = None


def extract_class(task: ClassTask, root: str) -> int:
    """Write a class's images below `root` and return how many bytes.

    The folder is renamed to its final name once it is complete.
    """
    partial = Path(root, f".partial-{task.split}-{task.name}")
    if partial.exists():  # left by a killed process; the caller has the lock
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
            _check_abandoned()
            name = os.path.basename(member.name)
            content = reader.read(member.offset, member.size)
            if len(content) < member.size:
                raise InputError(f"{task.part.name}: ends within {name}; the file is truncated")
            if name in names:
                raise InputError(f"{task.part.name}: has a duplicate {name}")
            if not name.lower().endswith(SUFFIXES) or not is_image(content):
                raise InputError(f"{task.part.name}: {name} is no JPEG or PNG image")
            names.add(name)
            write_file(name, content, folder_descriptor)
            written += member.size
    finally:
        os.close(folder_descriptor)
    if len(names) != task.count:
        raise InputError(
            f"{task.part.name}: has {len(names)} images of class {task.name}, "
            f"the devkit says {task.count}"
        )
    return written


def md5_of(path: str) -> str:
    """Return the MD5 of a file, read once from beginning to end."""
    digest, buffer = hashlib.md5(usedforsecurity=False), bytearray(_DIGEST_READ)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while count := file.readinto(buffer):
            _check_abandoned()
            digest.update(view[:count])
    return digest.hexdigest()


# --- the pool -------------------------------------------------------------------------------------


def run_tasks(
    root: Path,
    tasks: list[ClassTask],
    digested: dict[str, Path],
    on_digest: Callable[[str, str], None],
) -> None:
    """Extract classes below `root` and take the MD5 of files (by kind), in parallel.

    `on_digest(kind, md5)` is called as soon as one is known.
    Classes that cannot be extracted are reported together at the end. A full disk, exhausted memory
    or an error of `on_digest` ends everything at once. The processes end with this one.
    """
    if not (tasks or digested):
        return
    context = multiprocessing.get_context("spawn")
    # Without a lock, because a process that is killed while it has the lock would block the others.
    abandoned = context.RawValue("b", 0)
    pool = ProcessPoolExecutor(
        max_workers=min(len(os.sched_getaffinity(0)), len(tasks) + len(digested)),
        mp_context=context,
        initializer=_begin,
        initargs=(os.getpid(), abandoned),
    )
    try:
        # A digest reads a whole file and takes longest, so it begins first.
        digests = {pool.submit(md5_of, str(path)): kind for kind, path in digested.items()}
        classes = [pool.submit(extract_class, task, str(root)) for task in tasks]
        _collect(digests, classes, on_digest)
    except (OSError, BrokenProcessPool) as error:
        reason = error.strerror if isinstance(error, OSError) else "a process was killed"
        raise InputError(f"{root}: the extraction stopped: {reason or error}") from error
    finally:
        abandoned.value = 1
        pool.shutdown(cancel_futures=True)


def _begin(parent: int, abandoned: Any) -> None:
    """Prepare a process of the pool."""
    die_with(parent)
    abandon_when(lambda: bool(abandoned.value))


def _collect(
    digests: dict[Future[str], str],
    classes: list[Future[int]],
    on_digest: Callable[[str, str], None],
) -> None:
    refused, done, written = [], 0, 0
    futures: list[Future[Any]] = [*digests, *classes]
    for future in as_completed(futures):
        try:
            result = future.result()
        except InputError as error:
            refused.append(str(error))
            continue
        if isinstance(result, str):
            on_digest(digests[future], result)
            continue
        done, written = done + 1, written + result
        if len(classes) >= 100 and done * 10 // len(classes) > (done - 1) * 10 // len(classes):
            say(f"  {done} of {len(classes)} classes, {written / 1e9:.1f} GB")
    if refused:
        more = f"; and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        raise InputError("; ".join(sorted(refused)[:_SHOWN]) + more)
