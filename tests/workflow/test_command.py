"""Training programs of the user's as runs of a campaign, through the workflow to tables."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import yaml
from training import CLUSTER
from workspace import Workspace, environment

from scalewatt.campaign.cluster import known_devices
from scalewatt.campaign.expand import expand
from scalewatt.campaign.spec import run_spec, spec_text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PATIENCE_S = 120

PLAIN = """
import argparse, os
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int)
parser.add_argument("--epochs", type=int)
given = parser.parse_args()
assert not [name for name in os.environ if name.startswith("PMI_")]
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(given.epochs):
    loss = model(torch.ones(given.batch_size, 4) * (1 + dist.get_rank())).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
local = [os.environ[name] for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")]
print("rank", dist.get_rank(), "of", dist.get_world_size(), *local, given.batch_size)
dist.destroy_process_group()
"""
MARKED = """
import time
from scalewatt.events import report, stage

for epoch in range(3):
    stage("train", epoch)
    time.sleep(0.3)
    stage("validate", epoch)
    time.sleep(0.2)
    report(epoch=epoch, metric=50.0 + epoch % 2, samples=90, updates=9, train_loss=1.0 / (1 + epoch))
"""
STOPPED = """
import os, signal, sys, time
from pathlib import Path
from scalewatt.events import report, stage, stop_requested

checkpoint = Path(os.environ["SCALEWATT_WORK"], "epoch")
first = int(checkpoint.read_text()) if checkpoint.exists() else 0
for epoch in range(first, 4):
    stage("train", epoch)
    if stop_requested():
        stage("checkpoint", epoch)
        if os.environ["RANK"] == "0":
            checkpoint.write_text(str(epoch))
        sys.exit(75)
    report(epoch=epoch, metric=float(epoch))
    if epoch == 1 and os.environ["RANK"] == "0" and os.environ["SCALEWATT_SEGMENT"] == "0":
        os.kill(os.getppid(), signal.SIGUSR1)  # as a scheduler does before the limit
    time.sleep(2 if epoch == 1 and first == 0 else 0.1)
"""
FAILING = """
import os, sys, time
if os.environ["RANK"] == "1":
    sys.exit("no such optimiser")
time.sleep(600)
"""
WAITING = """
import os, subprocess, time
from pathlib import Path
child = subprocess.Popen(["sleep", "600"])
Path(os.environ["SCALEWATT_WORK"], os.environ["RANK"]).write_text(f"{os.getpid()} {child.pid}")
time.sleep(600)
"""
LISTENING = """
import os, signal, sys, time
from pathlib import Path

work, rank = Path(os.environ["SCALEWATT_WORK"]), os.environ["RANK"]
def leave(number, frame):
    (work / f"{rank}-got").write_text(signal.Signals(number).name)
    sys.exit(75)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, leave)
(work / f"{rank}-ready").touch()
time.sleep(600)
"""
SCRIPTS = {
    "plain": PLAIN,
    "marked": MARKED,
    "stopped": STOPPED,
    "failing": FAILING,
    "waiting": WAITING,
    "listening": LISTENING,
}
CAMPAIGN = """
name: own
protocol: corrected
sampling_period_s: 0.2
models:
  plain:
    workload: command
    command: python plain.py --batch-size {local_batch_size} --epochs {epochs}
    folder: scripts
    files: [plain.py]
    samples: 1280
    epochs: 2
  marked:
    workload: command
    command: python marked.py
    folder: scripts
    files: ["mark*.py"]
    epochs: 3
    metric_name: hits_percent
    metric_goal: max
  stopped: {workload: command, command: python stopped.py, folder: scripts, files: [stopped.py], epochs: 4}
series:
  plain: {model: plain, device: local, gpus: [2], local_batch_size: 32, dataset_fraction: n/4}
  marked: {model: marked, device: local, gpus: [1], local_batch_size: 8}
  stopped: {model: stopped, device: local, gpus: [2], local_batch_size: 8}
figures:
  figure1: {series: [plain, marked]}
  figure3: {series: [plain, marked]}
  table1: {points: [{series: plain, gpus: 2}, {series: marked, gpus: 1}]}
"""
ALONE = """
name: own
protocol: corrected
sampling_period_s: 0.2
models:
  {name}: {{workload: command, command: python {name}.py, folder: scripts, files: [{name}.py], epochs: 4}}
series:
  one: {{model: {name}, device: local, gpus: [2], local_batch_size: 8}}
