"""Locks on files and folders: flock(2), or a lease where the file system has no locks.

Lustre mounted without `-o flock`, and some network file systems, refuse every lock. There a file
`<name>.held` names the holder (`filelock.SoftFileLease`): it is taken over at once if the holder's
process on this machine has ended, else after SILENT_S without a sign of life.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
    with ExitStack() as stack:
        try:
            descriptor = os.open(path, flags, 0o666)
            stack.callback(os.close, descriptor)
            try:
                has_locks = flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(text)
                has_locks = flock(descriptor, fcntl.LOCK_EX)
            if not has_locks:
                stack.enter_context(_lease(path.with_name(f"{path.name}.held")))
        except OSError as error:
            raise InputError(f"{path}: cannot be locked ({error.strerror})") from error
        yield descriptor


def _lease(record: Path) -> SoftFileLease:
    """Lease of a record, not yet waited for."""
    from filelock import SoftFileLease

    return SoftFileLease(record, lease_duration=SILENT_S, heartbeat_interval=BEAT_S)
