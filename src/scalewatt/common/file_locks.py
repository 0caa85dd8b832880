"""Locks on files and folders: flock(2), or a lease where the file system has no locks.

Lustre mounted without `-o flock`, and some network file systems, refuse every lock. There a file
beside the lock, `<name>.held`, names its holder (`filelock.SoftFileLease`): it is taken over at once
if the holder's process on this machine has ended, else after SILENT_S without a sign of life.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from scalewatt.common.errors import InputError
from scalewatt.common.termination import say

if TYPE_CHECKING:
    from filelock import SoftFileLease

NO_LOCKS = frozenset(
    (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF)
)
"""Errors of flock on file systems without locks; EBADF is NFS's, of a folder."""
BEAT_S = 10.0
"""Period in which a holder renews the time of its record."""
SILENT_S = 600.0
"""Silence after which a holder on another machine counts as dead."""
_LOOK_S = 0.5
_STALE_LOOKS, _STALE_S = 4, 0.25


def flock(file: int | TextIO, operation: int) -> bool:
    """Lock or unlock an open file as `fcntl.flock` does; False where its file system has no locks.

    BlockingIOError where another has it and `operation` has LOCK_NB; OSError for all else.
    """
    try:
        fcntl.flock(file, operation)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return False
    return True


@contextmanager
def waiting_lock(path: Path, text: str) -> Iterator[int]:
    """Hold the lock of a file or folder and yield its descriptor; say `text` before waiting.

    A process that inherits the descriptor holds the lock as well. InputError if the file cannot be
    written or locked.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_WRONLY | os.O_CREAT
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        raise InputError(f"{path}: cannot be opened for locking ({error.strerror})") from error
    lease = None
    try:
        try:
            lease = None if _flocked(descriptor, text) else _leased(path, text)
        except OSError as error:
            raise InputError(f"{path}: cannot be locked ({error.strerror})") from error
        yield descriptor
    finally:
        if lease is not None:
            with suppress(OSError):  # left behind, it is a dead holder's
                lease.release()
        os.close(descriptor)


def _flocked(descriptor: int, text: str) -> bool:
    """Wait for the lock of an open file; False if its file system has none."""
    try:
        return flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(text)
        return flock(descriptor, fcntl.LOCK_EX)


def _leased(path: Path, text: str) -> SoftFileLease:
    """Wait for the lease beside a file."""
    from filelock import SoftFileLease, Timeout

    record = path.with_name(f"{path.name}.held")
    lease = SoftFileLease(
        record, lease_duration=SILENT_S, heartbeat_interval=BEAT_S, poll_interval=_LOOK_S
    )
    try:
        lease.acquire(timeout=0)
    except Timeout:
        say(text)
        lease.acquire()
    return lease


def exists(path: Path) -> bool | None:
    """Look for a file; None if its file system does not tell.

    NFS says ESTALE of a file that another machine has replaced, which is looked for again.
    """
    for look in range(_STALE_LOOKS):
        time.sleep(_STALE_S if look else 0)
        try:
            path.stat()
            return True
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno != errno.ESTALE:
                return None
    return None


def silence_s(record: Path) -> float:
    """Seconds since a file was renewed, in the time of its file system; infinite without one."""
    probe = record.with_name(f".{record.name}.{uuid.uuid4().hex[:8]}.now")
    try:
        renewed_s = record.stat().st_mtime
    except OSError:
        return float("inf")
    try:
        probe.touch()
        now_s = probe.stat().st_mtime
    except OSError:  # a folder that may only be read
        now_s = time.time()
    finally:
        with suppress(OSError):
            probe.unlink()
    return now_s - renewed_s
