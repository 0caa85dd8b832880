"""What hangs is ended, and nothing else; the training goes on. Real processes, short limits."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from test_resume import WAVES, assert_same_training
from training import UPDATE_S, Training, slow_launcher
from workspace import environment

from scalewatt.common.files import read_json
from scalewatt.energies.account import write_energy
from scalewatt.recordings.journal import journal_files, last_sample_s, read_journal

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

PATIENCE_S = 120
MARK = "SCALEWATT_TEST_MARK"
EPOCHS = 40
DRIVER = """
import json, sys
from pathlib import Path
from scalewatt.campaign.cluster import load_cluster
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.execution.launch import LaunchOptions, run_training
spec, out, data, work, launcher, limits = sys.argv[1:]
limits = json.loads(limits)
changes = {"launcher": launcher, "closing_s": limits["closing_s"], "checkpoint_every_s": 0}
cluster = load_cluster(PROJECT_ROOT / "config.yaml").model_copy(update=changes)
device = cluster.devices["local"].model_copy(update={"torch_device": "cpu", "cpus_per_rank": 1})
options = LaunchOptions(cluster, device, Path(work), Path(data))
sys.exit(run_training(Path(spec), Path(out), options))
"""


@dataclass
class Watched:
    """A training with watchdog limits of its own; all its processes carry a mark."""

    training: Training
    limits: dict[str, float]
    launcher: str = "mpiexec -n {gpus}"
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    process: Any = None

    def start(self) -> None:
        """Start it."""
        folder = self.training.folder
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-c", DRIVER, str(folder / "spec.json"), str(folder / "out")),
                *(str(self.training.data / "waves"), str(folder / "work")),
                *(slow_launcher(self.launcher, UPDATE_S), json.dumps(self.limits)),
            ],
            env={**environment(), MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def processes(self) -> list[psutil.Process]:
        """All that live of it, on this machine."""
        processes = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get(MARK) == self.mark
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    processes.append(process)
            except psutil.Error:
                continue
        return processes

    def ranks_and_samplers(self) -> tuple[list[psutil.Process], list[psutil.Process]]:
        """The ranks, and the samplers that they forked."""
        ranks, samplers = [], []
        for process in self.processes():
            command = process.cmdline()
            if "scalewatt.execution.rank" in command and command[0] == sys.executable:
                parent = process.parent()
                forked = parent is not None and parent.cmdline() == command
                (samplers if forked else ranks).append(process)
        return ranks, samplers

    def wait_for_checkpoint(self) -> None:
        """Wait until there is something to go on from."""
        wait_for(lambda: any((self.training.folder / "work").glob("*/checkpoint.pt")), "checkpoint")

    def output(self) -> str:
        """Wait for its end; what it printed."""
        return self.process.communicate(timeout=PATIENCE_S)[0]

    def finish(self) -> None:
        """Start it again, and wait until it has finished."""
        self.start()
        output = self.output()
        assert self.process.returncode == 0, output

    def outcomes(self) -> list[str]:
        """How its segments ended."""
        return [s["outcome"] for s in read_json(self.training.work / "run.json")["segments"]]


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


def wait_for(condition: Callable[[], Any], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"no {what} within {PATIENCE_S} s"
        time.sleep(0.05)


@pytest.fixture
def watched(tmp_path: Path, data: Path) -> Iterator[Watched]:
    """A training of some seconds on two ranks, started with what the test changes."""
    training = Training.of(tmp_path / "run", data, WAVES, epochs=EPOCHS)
    watched_run = Watched(training, {"closing_s": 20})
    yield watched_run
    if watched_run.process is not None and watched_run.process.poll() is None:
        watched_run.process.kill()
        watched_run.process.communicate()
    for process in watched_run.processes():
        process.kill()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Training:
    folder = tmp_path_factory.mktemp("whole") / "run"
    training = Training.of(folder, data, WAVES, epochs=EPOCHS)
    code, output = training.run()
    assert code == 0, output
    return training


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """Another program with the command line of a rank."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    process = subprocess.Popen([*command, "-m", "scalewatt.execution.rank", "work"])
    yield process
    process.kill()
    process.wait()


def test_a_training_whose_sampler_is_lost_stops_and_goes_on_with_the_next_start(
    watched: Watched,
    uninterrupted: Training,
    bystander: subprocess.Popen[bytes],
) -> None:
    watched.start()
    watched.wait_for_checkpoint()
    _, (sampler,) = watched.ranks_and_samplers()
    sampler.kill()
    output = watched.output()
    assert watched.process.returncode == 70, output
    assert "the energy was no longer recorded" in output
    wait_for(lambda: not watched.processes(), "end of all processes")
    assert bystander.poll() is None
    watched.finish()
    assert watched.outcomes() == ["monitor_lost", "finished"]
    assert_same_training(watched.training, uninterrupted)
    recorded = watched.training.out / "perun"
    for segment in (0, 1):
        ((block,),) = read_journal(journal_files(recorded)[segment].values()).nodes.values()
        time_s = block.time_s
        recorded_j = sum(row["recorded_j"] for row in cpu_rows(watched.training, segment))
        assert (
            0.074 * RATED_W * 0.95 <= recorded_j / (time_s[-1] - time_s[0]) <= 0.74 * RATED_W * 1.05
        )
    assert not (recorded / "segment-000.hdf5").exists()
    assert (recorded / "segment-001.hdf5").exists()
    flags = pq.read_table(watched.training.folder / "energy.flags.parquet").to_pylist()
    codes = {row["code"] for row in flags if row["segment"] == 1}
    assert not codes & {"recording_short", "coverage"}
    (first, second) = read_json(watched.training.out / "provenance.json")["segments"]
    assert str(sampler.pid) in first["detail"]
    assert first["ended_s"] <= second["started_s"]


@pytest.mark.nightly
def test_a_perun_that_does_not_close_costs_its_file_and_not_the_run(watched: Watched) -> None:
    watched.limits = {"closing_s": 3}
    watched.start()
    watched.wait_for_checkpoint()
    _, (sampler,) = watched.ranks_and_samplers()
    sampler.suspend()
    output = watched.output()
    assert watched.process.returncode == 0, output
    assert "perun did not close" in output
    assert watched.outcomes() == ["finished"]
    wait_for(lambda: not watched.processes(), "end of all processes")
    assert len(watched.training.history()) == EPOCHS
    recorded = watched.training.out / "perun"
    assert not list(recorded.glob("*.hdf5"))
    (journal,) = journal_files(recorded)[0].values()
    assert last_sample_s(journal) is not None


def test_a_run_on_one_machine_begins_in_a_step_of_slurm_that_holds_all_of_it(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    watched.training = Training.of(tmp_path / "short", watched.training.data, WAVES, epochs=1)
    watched.start()
    output = watched.output()
    assert watched.process.returncode == 0, output
