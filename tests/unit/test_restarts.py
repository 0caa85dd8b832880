"""What a launcher makes of signals, of how its ranks ended, and of what forbids another start."""

from __future__ import annotations

import errno
import hashlib
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from run_files import make_spec

from scalewatt.campaign.cluster import load_cluster
from scalewatt.common.errors import InputError
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.common.termination import ExitCode
from scalewatt.execution import launch
from scalewatt.execution.launch import LaunchOptions, run_training
from scalewatt.execution.rank import outcome_of
from scalewatt.run_files.record import (
    RESULT,
    STARTED_BY,
    WorkDir,
    note_outcome,
    open_workdir,
    read_run,
)

pytestmark = pytest.mark.usefixtures("outside_of_slurm")
SPEC = make_spec()
USR1, TERM, INT = signal.SIGUSR1, signal.SIGTERM, signal.SIGINT


@pytest.fixture
def work(tmp_path: Path) -> Iterator[WorkDir]:
    with open_workdir(tmp_path / "work", SPEC, "d" * 64) as work:
        yield work


def options(folder: Path, requeue: bool = False, **changes: Any) -> LaunchOptions:
    cluster = load_cluster(PROJECT_ROOT / "config.yaml").model_copy(update={"requeue": requeue})
    return LaunchOptions(cluster, cluster.devices["local"], folder / "work", folder, **changes)


def end_as(segment: launch._Segment, outcome: str, lost: bool, code: int = 0) -> int:
    """End a segment as its ranks do, with or without the loss of their sampler."""
    reason = f"lost in {segment.number}" if lost else None
    path, ended = segment.work.path, outcome_of(outcome, [("n1", set(), reason)])
    note_outcome(path, segment.number, ended, lambda: None)
    return segment._end_as(ended, code)


def train(
    work: WorkDir,
    monkeypatch: pytest.MonkeyPatch,
    outcome: str,
    lost: bool = False,
    signals: Sequence[signal.Signals] = (),
    ended_with: int = 0,
    **changes: Any,
) -> int:
    """Train a run whose segment gets these signals and ends so."""

    def ranks(segment: launch._Segment) -> int:
        for number in signals:
            segment._on_signal(number, None)
        return end_as(segment, outcome, lost, ended_with)

    monkeypatch.setattr(launch._Segment, "run", ranks)
    monkeypatch.setattr(launch, "require_launcher", lambda launcher: None)
    return launch._train(work, options(work.path, **changes))


# --- a sampler that is lost -----------------------------------------------------------------------


