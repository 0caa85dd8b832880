"""An archive on another machine: figures, claims and report from it, without any raw data."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from workspace import Workspace

from scalewatt.figures.draw_figure import SUFFIXES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

THEIRS = ("--configfile=campaigns/theirs.cluster.yaml",)


def exported_and_imported(finished: Workspace, folder: Path, *options: str) -> Workspace:
    """A new copy of the workflow, whose files are newer than the archive that is imported there."""
    archive = folder / "tiny.crate.zip"
    finished.scalewatt("export", "campaigns/tiny.yaml", *options, "--out", archive)
    workspace = Workspace.create(folder / "fresh")
    workspace.scalewatt("import", archive, "--name", "theirs")
    return workspace


def drawn(workspace: Workspace, campaign: str, name: str) -> dict[str, bytes]:
    """A figure's files by what their names end in."""
    folder = workspace.path / "results" / campaign / "figures"
    return {
        path.name.removeprefix(name): path.read_bytes() for path in sorted(folder.glob(f"{name}.*"))
    }


def test_a_figure_is_drawn_from_an_archive_as_it_was_drawn_from_the_runs(
    finished_workspace: Workspace, tmp_path: Path
) -> None:
    fresh = exported_and_imported(finished_workspace, tmp_path)
    results = fresh.path / "results" / "theirs"
    assert not list(results.rglob("perun")) and not (results / "traces").exists()
    assert fresh.jobs("all", *THEIRS) == {}
    for path in (results / "figures").glob("figure2.*"):
        path.unlink()
    assert fresh.jobs("all", *THEIRS) == {"draw_figure": 1, "report": 1, "manifest": 1}
    fresh.done("figure2", *THEIRS)
    assert set(drawn(finished_workspace, "tiny", "figure2")) == set(SUFFIXES)
    assert drawn(fresh, "theirs", "figure2") == drawn(finished_workspace, "tiny", "figure2")


@pytest.mark.long
@pytest.mark.nightly
def test_with_traces_figure_5_and_pages_are_made_again(
    finished_workspace: Workspace, tmp_path: Path
) -> None:
    fresh = exported_and_imported(finished_workspace, tmp_path, "--traces")
    results = fresh.path / "results" / "theirs"
    assert any((results / "traces").rglob("*.parquet"))
    shutil.rmtree(results / "figures" / "runs")
    for path in results.glob("*/figure5.*"):
        path.unlink()
    fresh.done("figure5", "run_pages", *THEIRS)
    assert drawn(fresh, "theirs", "figure5") == drawn(finished_workspace, "tiny", "figure5")
