"""Breakdown, learning, pareto and run pages of the finished tiny campaign, through Snakemake."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAMES = ("breakdown", "learning", "pareto")
ENTRIES = "".join(f"  {name}: {{series: [images-full, pretrain, finetune]}}\n" for name in NAMES)


@pytest.fixture(scope="module")
def drawn(finished_workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A copy of the finished campaign with the three figures added, drawn."""
    workspace = finished_workspace.copy(tmp_path_factory.mktemp("more") / "project")
    file = workspace.path / "campaigns" / "tiny.yaml"
    file.write_text(file.read_text().rstrip() + "\n" + ENTRIES)
    assert workspace.trainings(*NAMES) == set()
    workspace.done(*NAMES)
    return workspace


def test_each_figure_has_its_table_and_files_and_is_then_done(drawn: Workspace) -> None:
    results = drawn.path / "results" / "tiny"
    for name in NAMES:
        for suffix in ("pdf", "svg", "png", "csv"):
            assert (results / "figures" / f"{name}.{suffix}").stat().st_size > 0
        assert (results / "tables" / f"{name}.csv").exists()
    assert drawn.jobs(*NAMES) == {}


def test_breakdown_and_learning_agree_with_the_table_of_runs(drawn: Workspace) -> None:
    tables = drawn.path / "results" / "tiny" / "tables"
    runs, parts, epochs = (
        pq.read_table(tables / f"{name}.parquet").to_pylist()
        for name in ("configurations", "breakdown", "learning")
    )
    energies = {row["configuration"]: row["energy_kwh_mean"] for row in runs}
    named = {row["configuration"] for row in parts}
    assert len(named) == 5
    for configuration in named:
        energies_kwh = [r["energy_kwh"] for r in parts if r["configuration"] == configuration]
        assert sum(energies_kwh) == pytest.approx(energies[configuration])
        ends = [r for r in epochs if r["configuration"] == configuration]
        last = [r["energy_kwh"] for r in ends if r["epoch"] == max(e["epoch"] for e in ends)]
        assert 0 < sum(last) / len(last) <= energies[configuration]
