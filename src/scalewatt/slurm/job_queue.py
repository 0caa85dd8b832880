"""What Slurm's queue says of jobs, asked once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scalewatt.slurm.job_state import JobState, is_unknown, state_of, unix_s
from scalewatt.slurm.slurm_commands import NoAnswerError, ask

_FIELDS = "%i|%T|%e|%N|%r"
_NO_REASON = ("", "None")


@dataclass(frozen=True)
class QueuedJob:
    """One job of the queue."""

    state: JobState
    ends_s: float | None
    """When its time limit ends it, in Unix s; None where it has not begun."""
    nodes: str | None
    reason: str | None
    """Why it waits, in Slurm's word."""


@dataclass(frozen=True)
class Queue:
    """The jobs that the queue knows, by id."""

    jobs: Mapping[str, QueuedJob]

    def state(self, job: str) -> JobState:
        """What a job does."""
        return self.jobs[job].state if job in self.jobs else "gone"

    def place(self, job: str) -> str | None:
        """The nodes of a job, as Slurm writes them."""
        return self.jobs[job].nodes if job in self.jobs else None

    def reason(self, job: str) -> str | None:
        """Why a job waits."""
        return self.jobs[job].reason if job in self.jobs else None

    def ends_s(self, job: str | None) -> float | None:
        """When a job's time limit ends it, in Unix s."""
        return self.jobs[job].ends_s if job is not None and job in self.jobs else None


def ask_queue(jobs: Iterable[str]) -> Queue | None:
    """Ask squeue once about some jobs; None where it is absent, fails or is silent for 10 s."""
    wanted = sorted(set(jobs))
    if not wanted:
        return Queue({})
    # Asked for one job alone that is gone, squeue fails; of two it lists those that it knows.
    ids = ",".join(wanted if len(wanted) > 1 else wanted * 2)
    try:
        lines = ask("squeue", "-h", f"--jobs={ids}", "-o", _FIELDS)
    except NoAnswerError as error:
        return Queue({}) if is_unknown(error) else None
    rows = (line.strip().split("|") for line in lines)
    return Queue({row[0]: _job(row) for row in rows if len(row) == len(_FIELDS.split("|"))})


def _job(row: list[str]) -> QueuedJob:
    _, state, ends, nodes, reason = row
    known = None if reason in _NO_REASON else reason
    return QueuedJob(state_of([state]), unix_s(ends), nodes or None, known)
