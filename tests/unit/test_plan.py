"""A campaign's plan: real numbers of the published model, sums, marginals, and what is not known."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from campaign_files import DEMO, PAPER, ROOT, replaced
from plan_files import (
    KNOWN,
    UNKNOWN,
    facility_cluster,
    paper_plan,
    rows_of,
    scaling_model,
    small,
    without_energies,
)
from request_files import horeka, paper
from syrupy.assertion import SnapshotAssertion

from scalewatt.campaign.run_spec import run_spec
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.report.build_report import write_report
from scalewatt.report.definition import Definition
from scalewatt.results.tables.frames import records, write_frame
from scalewatt.results.tables.published import published_configurations
from scalewatt.scaling.model import SENTENCE
from scalewatt.scaling.plan import PLAN, make_plan, plan_text
from scalewatt.scheduling.job_request import usable_s, wall_time_min

HOREKA = str(ROOT / "config" / "horeka.yaml")


def whole(plan: pd.DataFrame) -> dict[str, Any]:
    (row,) = rows_of(plan, "campaign")
    return row


def points(plan: pd.DataFrame, series: str) -> dict[int, dict[str, Any]]:
    return {row["gpus"]: row for row in rows_of(plan, "point") if row["series"] == series}


# --- the paper's campaign ------------------------------------------------------------------------


def test_published_runs_are_planned_as_they_were() -> None:
    rows = {row["configuration"]: row for row in rows_of(paper_plan(), "point")}
    judged = [p for p in records(published_configurations()) if p["configuration"] in rows]
    assert len(judged) >= 25
    held = []
    for published in judged:
        row = rows[published["configuration"]]
        assert row["energy_origin"] == "predicted"
        assert row["gpu_hours"] == pytest.approx(row["gpus"] * row["runtime_h"])
        for name in ("runtime_h", "energy_kwh"):
            if (mean := published[f"{name}_mean"]) is not None:
                assert row[name] == pytest.approx(mean, rel=0.13), published
                held.append(row[f"{name}_low"] <= mean <= row[f"{name}_high"])
    assert np.mean(held) >= 0.85


def test_the_papers_campaign_takes_about_seven_megawatt_hours() -> None:
    row = whole(paper_plan())
    assert row["runs"] == 175 and row["unknown_runs"] == 0
    assert 6000 < row["energy_kwh_low"] < row["energy_kwh"] < row["energy_kwh_high"] < 8000
    assert row["gpu_hours"] == pytest.approx(29_000, rel=0.05)


# --- sums ----------------------------------------------------------------------------------------


def test_the_interval_of_a_sum_is_that_of_joint_draws() -> None:
    plan = make_plan(small({"known": KNOWN}), horeka(), scaling_model())
    rows, total = 3 * rows_of(plan, "point"), whole(plan)
    assert total["runs"] == 9
    assert total["energy_kwh"] == pytest.approx(sum(row["energy_kwh"] for row in rows), rel=0.005)
    halves = [(row["energy_kwh_high"] - row["energy_kwh_low"]) / 2 for row in rows]
    half = (total["energy_kwh_high"] - total["energy_kwh_low"]) / 2
    # Deviations of single runs cancel out, what terms cost does not.
    assert math.hypot(*halves) < half < 0.8 * sum(halves)


# --- what is not known ---------------------------------------------------------------------------


def test_what_the_model_does_not_know_is_null_with_the_reason_and_a_way() -> None:
    plan = make_plan(small({"known": KNOWN, "unknown": UNKNOWN}), horeka(), scaling_model())
    rows = [r for r in rows_of(plan) if "precisionbf16" in (r["configuration"] or "")]
    assert len(rows) == 1
    for row in rows:
        assert row["energy_kwh"] is row["runtime_h"] is row["gpu_hours"] is row["segments"] is None
        assert "is not calibrated for resnet50 on a100, precision=bf16" in row["reason"]
        assert "scalewatt pilot" in row["reason"]
        assert row["wall_time_min"] == horeka().devices["a100"].time_limit_min
    row = whole(plan)
    assert (row["runs"], row["unknown_runs"]) == (11, 2)
    assert row["energy_kwh"] == pytest.approx(
        whole(make_plan(small({"known": KNOWN}), horeka(), scaling_model()))["energy_kwh"], rel=1e-9
    )


def test_a_site_without_a_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--campaign", str(DEMO)]) == 1
    error = capsys.readouterr().err
    assert "has no key 'scaling_model', so nothing can be predicted" in error
    assert "scalewatt pilot" in error and error.count("\n") == 1


# --- cost ----------------------------------------------------------------------------------------


def test_carbon_and_cost_follow_from_the_cluster_file() -> None:
    plan = make_plan(small({"known": KNOWN}), facility_cluster(), scaling_model())
    for row in rows_of(plan):
        for end in ("", "_low", "_high"):
            kwh = row[f"energy_kwh{end}"]
            assert row[f"facility_energy_kwh{end}"] == pytest.approx(1.5 * kwh)
            assert row[f"carbon_kg{end}"] == pytest.approx(1.5 * kwh * 0.4)
            assert row[f"cost{end}"] == pytest.approx(1.5 * kwh * 0.2)
    text = plan_text(plan)
    assert "cost, EUR" in text and "PUE 1.5: a test" in text and "Carbon 400 g/kWh: a test" in text


# --- jobs ----------------------------------------------------------------------------------------


def test_runs_longer_than_the_limit_have_several_segments() -> None:
    plan = points(paper_plan(), "resnet50-full-lbs256")
    assert plan[1]["runtime_h"] > 48
    assert [plan[n]["segments"] for n in (1, 2, 256)] == [2, 1, 1]
    slow = points(paper_plan(), "fourcastnet-pretrain-lbs1")[4]
    usable_h = 48 - 25 / 60
    assert slow["segments"] == math.ceil(slow["runtime_h"] / usable_h) == 4
    for row in rows_of(paper_plan(), "point"):
        device = horeka().devices[row["device"]]
        assert row["segments_low"] <= row["segments"] <= row["segments_high"]
        jobs = row["runtime_h_high"] * 3600 / usable_s(device, 600)
        assert row["segments_high"] == max(1, math.ceil(jobs))


def test_a_point_has_the_wall_time_that_its_first_job_requests() -> None:
    for row in rows_of(paper_plan(), "point"):
        spec = run_spec(paper(), row["configuration"], 1)
        upper_s = scaling_model().upper_runtime_s(spec)
        assert upper_s == pytest.approx(row["runtime_h_high"] * 3600, rel=0.03)
        device = horeka().devices[row["device"]]
        assert row["wall_time_min"] == wall_time_min(spec, device, 0, 600, upper_s) <= 2880
        if row["segments_high"] == 1:
            assert row["wall_time_min"] >= 60 * row["runtime_h_high"] * 0.97


@pytest.mark.parametrize("limit", [60, 5])
def test_a_run_that_no_job_can_train_is_named_and_the_others_are_planned(
    limit: int,
) -> None:
    devices = {
        name: replaced(device, time_limit_min=limit) for name, device in horeka().devices.items()
    }
    plan = make_plan(paper(), replaced(horeka(), devices=devices), scaling_model())
    rows = rows_of(plan, "point")
    assert whole(plan)["energy_kwh"] == pytest.approx(whole(paper_plan())["energy_kwh"])
    for row in rows:
        stuck = "this run cannot make progress" in (row["warnings"] or "")
        assert row["energy_kwh"] is not None and row["reason"] is None
        assert (row["wall_time_min"] is None) == (row["segments"] is None) == stuck
        assert row["cheapest"] is None or not stuck
    count = sum(row["wall_time_min"] is None for row in rows)
    assert count == len(rows) if limit < 60 else 0 < count < len(rows)
    assert whole(plan)["segments"] is None
    if limit == 60:
        assert points(plan, "resnet50-full-lbs256")[256]["segments"] == 1
        assert points(plan, "resnet50-full-lbs256")[1]["segments"] is None


# --- marginals -----------------------------------------------------------------------------------


def test_points_of_a_dataset_that_grows_are_not_compared_and_none_is_recommended() -> None:
    rows = points(paper_plan(), "resnet50-scaled-lbs256").values()
    assert {row["speedup"] for row in rows} == {row["smaller_gpus"] for row in rows} == {None}
    assert {row["cheapest"] for row in rows} == {None}


def test_how_long_a_training_to_a_target_takes_is_not_predicted() -> None:
    spec = run_spec(paper(), "resnet50-a100-n004-lbs0256-full", 1)
    with pytest.raises(InputError, match="trains to a target, and how many samples that takes"):
        scaling_model().find_for(replace(spec, protocol="target"))


# --- the cheapest n ------------------------------------------------------------------------------

LBS1 = "fourcastnet-pretrain-lbs1"


def cheapest(plan: pd.DataFrame, series: str) -> list[int]:
    return [n for n, row in points(plan, series).items() if row["cheapest"]]


def within(deadline_h: float) -> pd.DataFrame:
    return make_plan(paper(), horeka(), scaling_model(), deadline_h=deadline_h)


def test_the_cheapest_n_that_meets_a_deadline_is_recommended() -> None:
    plan = within(24)
    assert cheapest(plan, LBS1) == [64]
    rows = points(paper_plan(), LBS1)
    assert rows[64]["runtime_h_high"] < 24 < rows[32]["runtime_h"]
    assert rows[64]["energy_kwh"] < rows[128]["energy_kwh"] < rows[256]["energy_kwh"]
    assert "in 24 h" in plan.attrs["notes"][0]


def test_where_the_median_meets_it_barely_being_sure_takes_more() -> None:
    assert cheapest(within(points(paper_plan(), LBS1)[32]["runtime_h"] * 1.01), LBS1) == [64]


def test_without_energies_no_n_is_the_cheapest() -> None:
    plan = make_plan(small({"known": KNOWN}), horeka(), without_energies())
    assert cheapest(plan, "known") == []
    assert {row["warnings"] for row in rows_of(plan, "point")} == {"its energy is not known"}


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_that_is_no_positive_number_is_refused(value: float) -> None:
    with pytest.raises(InputError, match=r"--deadline-h: .*; expected a number above 0"):
        within(value)


# --- files and words -----------------------------------------------------------------------------


def test_the_command_writes_the_table_as_parquet_csv_and_markdown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stem = tmp_path / "tables" / "plan"
    code = main(["plan", "--site", HOREKA, "--campaign", str(PAPER), "--out", str(stem)])
    assert code == 0
    assert "168" in capsys.readouterr().out
    table = pq.read_table(stem.with_suffix(".parquet"))
    assert table.schema.equals(PLAN)
    assert len(table) == 60 + 2 + 1
    assert stem.with_suffix(".csv").read_text().count("\n") == 1 + len(table)
    markdown = stem.with_suffix(".md").read_text()
    assert markdown.startswith("## Plan of paper\n")
    assert re.search(r"^ +256 +256 +0\.455 \(0\.437–0\.473\) +117 ", markdown, re.MULTILINE)


def test_the_text_of_a_plan_reads_as_before(snapshot: SnapshotAssertion) -> None:
    both = {"known": KNOWN, "unknown": {**UNKNOWN, "gpus": [4, 16]}}
    plan = make_plan(small(both), facility_cluster(), scaling_model(), 24.0)
    text = plan_text(plan)
    assert max(map(len, text.splitlines())) <= 100
    assert text == snapshot


def test_a_plan_is_in_the_report_before_any_run(tmp_path: Path) -> None:
    write_frame(paper_plan(), tmp_path / "tables" / "plan.parquet", PLAN)
    out = tmp_path / "report.html"
    write_report(tmp_path, out, Definition("paper"))
    page = out.read_text()
    assert 'id="plan"' in page and 'id="plan-sums"' in page
    assert "No run has finished" in page
    assert "Totals of unequal scope are not comparable." in page
    assert SENTENCE in page
    assert "Predicted by the scaling model" in page
