"""What Slurm says of a job."""

from __future__ import annotations

import time
from typing import Literal

from scalewatt.slurm.slurm_commands import NoAnswerError, ask

CALL_S = 10.0
"""How long one call of squeue may take."""
JobState = Literal["running", "waiting", "ending", "gone"]
_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
_RUNNING = ("RUNNING", "SUSPENDED", "STOPPED", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT")
_ENDING = ("COMPLETING",)


def job_state(job: str) -> JobState | None:
    """What a job does: running, waiting (in the queue, requeued too), ending, or gone.

    None where Slurm is absent, fails or does not answer within CALL_S.
    """
    try:
        lines = ask("squeue", "-h", "-t", "all", "-j", job, "-o", "%T", timeout_s=CALL_S)
    except NoAnswerError as error:
        return "gone" if is_unknown(error) else None
    return state_of(lines)


def job_started_s(job: str) -> float | None:
    """When a job last began to run, in Unix s; None where Slurm does not say."""
    try:
        (line,) = ask("squeue", "-h", "-j", job, "-o", "%S", timeout_s=CALL_S)
    except (NoAnswerError, ValueError):
        return None
    return unix_s(line.strip())


def is_unknown(error: NoAnswerError) -> bool:
    """Whether squeue failed because it does not know the job any more."""
    return "invalid job id" in str(error).lower()


def unix_s(text: str) -> float | None:
    """Unix s of a time as squeue writes it; None for anything else."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def state_of(lines: list[str]) -> JobState:
    """The state of a job of which squeue says `lines`, a state for each of its parts."""
    words = {line.strip() for line in lines}
    if words & set(_RUNNING):
        return "running"
    if words & set(_ENDING):
        return "ending"
    return "waiting" if words & set(_WAITING) else "gone"
