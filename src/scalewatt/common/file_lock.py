"""Locks that are waited for."""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scalewatt.common.errors import InputError


@contextmanager
def waiting_lock(path: Path, text: str) -> Iterator[int]:
    """Hold a lock file and yield its descriptor; say `text` before waiting for another holder.

    InputError where the file cannot be written or its file system has no locks.
    """
    try:
        lock = open(path, "a", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"{path}: cannot be opened for locking ({error.strerror})") from error
    with lock:
        try:
            _take(lock.fileno(), text)
        except OSError as error:
            raise InputError(f"{path}: cannot be locked ({error.strerror})") from error
        yield lock.fileno()


def _take(descriptor: int, text: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with suppress(OSError, ValueError):  # nobody reads it any more
            print(text, file=sys.stderr, flush=True)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
