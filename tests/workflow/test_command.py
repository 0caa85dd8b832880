"""Training programs of the user's as runs of a campaign, through the workflow to tables."""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from commands import SCRIPTS
from workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

CAMPAIGN = """
name: own
protocol: corrected
sampling_period_s: 0.2
models:
  plain:
    workload: command
    command: python plain.py --batch-size {local_batch_size} --epochs {epochs} --samples {samples}
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
  early: {workload: command, command: python early.py, folder: scripts, files: [early.py], epochs: 6}
  stopped: {workload: command, command: python stopped.py, folder: scripts, files: [stopped.py], epochs: 4}
series:
  plain: {model: plain, device: local, gpus: [2], local_batch_size: 32, dataset_fraction: n/4}
  marked: {model: marked, device: local, gpus: [1], local_batch_size: 8}
  early: {model: early, device: local, gpus: [1], local_batch_size: 8}
  stopped: {model: stopped, device: local, gpus: [2], local_batch_size: 8}
figures:
  figure1: {series: [plain, marked]}
  figure3: {series: [plain, marked, early]}
  table1: {points: [{series: plain, gpus: 2}, {series: marked, gpus: 1}]}
"""


def workspace_of(path: Path) -> Workspace:
    """A copy of the workflow with the campaign, whose cluster file loads a module for the scripts.

    The module has something for a script, and other copies of our packages, which break.
    """
    workspace = Workspace.create(path)
    modules = path.parent / "modules"
    (modules / "perun").mkdir(parents=True)
    (modules / "brought.py").touch()
    for name in ("perun/__init__.py", "psutil.py"):
        (modules / name).write_text(f"raise ImportError('{name} of a module')\n")
    cluster = workspace.path / "config.yaml"
    load = "'export PYTHONPATH=" + str(modules) + "${PYTHONPATH:+:$PYTHONPATH}'"
    cluster.write_text(f"{cluster.read_text()}\nsetup: [{load}]\n")
    (workspace.path / "scripts").mkdir()
    for name, text in SCRIPTS.items():
        (workspace.path / "scripts" / f"{name}.py").write_text(text)
    with (workspace.path / "scripts" / "plain.py").open("a") as script:
        script.write("import brought\nsay('brought from', brought.__file__)\n")
    (workspace.path / "campaigns" / "own.yaml").write_text(CAMPAIGN)
    workspace.edit("config.yaml", "campaigns/tiny.yaml", "campaigns/own.yaml")
    return workspace


def rows(path: Path) -> list[dict[str, Any]]:
    return pq.read_table(path).to_pylist()


def run_folder(workspace: Workspace, configuration: str) -> Path:
    return workspace.path / "results" / "own" / "runs" / configuration / "1"


