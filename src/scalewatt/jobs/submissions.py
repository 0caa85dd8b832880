"""What the executor asks of a run: may it be submitted, note its submission, is it worth another job."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from scalewatt.campaign.spec import read_spec, spec_sha256
from scalewatt.jobs.attempts import note_given_up, note_submission, read_submission
from scalewatt.jobs.holder import Holder, holder_is_alive, read_holder
from scalewatt.jobs.job_state import job_state, state_of
from scalewatt.jobs.notes import read_content, run_key
from scalewatt.jobs.position import find_workdirs
from scalewatt.jobs.slurm import NoAnswerError, QueuedJob, queued_jobs
from scalewatt.jobs.verdict import Verdict, verdict

_ANSWER_AGE_S = 10.0
"""How long an answer of the queue, and the energy spent, are taken for current."""
_NEVER_S = float("-inf")


@dataclass
class Submissions:
    """The submissions of one Snakemake for the campaign whose folder is `work`."""

    work: Path
    crash_retries: int
    budget_kwh: float | None = None
    spent_kwh: Callable[[], float] | None = None
    """The campaign's energy so far, in kWh."""
    still_kwh: Callable[[dict[str, Any]], float | None] = lambda _: None
    """Energy that a run is still to use, as predicted; None where that is not known."""
    specs: Callable[[], Mapping[str, dict[str, Any]]] = dict
    """The campaign's specs by run key: of which another Snakemake may have submitted jobs."""
    since_s: float = field(default_factory=time.time)
    """When this Snakemake started, in Unix s."""

    def __post_init__(self) -> None:
        self._jobs: dict[str, list[str]] = {}
        """This Snakemake's, in order, by run key."""
        self._specs: dict[str, dict[str, Any]] = {}
        """Of the runs that this Snakemake submitted, by run key."""
        self._ended: set[str] = set()
        self._queue: tuple[float, dict[str, QueuedJob]] = (_NEVER_S, {})
        self._spent: tuple[float, float] = (_NEVER_S, 0.0)

    def refusal(self, spec_path: Path | str, comment: str | None = None) -> str | None:
        """Why the run of a spec is not to be submitted now, and what to do; None where it may be.

        `comment` is the one that all its jobs have in Slurm's queue.
        """
        spec = read_spec(spec_path)
        taken = self._held(spec) or self._queued(spec, comment)
        if taken or self.is_trained(spec):
            return taken
        return self.over_budget() or self.would_exceed(spec)

    def is_published(self, spec_path: Path | str) -> bool:
        """Whether a job that is not this Snakemake's has published the run since it started."""
        spec, path = read_spec(spec_path), Path(spec_path).with_name("provenance.json")
        found = read_content(path)
        return (
            isinstance(found, dict)
            and found.get("spec_sha256") == spec_sha256(spec)
            and path.stat().st_mtime >= self.since_s
            and not self._jobs.get(run_key(spec))
        )

    def is_being_published(self, spec_path: Path | str) -> bool:
        """Whether the run is trained to its end and somebody still holds it."""
        spec = read_spec(spec_path)
        return self.is_trained(spec) and self._held(spec) is not None

    def is_trained(self, spec: dict[str, Any]) -> bool:
        """Whether the run's training has come to its end: only its results are still to be published."""
        return any((path / "result.json").exists() for path in find_workdirs(self.work, spec))

    def over_budget(self) -> str | None:
        """Why nothing of the campaign is to be submitted any more; None where energy is left."""
        spent = self._spent_so_far()
        if spent is None or self.budget_kwh is None or spent < self.budget_kwh:
            return None
        return (
            f"the campaign's energy budget is spent: {spent:.6g} of {self.budget_kwh:g} kWh; what "
            "was submitted goes on, nothing else is (energy_budget_kwh of the campaign file)"
        )

    def would_exceed(self, spec: dict[str, Any]) -> str | None:
        """Why a run is not to be submitted that would use more energy than is left, as predicted.

        What is spent, and what runs under way are still to use, is not left. None where the run fits,
        or nothing is known of its energy.
        """
        spent = self._spent_so_far()
        own = None if spent is None else self.still_kwh(spec)
        if spent is None or own is None or self.budget_kwh is None:
            return None
        others = self._under_way(run_key(spec))
        ahead = sum(self.still_kwh(one) or 0.0 for one in others)
        total = spent + ahead + own
        if total <= self.budget_kwh:
            return None
        runs = f"{len(others)} run{'' if len(others) == 1 else 's'}"
        return (
            f"it would exceed the campaign's energy budget: {spent:.6g} kWh are spent, {runs} under way "
            f"will use about {ahead:.6g} kWh more and this one {own:.6g}: {total:.6g} of "
            f"{self.budget_kwh:g} kWh (energy_budget_kwh of the campaign file; energies as the "
            "cluster's scaling model predicts them)"
        )

    def _spent_so_far(self) -> float | None:
        """The campaign's energy in kWh; None without a budget."""
        if self.budget_kwh is None or self.spent_kwh is None:
            return None
        asked_s, spent = self._spent
        if time.monotonic() - asked_s > _ANSWER_AGE_S:
            spent = self.spent_kwh()
            self._spent = (time.monotonic(), spent)
        return spent

    def _under_way(self, but: str) -> list[dict[str, Any]]:
        """Specs of the other runs that have a job: of this Snakemake, or in Slurm's queue."""
        found = {
            key: self._specs[key]
            for key, jobs in self._jobs.items()
            if jobs[-1] not in self._ended and key != but
        }
        queue = self._answer()
        for key, spec in self.specs().items() if queue else ():
            if key not in found and key != but:
                submission = read_submission(self.work, spec)
                if submission is not None and self._goes_on(submission.job, queue):
                    found[key] = spec
        return list(found.values())

    def count_anew(self) -> None:
        """Forget what was spent: a job has ended."""
        self._spent = (_NEVER_S, 0.0)

    def note(self, spec_path: Path | str, job: str, log: str | None) -> None:
        """Note that `job` was submitted for the run; OSError where that cannot be written."""
        spec = read_spec(spec_path)
        self._specs[run_key(spec)] = spec
        self._jobs.setdefault(run_key(spec), []).append(job)
        note_submission(self.work, spec, job, log)

    def end(self, spec_path: Path | str, job: str) -> Verdict:
        """Whether the run is submitted again, now that its job has ended."""
        self._ended.add(job)
        self._queue = (_NEVER_S, {})  # asked before the end
        spec = read_spec(spec_path)
        jobs = [*self._jobs.get(run_key(spec), []), job]
        jobs = jobs[: jobs.index(job) + 1]
        is_held = lambda: self._held(spec) is not None  # noqa: E731
        return verdict(self.work, spec, jobs, self.crash_retries, is_held)

    def give_up(
        self, spec_path: Path | str, job: str | None, reason: str, comment: str | None = None
    ) -> None:
        """Note that the run, whose last job was `job`, is not submitted any more; OSError.

        Unless another holds it, or has submitted it: that one goes on.
        """
        spec = read_spec(spec_path)
        if self._held(spec) is None and self._queued(spec, comment) is None:
            note_given_up(self.work, spec, job, reason)

    def log(self, spec_path: Path | str) -> Path | None:
        """The run's training log, where there is one."""
        logs = [path / "train.log" for path in find_workdirs(self.work, read_spec(spec_path))]
        return next((path for path in logs if path.exists()), None)

    def _held(self, spec: dict[str, Any]) -> str | None:
        for workdir in find_workdirs(self.work, spec):
            holder = read_holder(workdir)
            if holder is None or not self._may_live(holder, workdir):
                continue
            command = f"kill {holder.pid} on {holder.host}"
            if holder.job is not None:
                command = f"scancel {holder.job}"
            return (
                f"it is being trained by {holder}; wait for it or end it ({command}), "
                "then start Snakemake again"
            )
        return None

    def _may_live(self, holder: Holder, workdir: Path) -> bool:
        """Whether the holder lives, as far as can be told; the lock of its working directory decides."""
        if holder.job is None or holder.is_here:
            return holder_is_alive(holder, workdir) is not False
        state = job_state(holder.job)
        if state == "gone" or (holder.job in self._ended and state in ("ending", None)):
            return False
        return holder_is_alive(holder, workdir, lambda _: state) is not False

    def _queued(self, spec: dict[str, Any], comment: str | None) -> str | None:
        """A job of another Snakemake, which was killed or still runs, or one put back into the queue."""
        queue = self._answer()
        submission = read_submission(self.work, spec)
        if submission is not None and self._goes_on(submission.job, queue):
            return (
                f"its job {submission.job} is in Slurm's queue ({queue[submission.job].state}), submitted "
                f"by the Snakemake of process {submission.pid} on {submission.host}, "
                f"{_clock(submission.submitted_s)}; {_wait_for(submission.job)}"
            )
        for job, said in queue.items():
            if comment is not None and said.comment == comment and self._goes_on(job, queue):
                return f"its job {job} is in Slurm's queue ({said.state}); {_wait_for(job)}"
        return None

    def _goes_on(self, job: str, queue: dict[str, QueuedJob]) -> bool:
        """Whether a job is in the queue, and not just on its way out of it."""
        if job not in queue:
            return False
        return job not in self._ended or state_of([queue[job].state]) != "ending"

    def _answer(self) -> dict[str, QueuedJob]:
        """The queue; empty where Slurm gives no answer: the run's own lock then decides."""
        asked_s, queue = self._queue
        if time.monotonic() - asked_s > _ANSWER_AGE_S:
            try:
                queue = queued_jobs()
            except NoAnswerError:
                queue = {}
            self._queue = (time.monotonic(), queue)
        return queue


def _wait_for(job: str) -> str:
    return f"wait for it or end it (scancel {job}), then start Snakemake again"


def _clock(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s):%Y-%m-%d %H:%M:%S}"
