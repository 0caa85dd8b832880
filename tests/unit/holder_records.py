"""Records of holders, and processes that hold, for tests of who holds a run."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scalewatt.common.processes import machine_id
from scalewatt.run_files import run_lock as hold
from scalewatt.run_files.lock_owner import LockOwner, read_owner

PATIENCE_S = 60
DEAD_PID = 2**22 + 1  # above Linux's greatest


@contextmanager
def starter() -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """Starts Python code that gets `arguments`: its process and the first line that it prints."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str, *arguments: object) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield run
    for process in started:
        process.kill()
        process.communicate()


def put_record(workdir: Path, silent_s: float = 0.0, **fields: Any) -> LockOwner:
    """The record of a holder of another machine, renewed so many seconds ago."""
    said = {"host": "n9", "pid": DEAD_PID, "pid_started_s": 1.0, "job": None, "since_s": 1.7e9}
    path = workdir / "holder.json"
    path.write_text(json.dumps({**said, "machine": "elsewhere/1", **fields}))
    then = time.time() - silent_s
    os.utime(path, (then, then))
    found = read_owner(workdir)
    assert found is not None
    return found


def on_this_machine(**fields: Any) -> dict[str, Any]:
    return {"host": socket.gethostname(), "machine": machine_id(), **fields}


def sleep_by(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], None] | None) -> None:
    """Have the waiting for a holder, and nothing else, sleep by this function."""
    clock = SimpleNamespace(
        sleep=sleep,
        time=time.time,
        monotonic=time.monotonic,
    )
    monkeypatch.setattr(hold, "time", clock)


HOLD = """
import sys, time
from pathlib import Path
from scalewatt.run_files.run_lock import locked, run_target
with locked(run_target(Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(600)
"""
