"""Who holds a run's working directory, on whatever node.

`holder.json` names the owner. It is put in place complete, by link(2), which fails where there is
one already; so it works on file systems whose flock does not reach other nodes. The lock file
beside it is held by flock as well, by the owner and by those ranks that inherit it.

Only one process ever takes a record away: the one that linked its own record to the name of a claim
on it. The owner itself needs the claim at its end, so nobody takes away a record that came later.
"""

from __future__ import annotations

import fcntl
import hashlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.file_locks import SILENT_S, flock, silence_s
from scalewatt.common.files import parse_json
from scalewatt.common.processes import machine_id, runs_still
from scalewatt.run_files.attempt_log import current_job
from scalewatt.slurm.job_queue import JobState, job_started_s, job_state

OWNER = "holder.json"
LOCK = "lock"
GONE_SILENT_S = 45.0
"""The same if its job is gone: processes of a node that Slurm has lost may live on."""


@dataclass(frozen=True)
class LockOwner:
    """The process that owns a run's lock, by its record."""

    host: str
    """Empty if the record cannot be read."""
    pid: int
    pid_started_s: float | None
    """Seconds after the machine's start."""
    job: str | None
    """Slurm's job, None outside of Slurm."""
    since_s: float
    """Unix s."""
    machine: str | None = None
    """Of this start of the machine and this space of process numbers."""
    token: str = field(default="", compare=False)
    """Of this very record."""

    def __str__(self) -> str:
        if not self.host:
            return "another process"
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since_s))
        process = f"process {self.pid} on {self.host}"
        return f"{f'job {self.job} ({process})' if self.job else process} since {since}"

    @property
    def is_here(self) -> bool:
        """Return True if its process number means something on this machine."""
        if self.machine is not None:
            return self.machine == machine_id()
        return self.host == socket.gethostname()


class LockedError(InputError):
    """The run is held by a process that lives."""

    code = ExitCode.HELD
    """Of an attempt that ends by it."""

    def __init__(self, message: str, owner: LockOwner | None) -> None:
        super().__init__(message)
        self.owner = owner


def read_owner(workdir: Path) -> LockOwner | None:
    """Return the owner of a run's working directory, dead or alive; None if there is none."""
    return read_record(workdir / OWNER)


def read_record(path: Path) -> LockOwner | None:
    """Return the owner that a record names; None without a record, an unnamed one where it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    token = hashlib.sha256(content).hexdigest()[:16]
    try:
        record = parse_json(content)
        return LockOwner(
            host=str(record["host"]),
            pid=int(record["pid"]),
            pid_started_s=_number(record.get("pid_started_s")),
            job=None if record.get("job") is None else str(record["job"]),
            since_s=float(record["since_s"]),
            machine=record.get("machine"),
            token=token,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return LockOwner("", 0, None, None, 0.0, token=token)


def owner_is_alive(
    owner: LockOwner, workdir: Path, state_of_job: Callable[[str], JobState | None] = job_state
) -> bool | None:
    """Return True if the owner of a working directory lives; None if nobody can tell.

    Asks the kernel on its own machine (a frozen process lives; so does a run whose ranks outlived
    their launcher), else Slurm about its job (squeue, up to 10 s, unless the caller knows
    `state_of_job`), else the time of the record, which a living owner renews.
    """
    if owner.is_here and not _process_lives(owner) and _is_locked(workdir / LOCK):
        return True
    return unlocked_owner_is_alive(owner, workdir / OWNER, state_of_job=state_of_job)


def unlocked_owner_is_alive(
    owner: LockOwner,
    record: Path,
    watched_s: float = 0.0,
    state_of_job: Callable[[str], JobState | None] = job_state,
) -> bool | None:
    """Return as `owner_is_alive` does, for a free lock whose record was seen unchanged for `watched_s`."""
    if owner.is_here and _process_lives(owner):
        return True
    rebooted = owner.host == socket.gethostname() and owner.machine is not None
    state = _job_state(owner.job, state_of_job)
    if state == "running":
        if not (owner.is_here or rebooted) or not _began_anew(owner):
            return True
        state = "gone"
    if owner.is_here and state != "ending":
        return False
    silent_s = max(silence_s(record), watched_s)
    if silent_s > (GONE_SILENT_S if state or rebooted else SILENT_S):
        return False
    return True if silent_s < GONE_SILENT_S else None


def _job_state(job: str | None, state_of_job: Callable[[str], JobState | None]) -> JobState | None:
    if job is None:
        return None
    # Our own job runs, of course: a requeued one meets the record of its earlier start.
    return "gone" if job == current_job() else state_of_job(job)


def _began_anew(owner: LockOwner) -> bool:
    """Return True if a running job was requeued since the owner was its process, perhaps to other nodes."""
    started_s = None if owner.job is None else job_started_s(owner.job)
    return started_s is not None and started_s > owner.since_s


def _process_lives(owner: LockOwner) -> bool:
    return runs_still(owner.pid, owner.pid_started_s)


def _is_locked(path: Path) -> bool:
    """Return True if a process of this machine (or of any, where flock reaches so far) holds the lock."""
    try:
        with open(path, encoding="utf-8") as lock:
            flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
