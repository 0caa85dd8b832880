"""Jobs in Slurm's queue, by squeue."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from scalewatt.slurm.slurm_commands import NoAnswerError, ask

_STUCK = re.compile(
    r"(?i)held|NeverSatisfied|NotSatisfied|Partition(TimeLimit|NodeLimit|Down|Inactive)|PerJob|MaxWall"
    r"|(?<!Run)Minutes|NotAllowed|^Invalid|BadConstraints|ReservationDeleted|^DeadLine|LaunchFail"
)
"""Slurm's reasons for which a job waits until somebody changes it, or the cluster."""

JobState = Literal["running", "waiting", "ending", "gone"]
_STATES: dict[JobState, str] = {
    "running": "RUNNING SUSPENDED STOPPED CONFIGURING RESIZING SIGNALING STAGE_OUT",
    "ending": "COMPLETING",
    "waiting": "PENDING REQUEUED REQUEUE_HOLD REQUEUE_FED SPECIAL_EXIT",
}
"""Slurm's states by what they mean; a job with parts in several has the first. Any other: gone."""


@dataclass(frozen=True)
class QueuedJob:
    """A job of the queue as squeue prints it; empty if it was not asked for, or the job is gone."""

    id: str = ""
    slurm_state: str = ""
    start: str = ""
    end: str = ""
    node_list: str = ""
    reason: str = ""
    """Slurm's word for why it waits."""
    name: str = ""
    comment: str = ""

    @property
    def state(self) -> JobState:
        """What the job does."""
        return _state([self])

    @property
    def waits_for(self) -> str | None:
        """Slurm's reason for which the job waits; None for a job that does not."""
        return None if self.reason in ("", "None") else self.reason

    @property
    def ends_s(self) -> float | None:
        """When its time limit ends the job, in Unix s; None before it has begun."""
        return _unix_s(self.end)


Queue = dict[str, QueuedJob]
"""The jobs that squeue knows, by id."""
GONE = QueuedJob()
_FORMATS = {
    **{"id": "%i", "slurm_state": "%T", "start": "%S", "end": "%e"},
    **{"node_list": "%N", "reason": "%r", "name": "%j", "comment": "%k"},
}
"""squeue's formats of the fields of a job."""


def never_starts(reason: str | None) -> bool:
    """Tell whether a job that waits for this reason does not start by itself."""
    return reason is not None and bool(_STUCK.search(reason))


def queued_jobs() -> Queue:
    """The user's jobs that have not ended; NoAnswerError."""
    jobs = _squeue("-u", getpass.getuser(), fields=("id", "slurm_state", "name", "comment"))
    return {job.id: job for job in jobs}


def ask_queue(jobs: Iterable[str]) -> Queue | None:
    """Ask squeue once about some jobs; None if it is absent, fails or gives no answer in time."""
    wanted = sorted(set(jobs))
    if not wanted:
        return {}
    # Asked for one job alone that is gone, squeue fails; of two it lists those that it knows.
    ids = ",".join(wanted if len(wanted) > 1 else wanted * 2)
    fields = ("id", "slurm_state", "end", "node_list", "reason")
    found = _known_jobs(f"--jobs={ids}", fields=fields)
    return None if found is None else {job.id: job for job in found}


def job_state(job: str) -> JobState | None:
    """What a job does; None if Slurm is absent, fails or does not answer in time."""
    parts = _known_jobs("-t", "all", "-j", job, fields=("slurm_state",))
    return None if parts is None else _state(parts)


def job_started_s(job: str) -> float | None:
    """When a job last began to run, in Unix s; None if Slurm does not say."""
    parts = _known_jobs("-j", job, fields=("start",)) or [GONE]
    return _unix_s(parts[0].start)


def _known_jobs(*options: str, fields: tuple[str, ...]) -> list[QueuedJob] | None:
    """Jobs that squeue lists; none if it no longer knows them, None if it does not answer."""
    try:
        return _squeue(*options, fields=fields)
    except NoAnswerError as error:
        return [] if "invalid job id" in str(error).lower() else None


def _squeue(*options: str, fields: tuple[str, ...]) -> list[QueuedJob]:
    """Jobs that squeue lists, each with these fields; NoAnswerError."""
    lines = ask("squeue", "-h", *options, "-o", "|".join(_FORMATS[name] for name in fields))
    rows = (line.strip().split("|", len(fields) - 1) for line in lines)
    whole = (row for row in rows if len(row) == len(fields))
    return [QueuedJob(**dict(zip(fields, row, strict=True))) for row in whole]


def _state(parts: Iterable[QueuedJob]) -> JobState:
    states = {part.slurm_state for part in parts}
    return next((word for word, known in _STATES.items() if states & set(known.split())), "gone")


def _unix_s(text: str) -> float | None:
    """Unix s of a time as squeue writes it; None for anything else."""
    with suppress(ValueError, OverflowError):
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").timestamp()
    return None
