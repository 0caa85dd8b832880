"""The lock of a run's working directory: one process trains a run, on whatever node.

`holder.json` names the holder: host, process, Slurm's job, token. It is created only where there is none,
and its time is renewed every BEAT_S. The file `lock` is held by flock as well, as far as that reaches, by the
holder and the ranks that inherit it: ranks that outlive their launcher still hold their run. A holder whose
flock is free is dead when its process on this host is, or else when its marker was not renewed for SILENT_S
while we watched.

A renewal that fails is reported and tried again. Only a marker with another token ends a process: it was
taken for dead, and another process has the run now.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_content
from scalewatt.common.processes import runs_still
from scalewatt.common.termination import ExitCode, say

MARKER, LOCK = "holder.json", "lock"
BEAT_S = 10.0
SILENT_S = 90.0
"""How long a marker may go without renewal; slow network file systems show a change after a minute."""
PATIENCE_S = 120.0
"""How long to wait for a holder on another machine, or in a job for any holder."""
_LOOK_S = 1.0


@dataclass(frozen=True)
class Holder:
    """The process that holds a run."""

    host: str
    pid: int
    job: str | None
    """Slurm's job; None outside of Slurm."""
    since_s: float
    """Unix s."""
    token: str

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since_s))
        process = f"process {self.pid} on {self.host}"
        return f"{f'job {self.job} ({process})' if self.job else process} since {since}"

    @property
    def how_to_end(self) -> str:
        """Command that ends it."""
        return f"scancel {self.job}" if self.job else f"kill {self.pid} on {self.host}"


class HeldError(InputError):
    """A run that another process holds."""


def current_job(environment: Mapping[str, str] = os.environ) -> str | None:
    """Slurm's job that this process runs in; None outside of one."""
    return environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID") or None


def read_holder(workdir: Path) -> Holder | None:
    """Holder of a working directory, dead or alive; None without a readable marker."""
    with suppress(TypeError):  # damaged, or lacks a field
        return Holder(**read_content(workdir / MARKER))
    return None


def require_token(workdir: Path, token: str | None) -> None:
    """HeldError if a marker has another token: asked by ranks before they replace a file."""
    holder = read_holder(workdir)
    if token is not None and holder is not None and holder.token != token:
        raise HeldError(f"{workdir}: {holder} trains the run now; this process ends")


def is_alive(workdir: Path, holder: Holder) -> bool:
    """Whether a run's holder is alive, judged at once: if it has the flock, or its marker is fresh."""
    with suppress(OSError), open(workdir / LOCK, "rb") as lock:
        if not _flock(lock.fileno(), fcntl.LOCK_SH):
            return True
    return not _is_dead(holder, silence_s(workdir) or 0.0)


def silence_s(workdir: Path) -> float | None:
    """Seconds since the marker was renewed, by its file system's clock; None without one."""
    with suppress(OSError):
        renewed_s = (workdir / MARKER).stat().st_mtime
        with suppress(OSError), tempfile.TemporaryFile(dir=workdir) as probe:
            return os.fstat(probe.fileno()).st_mtime - renewed_s
        return time.time() - renewed_s  # of a folder that may only be read
    return None


@contextmanager
def locked(workdir: Path) -> Iterator[tuple[int, str]]:
    """Hold a run until the block ends; yields the lock's file descriptor, for ranks, and the token.

    A living holder on this machine is named and waited for; in a job, and one elsewhere, for PATIENCE_S,
    then HeldError. A dead one is taken over from.
    """
    token, ended = uuid.uuid4().hex, threading.Event()
    ours = Holder(socket.gethostname(), os.getpid(), current_job(), time.time(), token)
    with open(workdir / LOCK, "a") as lock:
        _acquire(workdir, lock.fileno(), ours)
        beat = threading.Thread(target=_renew, args=(workdir, ours, ended), daemon=True)
        beat.start()
        try:
            yield lock.fileno(), token
        finally:
            ended.set()
            beat.join()
            _remove(workdir, token)


def _acquire(workdir: Path, lock: int, ours: Holder) -> None:
    """Wait until nobody else holds the run, and put our marker."""
    began_s = looked_s = time.monotonic()
    seen, quiet_s, is_announced = None, 0.0, False
    while True:
        # A look that a stalled file system held up has not watched.
        now_s = time.monotonic()
        looked_s, quiet_s = now_s, quiet_s + min(now_s - looked_s, 2 * _LOOK_S)
        is_free = _flock(lock)
        if is_free and _mark(workdir, ours):
            return
        holder, version = read_holder(workdir), None
        with suppress(OSError):
            version = (workdir / MARKER).stat().st_mtime_ns
        if version != seen or not is_free:
            seen, quiet_s = version, 0.0
        if is_free and _is_dead(holder, quiet_s):
            say(f"{workdir}: taken over from {holder or 'another process'}, which has ended")
            _remove(workdir, holder.token if holder else None)
            continue
        text = f"{workdir}: {holder or 'another process'} trains the run"
        if not is_announced:
            say(f"{text}; waiting for it")
            is_announced = True
        is_elsewhere = holder is not None and holder.host != ours.host
        if now_s - began_s > PATIENCE_S and (is_elsewhere or ours.job):
            end = f", or end it ({holder.how_to_end})" if holder else ""
            raise HeldError(f"{text}; wait for it{end}, then start Snakemake again")
        time.sleep(_LOOK_S)


def _is_dead(holder: Holder | None, quiet_s: float) -> bool:
    """Whether a holder, whose flock is free, has ended; `quiet_s`: how long it did not renew its marker."""
    if holder is not None and holder.host == socket.gethostname() and not runs_still(holder.pid):
        return True
    return quiet_s > SILENT_S


def _flock(lock: int, operation: int = fcntl.LOCK_EX) -> bool:
    """Take the flock; True as well on a file system without, where the marker alone guards."""
    try:
        fcntl.flock(lock, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _mark(workdir: Path, ours: Holder) -> bool:
    """Put our marker; False if there is one."""
    with suppress(FileExistsError), open(workdir / MARKER, "x", encoding="utf-8") as file:
        file.write(json.dumps(asdict(ours)) + "\n")
        return True
    return False


def _remove(workdir: Path, token: str | None) -> None:
    """Remove the marker with a token (None: a damaged one). Only the contender with the claim does."""
    claim = workdir / f".{token}.claim"
    with suppress(OSError):
        if time.time() - claim.stat().st_mtime > SILENT_S:  # a claimant died on the way
            claim.unlink()
    with suppress(OSError), open(claim, "x"):
        holder = read_holder(workdir)
        if (holder.token if holder else None) == token:
            (workdir / MARKER).unlink(missing_ok=True)
        claim.unlink()


def _renew(workdir: Path, ours: Holder, ended: threading.Event) -> None:
    """Renew our marker until `ended`; one that was deleted is put again."""
    is_failing = False
    while not ended.wait(BEAT_S):
        holder = read_holder(workdir)
        if holder is not None and holder.token != ours.token:
            say(f"scalewatt: error: {workdir}: {holder} trains the run now; this process ends")
            os._exit(ExitCode.HELD)
        try:
            if not _mark(workdir, ours):
                os.utime(workdir / MARKER)
            is_failing = False
        except OSError as error:
            if not is_failing:
                say(f"{workdir}: the lock cannot be renewed ({error}); tried again")
            is_failing = True