PLAIN_2, MARKED_1 = "plain-local-n002-lbs0032-s0000640", "marked-local-n001-lbs0008-full"
STOPPED_2 = "stopped-local-n002-lbs0008-full"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A campaign of three scripts, of which one stops on the way, run to its end."""
    workspace = workspace_of(tmp_path_factory.mktemp("own") / "project")
    code, output = workspace.snakemake("all")
    assert code != 0
    assert "stopped at a checkpoint" in output
    workspace.done("all")
    return workspace


def test_a_plain_ddp_script_finds_its_world_and_its_numbers(finished: Workspace) -> None:
    log = (run_folder(finished, PLAIN_2) / "train.log").read_text()
    assert "rank 0 of 2 0 2 0 32" in log
    assert "rank 1 of 2 1 2 0 32" in log


def test_a_pythonpath_of_setup_reaches_the_script_and_not_the_recorder(finished: Workspace) -> None:
    folder = run_folder(finished, PLAIN_2)
    modules = finished.path.parent / "modules"
    assert (folder / "train.log").read_text().count(f"from {modules / 'brought.py'}\n") == 2
    assert list(folder.glob("perun/*.hdf5")) and list(folder.glob("perun/*.sensors.json"))
    assert json.loads((folder / "provenance.json").read_text())["packages"]["perun"] is not None


def test_a_script_that_says_nothing_trains_from_its_start_to_its_end(finished: Workspace) -> None:
    events = rows(run_folder(finished, PLAIN_2) / "events.parquet")
    log = (run_folder(finished, PLAIN_2) / "train.log").read_text()
    assert [event["stage"] for event in events] == ["startup", "train", "shutdown"], log
    startup, train, shutdown = events
    (span,) = re.findall(r"rank 0 ran from (\S+) to (\S+)$", log, flags=re.MULTILINE)
    begun, ended = map(float, span)
    assert train["start_s"] <= begun < ended <= train["end_s"]
    assert (startup["end_s"], train["end_s"]) == (train["start_s"], shutdown["start_s"])
    (row,) = rows(run_folder(finished, PLAIN_2) / "history.parquet")
    assert (row["samples"], row["metric"], row["updates"]) == (1280, None, None)


def test_a_script_that_marks_stages_has_them_with_the_energy_of_each(finished: Workspace) -> None:
    folder = run_folder(finished, MARKED_1)
    events = rows(folder / "events.parquet")
    stages = ["startup", *["train", "validate"] * 3, "shutdown"]
    assert [event["stage"] for event in events] == stages
    assert [event["epoch"] for event in events[1:-1]] == [0, 0, 1, 1, 2, 2]
    for event, following in pairwise(events):
        assert event["end_s"] == following["start_s"]
    history = rows(folder / "history.parquet")
    assert [(row["metric"], row["samples"], row["updates"]) for row in history] == [
        (50.0, 90, 9), (51.0, 90, 9), (50.0, 90, 9),
    ]  # fmt: skip
    energy = rows(finished.path / "results/own/energy" / MARKED_1 / "1.parquet")
    known = {row["stage"] for row in energy if row["energy_j"] is not None}
    assert {"startup", "train", "validate"} <= known


def test_what_a_command_does_not_say_is_null_in_the_tables(finished: Workspace) -> None:
    table = rows(finished.path / "results/own/tables/runs.parquet")
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


def test_the_provenance_says_what_was_run(finished: Workspace) -> None:
    provenance = json.loads((run_folder(finished, PLAIN_2) / "provenance.json").read_text())
    words = ["python", "plain.py", "--batch-size", "32", "--epochs", "2", "--samples", "640"]
    assert provenance["command"] == words and list(provenance["files"]) == ["plain.py"]
    assert (provenance["dataset_sha256"], provenance["parameters"]) == (None, None)
    assert provenance["nodes"] and provenance["packages_installed"]
    assert not {"software", "deterministic_algorithms"} & provenance.keys(), "its own affair"
    assert not (run_folder(finished, PLAIN_2) / "weights.pt").exists()


def test_a_run_that_ended_early_shows_what_was_done_and_is_left_out(finished: Workspace) -> None:
    table = rows(finished.path / "results/own/tables/runs.parquet")
    (row,) = [row for row in table if row["model"] == "early"]
    assert (row["epochs"], row["epochs_done"], row["samples"]) == (6, 2, 2000)
    assert row["excluded"] == "2 of 6 epochs were reported"
    assert row["energy_kwh"] is not None, "it is measured all the same"
    figures = finished.path / "results" / "own" / "figures"
    assert "early" not in (figures / "figure3.csv").read_text()
    assert "2 of 6 epochs were reported" in (figures / "figure3.caption.tex").read_text()


def test_a_job_that_waited_in_a_queue_runs_though_another_models_file_has_gone(
    finished: Workspace, tmp_path: Path
) -> None:
    queued = finished.copy(tmp_path / "project")
    shutil.rmtree(queued.path / "work")
    for path in run_folder(queued, MARKED_1).iterdir():
        if path.name != "spec.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    job = (  # as Snakemake's executors start it
        *("--mode", "remote", "--cores", "1", "--configfiles", "config.yaml"),
        *("--target-jobs", f"train_command:folder=results/own,configuration={MARKED_1},repeat=1"),
    )
    (queued.path / "scripts" / "stopped.py").unlink()  # another model's
    code, output = queued.snakemake(*job, profile=None)
    assert code == 0, output
    assert (run_folder(queued, MARKED_1) / "provenance.json").exists()
    assert len(rows(run_folder(queued, MARKED_1) / "history.parquet")) == 3


def test_a_stopped_command_goes_on_from_its_own_checkpoint(finished: Workspace) -> None:
    folder = run_folder(finished, STOPPED_2)
    segments = json.loads((folder / "provenance.json").read_text())["segments"]
    assert [segment["outcome"] for segment in segments] == ["stopped", "finished"]
    history = rows(folder / "history.parquet")
    assert [(row["epoch"], row["segment"]) for row in history] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    stages = [(row["segment"], row["stage"]) for row in rows(folder / "events.parquet")]
    assert (0, "checkpoint") in stages and (1, "train") in stages
    table = rows(finished.path / "results/own/tables/runs.parquet")
    run = next(row for row in table if row["configuration"] == STOPPED_2)
    assert (run["segments"], run["samples"], run["metric_last"]) == (2, None, 3.0)
