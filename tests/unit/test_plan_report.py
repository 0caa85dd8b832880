"""The plan and the predictions on the report's page, and finished runs in a plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from plan_files import KNOWN, UNKNOWN, forecaster, paper_plan, rows_of, small
from request_files import horeka, paper
from run_files import WHOLE, make_run
from test_prediction import knows, measured

from scalewatt.campaign.run_spec import run_spec
from scalewatt.report.build_report import write_report
from scalewatt.report.report_request import Definition
from scalewatt.results.figures.figure_schema import PREDICTION
from scalewatt.results.tables.frames import write_frame
from scalewatt.scaling.commands import used_by
from scalewatt.scaling.model.fit import SENTENCE
from scalewatt.scaling.planning.plan import PLAN, make_plan
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
    write_report(results, out, Definition("paper", profile="profiles/horeka"))
    page = out.read_text()
    assert 'id="plan"' in page and 'id="plan-sums"' in page
    assert "No run has finished" in page
    assert "Totals of unequal scope are not comparable." in page
    assert SENTENCE in page
    assert "Predicted by the scaling model" in page
    assert "snakemake --profile profiles/horeka plan" in page


# --- finished runs --------------------------------------------------------------------------------


def test_finished_runs_are_found_in_the_results(tmp_path: Path) -> None:
    campaign = small({"known": {**KNOWN, "gpus": [4]}})
    (id_,) = campaign.configurations
    for repeat in (1, 2):
        make_run(tmp_path, WHOLE, spec=run_spec(campaign, id_, repeat))
    used = used_by(campaign, tmp_path)
    assert set(used) == {(id_, 1), (id_, 2)}
    one = used[id_, 1]
    assert one["energy_kwh"] == pytest.approx(0.45) and one["runtime_h"] == pytest.approx(1)
    assert (one["energy_scope"], one["energy_origin"]) == ("gpu+cpu+ram", "measured")
    kinds = [one[f"{kind}_energy_kwh"] for kind in ("gpu", "cpu", "ram")]
    assert kinds == pytest.approx([0.28, 0.15, 0.02])
    (row,) = rows_of(make_plan(campaign, horeka(), forecaster(), used), "campaign")
    assert (row["runs"], row["finished_runs"]) == (3, 2)


def test_a_run_of_another_spec_does_not_count_as_finished(tmp_path: Path) -> None:
    campaign = small({"known": {**KNOWN, "gpus": [4]}})
    (id_,) = campaign.configurations
    make_run(tmp_path, WHOLE, spec=replace(run_spec(campaign, id_, 1), seed=7))
    assert used_by(campaign, tmp_path) == {}


def test_a_simulated_run_has_used_nothing(tmp_path: Path) -> None:
    campaign = small({"known": {**KNOWN, "gpus": [4]}})
    (id_,) = campaign.configurations
    make_run(tmp_path, WHOLE, spec=run_spec(campaign, id_, 1))
    make_run(tmp_path, WHOLE, spec=run_spec(campaign, id_, 2), simulated={"kind": "resnet50"})
    assert set(used_by(campaign, tmp_path)) == {(id_, 1)}


def test_a_run_whose_energy_is_not_accounted_for_does_not_count_yet(tmp_path: Path) -> None:
    campaign = small({"unknown": UNKNOWN})
    (id_,) = campaign.configurations
    files = make_run(tmp_path, WHOLE, spec=run_spec(campaign, id_, 1))
    assert set(used_by(campaign, tmp_path)) == {(id_, 1)}
    files.energy.unlink()
    assert used_by(campaign, tmp_path) == {}


def test_a_campaign_that_has_finished_needs_no_model_of_its_kind(tmp_path: Path) -> None:
    campaign = small({"unknown": UNKNOWN})
    (id_,) = campaign.configurations
    make_run(tmp_path, WHOLE, spec=run_spec(campaign, id_, 1))
    used = used_by(campaign, tmp_path)
    (row,) = rows_of(make_plan(campaign, horeka(), forecaster(), used), "campaign")
    assert (row["runs"], row["finished_runs"], row["unknown_runs"]) == (2, 1, 1)
    assert row["energy_kwh"] == pytest.approx(0.45)
