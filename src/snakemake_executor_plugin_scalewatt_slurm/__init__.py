"""Snakemake's Slurm executor, and what a campaign of measured trainings needs besides.

`executor: scalewatt-slurm` in a profile. Settings are those of snakemake-executor-plugin-slurm, under
the prefix scalewatt-slurm. What differs, and why:

- A training is submitted only if nobody else trains it, it does not wait in the queue, and the
  campaign's energy budget is not used up. Its submission is noted. What another job has published
  meanwhile is finished. (`run_job`, `report_job_submission`)
- Where slurmctld does not answer sbatch, it is asked again for a while. It may have accepted the job
  all the same: one that is in the queue is not submitted twice. (`run_job`)
- Where Slurm refuses a job because there are too many, it waits until others have ended, however long
  that takes. (`waiting_line`)
- Whether a training that ended is submitted again is decided by what it left behind, not by its
  number of attempts; one line says why. What sbatch refuses is not tried again. (`handle_job_error`)
- A job that is still in Slurm's queue has not ended: Slurm may put it back. One that is not is asked
  about by its id; where Slurm gives no answer, nothing has ended. (`report_job_error`,
  `check_active_jobs`)
- Jobs that run long are asked about four times more seldom than at first, not ever more seldom, and
  what follows a failed job is as quick as what follows a finished one. (`check_active_jobs`)
- After NODE_FAIL no node is excluded: Slurm names all nodes of the job and avoids by itself those that
  are down. (`_failed_nodes`)
- The account was checked before anything was submitted: it is neither asked for at every
  submission nor guessed. (`get_account_arg`)
- The comment of a training's job says which campaign's it is, for other Snakemakes. (`get_account_arg`)
- Variables by which a user formats or selects what squeue and sacct print (SQUEUE_STATES, say) are not
  handed on: a job that they hide would be submitted a second time. (`__init__`)
- Ctrl-C also cancels jobs that are just being submitted or asked about. (`cancel`, `cancel_jobs`)

What the trainings are is asked of the workflow's objects SUBMISSIONS and, of a run made again,
SUBMISSIONS_AGAIN (scalewatt.scheduling.submissions); without them all jobs are other jobs.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, repeat
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from scalewatt.common.errors import InputError
from scalewatt.slurm.job_queue import queued_jobs
from scalewatt.slurm.slurm_commands import NoAnswerError, accounted_states, users_variables
from scalewatt.slurm.submit_limits import UNREACHABLE, meaning
from snakemake_executor_plugin_scalewatt_slurm.waiting_line import WAITS_S, Postponed, WaitingLine

try:
    import snakemake_executor_plugin_slurm as parent
    from snakemake_executor_plugin_slurm import ExecutorSettings, common_settings
    from snakemake_executor_plugin_slurm.utils import get_job_wildcards
except ImportError:  # Snakemake imports this module at each call, whatever it is asked for
    from snakemake_executor_plugin_scalewatt_slurm import absent_parent as parent
    from snakemake_executor_plugin_scalewatt_slurm.absent_parent import (
        ExecutorSettings,
        common_settings,
        get_job_wildcards,
    )

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

RUNS = {"train": "SUBMISSIONS", "train_command": "SUBMISSIONS", "run_again": "SUBMISSIONS_AGAIN"}
"""The rules of trainings, and the workflow's object that knows their submissions."""
_ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
)
"""What the accounting says of jobs that have ended; the parent waits on for some, or never sees it."""
_PATIENCE_S = 600
"""How long slurmctld is asked again to accept a job."""
_SLOWEST = 4
"""The longest time between two polls, in units of the first."""
_NOT_FOR_PEOPLE = ("No job memory information", "MinJobAge", "===== A Job preemption")
MADE_FOR = {"snakemake-executor-plugin-slurm": "2.8", "snakemake-interface-executor-plugins": "9"}
"""The packages whose inner workings this module relies on, with the versions (2.8 is every 2.8.x)."""
_USED = (
    *("run_job", "get_account_arg", "check_active_jobs", "cancel", "cancel_jobs", "shutdown"),
    "handle_job_success",
    *("report_job_submission", "report_job_success", "report_job_error", "handle_job_error"),
    *("_report_job_error_threadsafe", "_report_job_submission_threadsafe"),
)
_USED_OF_INSTANCE = (
    "_failed_nodes",
    "_job_submission_executor",
    "array_jobs",
    "run_uuid",
    "slurm_logdir",
)


