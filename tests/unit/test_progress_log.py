"""Snakemake's log as progress, by the logger plugin."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_scalewatt import LogHandler

SETTINGS = SimpleNamespace(
    quiet=set(),
    show_failed_logs=False,
    debug_dag=False,
    verbose=False,
    dryrun=False,
    printshellcmds=False,
    nocolor=True,
    stdout=False,
)


def said(capsys: pytest.CaptureFixture[str], *rules: str) -> list[str]:
    """The lines of a run of these rules, without their times."""
    handler = LogHandler(SETTINGS, None)
    jobs: list[dict[str, Any]] = [
        {
            "event": LogEvent.JOB_INFO,
            "rule_name": rule,
            "rule_msg": rule,
            "output": [f"results/a/{rule}.html"],
        }
        for rule in rules
    ]
    for number, job in enumerate(jobs, 1):
        progress = {"event": LogEvent.PROGRESS, "done": number, "total": len(jobs)}
        for facts in (job, progress):
            handler.emit(logging.makeLogRecord({"levelno": logging.INFO, **facts}))
    return [line.split("]  ")[1] for line in capsys.readouterr().err.splitlines()]


def test_the_end_names_the_report_that_was_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "report", "manifest")[-1] == "done: results/a/report.html"


def test_the_end_names_no_report_where_none_was_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "manifest") == ["manifest", "done"]
