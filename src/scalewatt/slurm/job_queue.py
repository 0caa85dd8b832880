"""Jobs in Slurm's queue, by squeue."""

from __future__ import annotations

import getpass
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scalewatt.slurm.slurm_commands import ask

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