@dataclass(frozen=True)
class _End:
    """The end of a job."""

    job_id: str | None
    """None if it was not submitted."""
    log: str | None
    message: str
    withdrawn: bool = False
    """It still waited for its submission when Snakemake was told to end."""


class Executor(parent.Executor):
    """See the module."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        _require_versions()
        _require(parent.Executor, _USED)
        for name in users_variables(os.environ):
            del os.environ[name]
        # All before the parent's: it starts the thread that asks Slurm.
        self._excluded: frozenset[str] = frozenset()
        self._ends: dict[JobExecutorInterface, _End] = {}
        self._live: dict[str, SubmittedJobInfo] = {}
        self._known: set[str] = set()
        self._unheard: dict[JobExecutorInterface, Postponed] = {}
        self._line = WaitingLine(
            self._offer, self._refuse, self._withdraw, self._is_ending, logger.warning
        )
        self._logged: set[str] = set()
        self._cancelled = threading.Event()
        self._submissions = {rule: workflow.globals.get(name) for rule, name in RUNS.items()}
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
        """Return a copy, so that what the parent adds has no effect."""
        return set(self._excluded)

    @_failed_nodes.setter
    def _failed_nodes(self, nodes: set[str]) -> None:
        self._excluded = frozenset(nodes)

    def get_account_arg(self, job: JobExecutorInterface) -> Iterator[str]:
        """Return the job's account as it is, none is Slurm's default; and a run's comment."""
        account = job.resources.get("slurm_account")
        arguments = f" -A {shlex.quote(str(account))}" if account else ""
        if self._is_run(job):  # the last comment of sbatch's arguments counts
            arguments += f" --comment={shlex.quote(self._comment(job))}"
        yield arguments

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submit a job, if it may be, as soon as Slurm answers."""
        try:
            self._submit(job)
        except Exception as error:  # it would end this thread, and be waited for for ever
            self._refuse(job, _error_line(error))

    def _submit(self, job: JobExecutorInterface) -> None:
        until_s = time.monotonic() + _PATIENCE_S
        unsettled = None
        for wait_s in chain((0,), WAITS_S, repeat(WAITS_S[-1])):
            if self._cancelled.wait(wait_s) or self._line.holds(job):
                return
            unsettled = self._try(job, again=unsettled is not None)
            if unsettled is None:
                return
            if unsettled.limit is not None:
                self._line.take(job, _label(job), unsettled)
                return
            if time.monotonic() > until_s:
                self._refuse(job, unsettled.reason)
                return
            if wait_s == 0:
                said = f"{_label(job)}: {unsettled.reason}; tried again for {_PATIENCE_S // 60} min"
                self.logger.warning(said)

    def _offer(self, job: JobExecutorInterface) -> Postponed | None:
        """Submit a job that waits in line or refuse it, else why it waits on."""
        try:
            return self._try(job, again=True)
        except Exception as error:
            self._refuse(job, _error_line(error))
            return None

    def _try(self, job: JobExecutorInterface, again: bool) -> Postponed | None:
        """Submit the job or refuse it; why neither can be done yet."""
        try:
            if again and self._is_adopted(job):
                return None
        except NoAnswerError as error:
            return Postponed(str(error), None)
        if self._is_run(job):
            if self._of(job).is_published(job.input.spec):
                super().report_job_success(SubmittedJobInfo(job))
                return None
            if self._of(job).is_being_published(job.input.spec):
                return Postponed("another job publishes its results", None)
        refusal = self._refusal(job)
        if refusal:
            self._refuse(job, refusal)
            return None
        super().run_job(job)
        return self._unheard.pop(job, None)

    def _refuse(self, job: JobExecutorInterface, reason: str) -> None:
        super()._report_job_error_threadsafe(SubmittedJobInfo(job), reason)

    def _withdraw(self, jobs: list[JobExecutorInterface]) -> None:
        """Give back jobs that still wait, as not started: Snakemake ends when its jobs have ended."""
        self.logger.warning(f"Snakemake ends; not submitted: {'; '.join(map(_label, jobs))}")
        for job in jobs:
            self._ends[job] = _End(None, None, "", withdrawn=True)
            self.workflow.scheduler.error_callback(job)

    def _is_ending(self) -> bool:
        """Return True if Snakemake starts no further job: it was told to end, or one failed."""
        scheduler = self.workflow.scheduler
        failed = getattr(scheduler, "_errors", False) and not getattr(scheduler, "keepgoing", True)
        return bool(getattr(scheduler, "_user_kill", None) or failed)

    def _report_job_error_threadsafe(self, job_info: SubmittedJobInfo, msg: str) -> None:
        """Keep what sbatch said for `run_job`, if the job is to be tried again."""
        message = _words(msg)
        limit = meaning(message)
        if limit != "final":
            self._unheard[job_info.job] = Postponed(message, limit)
        elif UNREACHABLE.search(message):
            self._unheard[job_info.job] = Postponed(message, None)
        else:
            super()._report_job_error_threadsafe(job_info, msg)

    def _is_adopted(self, job: JobExecutorInterface) -> bool:
        """Take over what slurmctld accepted without saying so; NoAnswerError."""
        ours = (self.run_uuid, self._comment(job))
        for job_id, queued in queued_jobs().items():
            if (queued.name, queued.comment) == ours and job_id not in self._known:
                kind = "group" if job.is_group() else "rule"
                folder = self.slurm_logdir / f"{kind}_{job.name}" / get_job_wildcards(job)
                info = SubmittedJobInfo(job, job_id, {"slurm_logfile": folder / f"{job_id}.log"})
                self._report_job_submission_threadsafe(info)
                return True
        return False

    def _comment(self, job: JobExecutorInterface) -> str:
        """Return what Slurm is told of a job: the parent's words, and of a run those of its campaign."""
        wildcards = get_job_wildcards(job)
        comment = f"rule_{job.name}" + (f"_wildcards_{wildcards}" if wildcards else "")
        return self._of(job).comment(comment) if self._is_run(job) else comment

    def report_job_submission(self, job_info: SubmittedJobInfo, register_job: bool = True) -> None:
        """Note the submission of a run."""
        self._live[str(job_info.external_jobid)] = job_info
        self._known.add(str(job_info.external_jobid))
        if self._is_run(job_info.job):
            try:
                self._of(job_info.job).note(
                    job_info.job.input.spec, str(job_info.external_jobid), _log_of(job_info)
                )
            except Exception as error:
                why = _error_line(error)
                self.logger.warning(f"{_label(job_info.job)}: its job cannot be noted ({why})")
        super().report_job_submission(job_info, register_job=register_job)

    def report_job_success(self, job_info: SubmittedJobInfo) -> None:
        """Keep the job for `handle_job_error`: its outputs may be missing."""
        self._note_end(job_info, "Its outputs are missing.")
        super().report_job_success(job_info)

    def handle_job_success(self, job: JobExecutorInterface) -> None:
        """Forget the job's end, and of a run what it was still to use."""
        self._ends.pop(job, None)
        if self._is_run(job):
            self._of(job).finish(job.input.spec)
        super().handle_job_success(job)

    def report_job_error(
        self, job_info: SubmittedJobInfo, msg: str | None = None, **kwargs: Any
    ) -> None:
        """Keep how the job ended for `handle_job_error`, unless Slurm may put it back into its queue."""
        if job_info.external_jobid is not None and self._is_queued(job_info.external_jobid):
            return
        self._note_end(job_info, msg or "")
        self.workflow.scheduler.error_callback(job_info.job)

    def _note_end(self, job_info: SubmittedJobInfo, message: str) -> None:
        was_live = self._live.pop(str(job_info.external_jobid), None) is not None
        self._ends[job_info.job] = _End(job_info.external_jobid, _log_of(job_info), message)
        if was_live and self._submissions["train"] is not None:  # a refused one has used nothing
            self._submissions["train"].forget_energy_used()
        if was_live:
            self._line.wake()

    def handle_job_error(self, job: JobExecutorInterface) -> None:
        """Say how a job ended, and decide whether Snakemake submits it again."""
        super().handle_job_error(job)
        end = self._ends.pop(job, None) or _End(None, None, "its outputs are missing")
        label = _label(job)
        if end.withdrawn:
            job.attempt = max(job.attempt, job.restart_times + 1)
        elif end.job_id is None:
            reason = _words(end.message)
            self._end(job, None, reason, f"{label}: not submitted: {self._once(reason)}")
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
        """Yield the jobs that have not ended: all of which neither success nor error was reported."""
        async for _ in super().check_active_jobs(active_jobs):
            pass
        self._report_overlooked([info for info in active_jobs if self._is_live(info)])
        still = [info for info in active_jobs if self._is_live(info)]
        for info in still:
            yield info
        first_s = self.workflow.executor_settings.init_seconds_before_status_checks
        longest_s = first_s if len(still) < len(active_jobs) else _SLOWEST * first_s
        planned_s = super().next_seconds_between_status_checks
        self.next_seconds_between_status_checks = min(planned_s, longest_s)

    def _is_live(self, info: SubmittedJobInfo) -> bool:
        return str(info.external_jobid) in self._live

    def _report_overlooked(self, jobs: list[SubmittedJobInfo]) -> None:
        """Report jobs that the parent takes for running, and that have left the queue."""
        try:
            queued = queued_jobs() if jobs else {}
            missing = {str(info.external_jobid): info for info in jobs}
            missing = {job: info for job, info in missing.items() if job not in queued}
            states = accounted_states(list(missing)) if missing else {}
        except NoAnswerError:
            return
        for job, info in missing.items():
            state = states.get(job)
            if state == "COMPLETED":
                self.report_job_success(info)
            elif state in _ENDED:
                self.report_job_error(info, msg=f"{state}, and no longer in Slurm's queue.")

    def cancel(self) -> None:
        """Cancel all jobs, those whose submission is under way as well."""
        self._cancelled.set()
        self._job_submission_executor.shutdown(wait=True, cancel_futures=True)
        self._line.stop()
        super().cancel()

    def shutdown(self) -> None:
        """End; what waits for its submission is not submitted."""
        self._line.stop()
        super().shutdown()

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel every job that has not ended: the parent's list is empty while Slurm is asked."""
        jobs = list(self._live.values())
        super().cancel_jobs(jobs)
        runs = [str(info.external_jobid) for info in jobs if self._is_run(info.job)]
        if runs:
            self.logger.warning(
                f"Cancelled: trainings of job {', '.join(runs)} stop at a checkpoint if there is time, and "
                "go on from the last one when Snakemake is started again"
            )

    def _of(self, job: JobExecutorInterface) -> Any:
        """Return the submissions that a job belongs to; None of what is no training."""
        return None if job.is_group() else self._submissions.get(job.rule.name)

    def _is_run(self, job: JobExecutorInterface) -> bool:
        return self._of(job) is not None

    def _refusal(self, job: JobExecutorInterface) -> str | None:
        campaign = self._submissions["train"]
        try:
            if self._is_run(job):
                return self._of(job).refusal(job.input.spec, self._comment(job))
            is_probe = not job.is_group() and job.rule.name == "probe"
            return campaign.over_budget() if is_probe and campaign else None
        except Exception as error:
            return _error_line(error)

    @staticmethod
    def _is_queued(job_id: str) -> bool:
        """Return True if the job has not left the queue, as far as can be told."""
        try:
            return job_id in queued_jobs()
        except NoAnswerError:
            return True

    def _end_run(self, job: JobExecutorInterface, end: _End) -> None:
        try:
            verdict = self._of(job).end(job.input.spec, end.job_id)
            log = self._of(job).log(job.input.spec)
        except Exception as error:  # it would end all jobs
            reason = _error_line(error)
            self._end(job, end.job_id, reason, f"{_label(job)}: not submitted again: {reason}")
            return
        if verdict.again:
            self.logger.warning(
                f"{_label(job)}: job {end.job_id} ended ({verdict.reason}); submitted again"
            )
        else:
            logs = ", ".join(str(path) for path in (log, end.log) if path)
            text = f"{_label(job)}: not submitted again: {verdict.reason}; log: {logs}"
            self._end(job, end.job_id, verdict.reason, text)

    def _end(self, job: JobExecutorInterface, job_id: str | None, reason: str, text: str) -> None:
        """Say it, note it of a run, and let Snakemake count this attempt as the last one."""
        self.logger.error(text)
        job.attempt = max(job.attempt, job.restart_times + 1)
        if self._is_run(job):
            with suppress(Exception):  # it is only for those who look at the status
                self._of(job).give_up(job.input.spec, job_id, reason, self._comment(job))

    def _once(self, text: str) -> str:
        """Return the text when it is new; a reference to it afterwards."""
        if text in self._logged:
            return "for the same reason as the one before"
        self._logged.add(text)
        return text


