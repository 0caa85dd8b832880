"""What the executor asks of a run: may it be submitted, note its submission, is it worth another job."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from scalewatt.campaign.spec import read_spec
from scalewatt.jobs.attempts import note_submission, read_submission
from scalewatt.jobs.holder import holder_is_alive, read_holder
from scalewatt.jobs.position import find_workdirs
from scalewatt.jobs.slurm import NoAnswerError, queued_jobs
from scalewatt.jobs.verdict import Verdict, verdict

_ANSWER_AGE_S = 10.0
"""How long an answer of the queue, and the energy spent, are taken for current."""


@dataclass
class Submissions:
    """The submissions of one Snakemake for the campaign whose folder is `work`."""

    work: Path
    crash_retries: int
    budget_kwh: float | None = None
    spent_kwh: Callable[[], float] | None = None
    """The campaign's energy so far, in kWh."""
    since_s: float = field(default_factory=time.time)
    """When this Snakemake started, in Unix s."""

    def __post_init__(self) -> None:
        self._ended: set[str] = set()
        self._queue: tuple[float, dict[str, str]] = (float("-inf"), {})
        self._spent: tuple[float, float] = (float("-inf"), 0.0)

    def refusal(self, spec_path: Path | str) -> str | None:
        """Why the run of a spec is not to be submitted now, and what to do; None where it may be."""
        spec = read_spec(spec_path)
        taken = self._held(spec) or self._queued(spec)
        return taken or (None if self.is_trained(spec) else self.over_budget())

    def is_trained(self, spec: dict[str, Any]) -> bool:
        """Whether the run's training has come to its end: only its results are still to be published."""
        return any((path / "result.json").exists() for path in find_workdirs(self.work, spec))

    def over_budget(self) -> str | None:
        """Why nothing of the campaign is to be submitted any more; None where energy is left."""
        if self.budget_kwh is None or self.spent_kwh is None:
            return None
        asked_s, spent = self._spent
        if time.monotonic() - asked_s > _ANSWER_AGE_S:
            spent = self.spent_kwh()
            self._spent = (time.monotonic(), spent)
        if spent < self.budget_kwh:
            return None
        return (
            f"the campaign's energy budget is spent: {spent:.6g} of {self.budget_kwh:g} kWh; what runs "
            "goes on, nothing else is started (energy_budget_kwh of the campaign file)"
        )

    def note(self, spec_path: Path | str, job: str, log: str | None) -> None:
        """Note that `job` was submitted for the run; OSError where that cannot be written."""
        note_submission(self.work, read_spec(spec_path), job, log)

    def end(self, spec_path: Path | str, job: str) -> Verdict:
        """Whether the run is submitted again, now that its job has ended."""
        self._ended.add(job)
        return verdict(self.work, read_spec(spec_path), self.since_s, self.crash_retries)

    def log(self, spec_path: Path | str) -> Path | None:
        """The run's training log, where there is one."""
        logs = [path / "train.log" for path in find_workdirs(self.work, read_spec(spec_path))]
        return next((path for path in logs if path.exists()), None)

    def _held(self, spec: dict[str, Any]) -> str | None:
        for workdir in find_workdirs(self.work, spec):
            holder = read_holder(workdir)
            if holder is None or holder.job in self._ended:
                continue
            if holder_is_alive(holder, workdir) is False:
                continue
            command = f"kill {holder.pid} on {holder.host}"
            if holder.job is not None:
                command = f"scancel {holder.job}"
            return (
                f"it is being trained by {holder}; wait for it or end it ({command}), "
                "then start Snakemake again"
            )
        return None

    def _queued(self, spec: dict[str, Any]) -> str | None:
        """A job of another Snakemake, which was killed or still runs."""
        submission = read_submission(self.work, spec)
        if submission is None or submission.job in self._ended:
            return None
        state = self._states().get(submission.job)
        if state is None:
            return None
        return (
            f"its job {submission.job} is in Slurm's queue ({state}), submitted by the Snakemake of process "
            f"{submission.pid} on {submission.host}, {_clock(submission.submitted_s)}; wait for it "
            f"or end it (scancel {submission.job}), then start Snakemake again"
        )

    def _states(self) -> dict[str, str]:
        """The queue; empty where Slurm gives no answer: the run's own lock then decides."""
        asked_s, states = self._queue
        if time.monotonic() - asked_s > _ANSWER_AGE_S:
            try:
                states = queued_jobs()
            except NoAnswerError:
                states = {}
            self._queue = (time.monotonic(), states)
        return states


def _clock(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s):%Y-%m-%d %H:%M:%S}"
