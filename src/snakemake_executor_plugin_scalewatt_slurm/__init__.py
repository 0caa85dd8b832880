"""Snakemake's Slurm executor, and what a campaign of measured trainings needs besides.

`executor: scalewatt-slurm` in a profile. Settings are those of snakemake-executor-plugin-slurm, under
the prefix scalewatt-slurm. What differs, and why:

- A training is submitted only if nobody else trains it, it does not wait in the queue, and the
  campaign's energy budget is not spent. Its submission is noted. (`run_job`, `report_job_submission`)
- Whether a training that ended is submitted again is decided by what it left behind, not by its
  number of attempts; one line says why. What sbatch refuses is not tried again, unless slurmctld
  gave no answer. (`report_job_error`, `handle_job_error`)
- A job that Slurm put back into its queue is waited for. One that was preempted or cancelled and is
  no longer in the queue has ended. (`report_job_error`, `check_active_jobs`)
- Jobs that run long are asked about four times more seldom than at first, not ever more seldom, and
  what follows a failed job is as quick as what follows a finished one. (`check_active_jobs`)
- After NODE_FAIL no node is excluded: Slurm names all nodes of the job and avoids by itself those that
  are down. (`_failed_nodes`)
- The account was checked before anything was submitted: it is neither asked for at every
  submission nor guessed. (`get_account_arg`)
- Ctrl-C also cancels jobs that are just being submitted or asked about. (`cancel`, `cancel_jobs`)

What the trainings are is asked of the object SUBMISSIONS of the workflow
(scalewatt.jobs.submissions); without it all jobs are other jobs.
"""

from __future__ import annotations

import logging
import re
import shlex
import threading
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any

import snakemake_executor_plugin_slurm as parent
from snakemake_executor_plugin_slurm import ExecutorSettings, common_settings
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from scalewatt.errors import InputError
from scalewatt.jobs.job_state import state_of
from scalewatt.jobs.slurm import NoAnswerError, accounted_states, queued_jobs

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

RUNS = frozenset({"train", "train_command"})
MEASURED = RUNS | {"probe"}
_OVERLOOKED = ("PREEMPTED", "CANCELLED")
"""States in which the parent waits on; sacct prints the second as `CANCELLED by <user>`."""
_UNREACHABLE = re.compile(r"(?i)timed out|unable to contact|temporarily unavailable")
_UNREACHABLE_WAITS_S = (5, 10, 20, 40, 60)
_SLOWEST = 4
"""The longest time between two polls, in units of the first."""
_NOT_FOR_PEOPLE = ("No job memory information", "MinJobAge", "===== A Job preemption")
_USED = (
    *("run_job", "get_account_arg", "check_active_jobs", "cancel", "cancel_jobs"),
    *("report_job_submission", "report_job_success", "report_job_error", "handle_job_error"),
    *("_report_job_error_threadsafe", "_report_job_submission_threadsafe"),
)
_USED_OF_INSTANCE = (
    "_failed_nodes",
    "_job_submission_executor",
    "array_jobs",
)


@dataclass(frozen=True)
class _End:
    """How a job ended that did not succeed."""

    job_id: str | None
    log: str | None
    message: str
    refused: bool = False
    """By us, before sbatch."""


