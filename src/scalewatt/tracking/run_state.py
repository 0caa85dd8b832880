"""What a run does right now, by its files: the queue's answer tells the rest where there is one.

The first that holds:

done         its results are there, and they are of the campaign's spec
running      the owner of its working directory lives, or its job has begun
queued       a job was submitted for it and has not begun (without Slurm's answer: as far as is known)
failed       it gets no further retries, its process exited without status, or it reported a failure
refused      it reported that its input is wrong, or that another process has its lock
stopped      it waits at a checkpoint, or trained to its end, for its next job
out_of_date  its results are of another spec
not_started  nothing of the above
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.processes import process_started_s
from scalewatt.run_files.attempt_log import (
    Attempt,
    Submission,
    read_attempt,
    read_no_retries,
    read_submission,
)
from scalewatt.run_files.lock_owner import (
    GONE_SILENT_S,
    OWNER,
    SILENT_S,
    owner_is_alive,
    read_owner,
    silence_s,
)
from scalewatt.run_files.progress_files import read_position, read_segments
from scalewatt.run_files.run_inventory import Published
from scalewatt.slurm.job_queue import GONE, JobState, Queue

State = Literal[
    "done", "running", "queued", "stopped", "failed", "refused", "out_of_date", "not_started"
]
STATES: tuple[State, ...] = (
    "done",
    "running",
    "queued",
    "stopped",
    "failed",
    "refused",
    "out_of_date",
    "not_started",
)
LOG = "train.log"
_OUTCOMES: dict[str, State] = {
    "stopped": "stopped",
    "monitor_lost": "stopped",
    "refused": "refused",
}
_CLOCK_S = 2.0


@dataclass(frozen=True)
class RunState:
    """A run's state, since when, where and why."""

    state: State
    since_s: float | None = None
    """Unix s; of a run that is not under way, when it ended."""
    host: str | None = None
    job: str | None = None
    silent_s: float | None = None
    """How long a running one has shown no sign of life, where that is too long."""
    reason: str | None = None
    log: Path | None = None
    folder: Path | None = None
    """Its working directory, where there is one."""


@dataclass(frozen=True)
class RunNotes:
    """The records by which a run's state is decided."""

    spec: RunSpec
    spec_sha256: str | None
    """None for registered runs, whose results are always theirs."""
    work: Path
    """The campaign's folder of working directories."""
    published: Published | None
    folders: Sequence[Path]
    """The run's working directories."""
    queue: Queue | None
    """None if Slurm gives no answer."""

    def state_of_job(self, job: str) -> JobState | None:
        """Return what a job does, by the queue's one answer."""
        return None if self.queue is None else self.queue.get(job, GONE).state


def run_state(notes: RunNotes) -> RunState:
    """Return what a run does right now."""
    published = notes.published
    if published is not None and notes.spec_sha256 in (None, published.spec_sha256):
        since_s = published.mtime_ns / 1e9
        return RunState("done", since_s, log=published.folder / LOG, folder=_newest(notes))
    submission = read_submission(notes.work, notes.spec)
    attempt = read_attempt(notes.work, notes.spec)
    found = _held(notes, attempt)
    if found is not None:
        return found
    found = (
        _submitted(notes, submission, attempt)
        or (attempt and _attempted(notes, attempt, submission))
        or _left(notes)
    )
    found = _without_retries(notes, submission, found) or found
    if found is not None:
        return found
    if published is not None:
        reason = "its results are of another spec; the next start trains it again"
        return RunState("out_of_date", published.mtime_ns / 1e9, reason=reason)
    return RunState("not_started")


def _held(notes: RunNotes, attempt: Attempt | None) -> RunState | None:
    """Return the state of a run whose owner lives, or may live."""
    for folder in notes.folders:
        owner = read_owner(folder)
        if owner is None:
            continue
        if owner_is_alive(owner, folder, notes.state_of_job) is False:
            continue
        silent_s = silence_s(folder / OWNER)
        own = attempt is not None and attempt.ended_s is None and attempt.pid == owner.pid
        return RunState(
            "running",
            attempt.started_s if attempt is not None and own else owner.since_s or None,
            owner.host or None,
            owner.job,
            silent_s if GONE_SILENT_S < silent_s < float("inf") else None,
            log=_existing(folder / LOG),
            folder=folder,
        )
    return None


def _submitted(
    notes: RunNotes, submission: Submission | None, attempt: Attempt | None
) -> RunState | None:
    """Return the state of a run whose latest job has not come to its training, or waits to begin again."""
    if submission is None:
        return None
    state = notes.state_of_job(submission.job)
    log = _existing(Path(submission.log)) if submission.log else None
    folder = _newest(notes)
    own = read_attempt(notes.work, notes.spec, submission.job)
    if own is not None:
        if state != "waiting":
            return None
        slurms = notes.queue.get(submission.job, GONE).waits_for if notes.queue else None
        reason = f"its job was put back into the queue{f' ({slurms})' if slurms else ''}"
        when = own.ended_s or own.started_s
        return RunState("queued", when, None, submission.job, None, reason, log, folder)
    if state in ("running", "ending"):
        host = (notes.queue or {}).get(submission.job, GONE).node_list or None
        return RunState(
            "running", submission.submitted_s, host, submission.job, None, None, log, folder
        )
    if state in ("gone", None) and _is_past(submission, attempt, folder):
        return None
    if state == "gone":
        reason = f"job {submission.job} is gone from the queue and has not begun to train"
        when = submission.submitted_s
        return RunState("failed", when, None, submission.job, None, reason, log, folder)
    why: str | None = "whether it is still in the queue, Slurm does not say"
    if notes.queue is not None:
        why = notes.queue.get(submission.job, GONE).waits_for
    when = submission.submitted_s
    return RunState("queued", when, None, submission.job, None, why, None, folder)


