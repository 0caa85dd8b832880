"""Calls of Slurm's commands, each with a time limit, what its refusals mean, and the jobs in its queue."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 10.0
USERS_VARIABLES = ("SQUEUE_", "SACCT_", "SINFO_", "SLURM_TIME_FORMAT")
"""Beginnings of variables by which a user selects and formats what Slurm's commands print for people."""
UNREACHABLE = re.compile(
    r"(?i)timed out|gave no answer|unable to contact|temporarily un|connection refused|zero bytes"
    r"|standby mode"
)
"""Errors of Slurm's commands while slurmctld gives no answer."""
_LIMIT = re.compile(r"\b(?:QOS|Assoc|Max|Grp)[A-Z]\w*")
"""Slurm's names of limits."""
_OF_JOBS = re.compile(
    r"(?:(?:QOS|Assoc)?(?:Max|Grp)(?:Submit)?Jobs?(?:PerUser|PerAccount)?|(?:QOS|Association)Job)(?:Limit)?"
)
"""The limits of how many jobs there may be."""
_ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
)
"""States of the accounting in which a job that left the queue has ended."""


class NoAnswerError(Exception):
    """A command of Slurm is missing, fails or hangs; the message says which and how."""


def ask(*command: str, timeout_s: float = TIMEOUT_S) -> list[str]:
    """Lines that a Slurm command prints, without empty ones; NoAnswerError."""
    if shutil.which(command[0]) is None:
        raise NoAnswerError(f"{command[0]} is not found")
    # Without what a user sets for what Slurm's commands print for people
    environment = {k: v for k, v in os.environ.items() if not k.startswith(USERS_VARIABLES)}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="backslashreplace",  # a job's name or comment may be anything
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"{command[0]} gave no answer in {timeout_s:g} s") from error
    except OSError as error:
        raise NoAnswerError(f"{command[0]} cannot be run ({error.strerror})") from error
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        message = "; ".join(lines) or f"exit code {done.returncode}"
        raise NoAnswerError(f"{command[0]} failed ({message})")
    return [line for line in done.stdout.splitlines() if line.strip()]


def ended_states(jobs: list[str], name: str) -> dict[str, str]:
    """Final state, such as CANCELLED, of those of some jobs of a name that have ended; NoAnswerError.

    From Slurm's accounting of all clusters, or if that gives no answer from slurmctld, which forgets
    jobs some minutes after their end.
    """
    if not jobs:
        return {}
    try:
        of_jobs = ("-M", "all", "--name", name, "-j", ",".join(jobs))
        lines = ask("sacct", "-X", "-n", "-P", "-o", "JobID,State", *of_jobs)
    except NoAnswerError:
        lines = ask("squeue", "-h", "-t", "all", "-o", "%i|%T", "-j", ",".join(jobs))
    rows = (line.split("|", 1) for line in lines if "|" in line)
    states = {job.strip(): state.partition(" ")[0].strip() for job, state in rows}
    return {job: states[job] for job in jobs if states.get(job) in _ENDED}


def may_pass(message: str) -> bool:
    """Tell whether sbatch may accept later what it refused: too many jobs now, or slurmctld is away.

    At submission Slurm compares two kinds of limits: how many jobs there may be in the queue, which ends
    when others have ended, and what one job may ask for, which is never met. An error that names no limit
    may be of either kind.
    """
    if "job queue full" in message.lower() or UNREACHABLE.search(message):
        return True
    limits = _LIMIT.findall(message)
    if not limits:
        return "violates accounting/qos policy" in message.lower()
    return all(_OF_JOBS.fullmatch(limit) for limit in limits)


# --- the queue ------------------------------------------------------------------------------------

_STUCK = re.compile(
    r"(?i)held|NeverSatisfied|NotSatisfied|Partition(TimeLimit|NodeLimit|Down|Inactive)|PerJob|MaxWall"
    r"|(?<!Run)Minutes|NotAllowed|^Invalid|BadConstraints|ReservationDeleted|^DeadLine|LaunchFail"
)
"""Slurm's reasons for which a job waits until somebody changes it, or the cluster."""
_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
_FORMAT = "%i|%T|%N|%r|%j|%Z|%k"
RULES = ("train", "train_command")
"""Rules of trainings."""


@dataclass(frozen=True)
class QueuedJob:
    """A job that has not ended, as squeue prints it."""

    id: str
    state: str
    nodes: str
    reason: str
    """Slurm's word for why it waits."""
    name: str
    folder: str
    """Folder that it was submitted from."""
    comment: str

    @property
    def is_waiting(self) -> bool:
        """True if it has not begun, or was put back."""
        return self.state in _WAITING

    @property
    def waits_for(self) -> str | None:
        """Slurm's reason for which the job waits; None for a job that does not."""
        return None if self.reason in ("", "None") else self.reason


Queue = Mapping[str, QueuedJob]
"""The user's jobs that have not ended, by id."""


def queued_jobs() -> Queue:
    """Ask for the user's jobs that have not ended; NoAnswerError."""
    lines = ask("squeue", "-h", "-u", getpass.getuser(), "-o", _FORMAT)
    rows = (line.strip().split("|", _FORMAT.count("|")) for line in lines)
    return {row[0]: QueuedJob(*row) for row in rows if len(row) == _FORMAT.count("|") + 1}


def job_of_run(
    queue: Queue, project: Path, campaign: str, configuration: str, repeat: int
) -> QueuedJob | None:
    """The job that Snakemake submitted in `project` for a run, by the comment it gives to jobs."""
    names = map(re.escape, (campaign, f"{configuration}_{repeat}"))
    comment = re.compile(
        rf"rule_(?:{'|'.join(RULES)})_wildcards_results_{'(?:_reproduction)?_'.join(names)}"
    )
    folder = str(project.resolve())
    jobs = (j for j in queue.values() if j.folder == folder and comment.fullmatch(j.comment))
    return next(jobs, None)


def never_starts(reason: str | None) -> bool:
    """Tell whether a job that waits for this reason never starts by itself."""
    return reason is not None and bool(_STUCK.search(reason))
