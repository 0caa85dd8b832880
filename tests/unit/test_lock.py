"""The lock of a run: one process holds it, the dead are taken over from, the living never."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scalewatt.run_files import lock
from scalewatt.run_files.lock import HeldError, Holder, is_alive, locked, read_holder, require_token

WAIT_S = 60
QUICK = {"BEAT_S": 0.05, "SILENT_S": 1.5, "PATIENCE_S": 2.5, "_LOOK_S": 0.02}
HOLD = f"""
import sys, time
from pathlib import Path
from scalewatt.run_files import lock
vars(lock).update({QUICK})
with lock.locked(Path(sys.argv[1])) as (descriptor, _):
    print("held", flush=True)
    time.sleep(600)
"""
ELSEWHERE = HOLD.replace(
    "with", 'lock.socket.gethostname, lock._flock = lambda: "n9", lambda _: True\nwith', 1
)
WITH_RANK = HOLD.replace("import sys", "import subprocess, sys").replace(
    '"held"', '(rank := subprocess.Popen(["sleep", "600"], pass_fds=[descriptor], stdout=2)).pid'
)


@pytest.fixture(autouse=True)
def quick(outside_of_slurm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of seconds."""
    for name, seconds in QUICK.items():
        monkeypatch.setattr(lock, name, seconds)


@pytest.fixture
def start() -> Iterator[Callable[[str, Path], tuple[subprocess.Popen[str], str]]]:
    """Starts a program with a folder; its process and the first line that it prints."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str, folder: Path) -> tuple[subprocess.Popen[str], str]:
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", code, str(folder)]
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield run
    for process in started:
        process.kill()
        process.communicate()


def holder_of(folder: Path) -> Holder:
    holder = read_holder(folder)
    assert holder is not None
    return holder


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- one at a time ------------------------------------------------------------------------------

# A round is a forked process: it holds the lock and adds one to a number.
CONTENDERS, ROUNDS = 3, 16
CONTENDER = f"""
import errno, fcntl, os, random, signal, sys, time
from pathlib import Path
from scalewatt.run_files import lock
def missing(*_):
    raise OSError(errno.ENOTSUP, "not here")
lock._LOOK_S = 0.01
WITHOUT
folder = Path(sys.argv[1])
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
for number in range({ROUNDS}):
    child = os.fork()
    if child == 0:
        with lock.locked(folder):
            count = int((folder / "count").read_text())
            time.sleep(random.random() / 200)
            (folder / "count").write_text(str(count + 1))
            if number % 2:
                os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status not in (0, signal.SIGKILL):
        print("failed", status, flush=True)
