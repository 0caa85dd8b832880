"""The plan and the predictions on the report's page."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_files import paper_plan
from request_files import paper
from test_prediction import knows, measured

from scalewatt.report.build_report import write_report
from scalewatt.report.definition import Definition
from scalewatt.results.figures.figure_schema import PREDICTION
from scalewatt.results.tables.frames import write_frame
from scalewatt.scaling.model.fit import SENTENCE
from scalewatt.scaling.planning.plan import PLAN
from scalewatt.scaling.planning.prediction import prediction_table


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results with a plan and predictions and nothing else."""
    folder = tmp_path_factory.mktemp("results")
    found = prediction_table(measured(folder / "measured"), paper(), knows("paper"))
    write_frame(found, folder / "tables" / "prediction.parquet", PREDICTION)
    write_frame(paper_plan(), folder / "tables" / "plan.parquet", PLAN)
    return folder


def test_a_plan_is_on_the_page_before_any_run_is_there(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    write_report(results, out, Definition("paper", "snakemake --profile profiles/horeka {}"))
    page = out.read_text()
    assert 'id="plan"' in page and 'id="plan-sums"' in page
    assert "No run has finished" in page
    assert "Totals of unequal scope are not comparable." in page
    assert SENTENCE in page
    assert "Predicted by the scaling model" in page
    assert "snakemake --profile profiles/horeka plan" in page