figures: {{figure1: {{series: [one]}}}}
"""


def workspace_of(path: Path) -> Workspace:
    workspace = Workspace.create(path)
    (workspace.path / "scripts").mkdir()
    for name, text in SCRIPTS.items():
        (workspace.path / "scripts" / f"{name}.py").write_text(text)
    (workspace.path / "campaigns" / "own.yaml").write_text(CAMPAIGN)
    workspace.edit("profiles/local/cluster.yaml", "campaigns/tiny.yaml", "campaigns/own.yaml")
    return workspace


def rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()


def run_folder(workspace: Workspace, configuration: str) -> Path:
    return workspace.path / "results" / "own" / "runs" / configuration / "1"


PLAIN_2, MARKED_1 = "plain-local-n002-lbs0032-s0000640", "marked-local-n001-lbs0008-full"
STOPPED_2 = "stopped-local-n002-lbs0008-full"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A campaign of three scripts, of which one stops on the way, run to its end."""
    workspace = workspace_of(tmp_path_factory.mktemp("own") / "project")
    code, output = workspace.snakemake("all")
    assert code != 0
    assert "stopped at a checkpoint" in output
    workspace.done("all")
    return workspace


def test_a_plain_ddp_script_finds_its_world_and_its_numbers(own: Workspace) -> None:
    log = (run_folder(own, PLAIN_2) / "train.log").read_text()
    assert "rank 0 of 2 0 2 0 32" in log
    assert "rank 1 of 2 1 2 0 32" in log


def test_a_script_that_says_nothing_trains_from_its_start_to_its_end(own: Workspace) -> None:
    events = rows(run_folder(own, PLAIN_2) / "events.parquet")
    assert [event["stage"] for event in events] == ["startup", "train", "shutdown"]
    assert events[1]["end_s"] - events[1]["start_s"] > 0
    (row,) = rows(run_folder(own, PLAIN_2) / "history.parquet")
    assert (row["samples"], row["metric"], row["updates"]) == (1280, None, None)


def test_a_script_that_marks_stages_has_them_with_the_energy_of_each(own: Workspace) -> None:
    folder = run_folder(own, MARKED_1)
    events = rows(folder / "events.parquet")
    stages = ["startup", *["train", "validate"] * 3, "shutdown"]
    assert [event["stage"] for event in events] == stages
    assert [event["epoch"] for event in events[1:-1]] == [0, 0, 1, 1, 2, 2]
    for one, following in pairwise(events):
        assert one["end_s"] == following["start_s"]
    history = rows(folder / "history.parquet")
    assert [(row["metric"], row["samples"], row["updates"]) for row in history] == [
        (50.0, 90, 9), (51.0, 90, 9), (50.0, 90, 9),
    ]  # fmt: skip
    energy = rows(own.path / "results/own/energy" / MARKED_1 / "1.parquet")
    known = {row["stage"] for row in energy if row["energy_j"] is not None}
    assert {"startup", "train", "validate"} <= known


def test_what_a_command_does_not_say_is_null_in_the_tables(own: Workspace) -> None:
    table = rows(own.path / "results/own/tables/runs.parquet")
    plain, marked = (
        next(row for row in table if row["configuration"] == name) for name in (PLAIN_2, MARKED_1)
    )
    assert (plain["samples"], plain["dataset_samples"], plain["updates"]) == (1280, 640, None)
    assert plain["energy_per_sample_j"] > 0
    assert plain["metric_last"] is plain["passes_per_gpuh"] is plain["metric_name"] is None
    assert (marked["samples"], marked["updates"], marked["dataset_samples"]) == (270, 27, None)
    assert (marked["metric_last"], marked["metric_best"]) == (50.0, 51.0)
    assert marked["metric_name"] == "hits_percent"
    assert plain["energy_kwh"] > 0 and marked["energy_kwh"] > 0


def test_the_provenance_says_what_was_run(own: Workspace) -> None:
    found = json.loads((run_folder(own, PLAIN_2) / "provenance.json").read_text())
    words = ["python", "plain.py", "--batch-size", "32", "--epochs", "2"]
    assert found["command"] == words
    assert list(found["files"]) == ["plain.py"]
    assert (found["dataset_sha256"], found["parameters"]) == (None, None)
    assert not (run_folder(own, PLAIN_2) / "weights.pt").exists()


def test_figures_and_the_report_are_there(own: Workspace) -> None:
    results = own.path / "results" / "own"
    for number in (1, 3):
        assert (results / "figures" / f"figure{number}.svg").stat().st_size > 0
    assert "not known" in (results / "figures" / "figure1.svg").read_text()
    report = (results / "report.html").read_text()
    assert PLAIN_2 in report and MARKED_1 in report


def test_a_changed_file_trains_its_runs_again_and_a_missing_one_is_refused(
    own: Workspace, tmp_path: Path
) -> None:
    again = own.copy(tmp_path / "project")
    script = again.path / "scripts" / "marked.py"
    script.write_text(script.read_text() + "# another\n")
    assert again.trainings("all") == {(MARKED_1, 1)}
    script.unlink()
    code, output = again.snakemake("-n")
    assert code == 1
    assert "models.marked.files: 'mark*.py' names no file" in output
    assert "Traceback" not in output


