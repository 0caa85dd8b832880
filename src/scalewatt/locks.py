"""Locks that are waited for."""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def waiting_lock(path: Path, text: str) -> Iterator[int]:
    """Hold a lock file and yield its descriptor; say `text` before waiting for another holder."""
    with open(path, "a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            with suppress(OSError, ValueError):  # nobody reads it any more
                print(text, file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()
