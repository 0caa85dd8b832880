"""Snakemake's log as human-readable progress: what starts, how many jobs are done of how many, elapsed.

Chosen by `logger: scalewatt` in a profile. Errors and warnings are shown as Snakemake words them. A dry
run is shown as a table of what would be trained; its jobs one by one with --verbose or --printshellcmds.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from snakemake.executors import dryrun
from snakemake.logging import DefaultFilter, DefaultFormatter
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from scalewatt.targets.dry_run import DryRun

_OF_JOBS = {LogEvent.JOB_INFO, LogEvent.SHELLCMD, LogEvent.GROUP_INFO, LogEvent.WORKFLOW_STARTED}
"""Events that a dry run's table stands for, or that tell nothing of what would be done."""
_POINTER = "\n    (check individual jobs above for details)"
"""Snakemake's, where the jobs are shown."""
_REPORT = "report"
"""The rule whose output the end of a run names: the page that has all results."""
_FAILURES = {LogEvent.ERROR, LogEvent.JOB_ERROR, LogEvent.GROUP_ERROR}


class LogHandler(LogHandlerBase):
    """One line per job that has a message; of a dry run a table."""

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        self._done = 0
        self._total: int | None = None
        self._report: str | None = None
        self._dry_run = DryRun()
        self._told_stats = False
        settings = self.common_settings
        self._snakemake = DefaultFormatter(settings.quiet, settings.show_failed_logs)
        self._filter = DefaultFilter(
            settings.quiet,
            settings.debug_dag,
            settings.verbose,
            settings.dryrun,
            settings.printshellcmds,
        )
        if self._shows_table:
            # Putting each job into words takes a quarter of a dry run's time.
            dryrun.Executor.printjob = lambda _, job: self._note(job)  # type: ignore[method-assign]

    @property
    def _shows_table(self) -> bool:
        """Return True in a dry run of which a table is shown, and not the jobs one by one."""
        settings = self.common_settings
        return settings.dryrun and not (settings.verbose or settings.printshellcmds)

    def _note(self, job: Any) -> None:
        """Take note of a job of a dry run; groups of jobs are of no rule."""
        if not job.is_group():
            self._dry_run.add(job.rule.name, job.wildcards_dict, job.resources)

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record."""
        event = getattr(record, "event", None)
        settings = self.common_settings
        if self._shows_table:
            self._emit_dry(record, event)
        elif settings.dryrun or settings.verbose:
            self._emit_whole(record)
        elif event == LogEvent.RUN_INFO:
            stats = getattr(record, "stats", None) or {}
            self._total = stats.get("total", self._total)
        elif event == LogEvent.JOB_INFO:
            if getattr(record, "rule_name", None) == _REPORT:
                self._report = next(iter(getattr(record, "output", None) or []), None)
            message = getattr(record, "rule_msg", None)
            if message:
                self._print(f"{self._elapsed()}  {self._count()}  {message}")
        elif event == LogEvent.PROGRESS:
            self._done, self._total = record.done, record.total  # type: ignore[attr-defined]
            if self._done == self._total:
                made = f": {self._report}" if self._report else ""
                self._print(f"{self._elapsed()}  {self._count()}  done{made}")
        elif record.getMessage().startswith("Nothing to be done"):
            self._print("Nothing to do: all is there and up to date.")
        elif event in _FAILURES or record.levelno >= logging.WARNING:
            text = self._snakemake.format(record)
            if text:
                self._print(text)

    def _emit_whole(self, record: logging.LogRecord) -> None:
        if self._filter.filter(record):
            self._print(self._snakemake.format(record))

    def _emit_dry(self, record: logging.LogRecord, event: LogEvent | None) -> None:
        """Show a record of a dry run but of its jobs, which the table stands for."""
        if event in _OF_JOBS or (event == LogEvent.RUN_INFO and self._told_stats):
            return
        elif record.getMessage().startswith("This was a dry-run"):
            for line in self._dry_run.lines():
                self._print(line)
            self._print("This was a dry run; with --verbose it shows every job.")
        else:
            self._told_stats |= event == LogEvent.RUN_INFO
            if self._filter.filter(record):
                self._print(self._snakemake.format(record).replace(_POINTER, ""))

    def _elapsed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        return f"{minutes:3d}:{seconds:02d}"

    def _count(self) -> str:
        total = "?" if self._total is None else str(self._total)
        return f"[{self._done:>{len(total)}}/{total}]"

    @staticmethod
    def _print(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    @property
    def writes_to_stream(self) -> bool:
        """It is the one that writes to the terminal."""
        return True

    @property
    def writes_to_file(self) -> bool:
        """Snakemake keeps its own log file."""
        return False

    @property
    def has_filter(self) -> bool:
        """It chooses itself."""
        return True

    @property
    def has_formatter(self) -> bool:
        """It formats itself."""
        return True

    @property
    def needs_rulegraph(self) -> bool:
        """No."""
        return False
