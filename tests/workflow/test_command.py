"""Training programs of the user's as runs of a campaign, through the workflow to tables."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from workspace import Workspace

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
SCRIPTS = {
    "plain": PLAIN,
    "marked": MARKED,
    "stopped": STOPPED,
    "failing": FAILING,
    "waiting": WAITING,
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
    samples: 640
    epochs: 2
  marked:
    workload: command
    command: python marked.py
    folder: scripts
    files: ["mark*.py"]
    epochs: 3
    metric_name: hits_percent
    metric_goal: max
series:
  plain: {model: plain, device: local, gpus: [1, 2], local_batch_size: 32, dataset_fraction: n/2}
  marked: {model: marked, device: local, gpus: [1], local_batch_size: 8}
figures:
  figure1: {series: [plain, marked]}
  figure3: {series: [plain, marked]}
  figure5: {points: [{series: marked, gpus: 1}]}
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


def workspace_of(path: Path, campaign: str) -> Workspace:
    workspace = Workspace.create(path)
    (workspace.path / "scripts").mkdir()
    for name, text in SCRIPTS.items():
        (workspace.path / "scripts" / f"{name}.py").write_text(text)
    (workspace.path / "campaigns" / "own.yaml").write_text(campaign)
    workspace.edit("profiles/local/cluster.yaml", "campaigns/tiny.yaml", "campaigns/own.yaml")
    return workspace


def rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()


def run_folder(workspace: Workspace, configuration: str) -> Path:
    return workspace.path / "results" / "own" / "runs" / configuration / "1"


PLAIN_2, MARKED_1 = "plain-local-n002-lbs0032-full", "marked-local-n001-lbs0008-full"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A campaign of a plain script and of one that marks stages, run to its end."""
    workspace = workspace_of(tmp_path_factory.mktemp("own") / "project", CAMPAIGN)
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
    for one, following in zip(events, events[1:], strict=False):
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
    scaled = next(row for row in table if row["gpus"] == 1 and row["model"] == "plain")
    assert scaled["dataset_samples"] == 320


def test_the_provenance_says_what_was_run(own: Workspace) -> None:
    found = json.loads((run_folder(own, PLAIN_2) / "provenance.json").read_text())
    words = ["python", "plain.py", "--batch-size", "32", "--epochs", "2"]
    assert found["command"] == words
    assert list(found["files"]) == ["plain.py"]
    assert (found["dataset_sha256"], found["parameters"]) == (None, None)
    assert not (run_folder(own, PLAIN_2) / "weights.pt").exists()


def test_figures_and_the_report_are_there(own: Workspace) -> None:
    results = own.path / "results" / "own"
    for number in (1, 3, 5):
        assert (results / "figures" / f"figure{number}.svg").stat().st_size > 0
    assert "not known" in (results / "figures" / "figure1.svg").read_text()
    assert "hits" in (results / "report.html").read_text()


def test_a_changed_file_trains_its_runs_again_and_no_others(
    own: Workspace, tmp_path: Path
) -> None:
    assert own.jobs("all") == {}
    again = own.copy(tmp_path / "project")
    script = again.path / "scripts" / "marked.py"
    script.write_text(script.read_text() + "# another\n")
    assert again.trainings("all") == {(MARKED_1, 1)}


def test_a_missing_file_is_refused_before_anything_starts(own: Workspace, tmp_path: Path) -> None:
    again = own.copy(tmp_path / "project")
    (again.path / "scripts" / "marked.py").unlink()
    code, output = again.snakemake("-n")
    assert code == 1
    assert "models.marked.files: 'mark*.py' names no file" in output
    assert "Traceback" not in output


def test_a_stopped_command_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "project", ALONE.format(name="stopped"))
    code, output = workspace.snakemake("tables")
    assert code != 0
    assert "stopped at a checkpoint" in output
    workspace.done("tables")
    folder = run_folder(workspace, "stopped-local-n002-lbs0008-full")
    segments = json.loads((folder / "provenance.json").read_text())["segments"]
    assert [segment["outcome"] for segment in segments] == ["stopped", "finished"]
    history = rows(folder / "history.parquet")
    assert [(row["epoch"], row["segment"]) for row in history] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    stages = [(row["segment"], row["stage"]) for row in rows(folder / "events.parquet")]
    assert (0, "checkpoint") in stages and (1, "train") in stages
    (run,) = rows(workspace.path / "results/own/tables/runs.parquet")
    assert (run["segments"], run["samples"], run["metric_last"]) == (2, None, 3.0)


def test_a_failing_rank_ends_the_run_with_its_exit_code_and_its_words(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "project", ALONE.format(name="failing"))
    code, output = workspace.snakemake("tables")
    assert code != 0
    (log,) = workspace.path.glob("work/own/*/train.log")
    text = log.read_text()
    assert "no such optimiser" in text
    assert "the command of rank 1" in text and "exit code 1" in text
    assert "Traceback" not in text
    assert not list(workspace.path.glob("results/own/runs/*/*/provenance.json"))


def wait_for(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "what was waited for did not come"
        time.sleep(0.05)


def process_ids(workspace: Workspace) -> list[int]:
    """Ids of the waiting commands and of what they started, once all are there."""
    files = list(workspace.path.glob("work/own/*/script/[01]"))
    return [int(word) for file in files for word in file.read_text().split()]


@pytest.mark.parametrize("victim", ["command", "recorder", "launcher"])
def test_nothing_stays_after_a_kill_of_the(victim: str, tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "project", ALONE.format(name="waiting"))
    process = workspace.start("tables")
    try:
        wait_for(lambda: len(process_ids(workspace)) == 4)
        everybody = psutil.Process(process.pid).children(recursive=True)
        command = psutil.Process(process_ids(workspace)[0])
        recorder = command.parent()
        assert recorder is not None
        launcher = next(p for p in everybody if p.name().startswith("mpiexec"))
        os.kill({"command": command, "recorder": recorder, "launcher": launcher}[victim].pid, 9)
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode != 0, output
    _, alive = psutil.wait_procs(everybody, timeout=30)
    assert not alive


def test_a_command_that_is_not_there_is_named_and_nothing_is_made(tmp_path: Path) -> None:
    campaign = ALONE.format(name="waiting").replace("python waiting", "pythn waiting")
    workspace = workspace_of(tmp_path / "project", campaign)
    code, output = workspace.snakemake("tables")
    assert code != 0
    assert "the command 'pythn' is not found" in output
    assert not (workspace.path / "work").exists()