class Executor(parent.Executor):
    """See the module."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        _require(parent.Executor, _USED)
        # All before the parent's: it starts the thread that asks Slurm.
        self._excluded: frozenset[str] = frozenset()
        self._ends: dict[JobExecutorInterface, _End] = {}
        self._live: dict[str, SubmittedJobInfo] = {}
        self._unreachable: dict[JobExecutorInterface, int] = {}
        self._said: set[str] = set()
        self._cancelled = threading.Event()
        self._submissions = workflow.globals.get("SUBMISSIONS")
        logger.addFilter(_is_for_people)
        super().__init__(workflow, logger)

    def __post_init__(self, test_mode: bool = False) -> None:
        super().__post_init__(test_mode)
        _require(self, _USED_OF_INSTANCE)
        if self.array_jobs:
            raise WorkflowError(
                "scalewatt-slurm: array-jobs is not for this executor; leave it out"
            )

    @property
    def _failed_nodes(self) -> set[str]:
        """A copy, to which the parent adds in vain."""
        return set(self._excluded)

    @_failed_nodes.setter
    def _failed_nodes(self, nodes: set[str]) -> None:
        self._excluded = frozenset(nodes)

    def get_account_arg(self, job: JobExecutorInterface) -> Iterator[str]:
        """The job's account as it is; none is Slurm's default."""
        account = job.resources.get("slurm_account")
        yield f" -A {shlex.quote(str(account))}" if account else ""

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submit a job, if it may be."""
        refusal = self._refusal(job)
        if refusal:
            self._ends[job] = _End(None, None, refusal, refused=True)
            self._report_job_error_threadsafe(SubmittedJobInfo(job), refusal)
            return
        if job in self._unreachable:
            waits = _UNREACHABLE_WAITS_S
            self._cancelled.wait(waits[min(self._unreachable[job], len(waits)) - 1])
        if not self._cancelled.is_set():
            super().run_job(job)

    def report_job_submission(self, job_info: SubmittedJobInfo, register_job: bool = True) -> None:
        """Note the submission of a run."""
        self._live[str(job_info.external_jobid)] = job_info
        self._unreachable.pop(job_info.job, None)
        if self._is_run(job_info.job):
            try:
                self._submissions.note(
                    job_info.job.input.spec, str(job_info.external_jobid), _log_of(job_info)
                )
            except (OSError, InputError) as error:
                self.logger.warning(f"{_label(job_info.job)}: its job cannot be noted ({error})")
        super().report_job_submission(job_info, register_job=register_job)

    def report_job_success(self, job_info: SubmittedJobInfo) -> None:
        """Forget the job's end."""
        self._live.pop(str(job_info.external_jobid), None)
        super().report_job_success(job_info)

    def report_job_error(
        self, job_info: SubmittedJobInfo, msg: str | None = None, **kwargs: Any
    ) -> None:
        """Keep how the job ended for `handle_job_error`, unless Slurm has put it back into its queue."""
        if job_info.external_jobid is not None and self._is_queued(job_info.external_jobid):
            with self.lock:
                self.active_jobs.append(job_info)
            return
        self._live.pop(str(job_info.external_jobid), None)
        self._ends.setdefault(
            job_info.job, _End(job_info.external_jobid, _log_of(job_info), msg or "")
        )
        self.workflow.scheduler.error_callback(job_info.job)

    def handle_job_error(self, job: JobExecutorInterface) -> None:
        """Say how a job ended, and decide whether Snakemake submits it again."""
        super().handle_job_error(job)
        end = self._ends.pop(job, None) or _End(None, None, "its outputs are incomplete")
        label = _label(job)
        if end.job_id is None and end.message and not self._is_unreachable(job, end):
            self._end(job, f"{label}: not submitted: {self._once(_words(end.message))}")
        elif end.job_id is None:
            self.logger.warning(f"{label}: {_words(end.message)}; it is tried again")
        elif self._is_run(job):
            self._end_run(job, end)
        else:
            last = job.attempt > job.restart_times
            again = "" if last else "; submitted again"
            say = self.logger.error if last else self.logger.warning
            say(f"{label}: {_words(end.message)} Log: {end.log}{again}")

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Yield the jobs that have not ended."""
        still = [info async for info in super().check_active_jobs(active_jobs)]
        gone = _overlooked(still) if still else {}
        for info in still:
            state = gone.get(str(info.external_jobid))
            if state is not None:
                self.report_job_error(info, msg=f"{state}, and no longer in Slurm's queue.")
            else:
                yield info
        first_s = self.workflow.executor_settings.init_seconds_before_status_checks
        longest_s = first_s if len(still) < len(active_jobs) else _SLOWEST * first_s
        planned_s = super().next_seconds_between_status_checks
        self.next_seconds_between_status_checks = min(planned_s, longest_s)

    def cancel(self) -> None:
        """Cancel all jobs, those whose submission is under way as well."""
        self._cancelled.set()
        self._job_submission_executor.shutdown(wait=True, cancel_futures=True)
        super().cancel()

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel every job that has not ended: the parent's list is empty while Slurm is asked."""
        super().cancel_jobs(list(self._live.values()))

    def _is_run(self, job: JobExecutorInterface) -> bool:
        return self._submissions is not None and not job.is_group() and job.rule.name in RUNS

    def _refusal(self, job: JobExecutorInterface) -> str | None:
        if self._submissions is None or job.is_group() or job.rule.name not in MEASURED:
            return None
        try:
            if self._is_run(job):
                return self._submissions.refusal(job.input.spec)
            return self._submissions.over_budget()
        except (OSError, InputError) as error:
            return str(error)

    def _is_unreachable(self, job: JobExecutorInterface, end: _End) -> bool:
        """Whether slurmctld did not answer sbatch, for a while yet to be waited."""
        if end.refused or not _UNREACHABLE.search(end.message):
            return False
        self._unreachable[job] = self._unreachable.get(job, 0) + 1
        return self._unreachable[job] <= len(_UNREACHABLE_WAITS_S)

    @staticmethod
    def _is_queued(job_id: str) -> bool:
        try:
            return state_of([queued_jobs().get(job_id, "")]) in ("running", "waiting")
        except NoAnswerError:
            return False

    def _end_run(self, job: JobExecutorInterface, end: _End) -> None:
        try:
            verdict = self._submissions.end(job.input.spec, end.job_id)
            log = self._submissions.log(job.input.spec)
        except (OSError, InputError) as error:
            self._end(job, f"{_label(job)}: not submitted again: {error}")
            return
        if verdict.again:
            self.logger.warning(
                f"{_label(job)}: job {end.job_id} ended ({verdict.reason}); submitted again"
            )
        else:
            logs = ", ".join(str(path) for path in (log, end.log) if path)
            self._end(job, f"{_label(job)}: not submitted again: {verdict.reason}; log: {logs}")

    def _end(self, job: JobExecutorInterface, text: str) -> None:
        """Say it, and let Snakemake count this attempt as the last one."""
        self.logger.error(text)
        job.attempt = max(job.attempt, job.restart_times + 1)

    def _once(self, text: str) -> str:
        """The text when it is new; a reference to it afterwards."""
        if text in self._said:
            return "for the same reason as the one before"
        self._said.add(text)
        return text


