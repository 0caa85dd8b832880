"""A run whose sampler is lost stops and goes on; a job step that holds everything does not hold it up."""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from commands import PATIENCE_S
from test_interruptions import wait_checkpointed
from test_resume import WAVES
from training import Training

from scalewatt.common.files import read_json
from scalewatt.energies.account import write_energy
from scalewatt.recordings.journal import journal_files, last_stamps, read_journal

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

EPOCHS = 40
RATED_W = 150
POWERS = {"cpu": {"sockets": 1, "idle_w": 50, "rated_w": RATED_W}, "gpu": None, "ram": None}


def started(training: Training) -> tuple[subprocess.Popen[str], list[psutil.Process], Any]:
    """Start a training, once it has a checkpoint: the process, all that it started, and the sampler."""
    process = training.start_slowly()
    family = wait_checkpointed(training, process)
    ranks = [p for p in family if "scalewatt.execution.rank" in p.cmdline() and p.children()]
    (sampler,) = (c for p in ranks for c in p.children() if c.cmdline() == p.cmdline())
    return process, family, sampler


def outcomes(training: Training) -> list[str]:
    return [s["outcome"] for s in read_json(training.work / "run.json")["segments"]]


def test_a_training_whose_sampler_is_lost_stops_and_goes_on_with_the_next_start(
    tmp_path: Path, data: Path
) -> None:
    training = Training.of(tmp_path / "run", data, WAVES, epochs=EPOCHS)
    process, family, sampler = started(training)
    sampler.kill()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 70, output
    assert "the energy was no longer recorded" in output
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    code, output = training.run()
    assert code == 0, output
    assert outcomes(training) == ["monitor_lost", "finished"]
    assert len(training.history()) == EPOCHS

    first, second = read_json(training.out / "provenance.json")["segments"]
    assert str(sampler.pid) in first["detail"] and first["ended_s"] <= second["started_s"]
    recorded = training.out / "perun"
    assert [path.name for path in recorded.glob("*.hdf5")] == ["segment-001.hdf5"]
    (training.out / "spec.json").write_text(training.spec.text)
    tables = training.folder / "traces.parquet", training.folder / "energy.parquet"
    write_energy(training.out, training.out / "spec.json", POWERS, *tables)
    table = pq.read_table(tables[1]).to_pandas().query("device_kind == 'cpu'")
    for segment, rows in table.groupby("segment"):
        ((block,),) = read_journal(journal_files(recorded)[segment].values()).nodes.values()
        seconds = block.time_s[-1] - block.time_s[0]
        # Between idle and busy, as estimated powers go.
        assert 0.07 < rows["recorded_j"].sum() / seconds / RATED_W < 0.78


@pytest.mark.nightly
def test_a_perun_that_does_not_close_costs_its_file_and_not_the_run(
    tmp_path: Path, data: Path
) -> None:
    training = Training.of(tmp_path / "run", data, WAVES, epochs=EPOCHS)
    training = replace(training, closing_s=3)
    process, family, sampler = started(training)
    sampler.suspend()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    assert "perun did not close" in output
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    assert outcomes(training) == ["finished"] and len(training.history()) == EPOCHS
    recorded = training.out / "perun"
    assert not list(recorded.glob("*.hdf5"))
    (journal,) = journal_files(recorded)[0].values()
    assert last_stamps(journal) is not None


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
    code, output = Training.of(tmp_path / "run", data, WAVES, epochs=1).run()
    assert code == 0, output
