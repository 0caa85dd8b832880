"""Whatever way a training is asked to stop, it stops at a checkpoint and goes on bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import PATIENCE_S, wait_for
from test_interruptions import checkpointed
from test_resume import WAVES, assert_same_training
from training import Training

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

STEPS, EPOCHS = 5, 24


def long_run(folder: Path, data: Path) -> Training:
    return Training.of(folder, data, WAVES, epochs=EPOCHS, settings={"loader_workers": 1})


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Training:
    training = long_run(tmp_path_factory.mktemp("whole") / "run", data)
    code, output = training.run()
    assert code == 0, output
    return training


def segments(training: Training) -> list[dict[str, Any]]:
    return json.loads((training.work / "run.json").read_text())["segments"]


def finish(training: Training, uninterrupted: Training) -> None:
    code, output = training.run()
    assert code == 0, output
    assert_same_training(training, uninterrupted)


def assert_no_gap(training: Training) -> None:
    """Each segment begins where the one before ended, and the last one ends with the run."""
    rows = segments(training)
    ends = [0, *(segment["to_updates"] for segment in rows)]
    assert [segment["from_updates"] for segment in rows] == ends[:-1]
    assert ends[-1] == EPOCHS * STEPS
    assert ends == sorted(ends)


def test_scancel_which_signals_every_process_stops_a_run_at_a_checkpoint(
    tmp_path: Path, data: Path, uninterrupted: Training
) -> None:
    training = long_run(tmp_path / "run", data)
    process = training.start()
    wait_for(lambda: checkpointed(training))
    launching = psutil.Process(process.pid)
    everybody = [launching, *launching.children(recursive=True)]
    assert len(everybody) >= 7, "launching, mpiexec, 2 ranks, 1 sampler, 2 loader workers"
    for member in everybody:
        if member.is_running():
            member.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 75, output
    (segment,) = segments(training)
    assert (segment["outcome"], segment["code"], segment["from_updates"]) == ("stopped", 75, 0)
    assert 0 < segment["to_updates"] < EPOCHS * STEPS
    assert (training.work / "perun" / "segment-000.hdf5").exists()
    finish(training, uninterrupted)
    assert_no_gap(training)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB; skips where none can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, left: int) -> Path:
    """Leave so many bytes of a file system."""
    disk = os.statvfs(folder)
    path = folder / "ballast"
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - left)
    return path


def test_a_full_disk_fails_the_segment_and_the_next_start_goes_on_from_the_checkpoint_before(
    small_disk: Path, data: Path, uninterrupted: Training
) -> None:
    training = long_run(small_disk / "run", data)
    assert training.run("--max-updates", str(3 * STEPS))[0] == 75
    checkpoint = training.work / "checkpoint.pt"
    before = checkpoint.read_bytes()
    ballast = fill(small_disk, left=100_000)
    assert len(before) > 200_000
    code, output = training.run()
    assert code == 70, output
    assert "no space is left on the file system" in output and "make room" in output
    assert checkpoint.read_bytes() == before
    assert not list(training.work.glob(".*.tmp*"))
    ballast.unlink()
    finish(training, uninterrupted)
    assert_no_gap(training)