def _require(owner: object, names: Any) -> None:
    missing = [name for name in names if not hasattr(owner, name)]
    if missing:
        raise WorkflowError(
            f"snakemake-executor-plugin-slurm has no {', '.join(missing)}: scalewatt-slurm was written for "
            "its version 2.8.0 (envs/lock.txt); expected that one"
        )


def _is_for_people(record: logging.LogRecord) -> bool:
    return not record.getMessage().lstrip().startswith(_NOT_FOR_PEOPLE)


def _label(job: JobExecutorInterface) -> str:
    """What the job does, in the words of its rule, without what it asks for."""
    return job.name if job.is_group() else (job.message or job.rule.name).partition(" (")[0]


def _log_of(job_info: SubmittedJobInfo) -> str | None:
    log = (job_info.aux or {}).get("slurm_logfile")
    return None if log is None else str(log)


def _words(message: str) -> str:
    """What Slurm said in the parent's message, or the message, in one line."""
    slurm = re.search(r"The error message was '(.*?)'\.\n", message, flags=re.DOTALL)
    return " ".join((slurm.group(1) if slurm else message).split())


def _overlooked(jobs: list[SubmittedJobInfo]) -> dict[str, str]:
    """State, by id, of the jobs that the parent takes for running and that have ended without success."""
    ids = [str(info.external_jobid) for info in jobs]
    try:
        queued = queued_jobs()
    except NoAnswerError:
        return {}
    missing = [job for job in ids if job not in queued]
    try:
        states = accounted_states(missing) if missing else {}
    except NoAnswerError:
        return dict.fromkeys(missing, "ended")
    return {job: states[job] for job in missing if states.get(job) in _OVERLOOKED}
