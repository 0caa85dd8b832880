"""What a user of Snakemake tries first: a bare call, the linter, a target with a slip."""

from __future__ import annotations

from pathlib import Path

import pytest
from workspace import Workspace

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A working copy in which nothing has run."""
    return Workspace.create(tmp_path_factory.mktemp("plain") / "project")


def test_without_a_profile_the_default_target_is_planned_for_this_machine(
    workspace: Workspace,
) -> None:
    jobs = workspace.jobs(profile=None)
    assert jobs["train"] == 8 and jobs["report"] == jobs["manifest"] == 1
    code, output = workspace.snakemake("-n", "figure2", profile=None)
    assert code == 0 and "results/tiny/figures/figure2.svg" in output


@pytest.mark.parametrize("profile", [None, "horeka", "simulate"])
def test_the_linter_finds_nothing(workspace: Workspace, profile: str | None) -> None:
    code, output = workspace.snakemake("--lint", profile=profile)
    assert code == 0 and "your workflow is in a good condition" in output, output


def test_a_target_with_a_slip_is_answered_with_the_nearest(workspace: Workspace) -> None:
    code, output = workspace.snakemake("figur2")
    assert code == 1
    assert output.splitlines()[-1].startswith(
        "scalewatt: unknown target 'figur2'; did you mean 'figure2'?"
    )


def test_what_a_failed_step_said_stands_after_what_snakemake_says_of_it(
    finished_workspace: Workspace, tmp_path: Path
) -> None:
    workspace = finished_workspace.copy(tmp_path / "project")
    (workspace.results / "energy" / "resnet50-local-n001-lbs0016-full" / "1.parquet").write_text(
        "no"
    )
    code, output = workspace.snakemake("tables")
    assert code == 1
    last = output.rpartition("scalewatt: failed: tables of runs and configurations\n")[2]
    assert "1.parquet: is not a readable table" in last.splitlines()[0]
    assert last.splitlines()[1] == "  log: results/tiny/logs/runs_table.log"
    assert "Error in rule" not in last