"""


@pytest.mark.parametrize("without", ["", "fcntl.flock = missing"])
def test_of_contenders_that_die_as_they_hold_one_holds_at_a_time(
    tmp_path: Path, without: str
) -> None:
    (tmp_path / "count").write_text("0")
    command = [sys.executable, "-c", CONTENDER.replace("WITHOUT", without), str(tmp_path)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(CONTENDERS)
    ]
    assert [process.communicate(timeout=WAIT_S)[0] for process in processes] == [""] * CONTENDERS
    assert (tmp_path / "count").read_text() == str(CONTENDERS * ROUNDS)
    (tmp_path / "count").unlink()
    assert set(names(tmp_path)) <= {"lock", "holder.json"}, "a killed one's marker, at most"


def test_a_holder_on_this_machine_is_named_once_and_waited_for(
    tmp_path: Path, start: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    process, _ = start(HOLD, tmp_path)
    threading.Timer(1.2 * QUICK["PATIENCE_S"], process.kill).start()
    with locked(tmp_path):
        assert process.wait() == -signal.SIGKILL
        assert holder_of(tmp_path).pid == os.getpid()
    waits, takes = capsys.readouterr().err.splitlines()
    process_name = f"process {process.pid} on {socket.gethostname()} since"
    assert process_name in waits and "waiting for it" in waits
    assert process_name in takes and "taken over from" in takes


# --- dead or alive ------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [HOLD, ELSEWHERE], ids=["here", "elsewhere"])
def test_a_job_that_finds_its_run_held_says_by_whom_and_ends(
    tmp_path: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    process, _ = start(code, tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "13")
    with pytest.raises(HeldError) as error, locked(tmp_path):
        pass
    for words in (str(tmp_path), f"job 12 (process {process.pid} on ", "scancel 12", "wait for it"):
        assert words in str(error.value)
    assert holder_of(tmp_path).pid == process.pid and process.poll() is None


def test_a_silent_holder_elsewhere_is_taken_over_from_and_ends_when_it_sees_that(
    tmp_path: Path, start: Callable[..., Any]
) -> None:
    process, _ = start(ELSEWHERE, tmp_path)
    process.send_signal(signal.SIGSTOP)  # as if its file system stalled
    began_s = time.monotonic()
    with locked(tmp_path) as (_, token):
        assert time.monotonic() - began_s > QUICK["SILENT_S"]
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=WAIT_S)
        assert process.returncode == 73
        assert f"process {os.getpid()} on {socket.gethostname()}" in errors
        assert holder_of(tmp_path).token == token


def test_a_frozen_holder_of_this_machine_is_alive_however_long_it_is_silent(
    tmp_path: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, _ = start(HOLD, tmp_path)
    process.send_signal(signal.SIGSTOP)
    os.utime(tmp_path / "holder.json", (0, 0))
    monkeypatch.setenv("SLURM_JOB_ID", "13")
    assert is_alive(tmp_path, holder_of(tmp_path))
    with pytest.raises(HeldError, match=f"kill {process.pid} on"), locked(tmp_path):
        pass


def test_a_rank_that_outlived_its_launcher_holds_the_run(
    tmp_path: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, rank = start(WITH_RANK, tmp_path)
    process.kill()
    process.wait()
    monkeypatch.setenv("SLURM_JOB_ID", "13")
    try:
        assert is_alive(tmp_path, holder_of(tmp_path))
        with pytest.raises(HeldError), locked(tmp_path):
            pass
    finally:
        os.kill(int(rank), signal.SIGKILL)
    with locked(tmp_path):
        assert holder_of(tmp_path).pid == os.getpid()


def test_a_damaged_marker_is_taken_over_once_nobody_renews_it(tmp_path: Path) -> None:
    (tmp_path / "holder.json").write_bytes(b'{"host": "n9"}')
    began_s = time.monotonic()
    with locked(tmp_path):
        assert time.monotonic() - began_s > QUICK["SILENT_S"]
        assert holder_of(tmp_path).pid == os.getpid()
    assert names(tmp_path) == ["lock"]


# --- keeping it ---------------------------------------------------------------------------------


def test_a_marker_is_renewed_and_put_again_if_it_was_deleted(tmp_path: Path) -> None:
    marker = tmp_path / "holder.json"
    with locked(tmp_path) as (_, token):
        assert is_alive(tmp_path, holder_of(tmp_path))
        os.utime(marker, (0, 0))
        wait_until(lambda: marker.stat().st_mtime > 0)
        marker.unlink()
        wait_until(marker.exists)
        require_token(tmp_path, token)
    assert names(tmp_path) == ["lock"]


def test_a_stalled_file_system_is_reported_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failures: list[int] = []

    def stale(*_: Any) -> None:
        failures.append(1)
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    marker = tmp_path / "holder.json"
    with locked(tmp_path) as (_, token):
        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(os, "utime", stale)
                wait_until(lambda: len(failures) > 5)
            os.utime(marker, (0, 0))
            wait_until(lambda: marker.stat().st_mtime > 0)
            assert capsys.readouterr().err.count("cannot be renewed (") == 1
            failures.clear()
        require_token(tmp_path, token)
