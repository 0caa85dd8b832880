"""A training is started again where its sampler was lost, and only there."""

from __future__ import annotations

import errno
import hashlib
import signal
from pathlib import Path
from typing import Any

import pytest
import run_files

from scalewatt.common.errors import InputError
from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.files import NO_ROOM, write_json
from scalewatt.execution import launch
from scalewatt.execution.failure_reason import Failure, record_failure
from scalewatt.execution.rank import End, outcome_of, outcome_path
from scalewatt.run_files.attempt_log import noted_attempt
from scalewatt.run_files.work_directory import WorkDir, failure_path, open_workdir


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
        end = End("n1", False, False, f"lost in {number}" if loses else None)
        write_json(outcome_path(work, number), outcome_of(outcome, [end]))
        return segment._conclude(ended_with)

    monkeypatch.setattr(launch._Segment, "run", ranks)
    options = launch.LaunchOptions(folder, folder, "mpiexec", "cpu", 1)
    with open_workdir(folder, run_files.make_spec(), "d" * 64) as work:
        code = launch._train(work, options)
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
    assert code == ExitCode.FAILED
    ends = [(s["outcome"], s["code"]) for s in work.segments()]
    assert ends == [("monitor_lost", ExitCode.STOPPED)] * 3 + [("monitor_lost", ExitCode.FAILED)]
    last = capsys.readouterr().err.splitlines()[-1]
    assert "not recorded in 4 starts" in last and "n1: lost in 3" in last and "train.log" in last


def test_a_run_that_was_asked_to_stop_waits_at_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, work = start(tmp_path, monkeypatch, ["stopped"], [False])
    assert code == ExitCode.STOPPED
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
    assert code == ExitCode.STOPPED
    assert [s["outcome"] for s in work.segments()] == ["stopped"]


def test_a_run_that_finished_is_finished_whatever_became_of_its_sampler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, work = start(tmp_path, monkeypatch, ["finished"], [True])
    assert code == 0
    (segment,) = work.segments()
    assert (segment["outcome"], segment["detail"]) == ("finished", "n1: lost in 0")


def test_a_segment_whose_perun_did_not_close_records_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, work = start(tmp_path, monkeypatch, ["finished"], [False], ended_with=1)
    assert code == 0
    (segment,) = work.segments()
    assert segment["outcome"] == "finished"
    assert "perun did not close" in segment["detail"]
    assert segment["detail"] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("numbers", "times"),
    [([signal.SIGUSR1] * 3, 1), ([signal.SIGINT, signal.SIGUSR1], 1), ([signal.SIGTERM] * 2, 2)],
)
def test_a_person_who_asks_twice_ends_the_ranks_and_a_scheduler_that_warns_twice_does_not(
    tmp_path: Path, numbers: list[signal.Signals], times: int
) -> None:
    options = launch.LaunchOptions(tmp_path, tmp_path, "mpiexec", "cpu", 1)
    with open_workdir(tmp_path, run_files.make_spec(), "d" * 64) as work:
        segment = launch._Segment(work, options)
        for number in numbers:
            segment._on_signal(number, None)
        assert segment.stop_file.exists()
        assert segment.times_asked_to_stop == times
        assert segment._must_end() is (times > 1)


def test_a_full_disk_does_not_end_the_ranks_when_they_are_asked_to_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = launch.LaunchOptions(tmp_path, tmp_path, "mpiexec", "cpu", 1)
    with open_workdir(tmp_path, run_files.make_spec(), "d" * 64) as work:
        segment = launch._Segment(work, options)
        segment.stop_file = tmp_path / "no" / "folder"
        segment._on_signal(signal.SIGINT, None)
        assert not segment._must_end()
    assert "cannot be asked to stop" in capsys.readouterr().err


def test_a_disk_that_is_full_when_a_segment_begins_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def begin(work: WorkDir) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    spec = run_files.make_spec()
    (tmp_path / "spec.json").write_text(spec.text)
    monkeypatch.setattr(WorkDir, "begin_segment", begin)
    monkeypatch.setattr(launch, "content_of_prepared", lambda folder: "d" * 64)
    monkeypatch.setattr(launch, "require_launcher", lambda launcher: None)
    options = launch.LaunchOptions(tmp_path, tmp_path / "work", "mpiexec", "cpu", 1)
    with noted_attempt(options.work_root, spec) as note:
        note.code = launch.run_training(
            tmp_path / "spec.json", tmp_path / "out", options, note=note
        )
    assert note.code == ExitCode.FAILED
    assert note.reason is not None and note.reason.startswith(NO_ROOM)
    assert note.reason in capsys.readouterr().err


def test_in_a_job_a_scheduler_that_terminates_twice_does_not_end_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    options = launch.LaunchOptions(tmp_path, tmp_path, "mpiexec", "cpu", 1)
    with open_workdir(tmp_path, run_files.make_spec(), "d" * 64) as work:
        segment = launch._Segment(work, options)
        for _ in range(3):
            segment._on_signal(signal.SIGTERM, None)
        assert segment.stop_file.exists()
        assert not segment._must_end()


@pytest.mark.parametrize(
    ("failure", "outcome", "code"),
    [
        (Failure(64, 1, "MPI has 1 ranks"), "refused", 64),
        (Failure(70, 1, "ValueError: no"), "failed", 70),
        (None, "failed", 70),
    ],
)
def test_a_segment_without_an_outcome_says_how_its_ranks_failed(
    tmp_path: Path, failure: Failure | None, outcome: str, code: int
) -> None:
    options = launch.LaunchOptions(tmp_path, tmp_path, "mpiexec", "cpu", 1)
    with open_workdir(tmp_path, run_files.make_spec(), "d" * 64) as work:
        segment = launch._Segment(work, options)
        (work.path / "train.log").write_text("srun: error: n1: task 0: Killed\n")
        if failure is not None:
            record_failure(failure_path(work.path, 0), failure)
        assert segment._conclude(137) == code
        (noted,) = work.segments()
    expected = (
        failure.reason
        if failure
        else ("a rank was ended by signal SIGKILL (srun: error: n1: task 0: Killed)")
    )
    assert (noted["outcome"], noted["code"], noted["detail"]) == (outcome, code, expected)


# --- why the ranks stopped --------------------------------------------------------------------


def test_a_command_whose_files_change_while_it_trains_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text("one = 1\n")
    files = {"train.py": hashlib.sha256(script.read_bytes()).hexdigest()}
    settings = {"folder": str(tmp_path), "files": ["*.py"]}
    command = {"dataset": {"name": "command", "format": "command"}, "settings": settings}

    def ranks(segment: launch._Segment) -> int:
        script.write_text("two = 2\n")
        lost = outcome_of("stopped", [End("n1", False, False, "lost")])
        write_json(outcome_path(segment.work.path, segment.number), lost)
        return segment._conclude(0)

    monkeypatch.setattr(launch._Segment, "run", ranks)
    options = launch.LaunchOptions(None, tmp_path, "mpiexec", "cpu", 1)
    with open_workdir(tmp_path / "work", run_files.make_spec(**command), None, files) as work:
        with pytest.raises(InputError, match=r"train\.py: has changed since"):
            launch._train(work, options)
        assert [s["outcome"] for s in work.segments()] == ["monitor_lost"]
