"""An archive on another machine: figures, claims and report from it, without any raw data."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from workspace import Workspace, environment

from scalewatt.figures.draw_figure import SUFFIXES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

THEIRS = ("--configfile=campaigns/theirs.cluster.yaml",)


def scalewatt(workspace: Workspace, *arguments: str) -> str:
    """Run the command in a workspace; what it printed."""
    command = [sys.executable, "-m", "scalewatt.cli", *arguments]
    done = subprocess.run(
        command, cwd=workspace.path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def archive(finished_workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the finished tiny campaign, without its traces."""
    out = tmp_path_factory.mktemp("archive") / "tiny.crate.zip"
    scalewatt(finished_workspace, "export", "campaigns/tiny.yaml", "--out", str(out))
    return out


@pytest.fixture
def fresh(archive: Path, tmp_path: Path) -> Workspace:
    """A new copy of the workflow, whose files are newer than the archive, with it imported."""
    workspace = Workspace.create(tmp_path / "fresh")
    scalewatt(workspace, "import", str(archive), "--name", "theirs")
    return workspace


def drawn(workspace: Workspace, campaign: str, name: str) -> dict[str, bytes]:
    """A figure's files by what their names end in."""
    folder = workspace.path / "results" / campaign / "figures"
    return {
        path.name.removeprefix(name): path.read_bytes() for path in sorted(folder.glob(f"{name}.*"))
    }


def test_a_figure_is_drawn_from_an_archive_as_it_was_drawn_from_the_runs(
    finished_workspace: Workspace, fresh: Workspace
) -> None:
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
def test_all_is_made_again_from_histories_and_energies(
    finished_workspace: Workspace, fresh: Workspace
) -> None:
    results = fresh.path / "results" / "theirs"
    tables = {path.name: path.read_bytes() for path in (results / "tables").glob("*.csv")}
    for folder, kept in (("tables", "figure5"), ("figures", "none")):
        for path in (results / folder).glob("*.*"):
            if path.stem != kept:
                path.unlink()
    (results / "report.html").unlink()
    fresh.done("all", *THEIRS)
    for number in range(1, 8):
        assert drawn(fresh, "theirs", f"figure{number}") == drawn(
            finished_workspace, "tiny", f"figure{number}"
        ), number
    again = {path.name: path.read_bytes() for path in (results / "tables").glob("*.csv")}
    again = {name: re.sub(rb"(?m)^\"?theirs\"?,", b'"tiny",', text) for name, text in again.items()}
    assert [name for name in tables if again.get(name) != tables[name]] == []
    scalewatt(fresh, "reproduce", "--site", "campaigns/theirs.cluster.yaml")
    status = scalewatt(fresh, "status", "--site", "campaigns/theirs.cluster.yaml")
    assert re.search(r"^runs +8 of 8 \(100 %\)$", status, flags=re.MULTILINE), status


@pytest.mark.long
@pytest.mark.nightly
def test_what_cannot_be_made_without_traces_is_left_out_and_named(fresh: Workspace) -> None:
    results = fresh.path / "results" / "theirs"
    for path in [
        *(results / "tables").glob("figure5.*"),
        *(results / "figures/runs").rglob("*.svg"),
    ]:
        path.unlink()
    code, output = fresh.snakemake("all", *THEIRS)
    assert code == 0, output
    assert "has neither traces nor recordings for figure5, pages of runs" in output
    code, output = fresh.snakemake("figure5", *THEIRS)
    assert code == 1
    assert "figure5: needs power traces" in output


@pytest.mark.long
@pytest.mark.nightly
def test_with_traces_figure_5_and_pages_are_made_again(
    finished_workspace: Workspace, tmp_path: Path
) -> None:
    out = tmp_path / "tiny.crate.zip"
    scalewatt(finished_workspace, "export", "campaigns/tiny.yaml", "--traces", "--out", str(out))
    with zipfile.ZipFile(out) as packed:
        assert any("/traces/" in name for name in packed.namelist())
    fresh = Workspace.create(tmp_path / "fresh")
    scalewatt(fresh, "import", str(out), "--name", "theirs")
    results = fresh.path / "results" / "theirs"
    shutil.rmtree(results / "figures" / "runs")
    for path in results.glob("*/figure5.*"):
        path.unlink()
    fresh.done("figure5", "run_pages", *THEIRS)
    assert drawn(fresh, "theirs", "figure5") == drawn(finished_workspace, "tiny", "figure5")
