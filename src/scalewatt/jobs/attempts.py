"""Notes of a run's submissions and attempts, in the folder `attempts` beside the working directories.

A submission is noted by the executor, an attempt by `scalewatt train`: when it begins and when it
ends. Each note is of the latest one. A note that is missing or damaged is None.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scalewatt.errors import InputError
from scalewatt.files import write_json
from scalewatt.jobs.notes import read_note
from scalewatt.jobs.notes import run_key as run_key

FINISHED, STOPPED, REFUSED, FAILED, HELD = 0, 75, 64, 70, 73
"""Codes of an attempt: finished, stopped at a checkpoint, input wrong, failed, held by another."""
REASON_CHARACTERS = 300
NO_ROOM = "no space is left on the file system"
"""Part of every reason that tells of a full disk."""


@dataclass(frozen=True)
class Submission:
    """A job given to the scheduler for a run."""

    job: str
    log: str | None
    submitted_s: float
    """Unix s."""
    host: str
    """Of the Snakemake that submitted it."""
    pid: int


@dataclass(frozen=True)
class Attempt:
    """One call of `scalewatt train` on a run."""

    job: str | None
    """The scheduler's job; None outside of one."""
    host: str
    pid: int
    started_s: float
    """Unix s."""
    ended_s: float | None = None
    code: int | None = None
    reason: str | None = None


def attempt_path(work: Path, spec: dict[str, Any]) -> Path:
    """Where the latest attempt of a run is noted, `work` being the campaign's folder."""
    return work / "attempts" / f"{run_key(spec)}.json"


def submission_path(work: Path, spec: dict[str, Any]) -> Path:
    """Where the latest submission of a run is noted."""
    return work / "attempts" / f"{run_key(spec)}.submitted.json"


def current_job(environment: Mapping[str, str] | None = None) -> str | None:
    """Return the id of the Slurm job that this process runs in; None outside of one."""
    found = os.environ if environment is None else environment
    return found.get("SLURM_JOB_ID") or found.get("SLURM_JOBID") or None


def read_attempt(work: Path, spec: dict[str, Any]) -> Attempt | None:
    """Return the latest attempt of a run."""
    return read_note(attempt_path(work, spec), Attempt)


def read_submission(work: Path, spec: dict[str, Any]) -> Submission | None:
    """Return the latest submission of a run."""
    return read_note(submission_path(work, spec), Submission)


def note_submission(work: Path, spec: dict[str, Any], job: str, log: str | None) -> Submission:
    """Note that `job` was given to the scheduler for a run; OSError where that cannot be written."""
    now = Submission(str(job), log, time.time(), socket.gethostname(), os.getpid())
    write_json(submission_path(work, spec), asdict(now))
    return now


def started(submission: Submission, attempt: Attempt | None) -> bool:
    """Whether the submitted job came to its `scalewatt train`."""
    return attempt is not None and attempt.job == submission.job


class AttemptNote:
    """An attempt under way: how it ended is to be put into `code` and `reason`."""

    def __init__(self, path: Path, attempt: Attempt) -> None:
        self.path, self.attempt = path, attempt
        self.code: int | None = None
        self.reason: str | None = None

    def write(self) -> None:
        """Write the note; one that cannot be written (a full disk) is no reason to fail."""
        with suppress(OSError):
            write_json(self.path, asdict(self.attempt))

    def end(self, code: int, reason: str | None) -> None:
        """Note the end, in one line of at most REASON_CHARACTERS."""
        said = one_line(reason) if reason else None
        self.attempt = replace(self.attempt, ended_s=time.time(), code=code, reason=said)
        self.write()


@contextmanager
def noted_attempt(work: Path, spec: dict[str, Any]) -> Iterator[AttemptNote]:
    """Note an attempt at its begin and, by the note's `code` and `reason`, at its end.

    What the block raises is noted and goes on: an InputError with REFUSED, or with its own `code`
    where it has one, anything else with FAILED.
    """
    attempt = Attempt(current_job(), socket.gethostname(), os.getpid(), time.time())
    note = AttemptNote(attempt_path(work, spec), attempt)
    note.write()
    try:
        yield note
    except InputError as error:
        note.end(getattr(error, "code", REFUSED), str(error))
        raise
    except BaseException as error:
        note.end(FAILED, f"{type(error).__name__}: {error}".rstrip(": "))
        raise
    note.end(FAILED if note.code is None else note.code, note.reason)


def one_line(text: str) -> str:
    """Return `text` in one line of at most REASON_CHARACTERS."""
    line = " ".join(text.split())
    return line if len(line) <= REASON_CHARACTERS else line[: REASON_CHARACTERS - 1] + "…"
