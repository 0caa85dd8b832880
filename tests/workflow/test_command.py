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
    workspace = Workspace.create(path)
    (workspace.path / "scripts").mkdir()
    for name, text in SCRIPTS.items():
        (workspace.path / "scripts" / f"{name}.py").write_text(text)
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
    assert provenance["command"] == words
    assert list(provenance["files"]) == ["plain.py"]
    assert (provenance["dataset_sha256"], provenance["parameters"]) == (None, None)
    assert (provenance["seed"], provenance["perun"]["settings"]["monitor"]["sampling_period"]) == (
        0,
        "0.2",
    )
    assert provenance["nodes"] and provenance["packages_installed"]
    assert not {"software", "deterministic_algorithms"} & provenance.keys(), "its own affair"
    assert provenance["environment_variables"]["OMP_NUM_THREADS"] == str(
        provenance["threads_per_rank"]
    )
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


def test_a_changed_file_trains_nothing_again_and_a_missing_one_is_refused(
    finished: Workspace, tmp_path: Path
) -> None:
    again = finished.copy(tmp_path / "project")
    script = again.path / "scripts" / "marked.py"
    script.write_text(script.read_text() + "# another\n")
    assert again.trainings("all") == set()
    script.unlink()
    code, output = again.snakemake("-n")
    assert code == 1
    assert "models.marked.files: 'mark*.py' names no file" in output
    assert "Traceback" not in output


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
