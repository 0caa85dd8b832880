"""Targets `plan` and `prediction`: without a run, data, an account or Slurm."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from workspace import Workspace, first_on_path

from scalewatt.targets import versions

pytestmark = pytest.mark.slow

HERE = ("--executor", "local", "--cores", "1")
"""There is no Slurm: what horeka's profile runs on the login node, here."""


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, str]:
    """The paper's plan on HoreKa, made from nothing, and what that printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SCALEWATT_ACCOUNT", raising=False)
        workspace = Workspace.create(tmp_path_factory.mktemp("plan") / "project")
        code, output = workspace.snakemake("plan", *HERE, profile="horeka")
    assert code == 0, output
    return workspace, output


def tables(workspace: Workspace) -> Path:
    return workspace.path / "results" / "paper" / "tables"


def test_the_plan_is_made_before_any_run(planned: tuple[Workspace, str]) -> None:
    folder = tables(planned[0])
    assert sorted(path.name for path in folder.iterdir()) == ["plan.csv", "plan.md", "plan.parquet"]
    rows = pq.read_table(folder / "plan.parquet").to_pylist()
    (whole,) = (row for row in rows if row["level"] == "campaign")
    assert whole["runs"] == 175 and whole["unknown_runs"] == 0
    assert 6000 < whole["energy_kwh"] < 8000


def test_a_second_plan_has_nothing_to_do_and_another_campaign_makes_it_anew(
    planned: tuple[Workspace, str], tmp_path: Path
) -> None:
    workspace = planned[0].copy(tmp_path / "project")
    assert workspace.jobs("plan", *HERE, profile="horeka") == {}
    workspace.edit(
        "campaigns/paper.yaml",
        "resnet50: {dataset: imagenet, epochs: 100}",
        "resnet50: {dataset: imagenet, epochs: 90}",
    )
    assert workspace.jobs("plan", *HERE, profile="horeka")["plan_table"] == 1


def test_of_no_finished_run_there_is_an_empty_prediction_that_another_version_makes_anew(
    planned: tuple[Workspace, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = planned[0].copy(tmp_path / "project")
    monkeypatch.setenv("PYTHONPATH", first_on_path(workspace.path / "src"))
    only = ("--config", "results_only=true")
    code, output = workspace.snakemake("prediction", *HERE, *only, profile="horeka")
    assert code == 0, output
    assert pq.read_table(tables(workspace) / "prediction.parquet").num_rows == 0
    assert (workspace.path / "results/paper/figures/prediction.png").stat().st_size > 1000
    for step in ("PLAN", "FIGURES"):
        number = getattr(versions, step)
        file = "src/scalewatt/targets/versions.py"
        workspace.edit(file, f"{step} = {number}", f"{step} = {number + 1}")
    jobs = workspace.jobs("plan", "prediction", *HERE, *only, profile="horeka")
    assert jobs == {"plan_table": 1, "plan": 1, "draw_figure": 1, "prediction": 1}


@pytest.mark.parametrize("target", ["plan", "prediction"])
def test_a_cluster_without_a_model_is_refused(planned: tuple[Workspace, str], target: str) -> None:
    code, output = planned[0].snakemake("-n", target)
    assert code == 1
    assert "config.yaml: has no key 'scaling_model'" in output
    assert "scalewatt pilot campaigns/tiny.yaml" in output
    assert "Traceback" not in output
