"""Processes killed at the worst time: nothing half-written, and the next start completes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from commands import PATIENCE_S, wait_for
from test_resume import WAVES, assert_same_training
from training import UPDATE_S, Training, slow_launcher
from workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

EPOCHS = 30


def family(pid: int, part: str) -> list[psutil.Process]:
    """Descendants of `pid` whose command line has `part`, without perun's samplers."""
    processes = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            command = process.cmdline()
            parent = process.parent()
            sampler = parent is not None and parent.cmdline() == command
        except psutil.NoSuchProcess:
            continue
        if any(part in word for word in command) and command[0] != "sh" and not sampler:
            processes.append(process)
    return processes


def checkpointed(training: Training) -> bool:
    work = training.folder / "work"
    return work.exists() and any(work.glob("*/checkpoint.pt"))


def long_run(folder: Path, data: Path) -> Training:
    return Training.of(folder, data, WAVES, epochs=EPOCHS)


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


def test_after_a_kill_the_next_start_goes_on_and_keeps_what_was_recorded(
    tmp_path: Path, data: Path, uninterrupted: Training
) -> None:
    training = long_run(tmp_path / "run", data)
    process = training.start_slowly()
    wait_for(lambda: checkpointed(training))
    everybody = psutil.Process(process.pid).children(recursive=True)
    family(process.pid, "scalewatt.execution.rank")[-1].kill()
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
    wait_for(lambda: checkpointed(training))
    everybody = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert_completes(training, uninterrupted)
    _, alive = psutil.wait_procs(everybody, timeout=30)
    assert not alive
    first = json.loads((training.work / "run.json").read_text())["segments"][0]
    assert first["outcome"] == "stopped", "the ranks have reached a checkpoint by themselves"
    assert first["to_updates"] > first["from_updates"] == 0


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


def start_in_training(workspace: Workspace) -> subprocess.Popen[str]:
    workspace.edit("campaigns/tiny.yaml", "epochs: 3\n", f"epochs: {EPOCHS}\n")
    launcher = slow_launcher("mpiexec", UPDATE_S)
    workspace.edit("config.yaml", "launcher: mpiexec", f"launcher: {launcher}")
    process = workspace.start(TARGET)
    wait_for(lambda: any(workspace.path.glob("work/tiny/*/checkpoint.pt")))
    return process


def assert_whole(workspace: Workspace) -> None:
    (table,) = workspace.results.glob("energy/*/1.parquet")
    energy = pq.read_table(table).to_pylist()
    assert all(row["energy_j"] is not None for row in energy if row["device_kind"] == "cpu")
    (history,) = workspace.results.glob("runs/*/1/history.parquet")
    assert pq.read_table(history)["epoch"].to_pylist() == list(range(EPOCHS))


def test_ctrl_c_on_snakemake_leaves_nothing_half_and_the_next_one_completes(
    tmp_path: Path,
) -> None:
    workspace = Workspace.create(tmp_path / "project")
    process = start_in_training(workspace)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert not list(workspace.results.glob("runs/*/1/*.parquet"))
    (segments,) = workspace.path.glob("work/tiny/*/run.json")
    assert '"outcome": "stopped"' in segments.read_text()
    workspace.done(TARGET)
    assert_whole(workspace)
