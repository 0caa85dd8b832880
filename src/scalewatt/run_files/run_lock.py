"""Taking, keeping and giving back a run's working directory (see `lock_owner`)."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from scalewatt.common.errors import InputError
from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.file_locks import BEAT_S, SILENT_S, exists, flock
from scalewatt.common.processes import this_process
from scalewatt.common.termination import say
from scalewatt.run_files.attempt_log import current_job
from scalewatt.run_files.lock_owner import (
    LOCK,
    OWNER,
    LockedError,
    LockOwner,
    read_owner,
    read_record,
    unlocked_owner_is_alive,
)

PATIENCE_S = 60.0
"""How long a Slurm job waits for an owner that lives, which may be ending."""
LOCK_LOOK_S = 0.5
RECORD_LOOK_S = 3.0
_OF_THE_USER = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV)


@dataclass(frozen=True)
class Target:
    """The folder that a lock is for."""

    record: Path
    lock: Path
    held_by: str
    """The beginning of the message; the owner's name follows."""
    advice: str
    """What to do besides ending the owner."""


@dataclass(frozen=True)
class Lease:
    """A target that this process has locked."""

    lock: int
    """File descriptor of the lock, for the processes that must hold it as well."""
    token: str
    """Of the owner's record, by which ranks see that the run is still theirs."""


def run_target(workdir: Path) -> Target:
    """Return a run's working directory as something to hold."""
    return Target(
        workdir / OWNER,
        workdir / LOCK,
        f"{workdir}: the run is being trained by",
        "wait for it and start Snakemake again",
    )


def require_lock(workdir: Path, token: str | None) -> None:
    """LockedError where a run is held by another than the owner whose record has this token.

    For ranks, before they replace a file: their launcher may have been presumed dead.
    """
    owner = read_owner(workdir)
    if token is None or owner is None or not owner.host:  # a damaged record names nobody
        return
    if owner.token != token:
        raise LockedError(f"{workdir}: the run is being trained by {owner} now; ends here", owner)


@contextmanager
def locked(target: Target) -> Iterator[Lease]:
    """Lease a target until the block ends.

    Another owner on this machine is waited for and named; in a Slurm job for PATIENCE_S at most,
    but for SILENT_S where nobody can tell whether it lives. A dead owner is taken over. LockedError
    where another owner lives. InputError if the files may not be written, or there is no room;
    OSError if their file system fails. Should another take this process for dead nevertheless,
    it ends at once.
    """
    wait = _Wait(target)
    with ExitStack() as stack:
        lock = stack.enter_context(_opened(target.lock))
        without_lock = _flocked(lock, wait)
        if without_lock:
            say(f"{target.lock}: {without_lock}; {target.record.name} alone guards")
        try:
            token = _take(target, wait)
        except OSError as error:
            raise _failed(error, target.record, "cannot be written") from error
        stack.callback(_give_back, target, token)
        beat = Beat(target, token)
        stack.callback(beat.end)
        beat.start()
        yield Lease(lock.fileno(), token)


class _Wait:
    """Waits for an owner as long as that makes sense."""

    def __init__(self, target: Target) -> None:
        self.target, self.announced = target, False
        self._began_s: float | None = None
        self._seen: tuple[str, float] | None = None
        self._since_s = 0.0

    def owner_is_alive(self, owner: LockOwner) -> bool | None:
        """Return True if the owner lives, if its lock is free; for how long it is watched counts too."""
        return unlocked_owner_is_alive(owner, self.target.record, self._unchanged_s(owner))

    def _unchanged_s(self, owner: LockOwner) -> float:
        """For how long the record has not changed before our eyes."""
        with suppress(OSError):
            now = owner.token, self.target.record.stat().st_mtime
            if now != self._seen:
                self._seen, self._since_s = now, time.monotonic()
        return time.monotonic() - self._since_s if self._seen else 0.0

    def pause(self, owner: LockOwner | None, seconds: float, lives: bool | None = True) -> None:
        """Name the owner once and sleep; LockedError where it should not be waited for any more.

        A dead one is waited for while another process takes over from it, or has died of that.
        """
        if current_job() is not None:
            patience_s = {True: PATIENCE_S, None: SILENT_S, False: 2 * SILENT_S}[lives]
            if self._waited_s() > patience_s:
                raise self._held(owner)
        elif lives is not False and owner is not None and owner.host and not owner.is_here:
            raise self._held(owner)
        if not self.announced:
            say(f"{self.target.held_by} {owner or 'another process'}; waiting for it")
        self.announced = True
        time.sleep(seconds)

    def _waited_s(self) -> float:
        """Seconds since the first pause."""
        now_s = time.monotonic()
        if self._began_s is None:
            self._began_s = now_s
        return now_s - self._began_s

    def _held(self, owner: LockOwner | None) -> LockedError:
        by = "another process" if owner is None else str(owner)
        end = ""
        if owner is not None and owner.host:
            end = f", or scancel {owner.job}" if owner.job else f", or end it on {owner.host}"
        return LockedError(f"{self.target.held_by} {by}; {self.target.advice}{end}", owner)


def _take(target: Target, wait: _Wait) -> str:
    """Put our record in place; its token."""
    while True:
        lives: bool | None = True
        with _own_record(target) as (mine, token):
            if _linked(mine, target.record):
                return token
            owner = read_record(target.record)
            if owner is None and exists(target.record) is False:  # it has just ended
                continue
            if owner is not None:
                lives = wait.owner_is_alive(owner)
                if lives is False and _taken_from_dead(target, owner, mine):
                    continue
        wait.pause(owner, RECORD_LOOK_S, lives)


