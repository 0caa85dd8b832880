"""Whatever ends a training too early: nothing is half-written, and the next start completes it to the bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from commands import PATIENCE_S, wait_for
from test_resume import WAVES, assert_same_training
from training import Training, rank_processes, slow_launcher
from workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

STEPS, EPOCHS = 5, 30


def wait_checkpointed(training: Training, process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Wait for a training's first checkpoint; all that its process has started."""
    wait_for(lambda: any(training.folder.glob("work/*/checkpoint.pt")))
    return psutil.Process(process.pid).children(recursive=True)


def long_run(folder: Path, data: Path) -> Training:
    return Training.of(folder, data, WAVES, epochs=EPOCHS, settings={"loader_workers": 1})


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Training:
    training = long_run(tmp_path_factory.mktemp("whole") / "run", data)
    code, output = training.run()
    assert code == 0, output
    return training


def assert_completes(training: Training, uninterrupted: Training) -> None:
    assert not training.out.exists()
    code, output = training.run()
    assert code == 0, output
    assert_same_training(training, uninterrupted)
    assert not list(training.out.rglob("*.tmp*"))


def segments(training: Training) -> list[dict[str, Any]]:
    return json.loads((training.work / "run.json").read_text())["segments"]


def assert_no_gap(training: Training) -> None:
    """Each segment begins where the one before ended, and the last one ends with the run."""
    rows = segments(training)
    ends = [0, *(segment["to_updates"] for segment in rows)]
    assert [segment["from_updates"] for segment in rows] == ends[:-1]
    assert ends[-1] == EPOCHS * STEPS
    assert ends == sorted(ends)


def test_after_a_kill_the_next_start_goes_on_and_keeps_what_was_recorded(
    tmp_path: Path, data: Path, uninterrupted: Training
) -> None:
    training = long_run(tmp_path / "run", data)
    process = training.start_slowly()
    everybody = wait_checkpointed(training, process)
    rank_processes(process.pid)[-1].kill()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0, output
    assert "training failed" in output
    _, alive = psutil.wait_procs(everybody, timeout=30)
    assert not alive, "no rank and no sampler may stay"
    assert_completes(training, uninterrupted)
    recorded = {path.name.split(".")[0] for path in (training.out / "perun").glob("*.sensors.json")}
    assert recorded == {"segment-000", "segment-001"}


def test_after_a_kill_of_the_supervisor_no_rank_stays_and_the_next_start_goes_on(
    tmp_path: Path, data: Path, uninterrupted: Training
) -> None:
    training = long_run(tmp_path / "run", data)
    process = training.start_slowly()
    everybody = wait_checkpointed(training, process)
    process.kill()
    process.wait()
    assert_completes(training, uninterrupted)
    _, alive = psutil.wait_procs(everybody, timeout=30)
    assert not alive
    first = segments(training)[0]
    assert first["outcome"] == "stopped", "the ranks have reached a checkpoint by themselves"
    assert first["to_updates"] > first["from_updates"] == 0


def test_scancel_which_signals_every_process_stops_a_run_at_a_checkpoint(
    tmp_path: Path, data: Path, uninterrupted: Training
) -> None:
    training = long_run(tmp_path / "run", data)
    process = training.start()
    everybody = [psutil.Process(process.pid), *wait_checkpointed(training, process)]
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
    assert_completes(training, uninterrupted)
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
    assert_completes(training, uninterrupted)
    assert_no_gap(training)


def test_a_launcher_that_starts_too_few_ranks_is_named(tmp_path: Path, data: Path) -> None:
    training = Training.of(tmp_path / "run", data, WAVES)
    launcher = """sh -c 'exec mpiexec -n 1 "$@"' {gpus}"""
    alone = Training(training.folder, training.data, training.spec, launcher=launcher)
    code, output = alone.run()
    assert code == 64
    assert "MPI has 1 ranks, the spec asks for 2" in output
    assert "Traceback" not in output


def test_a_launcher_that_does_not_exist_is_named_before_anything_is_made(
    tmp_path: Path, data: Path
) -> None:
    training = Training.of(tmp_path / "run", data, WAVES)
    without = Training(training.folder, training.data, training.spec, launcher="mpirunx -n {gpus}")
    code, output = without.run()
    assert code == 1
    assert "'mpirunx' is not found" in output
    assert "Traceback" not in output
    assert not training.out.exists()


TARGET = "results/tiny/energy/fourcastnet.pretrain-local-n002-lbs0002-full/1.parquet"


def test_ctrl_c_on_snakemake_leaves_nothing_half_and_the_next_one_completes(
    tmp_path: Path,
) -> None:
    workspace = Workspace.create(tmp_path / "project")
    workspace.edit("campaigns/tiny.yaml", "epochs: 3\n", f"epochs: {EPOCHS}\n")
    launcher = f"launcher: {slow_launcher('mpiexec')}"
    workspace.edit("config.yaml", "launcher: mpiexec", launcher)
    process = workspace.start(TARGET)
    wait_for(lambda: any(workspace.path.glob("work/tiny/*/checkpoint.pt")))
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert not list(workspace.results.glob("runs/*/1/*.parquet"))
    (segments,) = workspace.path.glob("work/tiny/*/run.json")
    assert '"outcome": "stopped"' in segments.read_text()
    workspace.done(TARGET)
    (table,) = workspace.results.glob("energy/*/1.parquet")
    energy = pq.read_table(table).to_pylist()
    assert all(row["energy_j"] is not None for row in energy if row["device_kind"] == "cpu")
    (history,) = workspace.results.glob("runs/*/1/history.parquet")
    assert pq.read_table(history)["epoch"].to_pylist() == list(range(EPOCHS))