def _is_past(submission: Submission, attempt: Attempt | None, folder: Path | None) -> bool:
    """Return True if a submission, in whose job no attempt was noted, is not the last that was heard."""
    if attempt is not None and attempt.started_s > submission.submitted_s:
        return True
    segments = read_segments(folder) if folder else []
    return any(one.get("job") == submission.job for one in segments)


def _without_retries(
    notes: RunNotes, submission: Submission | None, found: RunState | None
) -> RunState | None:
    """Return the state of a run of which no more jobs are submitted; one that was refused stays so."""
    no_retries = read_no_retries(notes.work, notes.spec)
    if no_retries is None or (found is not None and found.state == "refused"):
        return None
    log = found.log if found is not None else None
    if log is None and submission is not None and submission.log:
        log = _existing(Path(submission.log))
    host = found.host if found is not None else None
    why, folder = no_retries.reason, _newest(notes)
    return RunState("failed", no_retries.at_s, host, no_retries.job, None, why, log, folder)


def _attempted(notes: RunNotes, attempt: Attempt, submission: Submission | None) -> RunState:
    """Return the state of a run by its latest attempt, where no process holds the run."""
    folder = _newest(notes)
    log = _existing(folder / LOG) if folder else None
    if log is None and submission is not None and submission.log:
        log = _existing(Path(submission.log))
    same = (attempt.host, attempt.job)
    if attempt.ended_s is None:
        if _is_under_way(notes, attempt):
            return RunState("running", attempt.started_s, *same, None, None, log, folder)
        who = f"job {attempt.job}" if attempt.job else f"process {attempt.pid}"
        reason = f"{who} on {attempt.host} exited without status: killed, or its node was lost"
        return RunState("failed", _last_sign_s(folder), *same, None, reason, log, folder)
    if attempt.code == ExitCode.FINISHED:
        reason = "it is trained; the next start publishes its results"
        return RunState("stopped", attempt.ended_s, *same, None, reason, log, folder)
    states: dict[int | None, State] = {
        ExitCode.STOPPED: "stopped",
        ExitCode.REFUSED: "refused",
        ExitCode.HELD: "refused",
    }
    state = states.get(attempt.code, "failed")
    return RunState(state, attempt.ended_s, *same, None, attempt.reason, log, folder)


def _is_under_way(notes: RunNotes, attempt: Attempt) -> bool:
    """Return True if an attempt that has not noted its end goes on: it may not have come to hold its run."""
    here = attempt.host == socket.gethostname()
    if here and _is_process_of(attempt):
        return True
    state = None if attempt.job is None else notes.state_of_job(attempt.job)
    if state is not None:
        return state in ("running", "ending")
    return not here and time.time() - attempt.started_s < SILENT_S


def _is_process_of(attempt: Attempt) -> bool:
    """Return True if the process of an attempt on this machine lives, and not a later one of its number."""
    began = process_started_s(attempt.pid)
    if began is None:
        return False
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.time() - up_s + began <= attempt.started_s + _CLOCK_S


def _left(notes: RunNotes) -> RunState | None:
    """Return the state of a run by its segments alone, where no attempt was noted."""
    folder = _newest(notes)
    segments = read_segments(folder) if folder else []
    if folder is None or not segments:
        return None
    last = segments[-1]
    outcome, ended_s, log = last["outcome"], number(last.get("ended_s")), _existing(folder / LOG)
    if outcome == "finished":
        reason = "it is trained; the next start publishes its results"
        return RunState("stopped", ended_s, reason=reason, log=log, folder=folder)
    state: State = _OUTCOMES.get(outcome, "failed") if isinstance(outcome, str) else "failed"
    why = "it was killed, or its node was lost" if state == "failed" else None
    if isinstance(last.get("detail"), str):
        why = last["detail"]
    return RunState(state, ended_s, reason=why, log=log, folder=folder)


def _last_sign_s(folder: Path | None) -> float | None:
    """Return when a run that exited without status last wrote something, in Unix s."""
    times = []
    for name in ("progress.json", "position.json", "segments.json"):
        try:
            times.append(os.stat(folder / name).st_mtime if folder else 0.0)
        except OSError:
            continue
    return max(times, default=0.0) or None


def _newest(notes: RunNotes) -> Path | None:
    """Return the working directory that was used last: there is one for each content of the dataset."""
    if len(notes.folders) < 2:
        return notes.folders[0] if notes.folders else None
    return max(notes.folders, key=lambda folder: _last_sign_s(folder) or 0.0)


def checkpoint_updates(folder: Path | None) -> int | None:
    """Return the updates that a working directory's checkpoint holds; None if there is none."""
    position = read_position(folder) if folder else None
    return position.updates if position else None


def _existing(path: Path) -> Path | None:
    return path if path.exists() else None


def number(value: Any) -> float | None:
    """Return a number as it is; None for anything else."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
