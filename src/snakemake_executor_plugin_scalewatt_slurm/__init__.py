"""Snakemake's Slurm executor, without what would end, double or starve measured trainings.

`executor: scalewatt-slurm`; settings are those of snakemake-executor-plugin-slurm. What differs:

- A job that sbatch refuses because there are too many, or because slurmctld is away, is offered again
  and uses up no retry (issue 320 there). What was accepted without an answer is not submitted twice.
- A job has not ended as long as it is in the queue (Slurm puts jobs back after NODE_FAIL), and has ended
  when it left it, whatever its state: the parent waits for ever for PREEMPTED.
- NODE_FAIL excludes no nodes: the parent excludes all nodes of the job from then on.
- Ctrl-C also cancels the jobs that are just being polled: the parent's list is empty then (issue 397).
- The workflow's `end_of_retries(job)` may give a reason why a job is not submitted again.
- Variables that format what squeue and sacct print (SQUEUE_STATES, say) are not handed on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import field, make_dataclass
from typing import Any, Optional

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

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
    from snakemake.executors import dryrun as slurm
    from snakemake.executors.dryrun import common_settings
    from snakemake_interface_executor_plugins.settings import ExecutorSettingsBase

    get_job_wildcards = None
    _NAMES = (
        "init_seconds_before_status_checks",
        "delete_logfiles_older_than",
        "qos",
        "reservation",
    )
    _HELP = {"help": "Needs snakemake-executor-plugin-slurm, which is not installed."}
    # The profiles' settings, so that Snakemake comes to the refusal.
    ExecutorSettings = make_dataclass(
        "ExecutorSettings",
        [(name, Optional[str], field(default=None, metadata=_HELP)) for name in _NAMES],  # noqa: UP045
        bases=(ExecutorSettingsBase,),
    )

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

WAITS_S = (5, 10, 20, 40, 60)
"""Times between two offers of a job; the last is repeated."""
_ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
)
"""States of the accounting in which a job that left the queue has ended."""


class Executor(slurm.Executor):
    """See the module."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        if get_job_wildcards is None:
            raise WorkflowError(
                "the executor scalewatt-slurm needs snakemake-executor-plugin-slurm: "
                "pip install 'scalewatt[workflow]'"
            )
        for name in users_variables(os.environ):
            del os.environ[name]
        self._live: dict[str, SubmittedJobInfo] = {}
        self._offers: dict[JobExecutorInterface, int] = {}
        self._is_cancelled = False
        self._end_of_retries = workflow.globals.get("end_of_retries", lambda _: None)
        super().__init__(workflow, logger)

    @property
    def _failed_nodes(self) -> set[str]:
        return set(self._excluded)  # a copy: what the parent adds has no effect

    @_failed_nodes.setter
    def _failed_nodes(self, nodes: set[str]) -> None:
        self._excluded = frozenset(nodes)

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
        wildcards = get_job_wildcards(job)
        comment = f"rule_{job.name}" + (f"_wildcards_{wildcards}" if wildcards else "")
        ours = self.run_uuid, comment
        for found in queued:  # slurmctld may have accepted it without an answer
            if (found.name, found.comment) == ours and found.id not in self._live:
                log = self.slurm_logdir / f"rule_{job.name}" / wildcards / f"{found.id}.log"
                self.report_job_submission(SubmittedJobInfo(job, found.id, {"slurm_logfile": log}))
                return
        self.run_job(job)

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Yield the jobs of which neither success nor error was reported."""
        async for _ in super().check_active_jobs(active_jobs):
            pass
        with suppress(NoAnswerError):
            self._report_overlooked({str(job.external_jobid): job for job in active_jobs})
        for info in active_jobs:
            if str(info.external_jobid) in self._live:
                yield info

    def _report_overlooked(self, jobs: dict[str, SubmittedJobInfo]) -> None:
        """Report jobs that the parent takes for running, and that have left the queue."""
        queued = queued_jobs() if jobs else {}
        gone = [job for job in jobs if job in self._live and job not in queued]
        for job, state in (accounted_states(gone) if gone else {}).items():
            if state == "COMPLETED":
                self.report_job_success(jobs[job])
            elif state in _ENDED:
                self.report_job_error(jobs[job], f"SLURM-job '{job}' ended: {state}.")

    def report_job_success(self, job_info: SubmittedJobInfo) -> None:
        """Forget the job."""
        self._live.pop(str(job_info.external_jobid), None)
        super().report_job_success(job_info)

    def report_job_error(
        self, job_info: SubmittedJobInfo, msg: str | None = None, **kwargs: Any
    ) -> None:
        """Report the end of a job, unless Slurm takes it later, or may still put it back into its queue."""
        job, job_id, message = job_info.job, job_info.external_jobid, msg or ""
        if job_id is None and may_pass(message):
            self._offer_later(job, " ".join(message.split()))
            return
        if job_id is not None and _may_be_queued(str(job_id)):
            return
        self._live.pop(str(job_id), None)
        reason = None if job_id is None else self._end_of_retries(job)
        if reason is not None or job_id is None:  # what Slurm refuses it refuses again
            job.attempt = job.restart_times + 1
            message += f" Not submitted again: {reason}." if reason else ""
        if job.attempt > job.restart_times:
            super().report_job_error(job_info, message, **kwargs)
            return
        ended, log = (
            message.partition(". ")[0].rstrip("."),
            (job_info.aux or {}).get("slurm_logfile"),
        )
        self.logger.warning(f"{_label(job)}: {ended}; submitted again; log: {log}")
        self.workflow.scheduler.error_callback(job)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel every job that has not ended."""
        self._is_cancelled = True
        super().cancel_jobs(list(self._live.values()))


def _may_be_queued(job_id: str) -> bool:
    """Whether a job has not left the queue, as far as Slurm answers."""
    try:
        return job_id in queued_jobs()
    except NoAnswerError:
        return True


def _label(job: JobExecutorInterface) -> str:
    """What the job does, in the words of its rule, without what it asks for."""
    return job.name if job.is_group() else (job.message or job.rule.name).partition(" (")[0]
