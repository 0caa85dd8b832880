"""Notes of a run's submissions and attempts, in the folder `attempts` beside the working directories.

A submission is noted by the executor, and that it gave a run up; an attempt by `scalewatt train`:
when it begins and when it ends. Each note is of the latest one. An attempt that comes upon the note of
one that has not ended leaves it alone until it holds the run itself. A note that is missing or damaged
is None.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.files import read_note, write_json

REASON_CHARACTERS = 300


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


@dataclass(frozen=True)
class NoRetries:
    """A note that a run gets no further retries until Snakemake is started again."""

    job: str | None
    """Its last one; None if none was submitted."""
    reason: str
    at_s: float
    """Unix s."""


def attempt_path(work: Path, spec: RunSpec) -> Path:
    """Return where the latest attempt of a run is noted, `work` being the campaign's folder."""
    return work / "attempts" / f"{spec.key}.json"


def submission_path(work: Path, spec: RunSpec) -> Path:
    """Return where the latest submission of a run is noted."""
    return work / "attempts" / f"{spec.key}.submitted.json"


def no_retries_path(work: Path, spec: RunSpec) -> Path:
    """Return where it is noted that a run gets no further retries; a later submission removes it."""
    return work / "attempts" / f"{spec.key}.no-retries.json"


def current_job(environment: Mapping[str, str] | None = None) -> str | None:
    """Return the id of the Slurm job that this process runs in; None outside of one."""
    found = os.environ if environment is None else environment
    return found.get("SLURM_JOB_ID") or found.get("SLURM_JOBID") or None


def read_attempt(work: Path, spec: RunSpec, job: str | None = None) -> Attempt | None:
    """Return the latest attempt of a run, or that of a job, if it is the latest or was refused as held."""
    path = attempt_path(work, spec)
    latest = read_note(path, Attempt)
    if job is None:
        return latest
    noted = (latest, read_note(_held_path(path), Attempt))
    found = [one for one in noted if one is not None and one.job == job]
    return max(found, key=lambda one: one.started_s, default=None)


def read_no_retries(work: Path, spec: RunSpec) -> NoRetries | None:
    """Return why a run gets no further retries; None if it may be submitted."""
    return read_note(no_retries_path(work, spec), NoRetries)


def note_no_retries(work: Path, spec: RunSpec, job: str | None, reason: str) -> None:
    """Note that a run is not submitted any more; OSError if that cannot be written."""
    no_retries = NoRetries(job, one_line(reason), time.time())
    write_json(no_retries_path(work, spec), asdict(no_retries))


def read_submission(work: Path, spec: RunSpec) -> Submission | None:
    """Return the latest submission of a run."""
    return read_note(submission_path(work, spec), Submission)


def note_submission(work: Path, spec: RunSpec, job: str, log: str | None) -> Submission:
    """Note that `job` was given to the scheduler for a run; OSError if that cannot be written."""
    now = Submission(str(job), log, time.time(), socket.gethostname(), os.getpid())
    write_json(submission_path(work, spec), asdict(now))
    no_retries_path(work, spec).unlink(missing_ok=True)
    return now


class AttemptNote:
    """An attempt under way: how it ended is to be put into `code` and `reason`."""

    def __init__(self, path: Path, attempt: Attempt) -> None:
        self.path, self.attempt = path, attempt
        self.code: int | None = None
        self.reason: str | None = None
        self._begun = False

    def begin(self) -> None:
        """Make it the latest attempt, if it is not; it holds the run, or nobody is known to."""
        if not self._begun:
            self._begun = True
            with suppress(OSError):
                self.path.with_suffix(".no-retries.json").unlink(missing_ok=True)
            self._write(self.path)

    def end(self, code: int, reason: str | None) -> None:
        """Note the end, in one line of at most REASON_CHARACTERS."""
        one_line_reason = one_line(reason) if reason else None
        self.attempt = replace(self.attempt, ended_s=time.time(), code=code, reason=one_line_reason)
        if self._begun:
            self._write(self.path)
        elif code == ExitCode.HELD:
            self._write(_held_path(self.path))
        else:
            self.begin()

    def _write(self, path: Path) -> None:
        """Write the note; one that cannot be written (a full disk) is no reason to fail."""
        with suppress(OSError):
            write_json(path, asdict(self.attempt))


@contextmanager
def noted_attempt(work: Path, spec: RunSpec) -> Iterator[AttemptNote]:
    """Note an attempt at its begin and, by the note's `code` and `reason`, at its end.

    Where the latest attempt has not ended, it may hold the run: its note is kept until the block calls
    `begin`, and for good where this one is refused because of it.

    What the block raises is noted and goes on: an InputError with REFUSED, or with its own `code` if it has
    one, anything else with FAILED.
    """
    attempt = Attempt(current_job(), socket.gethostname(), os.getpid(), time.time())
    note = AttemptNote(attempt_path(work, spec), attempt)
    latest = read_attempt(work, spec)
    if latest is None or latest.ended_s is not None:
        note.begin()
    try:
        yield note
    except InputError as error:
        note.end(getattr(error, "code", ExitCode.REFUSED), str(error))
        raise
    except BaseException as error:
        note.end(ExitCode.FAILED, f"{type(error).__name__}: {error}".rstrip(": "))
        raise
    note.end(ExitCode.FAILED if note.code is None else note.code, note.reason)


def _held_path(path: Path) -> Path:
    """Return where an attempt is noted that was refused because of the one noted at `path`."""
    return path.with_suffix(".held.json")


def one_line(text: str) -> str:
    """Return `text` in one line of at most REASON_CHARACTERS."""
    line = " ".join(text.split())
    return line if len(line) <= REASON_CHARACTERS else line[: REASON_CHARACTERS - 1] + "…"