def test_a_stopped_command_goes_on_from_its_own_checkpoint(own: Workspace) -> None:
    folder = run_folder(own, STOPPED_2)
    segments = json.loads((folder / "provenance.json").read_text())["segments"]
    assert [segment["outcome"] for segment in segments] == ["stopped", "finished"]
    history = rows(folder / "history.parquet")
    assert [(row["epoch"], row["segment"]) for row in history] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    stages = [(row["segment"], row["stage"]) for row in rows(folder / "events.parquet")]
    assert (0, "checkpoint") in stages and (1, "train") in stages
    table = rows(own.path / "results/own/tables/runs.parquet")
    run = next(row for row in table if row["configuration"] == STOPPED_2)
    assert (run["segments"], run["samples"], run["metric_last"]) == (2, None, 3.0)


def wait_for(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "what was waited for did not come"
        time.sleep(0.05)


class Direct:
    """One run of a script, started as the workflow's rule does, in the folder `path`."""

    def __init__(
        self, path: Path, name: str, monkeypatch: pytest.MonkeyPatch, **changes: str
    ) -> None:
        self.path = path
        monkeypatch.chdir(path)
        (path / "scripts").mkdir()
        (path / "scripts" / f"{name}.py").write_text(SCRIPTS[name])
        content = yaml.safe_load(ALONE.format(name=name))
        content["models"][name] |= changes
        campaign = expand(content, Path("own.yaml"), known_devices())
        (configuration,) = campaign.configurations
        (path / "spec.json").write_text(spec_text(run_spec(campaign, configuration, 1)))

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "scalewatt.cli", "train", "spec.json"),
                *("--cluster", json.dumps(CLUSTER), "--work", "work", "--out", "out"),
            ],
            cwd=self.path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def process_ids(self) -> list[int]:
        """Ids of the waiting commands and of what they started."""
        files = list(self.path.glob("work/*/script/[01]"))
        return [int(word) for file in files for word in file.read_text().split()]


def test_a_failing_rank_ends_the_run_with_its_exit_code_and_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Direct(tmp_path, "failing", monkeypatch).start()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 70, output
    assert "no such optimiser" in output
    assert "the command of rank 1" in output and "exit code 1" in output
    assert "Traceback" not in output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("victim", ["command", "recorder", "launcher", "supervisor"])
def test_nothing_stays_after_a_kill_of_the(
    victim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Direct(tmp_path, "waiting", monkeypatch)
    process = run.start()
    try:
        wait_for(lambda: len(run.process_ids()) == 4)
        everybody = psutil.Process(process.pid).children(recursive=True)
        command = psutil.Process(run.process_ids()[0])
        recorder = command.parent()
        assert recorder is not None
        launcher = next(p for p in everybody if p.name().startswith("mpiexec"))
        supervisor = psutil.Process(process.pid)
        {
            "command": command,
            "recorder": recorder,
            "launcher": launcher,
            "supervisor": supervisor,
        }[victim].kill()
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == (-9 if victim == "supervisor" else 70), output
    _, alive = psutil.wait_procs(everybody, timeout=30)
    assert not alive


@pytest.mark.parametrize("told", ["supervisor", "one rank"])
def test_a_signal_reaches_all_ranks_commands(
    told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Direct(tmp_path, "listening", monkeypatch).start()
    try:
        wait_for(lambda: len(list(tmp_path.glob("work/*/script/*-ready"))) == 2)
        if told == "supervisor":
            process.send_signal(signal.SIGINT)
        else:
            recorders = [
                p
                for p in psutil.Process(process.pid).children(recursive=True)
                if "scalewatt.energy.record" in p.cmdline() and "sh" not in p.name()
            ]
            commands = [
                p for p in recorders if any("listening.py" in c.cmdline() for c in p.children())
            ]
            commands[0].send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 75, output
    got = sorted(path.read_text() for path in tmp_path.glob("work/*/script/*-got"))
    assert got == (["SIGUSR1"] * 2 if told == "supervisor" else ["SIGTERM", "SIGUSR1"])
    assert "stopped at a checkpoint" in output


def test_a_command_that_is_not_there_is_named_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Direct(tmp_path, "waiting", monkeypatch, command="pythn waiting.py").start()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "the command 'pythn' is not found" in output
    assert not (tmp_path / "work").exists()


def test_a_script_that_changed_since_it_was_planned_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Direct(tmp_path, "waiting", monkeypatch)
    (tmp_path / "scripts" / "waiting.py").write_text("print()\n")
    process = run.start()
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "scripts/waiting.py: has changed since waiting-local-n002-lbs0008-full" in output
    assert not (tmp_path / "work").exists()
