"""The example of docs/guide/add-a-model.md, from the page to tables and a figure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from documents import blocks
from workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PAGE = "docs/guide/add-a-model.md"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A copy of the workflow and the package with the page's file and campaign."""
    workspace = Workspace.create(tmp_path_factory.mktemp("third") / "project")
    source = workspace.path / "src"
    (source / "scalewatt" / "models" / "smallcnn.py").write_text(blocks(PAGE, "python")[0])
    (workspace.path / "campaigns" / "mine.yaml").write_text(blocks(PAGE, "yml")[0])
    workspace.edit("config.yaml", "campaigns/tiny.yaml", "campaigns/mine.yaml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(source))  # the copy, not the project's own package
        yield workspace


def test_a_setting_that_the_model_does_not_have_is_refused(example: Workspace) -> None:
    example.edit("campaigns/mine.yaml", "settings: {width: 32}", "settings: {widht: 32}")
    code, output = example.snakemake("-n")
    example.edit("campaigns/mine.yaml", "settings: {widht: 32}", "settings: {width: 32}")
    assert code == 1
    assert "series.wide.settings: unknown key 'widht'" in output
    assert "did you mean 'width'?" in output
    assert "Traceback" not in output


@pytest.mark.nightly
@pytest.mark.long
def test_the_campaign_of_the_page_trains_the_model_and_draws_its_figure(
    example: Workspace,
) -> None:
    example.done("all")
    results = example.path / "results" / "mine"
    runs = pq.read_table(results / "tables" / "runs.parquet").to_pylist()
    assert {run["configuration"] for run in runs} == {
        "smallcnn-local-n001-lbs0032-full",
        "smallcnn-local-n002-lbs0032-full",
        "smallcnn-local-n002-lbs0032-full-width32",
    }
    for run in runs:
        assert (run["model"], run["metric_name"]) == ("smallcnn", "error_percent")
        assert run["samples"] == 4 * 640
        assert run["energy_kwh"] > 0
        assert run["metric_last"] < 70, "chance is 90"
    assert "Error (%)" in (results / "figures" / "figure2.svg").read_text()
    report = (results / "report.html").read_text()
    assert "smallcnn" in report
    for folder in results.glob("runs/*/1"):
        assert Path(folder, "weights.pt").stat().st_size > 0
