"""Snakemake's Slurm executor, and what a campaign of measured trainings would suffer without.

`executor: scalewatt-slurm` in a profile; settings are those of snakemake-executor-plugin-slurm, under the
prefix scalewatt-slurm. `executor: slurm` runs a campaign as well. What differs:

- A job that sbatch refuses because there are too many, or because slurmctld is away, is offered again
  and uses up no retry (snakemake-executor-plugin-slurm issue 320). What slurmctld accepted without
  saying so is not submitted twice.
- A job has not ended as long as it is in the queue (Slurm puts jobs back after NODE_FAIL), and has ended
  when it left it, whatever its state: PREEMPTED is no end for the parent, which waits for ever.
- NODE_FAIL excludes no nodes: the parent excludes all nodes of the job from then on.
- Ctrl-C also cancels the jobs that are just being polled: the parent's list is empty meanwhile (issue 397).
- A job that gets another try is reported in one line. Whether it does the workflow may say: its function
  `end_of_retries(job)` gives the reason why not. Otherwise a run that makes no progress would have as many
  jobs as one that does.
- Variables by which a user formats what squeue and sacct print (SQUEUE_STATES, say) are not handed on: a
  job that they hide would be taken for lost.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import AsyncGenerator
from typing import Any

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from scalewatt.common.errors import InputError
from scalewatt.slurm.job_queue import queued_jobs
from scalewatt.slurm.slurm_commands import (
    NoAnswerError,
    accounted_states,
    may_pass,
    users_variables,
)

try:
    import snakemake_executor_plugin_slurm as slurm
    from snakemake_executor_plugin_slurm import ExecutorSettings, common_settings
    from snakemake_executor_plugin_slurm.utils import get_job_wildcards
except ImportError:  # Snakemake imports every plugin at each call, whichever it uses
    from snakemake_executor_plugin_scalewatt_slurm import without_slurm as slurm
    from snakemake_executor_plugin_scalewatt_slurm.without_slurm import (
        ExecutorSettings,
        common_settings,
        get_job_wildcards,
    )

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

WAITS_S = (5, 10, 20, 40, 60)
"""Times between two offers of a job; the last is repeated."""
OFFERS = 60 * 24 * 7
"""After a week of offers a job is given up: it may ask for what Slurm never gives without saying so."""
_ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
)
"""States of the accounting in which a job that left the queue has ended."""


class Executor(slurm.Executor):
    """See the module."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        for name in users_variables(os.environ):
            del os.environ[name]
        self._live: dict[str, SubmittedJobInfo] = {}
        self._offers: dict[JobExecutorInterface, int] = {}
        self._is_cancelled = False
        self._end_of_retries = workflow.globals.get("end_of_retries", lambda _: None)
        self._excluded: frozenset[str] = frozenset()
        super().__init__(workflow, logger)

    # --- submission -------------------------------------------------------------------------------

    def report_job_submission(self, job_info: SubmittedJobInfo, *args: Any, **kwargs: Any) -> None:
        """Remember the job until it has ended."""
        self._live[str(job_info.external_jobid)] = job_info
        self._offers.pop(job_info.job, None)
        super().report_job_submission(job_info, *args, **kwargs)

    def _offer_later(self, job: JobExecutorInterface, reason: str) -> None:
        """Submit a job again after a while."""
        offers = self._offers.get(job, 0)
        if not offers:
            self.logger.warning(f"{_label(job)}: waits for its submission ({reason})")
        self._offers[job] = offers + 1
        timer = threading.Timer(WAITS_S[min(offers, len(WAITS_S) - 1)], self._offer_again, [job])
        timer.daemon = True
        timer.start()

    def _offer_again(self, job: JobExecutorInterface) -> None:
        if self._is_cancelled:
            return
        try:
            queued = queued_jobs().values()
        except NoAnswerError as error:
            self._offer_later(job, str(error))
            return
        ours = self.run_uuid, _comment(job)
        for found in queued:
            if (found.name, found.comment) == ours and found.id not in self._live:
                log = self.slurm_logdir / f"rule_{job.name}" / get_job_wildcards(job)
                aux = {"slurm_logfile": log / f"{found.id}.log"}
                self.report_job_submission(SubmittedJobInfo(job, found.id, aux))
                return
        self.run_job(job)

    # --- ends -------------------------------------------------------------------------------------

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Yield the jobs of which neither success nor error was reported."""
        async for _ in super().check_active_jobs(active_jobs):
            pass
        self._report_overlooked([info for info in active_jobs if self._is_live(info)])
        for info in active_jobs:
            if self._is_live(info):
                yield info

    @property
    def _failed_nodes(self) -> set[str]:
        """A copy of the nodes that the user excludes: what the parent adds has no effect."""
        return set(self._excluded)

    @_failed_nodes.setter
    def _failed_nodes(self, nodes: set[str]) -> None:
        self._excluded = frozenset(nodes)

    def _is_live(self, info: SubmittedJobInfo) -> bool:
        return str(info.external_jobid) in self._live

    def _report_overlooked(self, jobs: list[SubmittedJobInfo]) -> None:
        """Report jobs that the parent takes for running, and that have left the queue."""
        try:
            queued = queued_jobs() if jobs else {}
            gone = {str(i.external_jobid): i for i in jobs if str(i.external_jobid) not in queued}
            states = accounted_states(list(gone)) if gone else {}
        except NoAnswerError:
            return
        for job, info in gone.items():
            if states.get(job) == "COMPLETED":
                self.report_job_success(info)
            elif states.get(job) in _ENDED:
                self.report_job_error(info, f"SLURM-job '{job}' ended: {states[job]}.")

    def report_job_success(self, job_info: SubmittedJobInfo) -> None:
        """Forget the job."""
        self._live.pop(str(job_info.external_jobid), None)
        super().report_job_success(job_info)

    def report_job_error(
        self, job_info: SubmittedJobInfo, msg: str | None = None, **kwargs: Any
    ) -> None:
        """Report the end of a job, unless Slurm takes it later, or may still put it back into its queue."""
        job, job_id, message = job_info.job, job_info.external_jobid, msg or ""
        if job_id is None:
            if may_pass(message) and self._offers.get(job, 0) < OFFERS:
                self._offer_later(job, _words(message))
            else:  # asking again does not help
                job.attempt = job.restart_times + 1
                super().report_job_error(job_info, msg, **kwargs)
            return
        if _is_queued(job_id):
            return
        self._live.pop(str(job_id), None)
        if reason := self._reason_to_end(job):
            job.attempt = job.restart_times + 1
            message = f"{message} Not submitted again: {reason}."
        if job.attempt > job.restart_times:
            super().report_job_error(job_info, message, **kwargs)
            return
        ended = message.partition(". ")[0].rstrip(".")
        log = (job_info.aux or {}).get("slurm_logfile")
        self.logger.warning(f"{_label(job)}: {ended}; submitted again; log: {log}")
        self.workflow.scheduler.error_callback(job)

    def _reason_to_end(self, job: JobExecutorInterface) -> str | None:
        try:
            reason = self._end_of_retries(job)
        except (OSError, InputError) as error:  # a file system that fails just now
            self.logger.warning(f"{_label(job)}: {error}")
            return None
        return None if reason is None else str(reason)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel every job that has not ended."""
        self._is_cancelled = True
        super().cancel_jobs(list(self._live.values()))


def _is_queued(job_id: str) -> bool:
    """Whether a job has not left the queue, as far as Slurm answers."""
    try:
        return job_id in queued_jobs()
    except NoAnswerError:
        return True


def _comment(job: JobExecutorInterface) -> str:
    """The comment that the parent gives to a rule's job."""
    wildcards = get_job_wildcards(job)
    return f"rule_{job.name}" + (f"_wildcards_{wildcards}" if wildcards else "")


def _label(job: JobExecutorInterface) -> str:
    """What the job does, in the words of its rule, without what it asks for."""
    return job.name if job.is_group() else (job.message or job.rule.name).partition(" (")[0]


def _words(message: str) -> str:
    """What Slurm said in the parent's message, or the message, in one line."""
    match = re.search(r"The error message was '(.*?)'\.\n", message, flags=re.DOTALL)
    return " ".join((match.group(1) if match else message).split())