def _taken_from_dead(target: Target, owner: LockOwner, mine: Path) -> bool:
    """Remove the record of an owner that is dead, and say so; False if that is another's to do."""
    if not _removed(target, owner.token, mine):
        return False
    say(f"{target.record.parent}: taken over from {owner}, which has ended")
    return True


def _give_back(target: Target, token: str) -> None:
    """Take our own record away; left where that fails, it is a dead owner's."""
    with suppress(OSError), _own_record(target) as (mine, _):
        _removed(target, token, mine)


def _removed(target: Target, token: str, mine: Path) -> bool:
    """Take the record with this token away; False if that is another's to do."""
    claims = _claims(target, token, mine)
    if not claims:
        return False
    found = read_record(target.record)
    if found is not None and found.token == token:
        target.record.unlink()
    for claim in claims:
        claim.unlink(missing_ok=True)
    return True


def _claims(target: Target, token: str, mine: Path) -> list[Path]:
    """Win the right to remove a record: the claims to clear away afterwards, none if not won.

    A claimant that died on the way is succeeded by whoever wins the claim on it.
    """
    claim = target.record.with_name(f".{target.record.stem}-{token}.claim")
    if _linked(mine, claim):
        return [claim]
    claimant = read_record(claim)
    if claimant is None or unlocked_owner_is_alive(claimant, claim) is not False:
        return []
    further = _claims(target, claimant.token, mine)
    return [claim, *further] if further else []


@contextmanager
def _own_record(target: Target) -> Iterator[tuple[Path, str]]:
    """Return a complete record of this process under a name of its own, and its token."""
    path = target.record.with_name(f".{target.record.stem}.{uuid.uuid4().hex[:8]}.tmp")
    record = {
        **this_process(),
        "job": current_job(),
        "since_s": time.time(),
        "id": uuid.uuid4().hex,
    }
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())
        written = read_record(path)
        if written is None:
            raise OSError(errno.EIO, "what was written cannot be read")
        yield path, written.token
    finally:
        with suppress(OSError):
            path.unlink()


def _linked(source: Path, target: Path) -> bool:
    """Give a complete file a second name, which must be free; False if it is taken."""
    try:
        os.link(source, target)
        return True
    except FileExistsError:
        # A network's file system may report a link made by a first request as found by a second.
        with suppress(OSError):
            return target.samefile(source)
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    try:
        with open(target, "x", encoding="utf-8") as file:
            file.write(source.read_text(encoding="utf-8"))
        return True
    except FileExistsError:
        return False


class Beat(threading.Thread):
    """Renews a record's time, and ends this process if the record is another's."""

    def __init__(self, target: Target, token: str, every_s: float = BEAT_S) -> None:
        super().__init__(name=f"holds {target.record.name}", daemon=True)
        self.target, self.token, self.every_s = target, token, every_s
        self._content = target.record.read_bytes()
        self._ended = threading.Event()

    def run(self) -> None:
        """Renew until `end`; what fails is tried again."""
        while not self._ended.wait(self.every_s):
            with suppress(OSError):
                self.renew()

    def end(self) -> None:
        """Stop renewing."""
        self._ended.set()
        self.join()

    def renew(self) -> None:
        """Renew once; a record that somebody deleted is written again."""
        found = read_record(self.target.record)
        if found is not None and found.host and found.token != self.token:
            leave(f"{self.target.held_by} {found} now; this process was presumed dead and ends")
        try:
            os.utime(self.target.record)
        except FileNotFoundError:
            self._write_again()

    def _write_again(self) -> None:
        path = self.target.record.with_name(f".{self.target.record.stem}.{self.token}.tmp")
        path.write_bytes(self._content)
        try:
            _linked(path, self.target.record)
        finally:
            path.unlink()


def leave(reason: str) -> None:
    """End this process at once: nothing of what it holds is its own any more."""
    say(f"scalewatt: error: {reason}")
    os._exit(ExitCode.HELD)


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    try:
        lock = open(path, "a", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise _failed(error, path, "cannot be opened for locking") from error
    with lock:
        yield lock


def _flocked(lock: TextIO, wait: _Wait) -> str | None:
    """Take the lock, waiting as long as another has it; None, or why there is none to be had."""
    while True:
        try:
            locked = flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None if locked else "its file system has no locks"
        except BlockingIOError:
            if _blocked_by_dead(wait):
                return "a dead owner on another node has left it locked"
        except OSError as error:
            raise _failed(error, Path(lock.name), "cannot be locked") from error


def _blocked_by_dead(wait: _Wait) -> bool:
    """Wait for who has the lock; True where it is a node's that died with it.

    A network's file system may keep such a lock for long. The first look alone does not tell:
    somebody may just have taken the lock, and be about to take the record over.
    """
    owner = read_record(wait.target.record)
    if owner is None or not owner.host or owner.is_here or owner.host == socket.gethostname():
        wait.pause(owner, LOCK_LOOK_S)
        return False
    lives = wait.owner_is_alive(owner)
    if lives is False and wait.announced:
        return True
    wait.pause(owner, RECORD_LOOK_S, lives)
    return False


def _failed(error: OSError, path: Path, what: str) -> Exception:
    """Return what to raise: an InputError if it is up to the user to fix, else what may pass by itself."""
    if error.errno in _OF_THE_USER:
        return InputError(f"{path}: {what} ({error.strerror})")
    return OSError(error.errno, error.strerror, str(path))
