"""Decide for the executor whether a run may be submitted, and whether it gets another job.

Called at once by the threads that submit and by the one that watches jobs. The energy that a run is
predicted to use is reserved from the decision to submit it until it is finished or gets no further
retries, also between two of its jobs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Generic, TypeVar

from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.common.file_locks import exists
from scalewatt.common.files import read_content
from scalewatt.run_files.attempt_log import note_no_retries, note_submission, read_submission
from scalewatt.run_files.lock_owner import LockOwner, owner_is_alive, read_owner
from scalewatt.run_files.progress_files import find_workdirs
from scalewatt.scheduling.retry_policy import Verdict, verdict
from scalewatt.slurm.job_queue import QueuedJob, job_state, queued_jobs
from scalewatt.slurm.slurm_commands import NoAnswerError

_ANSWER_AGE_S = 10.0
"""How long an answer of the queue, and the energy used, count as current."""
_NEVER_S = float("-inf")
_NAMED = 3
"""How many runs a message names."""
Answer = TypeVar("Answer")


class _Recent(Generic[Answer]):
    """An answer that counts as current for _ANSWER_AGE_S, unless something has happened since."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self._ask, self._asking = ask, threading.Lock()
        self._found: tuple[float, Answer] | None = None
        self._changed_s = _NEVER_S

    def get(self) -> Answer:
        """Return the answer; ask again if it is old."""
        with self._asking:
            now_s, found = time.monotonic(), self._found
            if found is None or found[0] <= self._changed_s or now_s - found[0] > _ANSWER_AGE_S:
                found = now_s, self._ask()
                self._found = found
            return found[1]

    def invalidate(self) -> None:
        """Mark earlier answers as stale."""
        self._changed_s = time.monotonic()


