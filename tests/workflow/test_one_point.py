"""Trying one point first, and leaving out what is too large: dry runs of the rules."""

from __future__ import annotations

import pytest
from workspace import Workspace

from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.load import load_campaign

pytestmark = pytest.mark.slow

STUDY = "campaigns/batch-study.yaml"
LARGEST = "resnet50-a100-n004-lbs0256-s0256233"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A copy of the workflow, in which nothing is ever made."""
    return Workspace.create(tmp_path_factory.mktemp("point") / "project")


def first_configurations(project: Workspace) -> tuple[str, str]:
    """The smallest and the largest point of ResNet50 in the tiny campaign."""
    cluster = load_cluster(project.path / "config.yaml")
    campaign = load_campaign(project.path / "campaigns/tiny.yaml", cluster)
    configurations = [
        configuration
        for configuration in campaign.configurations.values()
        if configuration.model == "resnet50"
    ]
    configurations.sort(key=lambda configuration: configuration.gpus)
    return configurations[0].id, configurations[-1].id


def test_only_one_run_is_trained_and_all_is_made_of_it(project: Workspace) -> None:
    first, _ = first_configurations(project)
    code, output = project.snakemake("-np", "all", "--config", f"only={first}/1")
    assert code == 0, output
    trained = {line.partition(": train ")[2] for line in output.splitlines() if ": train " in line}
    assert trained == {f"{first} repeat 1"}
    assert output.count("scalewatt: only: 1 of ") == 1
    jobs = project.jobs("all", "--config", f"only={first}/1")
    assert jobs["train"] == jobs["energy"] == jobs["spec"] == jobs["pages_of_runs"] == 1
    assert jobs["runs_table"] == jobs["report"] == 1 and "probe" not in jobs
    whole = project.jobs("all")
    assert whole["train"] > 1 and whole["draw_figure"] > jobs["draw_figure"] > 0


@pytest.mark.parametrize("profile", ["horeka", "slurm"])
def test_the_study_of_batch_sizes_is_planned_whole_and_by_one_point(
    project: Workspace, profile: str
) -> None:
    chosen = f"campaign={STUDY}"
    assert project.jobs("all", "--config", chosen, profile=profile)["train"] == 12
    jobs_of_point = project.jobs("all", "--config", chosen, f"only={LARGEST}/1", profile=profile)
    assert jobs_of_point["train"] == jobs_of_point["energy"] == 1
    assert jobs_of_point["draw_figure"] == 2, "of a single batch size"
