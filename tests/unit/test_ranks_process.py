"""The launcher's process: waited for, and ended with all that it started."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from scalewatt.execution import launch
from scalewatt.execution.launch import RanksProcess

PATIENCE_S = 60
SLEEP = "import time; time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


@pytest.fixture(autouse=True)
def little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GRACE_S", 0.5)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], RanksProcess]]:
    """Starts a launcher: a shell script in which $PY is this Python."""
    started: list[RanksProcess] = []
    with open(tmp_path / "log", "ab") as log, open(tmp_path / "lock", "a") as lock:

        def run(script: str) -> RanksProcess:
            command = ["sh", "-c", script]
            started.append(RanksProcess(command, log, lock.fileno(), {"PY": sys.executable}))
            return started[-1]

        yield run
        for ranks in started:
            ranks.end()


def children_of(ranks: RanksProcess, count: int) -> list[psutil.Process]:
    """The processes that a launcher has started, once there are so many."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        children = psutil.Process(ranks._process.pid).children(recursive=True)
        if len(python := [p for p in children if "-c" in p.cmdline()]) == count:
            return python
        time.sleep(0.05)
    raise AssertionError("its processes did not start")


def never() -> bool:
    return False


def test_a_launcher_that_ends_gives_its_code(start: Callable[[str], RanksProcess]) -> None:
    assert start("exit 7").wait(never) == 7


@pytest.mark.parametrize("session", ["", "setsid "], ids=["same-group", "own-session"])
@pytest.mark.parametrize("program", [SLEEP, DEAF], ids=["polite", "deaf"])
def test_what_a_dead_launcher_leaves_behind_is_ended(
    start: Callable[[str], RanksProcess], session: str, program: str
) -> None:
    ranks = start(f"{session}$PY -c '{program}' & {session}$PY -c '{program}' & wait")
    left = children_of(ranks, 2)
    ranks._process.kill()
    assert ranks.wait(never) == -9
    _, alive = psutil.wait_procs(left, timeout=PATIENCE_S)
    assert not alive


def test_what_ignores_term_is_killed_though_its_launcher_obeys(
    start: Callable[[str], RanksProcess],
) -> None:
    ranks = start(f"setsid $PY -c '{DEAF}' & exec sleep 600")
    left = children_of(ranks, 1)
    ranks.end()
    _, alive = psutil.wait_procs(left, timeout=PATIENCE_S)
    assert not alive
