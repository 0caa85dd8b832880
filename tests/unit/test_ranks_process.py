"""The launcher of ranks: waited for, and ended with all that it started."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from scalewatt.execution import launch
from scalewatt.execution.launch import run_ranks

PATIENCE_S = 60
SLEEP = "import time; time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs a launcher: a shell script in which $PY is this Python."""
    monkeypatch.setattr(launch, "GRACE_S", 0.5)

    def run(script: str, must_end: Callable[[], bool] = lambda: False) -> int:
        with open(tmp_path / "log", "ab") as log, open(tmp_path / "lock", "a") as lock:
            command, environment = ["sh", "-c", script], {"PY": sys.executable}
            return run_ranks(command, log, lock.fileno(), environment, must_end)

    return run


def living_children() -> list[psutil.Process]:
    """Descendants without the zombies that this process adopted in earlier tests."""
    children = psutil.Process().children(recursive=True)
    return [process for process in children if process.status() != psutil.STATUS_ZOMBIE]


def started(count: int) -> list[psutil.Process]:
    """The Pythons that a launcher has started, once there are so many."""
    python = [p for p in living_children() if p.name() != "sh" and "-c" in p.cmdline()]
    return python if len(python) == count else []


def assert_ended(processes: list[psutil.Process]) -> None:
    assert processes
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    assert not alive


def test_a_launcher_that_ends_gives_its_code(run: Callable[..., int]) -> None:
    assert run("exit 7") == 7


@pytest.mark.parametrize("session", ["", "setsid "], ids=["same-group", "own-session"])
@pytest.mark.parametrize("program", [SLEEP, DEAF], ids=["polite", "deaf"])
def test_what_a_dead_launcher_leaves_behind_is_ended(
    run: Callable[..., int], session: str, program: str
) -> None:
    left: list[psutil.Process] = []

    def kill_launcher() -> bool:
        if not left and started(2):
            left.extend(started(2))
            (launcher,) = (p for p in living_children() if p.ppid() == os.getpid())
            launcher.kill()
        return False

    script = f"{session}$PY -c '{program}' & {session}$PY -c '{program}' & wait"
    assert run(script, kill_launcher) == -9
    assert_ended(left)


def test_what_ignores_term_is_killed_though_its_launcher_obeys(run: Callable[..., int]) -> None:
    left: list[psutil.Process] = []

    def must_end() -> bool:
        left.extend(started(1))
        return bool(left)

    assert run(f"setsid $PY -c '{DEAF}' & exec sleep 600", must_end) == -15
    assert_ended(left)
