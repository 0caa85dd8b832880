"""A file of carbon intensity in the workflow: tables by it, and a change of it that makes tables alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from energy_files import counter, gpu, write_journal
from workspace import Workspace, environment

pytestmark = [pytest.mark.slow, pytest.mark.long]

T0 = 1_795_000_000
SECONDS = 60
WATTS = 300.0
"""Of a GPU and a socket, which has 100 of them."""
CAMPAIGN = ("--config", "campaign=campaigns/mine.yaml")
JOULES = WATTS * SECONDS


def scalewatt(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scalewatt.cli", *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )


def write_grid(workspace: Workspace, *values: float) -> None:
    """One value for each half minute from T0."""
    rows = (f"{T0 + 30 * n},{value}" for n, value in enumerate(values))
    path = workspace.path / "data" / "grid.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["time,g_per_kwh", *rows]) + "\n")


def runs(workspace: Workspace, name: str = "mine") -> list[dict[str, Any]]:
    path = workspace.path / "results" / name / "tables" / "runs.parquet"
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with tables of a registered run, with a constant and a file of carbon intensity."""
    folder = tmp_path_factory.mktemp("carbon")
    workspace = Workspace.create(folder / "project")
    cluster = workspace.path / "config.yaml"
    content = yaml.safe_load(cluster.read_text())
    content["pue"] = {"value": 1.25, "source": "a test"}
    content["carbon_intensity"] = {"value": 380, "file": "data/grid.csv", "source": "a test"}
    cluster.write_text(yaml.safe_dump(content))
    sensors = {
        "CUDA:0_POWER": gpu(SECONDS + 1, WATTS - 100),
        "cpu_0_package-0": counter(SECONDS + 1, 100.0),
    }
    write_journal(folder / "one.csv", "n1", sensors, start=T0)
    (folder / "one.yaml").write_text(
        "{model: vit, device: local, gpus: 1, local_batch_size: 32, dataset_samples: 960, epochs: 2, "
        "metric: 22.5, metric_name: top5_error_percent}"
    )
    done = scalewatt(workspace.path, "register", "mine", str(folder / "one.csv"))
    assert done.returncode == 0, done.stderr
    write_grid(workspace, 100, 300)
    workspace.done("tables", *CAMPAIGN)
    return workspace


def test_tables_have_the_constant_and_what_the_file_says(measured: Workspace) -> None:
    (row,) = runs(measured)
    assert row["energy_kwh"] == pytest.approx(JOULES / 3.6e6)
    assert row["carbon_kg"] == pytest.approx(1.25 * 0.38 * JOULES / 3.6e6)
    assert row["carbon_over_time_kg"] == pytest.approx(1.25 * 0.2 * JOULES / 3.6e6, rel=1e-9)


def test_a_change_of_the_file_makes_tables_alone(measured: Workspace, tmp_path: Path) -> None:
    workspace = measured.copy(tmp_path / "project")
    assert workspace.jobs("tables", *CAMPAIGN) == {}
    write_grid(workspace, 100, 500)
    assert set(workspace.jobs("tables", *CAMPAIGN)) == {"carbon", "runs_table", "tables"}
    workspace.done("tables", *CAMPAIGN)
    (row,) = runs(workspace)
    assert row["carbon_over_time_kg"] == pytest.approx(1.25 * 0.3 * JOULES / 3.6e6, rel=1e-9)


@pytest.mark.parametrize("damage", ["it is gone", "it goes back"])
def test_a_file_that_cannot_be_read_is_refused_before_anything_starts(
    measured: Workspace, tmp_path: Path, damage: str
) -> None:
    workspace = measured.copy(tmp_path / "project")
    path = workspace.path / "data" / "grid.csv"
    path.unlink()
    if damage == "it goes back":
        path.write_text(f"time,g_per_kwh\n{T0},1\n{T0 - 1},2\n")
    code, output = workspace.snakemake("tables", *CAMPAIGN)
    assert code == 1 and "scalewatt: error: data/grid.csv: " in output
    assert ("line 3" if path.exists() else "No such file") in output


def test_an_archive_has_what_the_file_says_and_not_the_file(
    measured: Workspace, tmp_path: Path
) -> None:
    archive = tmp_path / "mine.crate.zip"
    own = ("campaigns/mine.yaml", "--out", str(archive))
    done = scalewatt(measured.path, "export", *own)
    assert done.returncode == 0, done.stderr
    other = Workspace.create(tmp_path / "other")
    done = scalewatt(other.path, "import", str(archive), "--name", "theirs")
    assert done.returncode == 0, done.stderr
    facts = other.path / "campaigns" / "theirs.cluster.yaml"
    assert "grid.csv" not in facts.read_text()
    before = runs(other, "theirs")
    for path in (other.path / "results" / "theirs" / "tables").glob("runs.*"):
        path.unlink()
    other.done("tables", "--configfile=campaigns/theirs.cluster.yaml")
    again = runs(other, "theirs")
    assert [{**row, "campaign": "mine"} for row in again] == before
    assert before[0]["carbon_over_time_kg"] == pytest.approx(1.25 * 0.2 * JOULES / 3.6e6, rel=1e-9)
