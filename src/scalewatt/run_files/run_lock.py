"""Taking, keeping and giving back a run's working directory, or a node (see `holder`)."""

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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from scalewatt.common.errors import InputError
from scalewatt.common.processes import machine_id, process_started_s
from scalewatt.run_files.attempt_log import HELD, current_job
from scalewatt.run_files.lock_holder import (
    BEAT_S,
    HOLDER,
    LOCK,
    SILENT_S,
    HeldError,
    Holder,
    judge,
    read_holder,
    read_record,
)

PATIENCE_S = 60.0
"""How long a Slurm job waits for a holder that lives, which may be ending."""
LOCK_LOOK_S = 0.5
RECORD_LOOK_S = 3.0
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_OF_THE_USER = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV)


@dataclass(frozen=True)
class Target:
    """What can be held."""

    record: Path
    lock: Path
    held_by: str
    """What is said of it before its holder is named."""
    advice: str
    """What to do besides ending the holder."""
    name_dead: bool = True
    """Whether to say that it was taken over from a dead holder."""


@dataclass(frozen=True)
class Hold:
    """A target held by this process."""

    lock: int
    """File descriptor of the lock, for the processes that must hold it as well."""
    token: str
    """Of the holder's record, by which ranks see that the run is still theirs."""


def hold_run(workdir: Path) -> Target:
    """Return a run's working directory as something to hold."""
    return Target(
        workdir / HOLDER,
        workdir / LOCK,
        f"{workdir}: the run is being trained by",
        "wait for it and start Snakemake again",
    )


def hold_node(root: Path) -> Target:
    """This node as something to hold, noted in the folder `root` that its users share."""
    host = socket.gethostname()
    return Target(
        root / f".training-{host}.json",
        root / f".training-{host}.lock",
        f"{root / f'.training-{host}.lock'}: another training runs on this node:",
        "wait for it and start Snakemake again (one measured run a node: jobs must be exclusive)",
        name_dead=False,
    )


def require_held(workdir: Path, token: str | None) -> None:
    """HeldError where a run is held by another than the holder whose record has this token.

    For ranks, before they replace a file: their launcher may have been taken for dead.
    """
    holder = read_holder(workdir)
    if token is None or holder is None or not holder.host:  # a damaged record names nobody
        return
    if holder.token != token:
        raise HeldError(f"{workdir}: the run is being trained by {holder} now; ends here", holder)


@contextmanager
def held(target: Target) -> Iterator[Hold]:
    """Hold a target until the block ends.

    Another holder on this machine is waited for and named; in a Slurm job for PATIENCE_S at most,
    but for SILENT_S where nobody can tell whether it lives. A dead holder is taken over. HeldError
    where another holder lives. InputError where the files may not be written, or there is no room;
    OSError where their file system fails. Should another take this process for dead nevertheless,
    it ends at once.
    """
    wait = _Wait(target)
    with ExitStack() as stack:
        lock = stack.enter_context(_opened(target.lock))
        without_lock = _flocked(lock, wait)
        if without_lock:
            _say(f"{target.lock}: {without_lock}; {target.record.name} alone guards")
        try:
            token = _take(target, wait)
        except OSError as error:
            raise _failed(error, target.record, "cannot be written") from error
        stack.callback(_give_back, target, token)
        beat = Beat(target, token)
        stack.callback(beat.end)
        beat.start()
        yield Hold(lock.fileno(), token)


