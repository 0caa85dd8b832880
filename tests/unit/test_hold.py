"""Holding a run: on file systems that lack something, and against those that took it over."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from holder_records import HOLD, PATIENCE_S, on_this_machine, put_record

from scalewatt.common.errors import InputError
from scalewatt.run_files import run_lock as hold
from scalewatt.run_files.lock_owner import (
    SILENT_S,
    LockedError,
    owner_is_alive,
    read_owner,
    read_record,
    silence_s,
)
from scalewatt.run_files.run_lock import Beat, locked, require_lock, run_target

pytestmark = pytest.mark.usefixtures("outside_of_slurm")


# --- file systems -------------------------------------------------------------------------------


def test_without_locks_the_record_alone_guards_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(hold, "PATIENCE_S", 0.1)
    with locked(run_target(tmp_path)):
        said = capsys.readouterr().err
        with (
            pytest.raises(LockedError, match=f"process {os.getpid()}"),
            locked(run_target(tmp_path)),
        ):
            pass
    assert said.count("has no locks; holder.json alone guards") == 1


def test_a_full_disk_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    named = r"holder.json: cannot be written \(No space left"
    with pytest.raises(InputError, match=named), locked(run_target(tmp_path)):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


# --- waiting ------------------------------------------------------------------------------------


class Clock:
    """Stands for hold's module `time`; after each sleep `then` sees how many seconds were slept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, then: Callable[[float], None]) -> None:
        self.slept_s, self.then = 0.0, then
        monkeypatch.setattr(hold, "time", self)
        monkeypatch.setattr(hold, "RECORD_LOOK_S", 3.0)

    def sleep(self, seconds: float) -> None:
        assert self.slept_s < 10 * SILENT_S
        self.slept_s += seconds
        self.then(self.slept_s)

    def monotonic(self) -> float:
        return self.slept_s

    def time(self) -> float:
        return time.time()


def be_silent(record: Path, seconds: float) -> None:
    os.utime(record, (time.time() - seconds,) * 2)


def never_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another have the lock all the time."""

    def blocked(descriptor: object, operation: int) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(fcntl, "flock", blocked)


def test_a_job_waits_until_it_can_be_told_whether_the_holder_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    silent = put_record(tmp_path, 400)  # Slurm knows nothing of its job
    clock = Clock(monkeypatch, lambda slept_s: be_silent(tmp_path / "holder.json", 400 + slept_s))
    assert owner_is_alive(silent, tmp_path) is None
    with locked(run_target(tmp_path)):
        assert SILENT_S - 400 - 3 <= clock.slept_s <= SILENT_S - 400 + 3


def test_a_holder_that_nobody_can_tell_of_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    put_record(tmp_path, 100)
    times = iter(range(10**6))
    clock = Clock(monkeypatch, lambda _: be_silent(tmp_path / "holder.json", 100 + next(times) % 2))
    with pytest.raises(LockedError, match="n9"), locked(run_target(tmp_path)):
        pass
    assert SILENT_S < clock.slept_s <= SILENT_S + 3


def test_a_job_waits_for_a_taker_of_a_dead_holder_s_run_on_another_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    dead = put_record(tmp_path, **on_this_machine())
    claim = tmp_path / f".holder-{dead.token}.claim"
    claim.write_text(json.dumps({"host": "n8", "pid": 3, "since_s": 1.7e9, "machine": "n8/1"}))
    clock = Clock(monkeypatch, lambda slept_s: claim.unlink() if slept_s == 300 else None)
    with locked(run_target(tmp_path)):
        assert clock.slept_s == 300


@pytest.mark.parametrize("job", ["7", None])
def test_a_lock_that_a_dead_node_left_behind_is_passed_by(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    job: str | None,
) -> None:
    if job:
        monkeypatch.setenv("SLURM_JOB_ID", job)
    put_record(tmp_path, SILENT_S + 60)
    never_locked(monkeypatch)
    clock = Clock(monkeypatch, lambda _: None)
    with locked(run_target(tmp_path)):
        found = read_owner(tmp_path)
        assert found is not None and found.pid == os.getpid()
    assert clock.slept_s == 3
    said = capsys.readouterr().err
    assert "a dead owner on another node has left it locked; holder.json alone guards" in said
    assert "taken over from process" in said


# --- keeping it ---------------------------------------------------------------------------------


def test_a_holder_renews_its_record_and_writes_it_again_if_it_was_deleted(tmp_path: Path) -> None:
    target = run_target(tmp_path)
    with locked(target) as mine:
        beat = Beat(target, mine.token)
        os.utime(target.record, (0, 0))
        beat.renew()
        assert silence_s(target.record) < PATIENCE_S
        target.record.unlink()
        beat.renew()
        found = read_record(target.record)
        assert found is not None and found.token == mine.token
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


BEATING = HOLD.replace(
    "import sys, time", "import sys, time\nfrom scalewatt.run_files import run_lock as hold"
).replace("with locked", "hold.Beat.__init__.__defaults__ = (0.05,)\nwith locked")


def test_a_holder_that_was_taken_for_dead_ends_and_leaves_the_new_one_alone(
    tmp_path: Path, start: Callable[..., Any]
) -> None:
    process, said = start(BEATING, tmp_path)
    assert said == "held"
    path = tmp_path / "new.json"
    path.write_text(json.dumps({"host": "n9", "pid": 3, "job": "124", "since_s": 1.7e9}))
    os.replace(path, tmp_path / "holder.json")
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 73, errors
    assert "trained by job 124 (process 3 on n9)" in errors
    now = read_owner(tmp_path)
    assert now is not None and now.job == "124"


def test_a_rank_whose_run_is_held_by_another_may_not_write(tmp_path: Path) -> None:
    with locked(run_target(tmp_path)) as mine:
        require_lock(tmp_path, mine.token)
        require_lock(tmp_path, None)
        (tmp_path / "holder.json").rename(tmp_path / "before.json")
        require_lock(tmp_path, mine.token)
        for damaged in ("", "{", "[]"):
            (tmp_path / "holder.json").write_text(damaged)
            require_lock(tmp_path, mine.token)
        put_record(tmp_path, job="124")
        with pytest.raises(LockedError, match="job 124"):
            require_lock(tmp_path, mine.token)
