"""A campaign's plan: real numbers of the published model, sums, marginals, and what is not known."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from campaign_files import DEMO, PAPER, ROOT, replaced
from hypothesis import given
from hypothesis import strategies as st
from plan_files import (
    FACILITY,
    KNOWN,
    MODEL,
    UNKNOWN,
    facility_cluster,
    forecaster,
    paper_plan,
    rows_of,
    small,
    without_energies,
)
from request_files import horeka, paper
from syrupy.assertion import SnapshotAssertion

from scalewatt.campaign.run_spec import run_spec
from scalewatt.cli import main
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.published import published_configurations
from scalewatt.scaling.model.calibrate import KindModel
from scalewatt.scaling.model.kind_model import SENTENCE
from scalewatt.scaling.model.model_file import read_model
from scalewatt.scaling.model.predict import Predicted, estimate
from scalewatt.scaling.planning.forecast import Forecaster
from scalewatt.scaling.planning.marginal import beside
from scalewatt.scaling.planning.plan import PlannedRun, Planner, added
from scalewatt.scaling.planning.plan_numbers import short
from scalewatt.scaling.planning.plan_table import PLAN, Plan, make_plan
from scalewatt.scaling.planning.plan_text import plan_markdown, plan_text
from scalewatt.scheduling.job_request import segments, wall_time_min

HOREKA = str(ROOT / "config" / "horeka.yaml")


def whole(plan: Plan) -> dict[str, Any]:
    (row,) = rows_of(plan, "campaign")
    return row


def points(plan: Plan, series: str) -> dict[int, dict[str, Any]]:
    return {row["gpus"]: row for row in rows_of(plan, "point") if row["series"] == series}


def used(
    hours: float,
    kwh: float | None,
    kinds: Mapping[str, float | None],
    *of_energy: str | None,
    repeat: int = 1,
) -> dict[str, Any]:
    """The row of a finished run; `of_energy`: scope and origin."""
    row = {f"{kind}_energy_kwh": own for kind, own in kinds.items()}
    row |= dict(zip(("energy_scope", "energy_origin"), of_energy, strict=True))
    return {**row, "runtime_s": hours * 3600, "energy_kwh": kwh, "repeat": repeat}


def planned_runs() -> list[PlannedRun]:
    return Planner(paper(), horeka(), forecaster(), Facility()).runs()


# --- the paper's campaign ------------------------------------------------------------------------


def test_every_run_of_the_paper_is_planned() -> None:
    rows = rows_of(paper_plan(), "run")
    assert len(rows) == 175
    assert {(row["configuration"], row["repeat"]) for row in rows} == {
        (run.configuration.id, run.repeat) for run in paper().runs()
    }
    for row in rows:
        assert row["basis"] == "predicted"
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
    assert row["runs"] == 175 and row["unknown_runs"] == row["finished_runs"] == 0
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
    rows = [r for r in rows_of(paper_plan(), "run") if r["model"] == "resnet50"]
    runs = [run for run in planned_runs() if run.configuration.model == "resnet50"]
    total = added(runs)
    found = estimate(total["energy_kwh"])
    assert found.median == pytest.approx(sum(row["energy_kwh"] for row in rows), rel=0.005)
    halves = [(row["energy_kwh_high"] - row["energy_kwh_low"]) / 2 for row in rows]
    half = (found.high - found.low) / 2
    # Deviations of single runs cancel out, what terms cost does not.
    assert math.hypot(*halves) < half < 0.6 * sum(halves)


def test_repeats_share_what_terms_cost_and_deviate_each_for_itself() -> None:
    id_ = "resnet50-a100-n064-lbs0128-full"
    own = [run.amounts for run in planned_runs() if run.configuration.id == id_]
    one, other = (one["energy_kwh"] for one in own[:2])
    correlation = np.corrcoef(one, other)[0, 1]
    assert 0.1 < correlation < 0.9
    assert not np.array_equal(one, other)


def test_a_finished_run_counts_with_what_it_used() -> None:
    campaign = small({"known": KNOWN})
    ids = list(campaign.configurations)
    kinds = {"gpu": 20.0, "cpu": 8.0, "ram": 2.0}
    rows_used = {(ids[0], 1): used(25.0, 30.0, kinds, "gpu+cpu+ram", "measured")}
    plan = make_plan(campaign, horeka(), forecaster(), rows_used)
    finished = next(r for r in rows_of(plan, "run") if r["basis"] == "finished")
    assert (finished["configuration"], finished["repeat"]) == (ids[0], 1)
    assert finished["energy_kwh"] == finished["energy_kwh_low"] == finished["energy_kwh_high"] == 30
    assert finished["runtime_h"] == 25 and finished["gpu_energy_kwh"] == 20
    before = whole(make_plan(campaign, horeka(), forecaster()))
    row = whole(plan)
    assert row["finished_runs"] == 1 and row["basis"] == "mixed"
    usual = next(r for r in rows_of(plan, "run") if r["repeat"] == 2)["energy_kwh"]
    assert row["energy_kwh"] - before["energy_kwh"] == pytest.approx(30 - usual, abs=1.0)
    assert row["gpu_energy_kwh"] is None, "of the others it is not known"


def test_an_energy_that_was_not_found_out_is_predicted_for_the_time_it_took() -> None:
    campaign = small({"known": {**KNOWN, "gpus": [4]}})
    (id_,) = campaign.configurations
    none = dict.fromkeys(("gpu", "cpu", "ram"))
    plans = [
        make_plan(campaign, horeka(), forecaster(), {(id_, 1): used(hours, None, none, None, None)})
        for hours in (20.0, 40.0)
    ]
    short, long = (next(r for r in rows_of(plan, "run") if r["repeat"] == 1) for plan in plans)
    assert short["basis"] == long["basis"] == "mixed"
    assert short["runtime_h_low"] == short["runtime_h_high"] == 20
    assert short["energy_kwh"] < long["energy_kwh"] < 2 * short["energy_kwh"]
    assert "its energy is not known; predicted" in short["warnings"]


# --- origins -------------------------------------------------------------------------------------


def test_a_finished_runs_energy_keeps_its_origin_and_a_sum_names_several() -> None:
    campaign = small({"known": {**KNOWN, "gpus": [4]}})
    (id_,) = campaign.configurations
    kinds = {"gpu": 20.0, "cpu": 8.0, "ram": 2.0}
    rows_used = {
        (id_, 1): used(25.0, 30.0, kinds, "gpu+cpu+ram", "estimated"),
        (id_, 2): used(25.0, 30.0, kinds, "gpu+cpu+ram", "measured", repeat=2),
    }
    plan = make_plan(campaign, horeka(), forecaster(), rows_used)
    runs = rows_of(plan, "run")
    assert [row["energy_origin"] for row in runs] == ["estimated", "measured", "predicted"]
    assert whole(plan)["energy_origin"] == "mixed"
    said = "over energies of several origins (runs: estimated 1, measured 1, predicted 1)"
    assert said in whole(plan)["warnings"]
    alike = {key: one | {"energy_origin": "estimated"} for key, one in rows_used.items()}
    alike[id_, 3] = rows_used[id_, 1] | {"energy_origin": "estimated", "repeat": 3}
    plan = make_plan(campaign, horeka(), forecaster(), alike)
    assert whole(plan)["energy_origin"] == "estimated"
    assert whole(plan)["warnings"] is None


# --- what is not known ---------------------------------------------------------------------------


def test_what_the_model_does_not_know_is_null_with_the_reason_and_a_way() -> None:
    plan = make_plan(small({"known": KNOWN, "unknown": UNKNOWN}), horeka(), forecaster())
    rows = [r for r in rows_of(plan) if "precisionbf16" in (r["configuration"] or "")]
    assert len(rows) == 1 + 2
    campaign = small({"unknown": UNKNOWN})
    (id_,) = campaign.configurations
    by_step_time = wall_time_min(run_spec(campaign, id_, 1), horeka().devices["a100"])
    for row in rows:
        assert row["energy_kwh"] is row["runtime_h"] is row["gpu_hours"] is row["segments"] is None
        assert "is not calibrated for resnet50 on a100, precision=bf16" in row["reason"]
        assert "scalewatt pilot" in row["reason"]
        assert row["wall_time_min"] == by_step_time
    row = whole(plan)
    assert (row["runs"], row["unknown_runs"]) == (11, 2)
    assert "missing, as they cannot be predicted (runs: 2)" in row["warnings"]
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
    assert plan_markdown(plan).count(" EUR ") == 1 and " EUR" in text
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


def budget_note(budget: float, of: Forecaster, series: dict[str, Any] | None = None) -> str:
    campaign = replace(small(series or {"known": KNOWN}), energy_budget_kwh=budget)
    (note,) = (one for one in make_plan(campaign, horeka(), of).notes if "budget_kwh" in one)
    return note


def test_the_probability_that_an_energy_budget_is_enough_is_told() -> None:
    row = whole(make_plan(small({"known": KNOWN}), horeka(), forecaster()))
    for budget, probabilities in (
        (row["energy_kwh_low"], range(4, 7)),
        (row["energy_kwh"], range(49, 52)),
        (row["energy_kwh_high"], range(94, 97)),
        (50.0, [0]),
        (5000.0, [100]),
    ):
        said = re.search(r"probability of (\d+) %\.$", budget_note(budget, forecaster()))
        assert said is not None and int(said[1]) in probabilities
    found = read_model(MODEL)
    kinds = tuple(replace(one, origin="estimated") for one in found.kinds)
    estimated = Forecaster(replace(found, kinds=kinds))
    assert "of 0 to 100 %, by estimates" in budget_note(row["energy_kwh"], estimated)
    both = {"known": KNOWN, "unknown": UNKNOWN}
    assert "not in it: 2." in budget_note(400.0, forecaster(), both)
    assert budget_note(400.0, without_energies()).endswith("no energy is known.")


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
    assert f"wall-time limit allows (runs: {count})" in whole(plan)["warnings"]
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
        saved = one["runtime_h"] - other["runtime_h"]
        expected = other["extra_energy_kwh"] / saved
        assert other["extra_kwh_per_hour_saved"] == pytest.approx(expected, rel=0.02)
    assert found[64]["extra_kwh_per_hour_saved"] > found[16]["extra_kwh_per_hour_saved"]


def drawn(*hours: float, kwh: float) -> Predicted:
    """Draws of one run each."""
    energy = np.full((len(hours), 1), kwh * 3.6e6)
    return Predicted(np.array(hours)[:, None] * 3600, {"total": energy})


def test_where_perhaps_no_hour_is_saved_its_price_has_no_upper_end() -> None:
    small_h = [10.0] * 100

    def beside_it(slower: int) -> dict[str, Any]:
        large_h = [8.0] * (100 - slower) + [11.0] * slower
        return beside(8, drawn(*large_h, kwh=14), 4, drawn(*small_h, kwh=10))

    name = "extra_kwh_per_hour_saved"
    ends = [f"{name}_low", name, f"{name}_high"]
    assert [beside_it(3)[end] for end in ends] == pytest.approx([2, 2, 2])
    assert [beside_it(30)[end] for end in ends] == [pytest.approx(2), pytest.approx(2), None]
    assert [beside_it(60)[end] for end in ends] == [pytest.approx(2), None, None]
    assert [beside_it(100)[end] for end in ends] == [None] * 3


# --- from one n to another ------------------------------------------------------------------------


def test_from_16_to_64_gpus_gives_gain_and_cost_of_the_papers_series() -> None:
    plan = make_plan(paper(), horeka(), forecaster(), step=(16, 64))
    found = {row["series"]: row for row in records(plan.steps)}
    assert set(found) == {
        name for name, series in paper().series.items() if {16, 64} <= set(series.points)
    }
    row, at = found["fourcastnet-pretrain-lbs1"], points(paper_plan(), "fourcastnet-pretrain-lbs1")
    assert row["smaller_runtime_h"] == at[16]["runtime_h"]
    assert row["runtime_h"] == at[64]["runtime_h"]
    assert row["speedup"] == pytest.approx(at[32]["speedup"] * at[64]["speedup"], rel=0.02)
    for name in ("extra_gpu_hours", "extra_energy_kwh"):
        assert row[f"{name}_low"] < row[name] < row[f"{name}_high"]
        both = at[32][name] + at[64][name]
        assert row[name] == pytest.approx(both, rel=0.05)
    saved_h = at[16]["runtime_h"] - at[64]["runtime_h"]
    per_hour = row["extra_energy_kwh"] / saved_h
    assert row["extra_kwh_per_hour_saved"] == pytest.approx(per_hour, rel=0.05)
    grows = found["resnet50-scaled-lbs256"]
    assert "its dataset grows with n" in grows["reason"] and grows["speedup"] is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--from", "16"], "--from, --to: expected both, or none"),
        (["--to", "16"], "--from, --to: expected both, or none"),
        (["--from", "64", "--to", "16"], "expected a larger n after a smaller one"),
        (["--from", "0", "--to", "16"], "expected a larger n after a smaller one"),
        (["--from", "16", "--to", "48"], "has both; its series have n = 1, 2, 4, 8, 16, 32, 64"),
    ],
)
def test_a_step_that_no_series_has_is_refused(
    capsys: pytest.CaptureFixture[str], given: list[str], words: str
) -> None:
    assert main(["plan", "--site", HOREKA, "--campaign", str(PAPER), *given]) == 1
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


# --- files and words -----------------------------------------------------------------------------


@given(st.floats(-1e15, 1e15) | st.integers(-(10**9), 10**9))
def test_a_number_of_the_terminal_table_is_short_and_right(value: float) -> None:
    text = short(value)
    assert len(text) <= 6 + (value < 0)
    factor = {"k": 1e3, "M": 1e6}.get(text[-1], 1.0)
    digits = 0.5 if abs(value) >= 1e9 or abs(value) < 0.01 else 0.006
    assert float(text.rstrip("kM")) * factor == pytest.approx(value, rel=digits, abs=1e-300)


def test_the_plan_has_energies_by_device_kind_where_the_model_has() -> None:
    shipped = forecaster().model
    shares = {"gpu": 0.7, "cpu": 0.25, "ram": 0.05}

    def in_kinds(model: KindModel) -> KindModel:
        (total,) = model.energy.values()
        parts = {kind: replace(total, terms=total.terms * part) for kind, part in shares.items()}
        return replace(model, energy=parts)

    model = replace(shipped, kinds=tuple(map(in_kinds, shipped.kinds)))
    plan = make_plan(small({"known": KNOWN}), horeka(), Forecaster(model))
    for row in rows_of(plan):
        for kind, part in shares.items():
            assert row[f"{kind}_energy_kwh"] == pytest.approx(part * row["energy_kwh"])
            assert row[f"{kind}_energy_kwh_low"] < row[f"{kind}_energy_kwh"]
    assert "kWh of GPUs" in plan_text(plan)


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
    assert markdown.startswith("# Plan of paper\n")
    assert "| resnet50-full-lbs256 | 256 | 256 |" in markdown
    assert {line.count("|") for line in markdown.splitlines() if line.startswith("| resnet")} == {
        12
    }


def test_json_has_points_runs_sums_and_what_it_rests_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["--site", HOREKA, "--campaign", str(PAPER), "--deadline-h", "24", "--json"]
    assert main(["plan", *given]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (len(said["points"]), len(said["runs"]), len(said["sums"])) == (60, 175, 3)
    assert said["sources"] == ["reference"]
    assert len(said["recommended"]) == 13
    assert all(row["reason"] is None for row in said["runs"])


def test_the_text_and_the_markdown_of_a_plan_read_as_before(snapshot: SnapshotAssertion) -> None:
    both = {"known": KNOWN, "unknown": {**UNKNOWN, "gpus": [4, 16]}}
    plan = make_plan(small(both), facility_cluster(), forecaster(), None, 24.0, 200.0, (4, 16))
    text = plan_text(plan)
    assert max(map(len, text.splitlines())) <= 100
    assert {"text": text, "markdown": plan_markdown(plan)} == snapshot
