"""Locks on files, whatever file system they are on: by flock(2), or by a record where there is none.

Lustre mounted without `-o flock`, and some network file systems, refuse every lock. There a file
beside the lock names the owner. Its time is renewed while the owner lives: a dead one is recognised by
its process on the same machine, else by its silence. Only one process ever takes a record away, the
one that created the claim on it; so nobody takes away a record that came later.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from scalewatt.common.errors import InputError
from scalewatt.common.processes import machine_id, process_started_s, runs_still
from scalewatt.common.untrusted_text import parse_json, plain_text

NO_LOCKS = frozenset(
    (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF)
)
"""What flock says on file systems that have no locks; EBADF is NFS's, of a folder."""
BEAT_S = 10.0
"""How often an owner renews the time of its record."""
SILENT_S = 600.0
"""An owner on another machine is dead after this silence."""
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


def exists(path: Path) -> bool | None:
    """Return whether a file is there; None if its file system does not tell.

    NFS says ESTALE of a file that another machine has replaced; it is looked for again.
    """
    for look in range(_STALE_LOOKS):
        if look:
            time.sleep(_STALE_S)
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
    except OSError:  # it may not be written to by whoever only looks
        now_s = time.time()
    finally:
        with suppress(OSError):
            probe.unlink()
    return now_s - renewed_s


@contextmanager
def waiting_lock(path: Path, text: str) -> Iterator[int]:
    """Hold a lock file and yield its descriptor; say `text` before waiting for another holder.

    InputError if the file cannot be written.
    """
    try:
        lock = open(path, "a", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"{path}: cannot be opened for locking ({error.strerror})") from error
    with lock, held(lock.fileno(), path, text):
        yield lock.fileno()


@contextmanager
def held(descriptor: int, path: Path, text: str) -> Iterator[None]:
    """Hold the lock of an open file; where there is none, a record beside `path`, `<name>.held`.

    Says `text` before waiting for another holder. InputError if neither can be had.
    """
    try:
        locked = _take(descriptor, text)
        record = None if locked else _Record(path.with_name(f"{path.name}.held"))
        if record is not None:
            record.take(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be locked ({error.strerror})") from error
    try:
        yield
    finally:
        if record is not None:  # a lock ends with the last process that has the file open
            record.give_back()


def _take(descriptor: int, text: str) -> bool:
    """Wait for a lock; False where there is none to be had."""
    try:
        return flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say(text)
        return flock(descriptor, fcntl.LOCK_EX)


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # nobody reads it any more
        print(text, file=sys.stderr, flush=True)


class _Record:
    """A file that names its owner as long as that lives."""

    def __init__(self, path: Path) -> None:
        self.path, self.token = path, uuid.uuid4().hex
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._renew, name=f"holds {path.name}", daemon=True)

    def take(self, text: str) -> None:
        """Create the record as soon as there is none of an owner that lives; OSError."""
        said = False
        while not self._created():
            found = _owner(self.path)
            if found is not None and _is_dead(found, self.path):
                _remove(self.path, found.get("token"))
                continue
            if not said:
                _say(text)
                said = True
            time.sleep(_LOOK_S)
        self._beat.start()

    def give_back(self) -> None:
        """Remove the record; left where that fails, it is a dead owner's."""
        self._ended.set()
        self._beat.join()
        with suppress(OSError):
            _remove(self.path, self.token)

    def _created(self) -> bool:
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps({**this_process(), "token": self.token}) + "\n")
        return True

    def _renew(self) -> None:
        while not self._ended.wait(BEAT_S):
            with suppress(OSError):
                os.utime(self.path)


def _owner(path: Path) -> dict[str, Any] | None:
    """Return what a record says, nothing of one that is just being written; None without one."""
    try:
        found = parse_json(plain_text(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def this_process() -> dict[str, Any]:
    """Return what tells this process from all others, for a record."""
    pid = os.getpid()
    started_s = process_started_s(pid)
    return {
        **{"host": socket.gethostname(), "pid": pid},
        **{"pid_started_s": started_s, "machine": machine_id()},
    }


def has_ended(process: dict[str, Any]) -> bool | None:
    """Return True if a process of `this_process` has ended; None if this machine cannot tell."""
    here, pid, started_s = machine_id(), process.get("pid"), process.get("pid_started_s")
    if here is None or process.get("machine") != here or not isinstance(pid, int):
        return None
    return not runs_still(pid, started_s if isinstance(started_s, float) else None)


def _is_dead(owner: dict[str, Any], path: Path) -> bool:
    ended = has_ended(owner)
    return SILENT_S < silence_s(path) < float("inf") if ended is None else ended


def _remove(path: Path, token: Any) -> None:
    """Remove the record with this token, unless another process is doing so."""
    claim = path.with_name(f".{path.name}.{token}.claim")
    try:
        os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if SILENT_S < silence_s(claim) < float("inf"):  # its creator has died of it
            claim.unlink(missing_ok=True)
        time.sleep(_LOOK_S)
        return
    try:
        if (_owner(path) or {}).get("token") == token:
            path.unlink(missing_ok=True)
    finally:
        claim.unlink(missing_ok=True)
