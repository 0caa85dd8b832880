"""A run's working directory: one owner at a time, and an honest record of its segments."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from run_files import NAME, make_spec

from scalewatt.campaign.run_spec import read_spec
from scalewatt.common import processes
from scalewatt.common.files import write_json
from scalewatt.run_files import lock_owner
from scalewatt.run_files import work_directory as workdir
from scalewatt.run_files.lock_owner import LockedError, read_owner
from scalewatt.run_files.progress_files import note_position
from scalewatt.run_files.work_directory import open_workdir, outcome_path

SPEC = make_spec()
DATA = "d" * 64


def test_the_directory_is_keyed_by_the_hashes_of_spec_and_data(tmp_path: Path) -> None:
    sha = SPEC.sha256
    with open_workdir(tmp_path, SPEC, DATA) as work:
        assert work.path == tmp_path / f"{NAME}-1-{sha[:12]}-dddddddd"
        assert work.spec_sha256 == sha
        assert work.perun.is_dir()
        assert read_spec(work.path / "spec.json") == SPEC


def test_another_spec_or_other_data_have_another_directory(tmp_path: Path) -> None:
    with (
        open_workdir(tmp_path, SPEC, DATA) as first,
        open_workdir(tmp_path, make_spec(epochs=5), DATA) as second,
        open_workdir(tmp_path, make_spec(repeat=2), DATA) as third,
        open_workdir(tmp_path, SPEC, "e" * 64) as fourth,
    ):
        assert len({one.path for one in (first, second, third, fourth)}) == 4


def test_what_lies_in_the_directory_stays_when_it_is_opened_again(tmp_path: Path) -> None:
    with open_workdir(tmp_path, SPEC, DATA) as work:
        (work.path / "checkpoint.pt").write_text("state")
    with open_workdir(tmp_path, SPEC, DATA) as work:
        assert (work.path / "checkpoint.pt").read_text() == "state"


# --- the lock -----------------------------------------------------------------------------------


def pid_of_owner(path: Path) -> int | None:
    found = read_owner(path)
    return None if found is None else found.pid


def on_machine(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have this process take itself for one of another machine, whose flock does not reach here."""
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    for module in (lock_owner, processes):
        monkeypatch.setattr(module, "machine_id", lambda: f"{name}/1")


def test_a_second_opener_on_another_machine_is_refused_and_told_who_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_machine(monkeypatch, "node-a")
    with open_workdir(tmp_path, SPEC, DATA) as work:
        on_machine(monkeypatch, "node-b")
        for _ in range(2):
            with pytest.raises(LockedError) as error, open_workdir(tmp_path, SPEC, DATA):
                pass
        held_by = read_owner(work.path)
    assert held_by == error.value.owner
    for word in (f"process {os.getpid()}", "node-a", str(work.path), "end it on node-a"):
        assert word in str(error.value)
    assert "node-b" not in str(error.value)


def test_a_second_opener_on_the_same_machine_says_whom_it_waits_for_and_then_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = open_workdir(tmp_path, SPEC, DATA)
    first.__enter__()
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            first.__exit__(None, None, None)

    monkeypatch.setattr(workdir.time, "sleep", sleep)
    with open_workdir(tmp_path, SPEC, DATA) as work:
        assert pid_of_owner(work.path) == os.getpid()
    assert len(waits) == 3
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    for word in (f"process {os.getpid()}", socket.gethostname(), str(work.path)):
        assert word in message


HOLD = """
import sys, time
from pathlib import Path
from scalewatt.campaign.run_spec import read_spec
from scalewatt.run_files.work_directory import open_workdir
with open_workdir(Path(sys.argv[1]), read_spec(sys.argv[2]), "d" * 64) as work:
    work.begin_segment()
    print(work.path, flush=True)
    time.sleep(60)
"""


def test_a_dead_holders_lock_is_free_and_its_segment_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spec.json").write_text(SPEC.text)
    command = [sys.executable, "-c", HOLD, str(tmp_path / "work"), str(tmp_path / "spec.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        assert pid_of_owner(path) == process.pid

        def refuse(seconds: float) -> None:
            raise TimeoutError

        with monkeypatch.context() as patch, pytest.raises(TimeoutError):  # it is held
            patch.setattr(workdir.time, "sleep", refuse)
            with open_workdir(tmp_path / "work", SPEC, DATA):
                pass
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with open_workdir(tmp_path / "work", SPEC, DATA) as work:
        assert work.path == path
        assert pid_of_owner(path) == os.getpid()
        assert work.begin_segment() == 1
        assert [s["outcome"] for s in work.segments()] == ["killed", "running"]


# --- segments -----------------------------------------------------------------------------------


def test_segments_are_counted_and_keep_their_outcomes(tmp_path: Path) -> None:
    for number, outcome in enumerate(("stopped", "failed", "finished")):
        with open_workdir(tmp_path, SPEC, DATA) as work:
            assert work.begin_segment() == number
            work.end_segment(outcome)
    found = work.segments()
    assert [s["segment"] for s in found] == [0, 1, 2]
    assert [s["outcome"] for s in found] == ["stopped", "failed", "finished"]


def test_a_segment_that_never_ended_was_killed_and_the_others_stay(tmp_path: Path) -> None:
    with open_workdir(tmp_path, SPEC, DATA) as work:
        work.begin_segment()
        work.end_segment("stopped")
        work.begin_segment()
    with open_workdir(tmp_path, SPEC, DATA) as work:
        assert [s["outcome"] for s in work.segments()] == ["stopped", "running"]
        work.begin_segment()
        assert [s["outcome"] for s in work.segments()] == ["stopped", "killed", "running"]
        assert [s["ended_s"] is None for s in work.segments()] == [False, True, True]


def test_a_segment_left_open_ended_as_its_ranks_said_and_where_its_checkpoint_stands(
    tmp_path: Path,
) -> None:
    with open_workdir(tmp_path, SPEC, DATA) as work:
        work.begin_segment()
        note_position(work.path, 7, 0, 7)
        write_json(outcome_path(work.path, 0), {"outcome": "stopped", "losses": []})
        work.begin_segment()
        note_position(work.path, 9, 0, 9)
        work.begin_segment()
        work.end_segment("failed", "why", 70)
    first, second, third = work.segments()
    assert [s["outcome"] for s in work.segments()] == ["stopped", "killed", "failed"]
    assert [(s["from_updates"], s["to_updates"]) for s in work.segments()] == [
        (0, 7),
        (7, 9),
        (9, 9),
    ]
    assert (first["ended_s"], second["code"], third["code"]) == (None, None, 70)
