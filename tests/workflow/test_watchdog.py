"""A run whose sampler is lost stops and goes on; a job step that holds everything does not hold it up."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from commands import PATIENCE_S, wait_for
from test_interruptions import checkpointed
from test_resume import WAVES, assert_same_training
from training import Training

from scalewatt.common.files import read_json
from scalewatt.energies.account import write_energy
from scalewatt.recordings.journal import journal_files, read_journal

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

EPOCHS = 40
IDLE_W, RATED_W = 50, 150


def cpu_rows(training: Training, segment: int) -> list[dict[str, Any]]:
    """The energy table's rows of the CPU in a segment."""
    (training.out / "spec.json").write_text((training.folder / "spec.json").read_text())
    cpu = {"sockets": 1, "idle_w": IDLE_W, "rated_w": RATED_W}
    powers = {"cpu": cpu, "gpu": None, "ram": None}
    tables = training.folder / "traces.parquet", training.folder / "energy.parquet"
    write_energy(training.out, training.out / "spec.json", powers, *tables)
    rows = pq.read_table(tables[1]).to_pylist()
    return [r for r in rows if (r["segment"], r["device_kind"]) == (segment, "cpu")]


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """Another program with the command line of a rank."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    process = subprocess.Popen([*command, "-m", "scalewatt.execution.rank", "work"])
    yield process
    process.kill()
    process.wait()


def test_a_training_whose_sampler_is_lost_stops_and_goes_on_with_the_next_start(
    tmp_path: Path, data: Path, bystander: subprocess.Popen[bytes]
) -> None:
    whole = Training.of(tmp_path / "whole", data, WAVES, epochs=EPOCHS)
    training = Training.of(tmp_path / "run", data, WAVES, epochs=EPOCHS)
    assert whole.run()[0] == 0
    process = training.start_slowly()
    wait_for(lambda: checkpointed(training))
    family = psutil.Process(process.pid).children(recursive=True)
    ranks = [p for p in family if p.cmdline()[:1] == [sys.executable]]
    (sampler,) = (p for p in ranks if p.parent() in ranks)  # forked by a rank
    sampler.kill()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 70, output
    assert "the energy was no longer recorded" in output
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive and bystander.poll() is None
    code, output = training.run()
    assert code == 0, output
    segments = read_json(training.work / "run.json")["segments"]
    assert [segment["outcome"] for segment in segments] == ["monitor_lost", "finished"]
    assert_same_training(training, whole)

    recorded = training.out / "perun"
    for segment in (0, 1):
        ((block,),) = read_journal(journal_files(recorded)[segment].values()).nodes.values()
        seconds = block.time_s[-1] - block.time_s[0]
        recorded_j = sum(row["recorded_j"] for row in cpu_rows(training, segment))
        assert 0.074 * RATED_W * 0.95 <= recorded_j / seconds <= 0.74 * RATED_W * 1.05
    assert not (recorded / "segment-000.hdf5").exists()
    assert (recorded / "segment-001.hdf5").exists()
    flags = pq.read_table(training.folder / "energy.flags.parquet").to_pylist()
    codes = {row["code"] for row in flags if row["segment"] == 1}
    assert not codes & {"recording_short", "coverage"}
    (first, second) = read_json(training.out / "provenance.json")["segments"]
    assert str(sampler.pid) in first["detail"]
    assert first["ended_s"] <= second["started_s"]


def test_a_run_on_one_machine_begins_in_a_step_of_slurm_that_holds_all_of_it(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text("#!/bin/sh\nexec sleep 600\n")  # as one does that waits for what is held
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}{os.pathsep}{os.environ['PATH']}")
    step = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_NNODES": "1"}
    nodes = dict.fromkeys(("SLURM_NODELIST", "SLURM_JOB_NODELIST"), socket.gethostname())
    for name, value in {**step, **nodes, "SLURM_TASKS_PER_NODE": "1"}.items():
        monkeypatch.setenv(name, value)
    code, output = Training.of(tmp_path / "short", data, WAVES, epochs=1).run()
    assert code == 0, output