@dataclass
class Submissions:
    """The submissions of one Snakemake for the campaign whose folder is `work`."""

    work: Path
    crash_retries: int
    budget_kwh: float | None = None
    energy_used_kwh: Callable[[], float] | None = None
    """The campaign's energy so far, in kWh."""
    still_kwh: Callable[[RunSpec], float | None] = lambda _: None
    """Energy that a run is still to use, as predicted; None if that is not known."""
    specs: Callable[[], Mapping[str, RunSpec]] = dict
    """The campaign's specs by run key: of which another Snakemake may have submitted jobs."""
    since_s: float = field(default_factory=time.time)
    """When this Snakemake started, in Unix s."""

    def __post_init__(self) -> None:
        self._jobs: dict[str, list[str]] = {}
        """This Snakemake's, in order, by run key."""
        self._going: dict[str, RunSpec] = {}
        """Specs of the runs that may be submitted, neither finished nor without further retries, by key."""
        self._elsewhere: dict[str, str] = {}
        """Run keys by the jobs of other Snakemakes, as far as they were seen in the queue."""
        self._ended: set[str] = set()
        self._deciding, self._state = threading.Lock(), threading.Lock()
        self._queue = _Recent(_queue_or_none)
        self._energy_used = _Recent(self.energy_used_kwh or (lambda: 0.0))

    def refusal(self, spec_path: Path | str, comment: str | None = None) -> str | None:
        """Return why the run of a spec is not to be submitted now, and what to do; None if it may be.

        `comment` is the one that all its jobs have in Slurm's queue.
        """
        spec = read_spec(spec_path)
        taken = self._held(spec) or self._queued(spec, comment)
        if taken or self.is_trained(spec):
            return taken
        with self._deciding:  # one after another: what one is given is not left for the next
            refused = self.over_budget() or self.would_exceed(spec)
            if refused is None:
                self._set_going(spec)
        return refused

    def comment(self, words: str) -> str:
        """Return the comment of a run's jobs in Slurm's queue: `words`, and which campaign's they are."""
        return f"{words} of {self.work.absolute()}"

    def is_published(self, spec_path: Path | str) -> bool:
        """Return True if a job that is not this Snakemake's has published the run since it started."""
        spec, path = read_spec(spec_path), Path(spec_path).with_name("provenance.json")
        found = read_content(path)
        if not isinstance(found, dict) or self._jobs.get(spec.key):
            return False
        try:
            is_new = path.stat().st_mtime >= self.since_s
        except OSError:  # a network's file system; the run's own lock decides then
            return False
        return is_new and found.get("spec_sha256") == spec.sha256

    def is_being_published(self, spec_path: Path | str) -> bool:
        """Return True if the run is trained to its end and a process still has its lock."""
        spec = read_spec(spec_path)
        return self.is_trained(spec) and self._held(spec) is not None

    def is_trained(self, spec: RunSpec) -> bool:
        """Return True if the run is trained to its end: only its results are still to be published."""
        return any(exists(path / "result.json") for path in find_workdirs(self.work, spec))

    def over_budget(self) -> str | None:
        """Return why nothing of the campaign is to be submitted any more; None if energy is left."""
        used_kwh = self._energy_used_so_far()
        if used_kwh is None or self.budget_kwh is None or used_kwh < self.budget_kwh:
            return None
        return (
            f"the campaign's energy budget is used up: {used_kwh:.6g} of {self.budget_kwh:g} kWh; what "
            "was submitted goes on, nothing else is (energy_budget_kwh of the campaign file)"
        )

    def would_exceed(self, spec: RunSpec) -> str | None:
        """Return why a run is not to be submitted that would use more energy than is left, as predicted.

        The energy used, and what runs under way are still to use, is not left. None if the run fits,
        or nothing is known of its energy.
        """
        used_kwh = self._energy_used_so_far()
        own = None if used_kwh is None else self.still_kwh(spec)
        if used_kwh is None or own is None or self.budget_kwh is None:
            return None
        others = self._under_way(spec.key)
        still = {one.name: self.still_kwh(one) for one in others}
        ahead = sum(kwh for kwh in still.values() if kwh is not None)
        total = used_kwh + ahead + own
        if total <= self.budget_kwh:
            return None
        unknown = [name for name, kwh in still.items() if kwh is None]
        return (
            f"it would exceed the campaign's energy budget: {used_kwh:.6g} kWh are used, "
            f"{_runs(len(still) - len(unknown))} under way will use about {ahead:.6g} kWh more"
            f"{_without_energy(unknown)} and this one {own:.6g}: {'at least ' if unknown else ''}"
            f"{total:.6g} of {self.budget_kwh:g} kWh (energy_budget_kwh of the campaign file; energies "
            "as the cluster's scaling model predicts them)"
        )

    def _energy_used_so_far(self) -> float | None:
        """Return the campaign's energy in kWh; None without a budget."""
        if self.budget_kwh is None or self.energy_used_kwh is None:
            return None
        return self._energy_used.get()

    def _under_way(self, but: str) -> list[RunSpec]:
        """Return the specs of other runs under way, of this Snakemake or with a job in Slurm's queue."""
        with self._state:
            found = dict(self._going)
        for key in self._keys_elsewhere():
            if key not in found and key in self.specs():
                found[key] = self.specs()[key]
        found.pop(but, None)
        return list(found.values())

    def _keys_elsewhere(self) -> set[str]:
        """Return the keys of runs for which another Snakemake has a job in Slurm's queue.

        Records of submissions are read only if there is a job that may be one of theirs.
        """
        queue = self._queue.get()
        with self._state:
            own = {job for jobs in self._jobs.values() for job in jobs}
        campaign = f"/{self.work.name}"
        others = {
            job
            for job, queued in queue.items()
            if queued.comment.endswith(campaign) and job not in own
        }
        if others - set(self._elsewhere):
            noted = {key: read_submission(self.work, spec) for key, spec in self.specs().items()}
            self._elsewhere |= {one.job: key for key, one in noted.items() if one is not None}
        going = (job for job in others if self._goes_on(job, queue))
        return {self._elsewhere[job] for job in going if job in self._elsewhere}

    def forget_energy_used(self) -> None:
        """Read the energy used again at the next question: a job has ended."""
        self._energy_used.invalidate()

    def note(self, spec_path: Path | str, job: str, log: str | None) -> None:
        """Note that `job` was submitted for the run; OSError if that cannot be written."""
        spec = read_spec(spec_path)
        self._set_going(spec)
        with self._state:
            self._jobs.setdefault(spec.key, []).append(job)
        note_submission(self.work, spec, job, log)

    def end(self, spec_path: Path | str, job: str) -> Verdict:
        """Return whether the run is submitted again, now that its job has ended."""
        with self._state:
            self._ended.add(job)
        self._queue.invalidate()
        spec = read_spec(spec_path)
        jobs = [*self._jobs.get(spec.key, []), job]
        jobs = jobs[: jobs.index(job) + 1]
        is_held = lambda: self._held(spec) is not None  # noqa: E731
        found = verdict(self.work, spec, jobs, self.crash_retries, is_held)
        if not found.again or self.is_trained(spec):
            self._forget(spec)
        return found

    def finish(self, spec_path: Path | str) -> None:
        """Note that the run's results are there: it uses no more energy."""
        self._forget(read_spec(spec_path))

    def give_up(
        self, spec_path: Path | str, job: str | None, reason: str, comment: str | None = None
    ) -> None:
        """Note that the run, whose last job was `job`, is not submitted any more; OSError.

        Unless another holds it, or has submitted it: that one goes on.
        """
        spec = read_spec(spec_path)
        self._forget(spec)
        if self._held(spec) is None and self._queued(spec, comment) is None:
            note_no_retries(self.work, spec, job, reason)

    def _set_going(self, spec: RunSpec) -> None:
        with self._state:
            self._going[spec.key] = spec

    def _forget(self, spec: RunSpec) -> None:
        with self._state:
            self._going.pop(spec.key, None)

    def log(self, spec_path: Path | str) -> Path | None:
        """Return the run's training log, where there is one."""
        logs = [path / "train.log" for path in find_workdirs(self.work, read_spec(spec_path))]
        return next((path for path in logs if exists(path)), None)

    def _held(self, spec: RunSpec) -> str | None:
        for workdir in find_workdirs(self.work, spec):
            owner = read_owner(workdir)
            if owner is None or not self._may_live(owner, workdir):
                continue
            command = f"kill {owner.pid} on {owner.host}"
            if owner.job is not None:
                command = f"scancel {owner.job}"
            return (
                f"it is being trained by {owner}; wait for it or end it ({command}), "
                "then start Snakemake again"
            )
        return None

    def _may_live(self, owner: LockOwner, workdir: Path) -> bool:
        """Return True if the owner may live; the lock of its working directory decides."""
        if owner.job is None or owner.is_here:
            return owner_is_alive(owner, workdir) is not False
        state = job_state(owner.job)
        if state == "gone" or (owner.job in self._ended and state in ("ending", None)):
            return False
        return owner_is_alive(owner, workdir, lambda _: state) is not False

    def _queued(self, spec: RunSpec, comment: str | None) -> str | None:
        """Return why a job of another Snakemake, killed or running, or a requeued one, stands in the way."""
        queue = self._queue.get()
        submission = read_submission(self.work, spec)
        if submission is not None and self._goes_on(submission.job, queue):
            state = queue[submission.job].slurm_state
            at = datetime.fromtimestamp(submission.submitted_s)
            return (
                f"its job {submission.job} is in Slurm's queue ({state}), submitted by the Snakemake "
                f"of process {submission.pid} on {submission.host}, "
                f"{at:%Y-%m-%d %H:%M:%S}; {_wait_for(submission.job)}"
            )
        for job, queued in queue.items():
            if comment is not None and queued.comment == comment and self._goes_on(job, queue):
                return f"its job {job} is in Slurm's queue ({queued.slurm_state}); {_wait_for(job)}"
        return None

    def _goes_on(self, job: str, queue: dict[str, QueuedJob]) -> bool:
        """Return True if a job is in the queue, and not just on its way out of it."""
        if job not in queue:
            return False
        return job not in self._ended or queue[job].state != "ending"


def _queue_or_none() -> dict[str, QueuedJob]:
    """Return the queue; empty if Slurm gives no answer: the run's own lock then decides."""
    try:
        return queued_jobs()
    except NoAnswerError:
        return {}


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _without_energy(names: list[str]) -> str:
    """Return a sentence on runs under way whose energy is unknown; nothing without any."""
    if not names:
        return ""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    runs = f"{_runs(len(names))} whose energy is unknown"
    return f" (and {runs}: {', '.join(names[:_NAMED])}{more})"


def _wait_for(job: str) -> str:
    return f"wait for it or end it (scancel {job}), then start Snakemake again"
