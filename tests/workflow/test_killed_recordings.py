"""A recording that is killed at any moment keeps its energy, but for the last two seconds."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from workspace import first_on_path

import scalewatt
from scalewatt.monitoring.sampler import TOTAL_EVERY_S, read_total
from scalewatt.recordings.journal import journal_files
from scalewatt.recordings.telemetry import GROUP_VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

GPU_W = 100 + 200 + 150 + 250
"""What the stand-in GPUs draw, without a change."""
LOST_S = 2.0
RUNS, AT_ONCE = 20, 4

PROGRAM = """
import multiprocessing, sys, time
from pathlib import Path
from scalewatt.monitoring.perun_session import monitored
def work():
    (sampler,) = multiprocessing.active_children()
    print(sampler.pid, time.time(), flush=True)
    time.sleep(600)
monitored(work, (), Path(sys.argv[1]), "segment-000", 0.5)
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Process groups; killed at the end."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def begin(folder: Path) -> subprocess.Popen[str]:
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        env={
            **os.environ,
            "PYTHONPATH": first_on_path(Path(__file__).parent / "stand_in_nvml"),
            GROUP_VARIABLE: str(folder),
        },
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(process: subprocess.Popen[str], dice: random.Random) -> tuple[float, float]:
    """Kill the sampler, or it and all beside it, at a random moment; when the work began and that moment."""
    assert process.stdout is not None
    sampler, began_s = process.stdout.readline().split()
    time.sleep(max(float(began_s) + dice.uniform(1.0, 15.0) - time.time(), 0.0))
    if dice.random() < 0.5:
        os.kill(int(sampler), signal.SIGKILL)
    else:
        os.killpg(process.pid, signal.SIGKILL)
    return float(began_s), time.time()


@pytest.mark.parametrize("batch", range(RUNS // AT_ONCE))
def test_a_run_killed_at_any_moment_loses_at_most_two_seconds_of_energy(
    tmp_path: Path, started: list[subprocess.Popen[str]], batch: int
) -> None:
    folders = [tmp_path / f"{number}" for number in range(AT_ONCE)]
    started += map(begin, folders)
    dice = random.Random(batch)
    for folder, process in zip(folders, started, strict=True):
        began_s, killed_s = end(process, dice)
        (journal,) = journal_files(folder)[0].values()
        account = scalewatt.energy(journal)
        used_j = GPU_W * (killed_s - began_s)
        assert account.joules("gpu") >= used_j - GPU_W * LOST_S
        assert account.joules("gpu") == pytest.approx(GPU_W * account.runtime_s, rel=1e-6)
        assert account.runtime_s >= killed_s - began_s - LOST_S
        assert account.coverage == 1
        total = read_total(journal)
        assert total is not None
        counted_j = sum(sensor["joules"] for sensor in total["sensors"])
        assert used_j - GPU_W * (TOTAL_EVERY_S + LOST_S) <= counted_j <= used_j + GPU_W * LOST_S
