"""A training is started again where its sampler was lost, and only there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import run_files

from scalewatt.energy import launch
from scalewatt.energy.record import EXIT_FAILURE, EXIT_STOPPED, outcome_path, segment_name
from scalewatt.energy.watch import lost_path
from scalewatt.energy.workdir import WorkDir, open_workdir
from scalewatt.files import write_json


def start(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    outcomes: list[str],
    lost: list[bool],
    ended_with: int = 0,
) -> tuple[int, WorkDir]:
    """Start a run whose segments end as told, with or without the loss of their sampler."""
    ends = iter(zip(outcomes, lost, strict=True))

    def ranks(segment: launch._Segment) -> int:
        outcome, loses = next(ends)
        work, number = segment.work.path, segment.number
        outcome_path(work, number).write_text(outcome)
        if loses:
            loss = {"host": "n1", "reason": f"lost in {number}", "t": 0.0}
            write_json(lost_path(work, segment_name(number), "n1"), loss)
        return segment._conclude(ended_with)

    monkeypatch.setattr(launch._Segment, "run", ranks)
    place = launch.Place(folder, folder, "mpiexec", "cpu", 1)
    with open_workdir(folder, run_files.make_spec(), "d" * 64) as work:
        code = launch._train(work, place, None, None)
    assert next(ends, None) is None, "fewer segments than expected"
    return code, work


def test_a_segment_whose_sampler_was_lost_is_followed_by_another_in_the_same_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, work = start(tmp_path, monkeypatch, ["stopped", "finished"], [True, False])
    assert code == 0
    assert [s["outcome"] for s in work.segments()] == ["monitor_lost", "finished"]
    message = capsys.readouterr().err
    assert "n1: lost in 0" in message and "1 of 3" in message


def test_a_run_whose_sampler_is_lost_again_and_again_fails_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, work = start(tmp_path, monkeypatch, ["stopped"] * 4, [True] * 4)
    assert code == EXIT_FAILURE
    assert [s["outcome"] for s in work.segments()] == ["monitor_lost"] * 4
    last = capsys.readouterr().err.splitlines()[-1]
    assert "not recorded in 4 starts" in last and "n1: lost in 3" in last and "train.log" in last


def test_a_run_that_was_asked_to_stop_waits_at_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, work = start(tmp_path, monkeypatch, ["stopped"], [False])
    assert code == EXIT_STOPPED
    assert [s["outcome"] for s in work.segments()] == ["stopped"]


def test_a_run_that_was_asked_to_stop_stays_so_when_its_sampler_is_lost_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = launch._Segment.__init__

    def asked(segment: launch._Segment, *arguments: Any) -> None:
        begin(segment, *arguments)
        segment.times_asked_to_stop = 1

    monkeypatch.setattr(launch._Segment, "__init__", asked)
    code, work = start(tmp_path, monkeypatch, ["stopped"], [True])
    assert code == EXIT_STOPPED
    assert [s["outcome"] for s in work.segments()] == ["stopped"]


def test_a_run_that_finished_is_finished_whatever_became_of_its_sampler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, work = start(tmp_path, monkeypatch, ["finished"], [True])
    assert code == 0
    (segment,) = work.segments()
    assert (segment["outcome"], segment["detail"]) == ("finished", "n1: lost in 0")


def test_a_segment_whose_perun_did_not_close_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, work = start(tmp_path, monkeypatch, ["finished"], [False], ended_with=1)
    assert code == 0
    (segment,) = work.segments()
    assert segment["outcome"] == "finished"
    assert "perun did not close" in segment["detail"]
    assert segment["detail"] in capsys.readouterr().err