def _require_versions() -> None:
    """WorkflowError for a package of another version than the one that this module is made for."""
    for package, expected in MADE_FOR.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            raise WorkflowError(
                f"{package} is not installed: the executor scalewatt-slurm submits no job without it; "
                "install it with `pip install 'scalewatt[workflow]'`, or choose another executor"
            ) from None
        if found != expected and not found.startswith(f"{expected}."):
            raise WorkflowError(
                f"{package} is {found}: the executor scalewatt-slurm is made for {expected}.x, and no job is "
                "submitted with another; install the one of envs/lock.txt"
            )


def _require(owner: object, names: Any) -> None:
    missing = [name for name in names if not hasattr(owner, name)]
    if missing:
        raise WorkflowError(
            f"snakemake-executor-plugin-slurm has no {', '.join(missing)}: scalewatt-slurm is made for "
            f"its version {MADE_FOR['snakemake-executor-plugin-slurm']}.x; install the one of envs/lock.txt"
        )


def _is_for_people(record: logging.LogRecord) -> bool:
    return not record.getMessage().lstrip().startswith(_NOT_FOR_PEOPLE)


def _label(job: JobExecutorInterface) -> str:
    """Return what the job does, in the words of its rule, without what it asks for."""
    return job.name if job.is_group() else (job.message or job.rule.name).partition(" (")[0]


def _log_of(job_info: SubmittedJobInfo) -> str | None:
    log = (job_info.aux or {}).get("slurm_logfile")
    return None if log is None else str(log)


def _words(message: str) -> str:
    """Return what Slurm said in the parent's message, or the message, in one line."""
    slurm = re.search(r"The error message was '(.*?)'\.\n", message, flags=re.DOTALL)
    return " ".join((slurm.group(1) if slurm else message).split())


def _error_line(error: Exception) -> str:
    """Return an error in one line, with its type if it is none that was foreseen."""
    foreseen = isinstance(error, OSError | InputError)
    return _words(str(error) if foreseen else f"{type(error).__name__}: {error}")
