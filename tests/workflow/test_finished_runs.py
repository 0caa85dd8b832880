"""Finished runs stay as they are, or are kept whole where they are measured again."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

CAMPAIGN = """
name: kept
protocol: corrected
sampling_period_s: 0.2
models:
  small: {workload: command, command: python train.py, folder: scripts, files: [train.py], epochs: 1}
series:
  one: {model: small, device: local, gpus: [1], local_batch_size: 8, repeats: 2}
figures: {figure1: {series: [one]}}
"""
RUN = "small-local-n001-lbs0008-full"
BOTH = {(RUN, 1), (RUN, 2)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A campaign of a script, measured twice."""
    workspace = Workspace.create(tmp_path_factory.mktemp("kept") / "project")
    (workspace.path / "scripts").mkdir()
    (workspace.path / "scripts" / "train.py").write_text("import time\ntime.sleep(1)\n")
    (workspace.path / "campaigns" / "kept.yaml").write_text(CAMPAIGN)
    workspace.edit("config.yaml", "campaigns/tiny.yaml", "campaigns/kept.yaml")
    workspace.done("tables")
    return workspace


@pytest.fixture()
def kept(trained: Workspace, tmp_path: Path) -> Workspace:
    return trained.copy(tmp_path / "project")


def recordings(folder: Path) -> dict[str, str]:
    """The SHA-256 of a run's recordings."""
    content = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (folder / "perun").iterdir()
    }
    assert content
    return content


def runs(workspace: Workspace) -> dict[int, dict[str, str]]:
    folder = workspace.path / "results/kept/runs" / RUN
    return {repeat: recordings(folder / str(repeat)) for repeat in (1, 2)}


def superseded(workspace: Workspace, number: int = 1) -> dict[int, dict[str, str]]:
    folder = workspace.path / "results/kept/superseded" / RUN
    return {repeat: recordings(folder / str(repeat) / str(number) / "run") for repeat in (1, 2)}


def status(workspace: Workspace, *options: str) -> str:
    return workspace.scalewatt("status", *options, "--campaign", "campaigns/kept.yaml")


def test_a_comment_in_a_script_trains_no_finished_run_again_and_is_reported(
    kept: Workspace,
) -> None:
    before = runs(kept)
    with open(kept.path / "scripts" / "train.py", "a") as script:
        script.write("# a comment\n")
    assert kept.trainings("all") == set()
    sentence = (
        "files unlike those of finished runs (2): train.py; scalewatt remeasure repeats a run"
    )
    _, output = kept.snakemake("-n", "tables")
    assert sentence in output
    assert "replace" not in output
    assert sentence in kept.done("tables")
    assert sentence in " ".join(status(kept).split())
    assert runs(kept) == before


@pytest.mark.parametrize("work", ["with", "without"])
def test_runs_that_are_forced_are_kept_in_superseded(work: str, kept: Workspace) -> None:
    before = runs(kept)
    if work == "without":
        shutil.rmtree(kept.path / "work")
    forced = ("tables", "--forcerun", "train_command")
    sentence = "trainings that replace finished runs: 2 of 2 (forced)"
    code, output = kept.snakemake("-n", *forced)
    assert code == 0, output
    assert runs(kept) == before, "a dry run moves nothing"
    assert sentence in kept.done(*forced)
    assert superseded(kept) == before
    after = runs(kept)
    assert all(after[repeat] != before[repeat] for repeat in before), "measured, not copied"
    assert kept.jobs("tables") == {}, "nothing is left to do"
    shown = json.loads(status(kept, "--json"))
    assert shown["superseded_energy_kwh"] > 0


def test_runs_of_a_changed_spec_are_kept_and_come_back_with_the_earlier_setting(
    kept: Workspace,
) -> None:
    before, energy = runs(kept), json.loads(status(kept, "--json"))["energy_kwh"]
    kept.edit("campaigns/kept.yaml", "epochs: 1", "epochs: 2")
    sentence = "trainings that replace finished runs: 2 of 2 (spec changed)"
    assert sentence in kept.done("tables")
    assert superseded(kept) == before
    changed = runs(kept)
    both = json.loads(status(kept, "--json"))["energy_kwh"]
    assert both > energy
    kept.edit("campaigns/kept.yaml", "epochs: 2", "epochs: 1")
    kept.done("tables")
    assert runs(kept) == before, "published once more, and not measured again"
    assert superseded(kept, 2) == changed
    after = json.loads(status(kept, "--json"))
    assert after["energy_kwh"] == pytest.approx(both, rel=0.05), "nothing counts twice"


def test_a_lost_file_is_published_once_more_and_without_work_the_rest_is_kept(
    kept: Workspace,
) -> None:
    before = runs(kept)
    history = kept.path / "results/kept/runs" / RUN / "1" / "history.parquet"
    target = str(history.relative_to(kept.path))
    history.unlink()
    assert "replace" not in kept.done(target)
    assert runs(kept) == before
    assert not (kept.path / "results/kept/superseded").exists()
    shutil.rmtree(kept.path / "work")
    history.unlink()
    sentence = "trainings that replace finished runs: 1 of 1 (results incomplete or out of date)"
    assert sentence in kept.done(target)
    (old,) = (kept.path / "results/kept/superseded" / RUN / "1").iterdir()
    assert recordings(old / "run") == before[1]
    assert runs(kept)[1] != before[1] and runs(kept)[2] == before[2]


def test_a_start_that_ends_before_its_trainings_loses_nothing(kept: Workspace) -> None:
    before = runs(kept)
    script = kept.path / "scripts" / "train.py"
    text = script.read_text()
    script.write_text("raise SystemExit(3)\n")
    code, _ = kept.snakemake("tables", "--forcerun", "train_command")
    assert code != 0
    assert superseded(kept) == before
    assert kept.trainings("tables") == BOTH, "they are missed by the next start"
    script.write_text(text)
    kept.done("tables")
    assert set(runs(kept)) == {1, 2}
    assert superseded(kept) == before


def test_results_that_were_copied_here_follow_the_campaign_all_the_same(kept: Workspace) -> None:
    """Snakemake has no record of how they were made."""
    shutil.rmtree(kept.path / ".snakemake")
    assert kept.jobs("tables") == {}

    kept.scalewatt(*("exclude", RUN, 2, "--reason", "noise", "--campaign", "campaigns/kept.yaml"))
    assert kept.jobs("tables") == {"runs_table": 1, "tables": 1}
    kept.done("tables")
    (configuration,) = pq.read_table(
        kept.path / "results/kept/tables/configurations.parquet"
    ).to_pylist()
    assert configuration["n_repeats"] == 1
    assert kept.jobs("tables") == {}

    shutil.rmtree(kept.path / ".snakemake")
    kept.edit("campaigns/kept.yaml", "repeats: 2", "repeats: 3")
    assert kept.trainings("tables") == {(RUN, 3)}
    kept.edit("campaigns/kept.yaml", "epochs: 1", "epochs: 2")
    assert kept.trainings("tables") == {*BOTH, (RUN, 3)}


def test_without_training_runs_of_earlier_settings_are_missing(kept: Workspace) -> None:
    kept.edit("campaigns/kept.yaml", "epochs: 1", "epochs: 2")
    code, output = kept.snakemake("-n", "all", "--config", "results_only=true")
    assert code == 1 and "all: needs finished runs of campaigns/kept.yaml" in output
