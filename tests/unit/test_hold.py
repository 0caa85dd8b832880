"""Holding a run: on file systems that lack something, and against those that took it over."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from holder_records import HOLD, PATIENCE_S, on_this_machine, put_record, starter

from scalewatt.errors import InputError
from scalewatt.jobs import hold
from scalewatt.jobs.hold import Beat, held, hold_run, require_held
from scalewatt.jobs.holder import HeldError, holder_is_alive, read_holder, read_record, silence_s


@pytest.fixture(autouse=True)
def outside_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOBID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hold, "RECORD_LOOK_S", 0.02)


@pytest.fixture
def start() -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    with starter() as run:
        yield run


# --- file systems -------------------------------------------------------------------------------


def test_without_locks_the_record_alone_guards_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(hold, "PATIENCE_S", 0.1)
    with held(hold_run(tmp_path)):
        said = capsys.readouterr().err
        with pytest.raises(HeldError, match=f"process {os.getpid()}"), held(hold_run(tmp_path)):
            pass
    assert said.count("has no locks; holder.json alone guards") == 1


def test_without_hard_links_one_holds_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", none)
    put_record(tmp_path, **on_this_machine())
    target = hold_run(tmp_path)
    with held(target) as mine, hold._own_record(target) as (other, _):
        found = read_holder(tmp_path)
        assert found is not None and found.token == mine.token
        assert not hold._linked(other, target.record)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_link_that_was_made_by_a_lost_request_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def twice(source: Path, target: Path) -> None:
        real(source, target)
        raise FileExistsError

    monkeypatch.setattr(os, "link", twice)
    with held(hold_run(tmp_path)) as mine:
        found = read_holder(tmp_path)
        assert found is not None and found.token == mine.token


def test_a_full_disk_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    named = r"holder.json: cannot be written \(No space left"
    with pytest.raises(InputError, match=named), held(hold_run(tmp_path)):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"host": "n1"}', "null", "\0\0"])
def test_a_damaged_record_is_of_an_unknown_holder_until_it_is_silent(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "holder.json"
    path.write_text(content)
    unknown = read_holder(tmp_path)
    assert unknown is not None
    assert str(unknown) == "another process"
    assert holder_is_alive(unknown, tmp_path) is True
    os.utime(path, (0, 0))
    with held(hold_run(tmp_path)):
        found = read_holder(tmp_path)
        assert found is not None and found.pid == os.getpid()


# --- keeping it ---------------------------------------------------------------------------------


def test_a_holder_renews_its_record_and_writes_it_again_if_it_was_deleted(tmp_path: Path) -> None:
    target = hold_run(tmp_path)
    with held(target) as mine:
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
    "import sys, time", "import sys, time\nfrom scalewatt.jobs import hold"
).replace("with held", "hold.Beat.__init__.__defaults__ = (0.05,)\nwith held")


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
    now = read_holder(tmp_path)
    assert now is not None and now.job == "124"


def test_a_rank_whose_run_is_held_by_another_may_not_write(tmp_path: Path) -> None:
    with held(hold_run(tmp_path)) as mine:
        require_held(tmp_path, mine.token)
        require_held(tmp_path, None)
        (tmp_path / "holder.json").rename(tmp_path / "before.json")
        require_held(tmp_path, mine.token)
        put_record(tmp_path, job="124")
        with pytest.raises(HeldError, match="job 124"):
            require_held(tmp_path, mine.token)
