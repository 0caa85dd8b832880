"""What a user tries first, in a fresh copy: a bare call, the linter, a slip, one point, a wrong campaign."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from workspace import Workspace, job_counts, trained_runs

pytestmark = pytest.mark.slow

STUDY = "campaigns/batch-study.yaml"
LARGEST = "resnet50-a100-n004-lbs0256-s0256233"
FIRST, LAST = "resnet50-local-n001-lbs0016-full", "resnet50-local-n002-lbs0016-full"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A copy of the workflow, in which nothing is ever made."""
    return Workspace.create(tmp_path_factory.mktemp("dry") / "project")


def refused(project: Workspace, *arguments: str) -> str:
    """The message of a call that is refused, which makes nothing."""
    code, output = project.snakemake(*arguments)
    assert code == 1 and "Traceback" not in output, output
    assert not (project.path / "results").exists() and not (project.path / "work").exists()
    return output


def test_without_a_profile_the_default_target_is_planned_for_this_machine(
    project: Workspace,
) -> None:
    code, output = project.snakemake("-n", profile=None)
    assert code == 0 and "results/tiny/figures/figure2.svg" in output
    jobs = job_counts(output)
    assert jobs["train"] == 8 and jobs["report"] == jobs["manifest"] == 1


@pytest.mark.parametrize("profile", [None, "horeka", "simulate"])
def test_the_linter_finds_nothing(project: Workspace, profile: str | None) -> None:
    code, output = project.snakemake("--lint", profile=profile)
    assert code == 0 and "your workflow is in a good condition" in output, output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["figur2"], "scalewatt: unknown target 'figur2'; did you mean 'figure2'?"),
        (["pareto"], "pareto: needs figures.pareto in"),
        (["all", "--config", f"only={FIRST[:-1]}/1"], f"no configuration '{FIRST[:-1]}'; did you"),
        (["all", "--config", f"onyl={FIRST}/1"], "unknown key 'onyl'; did you mean 'only'?"),
        (["all", "--config", "max_gpus=two"], 'max_gpus: "two" does not fit: input should be'),
        (["all", "--config", "campaign=campaigns/none.yaml"], "campaigns/none.yaml"),
        # A report of no run at all is no success.
        (["all", "--config", "campaign=campaigns/paper.yaml"], "all: needs finished runs of"),
        (
            ["all", "--config", "campaign=campaigns/paper.yaml", "results_only=true"],
            "all: needs finished runs of campaigns/paper.yaml",
        ),
    ],
)
def test_a_slip_is_answered_with_one_message(
    project: Workspace, arguments: list[str], words: str
) -> None:
    assert words in refused(project, *arguments)


def test_a_wrong_campaign_is_refused_by_file_and_key(project: Workspace) -> None:
    text = (project.path / "campaigns" / "tiny.yaml").read_text()
    wrong = text.replace("16}", "16, local_batchsize: 16}")
    (project.path / "campaigns" / "wrong.yaml").write_text(wrong)
    output = refused(project, "all", "--config", "campaign=campaigns/wrong.yaml")
    assert "campaigns/wrong.yaml" in output and "did you mean 'local_batch_size'" in output


def test_a_time_of_day_in_a_cluster_file_is_refused_though_snakemake_takes_it_for_a_number(
    tmp_path: Path,
) -> None:
    project = Workspace.create(tmp_path / "project")
    project.edit("config.yaml", "work_root: work", "stop_warning_s: 1:30:00")
    output = refused(project, "-n", "all")
    assert "config.yaml: line " in output and "1:30:00" in output and "quotes" in output


def test_only_one_run_is_trained_and_all_is_made_of_it(project: Workspace) -> None:
    output = project.done("-np", "all", "--config", f"only={FIRST}/1")
    assert trained_runs(output) == {(FIRST, 1)}
    jobs = job_counts(output)
    assert jobs["train"] == jobs["energy"] == jobs["spec"] == jobs["pages_of_runs"] == 1
    assert jobs["runs_table"] == jobs["report"] == 1 and "probe" not in jobs


def test_larger_points_are_left_out_of_the_jobs_and_named_once(project: Workspace) -> None:
    output = project.done("-np", "all", "--config", "max_gpus=1")
    assert "-n001-" in output and "-n002-" not in output and LAST not in output
    named = [line for line in output.splitlines() if "scalewatt: max_gpus 1: " in line]
    assert named and len(named) == len(set(named))


def test_the_study_of_batch_sizes_is_planned_whole_and_by_one_point(project: Workspace) -> None:
    chosen = f"campaign={STUDY}"
    assert project.jobs("all", "--config", chosen, profile="horeka")["train"] == 12
    point = project.jobs("all", "--config", chosen, f"only={LARGEST}/1", profile="horeka")
    assert point["train"] == point["energy"] == 1
    assert point["draw_figure"] == 2, "of a single batch size"


def test_what_a_failed_step_said_stands_after_what_snakemake_says_of_it(again: Workspace) -> None:
    (again.results / "energy" / FIRST / "1.row.parquet").write_text("no")
    code, output = again.snakemake("tables")
    assert code == 1
    last = output.rpartition("scalewatt: failed: tables of runs and configurations\n")[2]
    assert "1.row.parquet: is not a readable table" in last.splitlines()[0]
    assert last.splitlines()[1] == "  log: results/tiny/logs/runs_table.log"
    assert "Error in rule" not in last


def test_finished_runs_whose_copy_has_other_times_are_not_trained_again(again: Workspace) -> None:
    shutil.rmtree(again.path / ".snakemake")
    for path in sorted(again.results.rglob("*"), key=lambda path: "datasets" in path.parts):
        path.touch()
    assert "train" not in again.jobs("all")
