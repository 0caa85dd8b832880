"""A campaign's plan: real numbers of the published model, sums, marginals, and what is not known."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from campaign_files import DEMO, PAPER, ROOT, replaced
from plan_files import (
    FACILITY,
    KNOWN,
    UNKNOWN,
    facility_cluster,
    forecaster,
    paper_plan,
    rows_of,
    small,
)
from request_files import horeka, paper
from syrupy.assertion import SnapshotAssertion

from scalewatt.campaign.run_spec import run_spec
from scalewatt.cli import main
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.published import published_configurations
from scalewatt.scaling.model.fit import SENTENCE
from scalewatt.scaling.planning.plan import (
    PLAN,
    make_plan,
    plan_markdown,
    plan_text,
)
from scalewatt.scheduling.job_request import segments, wall_time_min

HOREKA = str(ROOT / "config" / "horeka.yaml")


def whole(plan: pd.DataFrame) -> dict[str, Any]:
    (row,) = rows_of(plan, "campaign")
    return row


def points(plan: pd.DataFrame, series: str) -> dict[int, dict[str, Any]]:
    return {row["gpus"]: row for row in rows_of(plan, "point") if row["series"] == series}


# --- the paper's campaign ------------------------------------------------------------------------


def test_every_run_of_the_paper_is_planned() -> None:
    rows = rows_of(paper_plan(), "run")
    assert len(rows) == 175
    assert {(row["configuration"], row["repeat"]) for row in rows} == {
        (run.configuration.id, run.repeat) for run in paper().runs()
    }
    for row in rows:
        assert row["energy_origin"] == "predicted"
        assert 0 < row["runtime_h_low"] < row["runtime_h"] < row["runtime_h_high"]
        assert 0 < row["energy_kwh_low"] < row["energy_kwh"] < row["energy_kwh_high"]
        assert row["gpu_hours"] == pytest.approx(row["gpus"] * row["runtime_h"])


def test_published_runs_are_planned_as_they_were() -> None:
    rows = {row["configuration"]: row for row in rows_of(paper_plan(), "point")}
    judged = [one for one in records(published_configurations()) if one["configuration"] in rows]
    assert len(judged) >= 25
    held = []
    for one in judged:
        row = rows[one["configuration"]]
        for name in ("runtime_h", "energy_kwh"):
            if one[f"{name}_mean"] is not None:
                assert row[name] == pytest.approx(one[f"{name}_mean"], rel=0.13), one
                held.append(row[f"{name}_low"] <= one[f"{name}_mean"] <= row[f"{name}_high"])
    assert np.mean(held) >= 0.85


def test_the_papers_campaign_takes_about_seven_megawatt_hours() -> None:
    row = whole(paper_plan())
    assert row["runs"] == 175 and row["unknown_runs"] == 0
    assert 6000 < row["energy_kwh_low"] < row["energy_kwh"] < row["energy_kwh_high"] < 8000
    assert row["gpu_hours"] == pytest.approx(29_000, rel=0.05)


def test_fine_tuning_is_marked_as_assumed_wherever_it_is_shown() -> None:
    plan = paper_plan()
    rows = [r for r in rows_of(plan) if r["phase"] == "finetune"]
    assert len(rows) == 5 + 5
    for row in rows:
        assert SENTENCE in row["warnings"]
        for name in ("runtime_h", "energy_kwh"):
            assert row[f"{name}_low"] <= 0.72 * row[name]
            assert row[f"{name}_high"] >= 1.28 * row[name]
    assert SENTENCE in whole(plan)["warnings"]


# --- sums ----------------------------------------------------------------------------------------


def test_the_interval_of_a_sum_is_that_of_joint_draws() -> None:
    plan = make_plan(small({"known": KNOWN}), horeka(), forecaster())
    rows, total = rows_of(plan, "run"), whole(plan)
    assert total["energy_kwh"] == pytest.approx(sum(row["energy_kwh"] for row in rows), rel=0.005)
    halves = [(row["energy_kwh_high"] - row["energy_kwh_low"]) / 2 for row in rows]
    half = (total["energy_kwh_high"] - total["energy_kwh_low"]) / 2
    # Deviations of single runs cancel out, what terms cost does not.
    assert math.hypot(*halves) < half < 0.8 * sum(halves)


# --- what is not known ---------------------------------------------------------------------------


def test_what_the_model_does_not_know_is_null_with_the_reason_and_a_way() -> None:
    plan = make_plan(small({"known": KNOWN, "unknown": UNKNOWN}), horeka(), forecaster())
    rows = [r for r in rows_of(plan) if "precisionbf16" in (r["configuration"] or "")]
    assert len(rows) == 1 + 2
    for row in rows:
        assert row["energy_kwh"] is row["runtime_h"] is row["gpu_hours"] is row["segments"] is None
        assert "is not calibrated for resnet50 on a100, precision=bf16" in row["reason"]
        assert "scalewatt pilot" in row["reason"]
        assert row["wall_time_min"] == horeka().devices["a100"].time_limit_min
    row = whole(plan)
    assert (row["runs"], row["unknown_runs"]) == (11, 2)
    assert row["energy_kwh"] == pytest.approx(
        whole(make_plan(small({"known": KNOWN}), horeka(), forecaster()))["energy_kwh"], rel=1e-9
    )


def test_a_site_without_a_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--campaign", str(DEMO)]) == 1
    said = capsys.readouterr().err
    assert "has no key 'scaling_model', so nothing can be predicted" in said
    assert "scalewatt pilot" in said and said.count("\n") == 1


# --- cost ----------------------------------------------------------------------------------------


def test_carbon_and_cost_follow_from_the_cluster_file() -> None:
    plan = make_plan(small({"known": KNOWN}), facility_cluster(), forecaster())
    for row in rows_of(plan):
        for end in ("", "_low", "_high"):
            kwh = row[f"energy_kwh{end}"]
            assert row[f"facility_energy_kwh{end}"] == pytest.approx(1.5 * kwh)
            assert row[f"carbon_kg{end}"] == pytest.approx(1.5 * kwh * 0.4)
            assert row[f"cost{end}"] == pytest.approx(1.5 * kwh * 0.2)
    text = plan_text(plan)
    assert plan_markdown(plan).count(" EUR ") == 1
    assert "EUR" in text and "PUE 1.5: a test" in text and "Carbon 400 g/kWh: a test" in text


@pytest.mark.parametrize("missing", list(FACILITY))
def test_without_a_factor_what_needs_it_is_null(missing: str) -> None:
    cluster = replaced(facility_cluster(), **{missing: None})
    row = whole(make_plan(small({"known": KNOWN}), cluster, forecaster()))
    null = {
        "pue": ("facility_energy_kwh", "carbon_kg", "cost"),
        "carbon_intensity": ("carbon_kg",),
        "price": ("cost",),
    }[missing]
    for name in ("facility_energy_kwh", "carbon_kg", "cost"):
        assert (row[name] is None) == (name in null)


# --- jobs ----------------------------------------------------------------------------------------


def test_runs_longer_than_the_limit_have_several_segments() -> None:
    plan = points(paper_plan(), "resnet50-full-lbs256")
    assert plan[1]["runtime_h"] > 48
    assert [plan[n]["segments"] for n in (1, 2, 256)] == [2, 1, 1]
    slow = points(paper_plan(), "fourcastnet-pretrain-lbs1")[4]
    usable_h = 48 - 25 / 60
    assert slow["segments"] == math.ceil(slow["runtime_h"] / usable_h) == 4
    for row in rows_of(paper_plan(), "run"):
        one = horeka().devices[row["device"]]
        assert row["segments_low"] <= row["segments"] <= row["segments_high"]
        assert row["segments_high"] == segments(row["runtime_h_high"] * 3600, one, 600)


def test_a_point_has_the_wall_time_that_its_first_job_requests() -> None:
    for row in rows_of(paper_plan(), "point"):
        spec = run_spec(paper(), row["configuration"], 1)
        upper_s = forecaster().upper_runtime_s(spec)
        assert upper_s == pytest.approx(row["runtime_h_high"] * 3600, rel=0.03)
        one = horeka().devices[row["device"]]
        assert row["wall_time_min"] == wall_time_min(spec, one, 0, 600, upper_s) <= 2880
        if row["segments_high"] == 1:
            assert row["wall_time_min"] >= 60 * row["runtime_h_high"] * 0.97


@pytest.mark.parametrize("limit", [60, 20, 5])
def test_a_run_that_no_job_can_train_is_named_and_the_others_are_planned(
    limit: int,
) -> None:
    devices = {name: replaced(one, time_limit_min=limit) for name, one in horeka().devices.items()}
    plan = make_plan(paper(), replaced(horeka(), devices=devices), forecaster())
    rows = {level: rows_of(plan, level) for level in ("point", "run")}
    assert len(rows["run"]) == 175
    assert whole(plan)["energy_kwh"] == pytest.approx(whole(paper_plan())["energy_kwh"])
    for row in (*rows["point"], *rows["run"]):
        stuck = "this run cannot make progress" in (row["warnings"] or "")
        assert row["energy_kwh"] is not None and row["reason"] is None
        assert (row["wall_time_min"] is None) == (row["segments"] is None) == stuck
    count = sum(row["wall_time_min"] is None for row in rows["run"])
    assert count == 175 if limit < 60 else 0 < count < 175
    assert whole(plan)["segments"] is None
    feasible = {row["gpus"] for row in rows["point"] if row["series"] == "resnet50-full-lbs256"}
    assert 256 in feasible
    if limit == 60:
        assert points(plan, "resnet50-full-lbs256")[256]["segments"] == 1
        assert points(plan, "resnet50-full-lbs256")[1]["segments"] is None


# --- marginals -----------------------------------------------------------------------------------


def test_a_point_has_gain_and_cost_of_the_step_from_the_smaller_n() -> None:
    campaign = small({"known": KNOWN})
    found = points(make_plan(campaign, horeka(), forecaster()), "known")
    assert [found[n]["smaller_gpus"] for n in (4, 16, 64)] == [None, 4, 16]
    assert found[4]["speedup"] is found[4]["extra_energy_kwh"] is None
    for smaller, n in ((4, 16), (16, 64)):
        one, other = found[smaller], found[n]
        assert other["speedup"] == pytest.approx(one["runtime_h"] / other["runtime_h"], rel=0.01)
        hours = other["gpu_hours"] - one["gpu_hours"]
        assert other["extra_gpu_hours"] == pytest.approx(hours, abs=0.02 * other["gpu_hours"])
        kwh = other["energy_kwh"] - one["energy_kwh"]
        assert other["extra_energy_kwh"] == pytest.approx(kwh, abs=0.01 * other["energy_kwh"])


def test_points_of_a_dataset_that_grows_are_not_compared() -> None:
    found = points(paper_plan(), "resnet50-scaled-lbs256").values()
    assert {row["speedup"] for row in found} == {row["smaller_gpus"] for row in found} == {None}


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
    assert len(table) == 60 + 175 + 2 + 1
    assert stem.with_suffix(".csv").read_text().count("\n") == 1 + len(table)
    markdown = stem.with_suffix(".md").read_text()
    assert markdown.startswith("## Plan of paper\n")
    assert "| 256 | 256 | 0.455 (0.437–0.473) | 117 |" in markdown


def test_json_has_points_runs_sums_and_what_it_rests_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["--site", HOREKA, "--campaign", str(PAPER), "--deadline-h", "24", "--json"]
    assert main(["plan", *given]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (len(said["points"]), len(said["runs"]), len(said["sums"])) == (60, 175, 3)
    assert said["sources"] == ["reference"]
    assert sum(row["cheapest"] or False for row in said["points"]) == 7
    assert all(row["reason"] is None for row in said["runs"])


def test_the_text_and_the_markdown_of_a_plan_read_as_before(snapshot: SnapshotAssertion) -> None:
    both = {"known": KNOWN, "unknown": {**UNKNOWN, "gpus": [4, 16]}}
    plan = make_plan(small(both), facility_cluster(), forecaster(), 24.0)
    text = plan_text(plan)
    assert max(map(len, text.splitlines())) <= 100
    assert {"text": text, "markdown": plan_markdown(plan)} == snapshot
