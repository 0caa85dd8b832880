"""One holder of a run, on whatever node; the dead are recognised, the living never displaced."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from holder_records import (
    DEAD_PID,
    HOLD,
    PATIENCE_S,
    on_this_machine,
    put_record,
    sleep_by,
)

from scalewatt.common.processes import process_started_s
from scalewatt.run_files import run_lock as hold
from scalewatt.run_files.lock_owner import (
    GONE_SILENT_S,
    SILENT_S,
    LockedError,
    owner_is_alive,
    read_owner,
    silence_s,
)
from scalewatt.run_files.run_lock import locked, run_target

pytestmark = pytest.mark.usefixtures("outside_of_slurm")


WITH_RANK = """
import subprocess, sys, time
from pathlib import Path
from scalewatt.run_files.run_lock import locked, run_target
with locked(run_target(Path(sys.argv[1]))) as hold:
    rank = subprocess.Popen(["sleep", "600"], pass_fds=[hold.lock], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)
    print(rank.pid, flush=True)
    time.sleep(600)
"""

# --- on one machine -----------------------------------------------------------------------------


def test_a_holder_is_named_and_its_record_goes_with_it(tmp_path: Path) -> None:
    with locked(run_target(tmp_path)) as mine:
        found = read_owner(tmp_path)
        assert found is not None
        assert (found.host, found.pid, found.job) == (socket.gethostname(), os.getpid(), None)
        assert found.pid_started_s == process_started_s(os.getpid())
        assert found.token == mine.token
        assert abs(found.since_s - time.time()) < PATIENCE_S
        assert owner_is_alive(found, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_killed_holder_is_taken_over_from_at_once_and_that_is_said(
    tmp_path: Path, start: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    process, _ = start(HOLD, tmp_path)
    dead = read_owner(tmp_path)
    assert dead is not None and owner_is_alive(dead, tmp_path)
    process.kill()
    process.wait()
    assert owner_is_alive(dead, tmp_path) is False
    with locked(run_target(tmp_path)):
        now = read_owner(tmp_path)
        assert now is not None and now.pid == os.getpid()
    said = capsys.readouterr().err
    assert f"taken over from process {process.pid} on {socket.gethostname()} since" in said
    assert said.count("\n") == 1


def test_a_frozen_holder_is_alive_however_long_it_is_silent(
    tmp_path: Path, start: Callable[..., Any]
) -> None:
    process, _ = start(HOLD, tmp_path)
    process.send_signal(signal.SIGSTOP)
    os.utime(tmp_path / "holder.json", (0, 0))
    frozen = read_owner(tmp_path)
    assert frozen is not None
    assert silence_s(tmp_path / "holder.json") > SILENT_S
    assert owner_is_alive(frozen, tmp_path) is True


def test_a_rank_that_outlived_its_launcher_holds_the_run(
    tmp_path: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, rank = start(WITH_RANK, tmp_path)
    process.kill()
    process.wait()
    dead = read_owner(tmp_path)
    assert dead is not None
    try:
        assert owner_is_alive(dead, tmp_path) is True
        waits: list[float] = []

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 3:
                os.kill(int(rank), signal.SIGKILL)
            time.sleep(0.05)

        sleep_by(monkeypatch, sleep)
        with locked(run_target(tmp_path)):
            assert len(waits) >= 3
    finally:
        with suppress(ProcessLookupError):
            os.kill(int(rank), signal.SIGKILL)


def test_another_process_with_the_number_of_a_dead_holder_is_not_taken_for_it(
    tmp_path: Path,
) -> None:
    started_s = (process_started_s(os.getpid()) or 0.0) - 5
    other = put_record(tmp_path, **on_this_machine(pid=os.getpid(), pid_started_s=started_s))
    assert owner_is_alive(other, tmp_path) is False


def test_a_record_from_before_a_restart_of_the_machine_is_dead_once_silent(tmp_path: Path) -> None:
    before = {"host": socket.gethostname(), "pid": os.getpid()}
    assert owner_is_alive(put_record(tmp_path, **before), tmp_path) is True
    silent = put_record(tmp_path, GONE_SILENT_S + 1, **before)
    assert owner_is_alive(silent, tmp_path) is False


# --- another machine, and Slurm -----------------------------------------------------------------


@pytest.fixture
def squeue(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A squeue whose answer is a shell script; the arguments of its calls are in `calls`."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "squeue"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n. {folder}/answer\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "answer"


GONE = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
DOWN = "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"
WHILE, LONG, LONGER = GONE_SILENT_S + 1, SILENT_S - 60, SILENT_S + 60


@pytest.mark.parametrize(
    ("answer", "silent_s", "alive"),
    [
        ("echo RUNNING", LONGER, True),
        ("echo SUSPENDED", LONGER, True),
        ("echo COMPLETED; echo RUNNING", LONGER, True),
        ("echo COMPLETING", 0, True),
        ("echo COMPLETING", WHILE, False),
        ("echo NODE_FAIL", 0, True),  # processes live on where only Slurm's daemon has died
        ("echo NODE_FAIL", WHILE, False),
        ("echo PENDING", WHILE, False),
        ("", WHILE, False),
        (GONE, 0, True),
        (GONE, WHILE, False),
        (DOWN, 0, True),
        (DOWN, LONG, None),
        (DOWN, LONGER, False),
        (None, 0, True),
        (None, LONG, None),
        (None, LONGER, False),
    ],
)
def test_a_holder_elsewhere_lives_by_its_job_or_its_heartbeat(
    tmp_path: Path, squeue: Path, answer: str | None, silent_s: float, alive: bool | None
) -> None:
    squeue.write_text("exit 1" if answer is None else answer)
    job = None if answer is None else "123"
    assert owner_is_alive(put_record(tmp_path, silent_s, job=job), tmp_path) is alive
    assert answer is None or "-j 123" in (squeue.parent / "calls").read_text()


def test_a_held_run_is_refused_in_a_job_after_a_while_with_all_that_one_needs_to_know(
    tmp_path: Path, squeue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue.write_text("echo RUNNING")
    put_record(tmp_path, job="123")
    sleep_by(monkeypatch, None)
    with pytest.raises(LockedError, match="or scancel 123"), locked(run_target(tmp_path)):
        pass  # outside of a job at once
    sleep_by(monkeypatch, time.sleep)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(hold, "PATIENCE_S", 0.1)
    with pytest.raises(LockedError) as error, locked(run_target(tmp_path)):
        pass
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1.7e9))
    assert str(error.value) == (
        f"{tmp_path}: the run is being trained by job 123 (process {DEAD_PID} on n9) since {since}; "
        "wait for it and start Snakemake again, or scancel 123"
    )
    assert error.value.code == 73
    assert error.value.owner == read_owner(tmp_path)


def test_a_job_waits_for_one_that_is_ending(
    tmp_path: Path, squeue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue.write_text("echo COMPLETING")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    put_record(tmp_path, job="123")
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            (tmp_path / "holder.json").unlink()

    sleep_by(monkeypatch, sleep)
    with locked(run_target(tmp_path)):
        assert len(waits) == 3


def test_a_requeued_job_takes_over_from_its_earlier_start(
    tmp_path: Path, squeue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue.write_text("echo RUNNING")  # which is this job itself
    monkeypatch.setenv("SLURM_JOB_ID", "123")
    assert owner_is_alive(put_record(tmp_path, 0, job="123"), tmp_path) is True
    put_record(tmp_path, WHILE, job="123")
    with locked(run_target(tmp_path)):
        found = read_owner(tmp_path)
        assert found is not None and (found.pid, found.job) == (os.getpid(), "123")


def test_a_requeued_job_is_no_sign_of_life_of_what_held_a_run_before(
    tmp_path: Path, squeue: Path
) -> None:
    squeue.write_text("case $* in *%S*) echo 2026-01-02T03:04:05;; *) echo RUNNING;; esac")
    here = {**on_this_machine(job="123"), "since_s": 1.7e9}
    assert owner_is_alive(put_record(tmp_path, 0, **here), tmp_path) is False
    before_its_start = {**here, "machine": "elsewhere/1"}  # of this node
    there = put_record(tmp_path, 0, **before_its_start)
    assert owner_is_alive(there, tmp_path) is True  # in a process space of its own
    put_record(tmp_path, WHILE, **before_its_start)
    assert owner_is_alive(there, tmp_path) is False
    later = {**on_this_machine(job="123"), "since_s": 1.9e9}
    assert owner_is_alive(put_record(tmp_path, WHILE, **later), tmp_path) is True