class _Wait:
    """Waits for a holder, as long as that has sense."""

    def __init__(self, target: Target) -> None:
        self.target, self.said = target, False
        self._began_s: float | None = None
        self._seen: tuple[str, float] | None = None
        self._since_s = 0.0

    def judge(self, holder: Holder) -> bool | None:
        """Return True if the holder lives, if its lock is free; for how long it is watched counts too."""
        return judge(holder, self.target.record, self._unchanged_s(holder))

    def _unchanged_s(self, holder: Holder) -> float:
        """For how long the record has not changed before our eyes."""
        with suppress(OSError):
            now = holder.token, self.target.record.stat().st_mtime
            if now != self._seen:
                self._seen, self._since_s = now, time.monotonic()
        return time.monotonic() - self._since_s if self._seen else 0.0

    def pause(self, holder: Holder | None, seconds: float, lives: bool | None = True) -> None:
        """Name the holder once and sleep; HeldError where it should not be waited for any more.

        A dead one is waited for while another process takes over from it, or has died of that.
        """
        if current_job() is not None:
            patience_s = {True: PATIENCE_S, None: SILENT_S, False: 2 * SILENT_S}[lives]
            if self._waited_s() > patience_s:
                raise self._held(holder)
        elif lives is not False and holder is not None and holder.host and not holder.is_here:
            raise self._held(holder)
        if not self.said:
            _say(f"{self.target.held_by} {holder or 'another process'}; waiting for it")
        self.said = True
        time.sleep(seconds)

    def _waited_s(self) -> float:
        """Seconds since the first pause."""
        now_s = time.monotonic()
        if self._began_s is None:
            self._began_s = now_s
        return now_s - self._began_s

    def _held(self, holder: Holder | None) -> HeldError:
        by = "another process" if holder is None else str(holder)
        end = ""
        if holder is not None and holder.host:
            end = f", or scancel {holder.job}" if holder.job else f", or end it on {holder.host}"
        return HeldError(f"{self.target.held_by} {by}; {self.target.advice}{end}", holder)


def _take(target: Target, wait: _Wait) -> str:
    """Put our record in place; its token."""
    while True:
        lives: bool | None = True
        with _own_record(target) as (mine, token):
            if _linked(mine, target.record):
                return token
            holder = read_record(target.record)
            if holder is None and not target.record.exists():  # it has just ended
                continue
            if holder is not None:
                lives = wait.judge(holder)
                if lives is False and _taken_from_dead(target, holder, mine):
                    continue
        wait.pause(holder, RECORD_LOOK_S, lives)


def _taken_from_dead(target: Target, holder: Holder, mine: Path) -> bool:
    """Remove the record of a holder that is dead, and say so; False where that is another's to do."""
    if not _removed(target, holder.token, mine):
        return False
    if target.name_dead:
        _say(f"{target.record.parent}: taken over from {holder}, which has ended")
    return True


def _give_back(target: Target, token: str) -> None:
    """Take our own record away; left where that fails, it is a dead holder's."""
    with suppress(OSError), _own_record(target) as (mine, _):
        _removed(target, token, mine)


def _removed(target: Target, token: str, mine: Path) -> bool:
    """Take the record with this token away; False where that is another's to do."""
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
    if claimant is None or judge(claimant, claim) is not False:
        return []
    further = _claims(target, claimant.token, mine)
    return [claim, *further] if further else []


@contextmanager
def _own_record(target: Target) -> Iterator[tuple[Path, str]]:
    """Return a complete record of this process under a name of its own, and its token."""
    path = target.record.with_name(f".{target.record.stem}.{uuid.uuid4().hex[:8]}.tmp")
    said = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "pid_started_s": process_started_s(os.getpid()),
        "job": current_job(),
        "since_s": time.time(),
        "machine": machine_id(),
        "id": uuid.uuid4().hex,
    }
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(said) + "\n")
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
    """Give a complete file a second name, which must be free; False where it is taken."""
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
            leave(f"{self.target.held_by} {found} now; this process was taken for dead and ends")
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
    _say(f"scalewatt: error: {reason}")
    os._exit(HELD)


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
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            if _blocked_by_dead(wait):
                return "a dead holder on another node has left it locked"
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise _failed(error, Path(lock.name), "cannot be locked") from error
            return "its file system has no locks"


def _blocked_by_dead(wait: _Wait) -> bool:
    """Wait for who has the lock; True where it is a node's that died with it.

    A network's file system may keep such a lock for long. The first look alone does not tell:
    somebody may just have taken the lock, and be about to take the record over.
    """
    holder = read_record(wait.target.record)
    if holder is None or not holder.host or holder.is_here or holder.host == socket.gethostname():
        wait.pause(holder, LOCK_LOOK_S)
        return False
    lives = wait.judge(holder)
    if lives is False and wait.said:
        return True
    wait.pause(holder, RECORD_LOOK_S, lives)
    return False


def _failed(error: OSError, path: Path, what: str) -> Exception:
    """Return what to raise: an InputError if it is up to the user to fix, else what may pass by itself."""
    if error.errno in _OF_THE_USER:
        return InputError(f"{path}: {what} ({error.strerror})")
    return OSError(error.errno, error.strerror, str(path))


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # nobody reads it any more
        print(text, file=sys.stderr, flush=True)
