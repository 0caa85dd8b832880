"""Locks on files: flock(2), or filelock's own where the file system has none.

Lustre mounted without `-o flock` refuses every lock. There the lock file names its holder, and goes when that
ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scalewatt.common.errors import InputError
from scalewatt.common.termination import say


@contextmanager
def waiting_lock(path: Path, text: str) -> Iterator[None]:
    """Hold the lock of a file; say `text` before waiting.

    InputError if the file cannot be written or locked.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            say(text)
            lock.acquire()
    except OSError as error:
        raise InputError(f"{path}: cannot be locked ({error.strerror})") from error
    try:
        yield
    finally:
        lock.release()