def test_a_segment_whose_sampler_was_lost_fails_and_says_why(
    work: WorkDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(work, monkeypatch, "stopped", lost=True) == ExitCode.FAILED
    ends = [(s["outcome"], s["code"], s["detail"]) for s in work.record()["segments"]]
    assert ends == [("monitor_lost", ExitCode.FAILED, "n1: lost in 0")]
    assert "no longer recorded (n1: lost in 0)" in capsys.readouterr().err


def test_a_run_that_finished_is_finished_whatever_became_of_sampler_and_perun(
    work: WorkDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train(work, monkeypatch, "finished", lost=True, ended_with=1) == 0
    (segment,) = work.record()["segments"]
    detail = "n1: lost in 0; perun did not close (exit code 1); its journal is kept"
    assert (segment["outcome"], segment["detail"]) == ("finished", detail)


def test_a_command_whose_files_changed_while_it_waited_for_its_lock_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text("two = 2\n")
    files = {"train.py": hashlib.sha256(b"one = 1\n").hexdigest()}
    settings = {"folder": str(tmp_path), "files": ["*.py"]}
    spec = make_spec(dataset={"name": "command", "format": "command"}, settings=settings)
    with open_workdir(tmp_path / "work", spec, None, files) as work:
        with pytest.raises(InputError, match=r"train\.py: has changed since"):
            train(work, monkeypatch, "finished")
        assert work.record()["segments"] == []


# --- signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signals", "job", "ends"),
    [
        ([USR1] * 3, None, False),
        ([INT, USR1], None, False),
        ([TERM] * 2, None, True),
        ([TERM] * 3, "4711", False),
        ([INT] * 2, "4711", True),
    ],
)
def test_a_person_who_asks_twice_ends_the_ranks_and_a_scheduler_that_warns_twice_does_not(
    work: WorkDir,
    monkeypatch: pytest.MonkeyPatch,
    signals: list[signal.Signals],
    job: str | None,
    ends: bool,
) -> None:
    if job:
        monkeypatch.setenv("SLURM_JOB_ID", job)
    segment = launch._Segment(work, options(work.path))
    for number in signals:
        segment._on_signal(number, None)
    assert segment.stop_file.exists()
    assert segment.must_end() is ends


@pytest.mark.parametrize(
    ("signals", "outcome", "requeue", "expected"),
    [
        ([USR1, USR1], "stopped", True, ["requeue 12"]),
        ([USR1], "stopped", False, []),
        ([USR1], "monitor_lost", True, ["requeue 12"]),
        ([USR1, TERM], "stopped", True, []),
        ([TERM], "stopped", True, []),
        ([USR1], "finished", True, []),
        ([], "stopped", True, []),
    ],
)
def test_a_job_that_slurm_warned_by_usr1_alone_is_put_back_into_the_queue_where_asked_for(
    work: WorkDir,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    signals: list[signal.Signals],
    outcome: str,
    requeue: bool,
    expected: list[str],
) -> None:
    program, calls = tmp_path / "scontrol", tmp_path / "calls"
    program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    train(work, monkeypatch, outcome, False, signals, requeue=requeue)
    assert (calls.read_text().splitlines() if calls.exists() else []) == expected


# --- refusals ------------------------------------------------------------------------


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Calls `run_training`, whose ranks end as told."""
    monkeypatch.setattr(launch, "content_of_prepared", lambda folder: "d" * 64)
    monkeypatch.setattr(launch, "require_launcher", lambda launcher: None)
    (tmp_path / "spec.json").write_text(SPEC.text)

    def stop(segment: launch._Segment) -> int:
        return end_as(segment, "stopped", lost=False)

    def run(by: str = "a", train: Callable[..., int] = stop, **changes: Any) -> int:
        monkeypatch.setenv(STARTED_BY, by)
        monkeypatch.setattr(launch._Segment, "run", train)
        return run_training(tmp_path / "spec.json", tmp_path / "out", options(tmp_path, **changes))

    return run


def record(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "work").glob("*/run.json")
    return read_run(path.parent)


def test_a_further_try_of_which_there_is_no_use_is_refused_before_any_rank(
    tmp_path: Path, call: Callable[..., int]
) -> None:
    assert [call(), call()] == [ExitCode.STOPPED] * 2
    with pytest.raises(InputError, match="no progress in 2 segments in a row"):
        call()
    assert len(record(tmp_path)["segments"]) == 2
    assert call(by="b") == ExitCode.STOPPED, "another Snakemake begins anew"
    assert record(tmp_path)["since"] == 2


def test_a_run_that_was_refused_stays_refused_until_another_snakemake_tries_it(
    tmp_path: Path, call: Callable[..., int]
) -> None:
    def used_up() -> None:
        raise InputError("the budget is used up")

    for changes in ({"check_budget": used_up}, {}, {}):
        with pytest.raises(InputError, match=r"^the budget is used up$"):
            call(**changes)
        assert record(tmp_path)["refusal"] == "the budget is used up"
    assert record(tmp_path)["segments"] == []
    assert call(by="b") == ExitCode.STOPPED
    assert record(tmp_path)["refusal"] is None


def test_a_trained_run_that_cannot_be_published_is_refused_until_another_snakemake_tries_it(
    tmp_path: Path, call: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise OSError(errno.EACCES, "denied")

    def train(segment: launch._Segment) -> int:
        (segment.work.path / RESULT).touch()
        return end_as(segment, "finished", lost=False)

    monkeypatch.setattr(launch, "publish", fails)
    with pytest.raises(OSError, match="denied"):
        call(train=train)
    with pytest.raises(InputError, match=r"it is trained, and cannot be published \(.*denied\)"):
        call()
    monkeypatch.setattr(launch, "publish", lambda *_: None)
    assert call(by="b") == 0
    assert len(record(tmp_path)["segments"]) == 1, "trained once"
