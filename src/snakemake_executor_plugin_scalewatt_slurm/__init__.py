"""Snakemake's Slurm executor, without what would end, double or starve measured trainings.

`executor: scalewatt-slurm`; settings are those of snakemake-executor-plugin-slurm. What differs:

- A job that sbatch refuses because there are too many, or because slurmctld is away, is offered again
  and uses up no retry (issue 320 there). What was accepted without an answer is not submitted twice.
- A job has not ended as long as it is in the queue (Slurm puts jobs back after NODE_FAIL), and has ended
  when it left it, whatever its state: the parent waits forever for PREEMPTED, and excludes all nodes of a
  job that ended by NODE_FAIL. Between polls there is always the first interval, and not up to 180 s.
- Ctrl-C also cancels the jobs that are just being polled: the parent's list is empty then (issue 397).
- The workflow's `end_of_retries(job)` may give a reason why a job is not submitted again.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from scalewatt.slurm.slurm_commands import (
    USERS_VARIABLES,
    NoAnswerError,
    ended_states,
    may_pass,
    queued_jobs,
)

try:
    import snakemake_executor_plugin_slurm as slurm
    from snakemake_executor_plugin_slurm import ExecutorSettings
    from snakemake_executor_plugin_slurm.utils import get_job_wildcards
except ImportError:  # Snakemake imports every plugin at each call, whichever it uses
    from snakemake.executors import dryrun as slurm

    get_job_wildcards = None

__all__ = ["Executor", "ExecutorSettings", "common_settings"]
common_settings = slurm.common_settings

WAIT_S, MOST_WAIT_S = 5.0, 60.0
"""Time before a job is offered again; each further one is twice as long, up to the second."""


class Executor(slurm.Executor):
    """See the module."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        if get_job_wildcards is None:
            needed = "snakemake-executor-plugin-slurm: pip install 'scalewatt[workflow]'"
            raise WorkflowError(f"the executor scalewatt-slurm needs {needed}")
        for name in [name for name in os.environ if name.startswith(USERS_VARIABLES)]:
            del os.environ[name]  # SQUEUE_FORMAT, …: the parent would ask with them
        self._live: dict[str, SubmittedJobInfo] = {}
        self._offers: Counter[JobExecutorInterface] = Counter()
        self._is_cancelled = False
        self._end_of_retries = workflow.globals.get("end_of_retries", lambda _: None)
        super().__init__(workflow, logger)

    def report_job_submission(self, job_info: SubmittedJobInfo, *args: Any, **kwargs: Any) -> None:
        """Remember the job until it has ended."""
        self._live[str(job_info.external_jobid)] = job_info
        del self._offers[job_info.job]
        super().report_job_submission(job_info, *args, **kwargs)

    def _offer_later(self, job: JobExecutorInterface, reason: str) -> None:
        """Submit a job again after a while."""
        if not self._offers[job]:
            self.logger.warning(f"{_label(job)}: waits for its submission ({reason})")
        wait_s = min(WAIT_S * 2 ** min(self._offers[job], 9), MOST_WAIT_S)
        self._offers[job] += 1
        timer = threading.Timer(wait_s, self._offer_again, [job])
        timer.daemon = True
        timer.start()

    def _offer_again(self, job: JobExecutorInterface) -> None:
        if self._is_cancelled:
            return
        try:
            queue = queued_jobs().values()
        except NoAnswerError as error:
            return self._offer_later(job, str(error))
        wildcards = get_job_wildcards(job)
        comment = f"rule_{job.name}" + (f"_wildcards_{wildcards}" if wildcards else "")
        for queued in queue:  # slurmctld may have accepted it without an answer
            is_same = (queued.name, queued.comment) == (self.run_uuid, comment)
            if is_same and queued.id not in self._live:
                log = self.slurm_logdir / f"rule_{job.name}" / wildcards / f"{queued.id}.log"
                info = SubmittedJobInfo(job, queued.id, {"slurm_logfile": log})
                return self.report_job_submission(info)
        self.run_job(job)

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report the jobs that have ended, and yield the others."""
        settings, ended = self.workflow.executor_settings, dict[str, str]()
        self.next_seconds_between_status_checks = settings.init_seconds_before_status_checks
        if not active_jobs:  # perhaps before __post_init__: the thread that polls starts first
            return
        live = {str(info.external_jobid): info for info in active_jobs}
        with suppress(NoAnswerError):
            ended = ended_states([*(live.keys() - queued_jobs())], self.run_uuid)
        for id_, state in ended.items():
            info = self._live.pop(id_)
            log = str(info.aux["slurm_logfile"])
            if state != "COMPLETED":
                self.report_job_error(info, f"SLURM-job '{id_}' ended: {state}.", aux_logs=[log])
                continue
            self.report_job_success(info)
            if not settings.keep_successful_logs:
                with suppress(OSError):
                    os.remove(log)
        for id_ in live.keys() - ended.keys():
            yield live[id_]

    def report_job_error(
        self, job_info: SubmittedJobInfo, msg: str | None = None, **kwargs: Any
    ) -> None:
        """Report the end of a job, or offer it again, if Slurm may take later what it refused."""
        job, message = job_info.job, msg or ""
        if job_info.external_jobid is None:
            if may_pass(message):
                said, _, _ = message.partition("sbatch call")
                return self._offer_later(job, " ".join(said.split()).rstrip("."))
            job.attempt = job.restart_times + 1  # what Slurm refuses it refuses again
        elif reason := self._end_of_retries(job):
            job.attempt = job.restart_times + 1
            message += f" Not submitted again: {reason}."
        if job.attempt > job.restart_times:
            return super().report_job_error(job_info, message, **kwargs)
        ended, log = message.partition(". ")[0].rstrip("."), job_info.aux.get("slurm_logfile")
        self.logger.warning(f"{_label(job)}: {ended}; submitted again; log: {log}")
        return self.workflow.scheduler.error_callback(job)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel every job that has not ended."""
        self._is_cancelled = True
        super().cancel_jobs(list(self._live.values()))


def _label(job: JobExecutorInterface) -> str:
    """What the job does, in the words of its rule, without what it asks for."""
    return job.name if job.is_group() else (job.message or job.rule.name).partition(" (")[0]
