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
_STATES: dict[JobState, set[str]] = {
    "running": {
        *("RUNNING", "SUSPENDED", "STOPPED", "CONFIGURING", "RESIZING"),
        *("SIGNALING", "STAGE_OUT"),
    },
    "ending": {"COMPLETING"},
    "waiting": {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"},
}
"""Slurm's states by what they mean; a job with parts in several has the first. Any other: gone."""
_FORMATS = {
    "id": "%i",
    "slurm_state": "%T",
    "start": "%S",
    "end": "%e",
    "node_list": "%N",
    "reason": "%r",
    "name": "%j",
    "comment": "%k",
}


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
        return _state({self.slurm_state})

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


def never_starts(reason: str | None) -> bool:
    """Tell whether a job that waits for this reason does not start by itself."""
    return reason is not None and bool(_STUCK.search(reason))


def queued_jobs() -> Queue:
    """The user's jobs that have not ended; NoAnswerError."""
    fields = ("id", "slurm_state", "name", "comment")
    return {job.id: job for job in _squeue("-u", getpass.getuser(), fields=fields)}


def ask_queue(jobs: Iterable[str]) -> Queue | None:
    """Ask squeue once about some jobs; None if it is absent, fails or gives no answer in time."""
    wanted = sorted(set(jobs))
    if not wanted:
        return {}
    # Asked for one job alone that is gone, squeue fails; of two it lists those that it knows.
    ids = ",".join(wanted if len(wanted) > 1 else wanted * 2)
    try:
        fields = ("id", "slurm_state", "end", "node_list", "reason")
        return {job.id: job for job in _squeue(f"--jobs={ids}", fields=fields)}
    except NoAnswerError as error:
        return {} if _is_unknown(error) else None


def job_state(job: str) -> JobState | None:
    """What a job does; None if Slurm is absent, fails or does not answer in time."""
    try:
        parts = _squeue("-t", "all", "-j", job, fields=("slurm_state",))
    except NoAnswerError as error:
        return "gone" if _is_unknown(error) else None
    return _state({part.slurm_state for part in parts})


def job_started_s(job: str) -> float | None:
    """When a job last began to run, in Unix s; None if Slurm does not say."""
    try:
        (part,) = _squeue("-j", job, fields=("start",))
    except (NoAnswerError, ValueError):
        return None
    return _unix_s(part.start)


def _squeue(*options: str, fields: tuple[str, ...]) -> list[QueuedJob]:
    """Jobs that squeue lists, each with these fields; NoAnswerError."""
    lines = ask("squeue", "-h", *options, "-o", "|".join(_FORMATS[name] for name in fields))
    rows = (line.strip().split("|", len(fields) - 1) for line in lines)
    return [
        QueuedJob(**dict(zip(fields, row, strict=True))) for row in rows if len(row) == len(fields)
    ]


def _state(states: set[str]) -> JobState:
    return next((meaning for meaning, known in _STATES.items() if known & states), "gone")


def _is_unknown(error: NoAnswerError) -> bool:
    """Tell whether squeue failed because it no longer knows the job."""
    return "invalid job id" in str(error).lower()


def _unix_s(text: str) -> float | None:
    """Unix s of a time as squeue writes it; None for anything else."""
    with suppress(ValueError, OverflowError):
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").timestamp()
    return None
