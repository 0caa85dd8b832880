"""Jobs that wait for Slurm to take them, in a line without Slurm."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from snakemake_executor_plugin_scalewatt_slurm import waiting_line
from snakemake_executor_plugin_scalewatt_slurm.waiting_line import Postponed, WaitingLine

FULL = Postponed("AssocMaxSubmitJobLimit", "own")


def job(name: str) -> Any:
    return SimpleNamespace(name=name, resources={}, priority=0)


class Line:
    """A line whose jobs are offered at once; `answers` says what Slurm does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: list[Any]) -> None:
        monkeypatch.setattr(waiting_line, "WAITS_S", (0.01,))
        monkeypatch.setattr(waiting_line, "queued_jobs", lambda: {})
        self.answers, self.refused, self.done = answers, [], threading.Event()
        self.line = WaitingLine(self.offer, self.refuse, lambda _: None, lambda: False, print)

    def offer(self, _: Any) -> Postponed | None:
        answer = self.answers.pop(0) if self.answers else None
        if not self.answers:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def refuse(self, job: Any, reason: str) -> None:
        self.refused.append((job.name, reason))

    def let_pass(self, name: str) -> None:
        self.done.clear()
        self.line.take(job(name), name, FULL)
        assert self.done.wait(10)


def test_a_limit_is_hopeless_only_after_ten_minutes_without_a_job_in_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 0.0
    one = Line(monkeypatch, [FULL, None])
    monkeypatch.setattr(
        waiting_line, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=lambda _: None)
    )
    one.line._pause = lambda _: False  # type: ignore[method-assign]
    one.let_pass("first")
    now_s = 7200.0
    one.answers = [FULL, None]
    one.let_pass("second")
    one.line.stop()
    assert one.refused == []


def test_an_error_while_jobs_are_offered_leaves_none_waiting_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Line(monkeypatch, [RuntimeError("a broken pipe"), None])
    one.let_pass("first")
    one.line.stop()
    assert one.refused == [] and one.line._waiting == []
