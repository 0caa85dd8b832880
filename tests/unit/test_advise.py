"""Advice: the least energy within a limit, its saving with its interval, and what cannot be told apart."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.stats
from campaign_files import DEMO, LOCAL, PAPER, edited, write_yaml
from operating_runs import CLOCKS, SERIES, campaign, energy_j, made, train_s

from scalewatt.campaign.campaign_types import Cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.table_requests import runs_definition
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import PROJECT_ROOT
from scalewatt.recordings.series import EPOCHS_COMBINED
from scalewatt.results.build import write_tables
from scalewatt.results.tables.repeat_statistics import summarise
from scalewatt.results.tables.table_schema import SUMMARY, metadata, with_metadata
from scalewatt.scaling.model.model_file import read_model
from scalewatt.scaling.planning.advise import (
    Interval,
    Limits,
    advise,
    check_limits,
    energy_ratio,
    measured_settings,
    ratio_of,
    share_of,
)
from scalewatt.scaling.planning.advise_text import advice_text, settings_of, without_energy
from scalewatt.scaling.planning.forecast import Forecaster
from scalewatt.scaling.planning.plan_table import make_plan

LINE = "resnet50-local-n001-lbs0016-full"


def settings(
    folder: Path, scatter: float = 0.004, clocks: tuple[int, ...] = CLOCKS, repeats: int = 3
) -> list[Any]:
    of = campaign(clocks, repeats=repeats)
    made(folder, of, scatter)
    definition = runs_definition(of, [[run.configuration.id, run.repeat] for run in of.runs()])
    write_tables(
        definition | {"facility": {"pue": 1.0, "carbon_g_per_kwh": 400.0}},
        folder,
        folder / "tables",
    )
    rows = pq.read_table(folder / "tables" / "configurations.parquet").to_pylist()
    return measured_settings(rows, ("gpu_clock_mhz",))


def of_line(found: list[Any], line: str = LINE) -> Any:
    (own,) = [one for one in found if one.title == line]
    return own


@pytest.mark.parametrize("slowdown", [0.0, 0.05, 0.1, 0.3, 0.8])
def test_the_least_energy_within_a_slowdown_is_that_of_the_law(
    tmp_path: Path, slowdown: float
) -> None:
    own = of_line(advise(settings(tmp_path), Limits(slowdown=slowdown)))
    kept = [c for c in CLOCKS if train_s(c, 1) <= (1 + slowdown) * train_s(1410, 1)]
    best = min(kept, key=lambda clock: energy_j(clock, 1))
    assert own.best.point == {"gpu_clock_mhz": best}
    assert own.fastest.point == {"gpu_clock_mhz": 1410}
    if best == 1410:
        assert own.saving is None
        return
    assert own.saving.value == pytest.approx(1 - energy_j(best, 1) / energy_j(1410, 1), rel=1e-3)
    assert own.slowdown.value == pytest.approx(train_s(best, 1) / train_s(1410, 1) - 1, rel=1e-3)
    assert own.saving.low < own.saving.value < own.saving.high
    assert own.saves and not own.tied


def test_a_deadline_and_a_carbon_budget_are_kept_or_none_is_advised(tmp_path: Path) -> None:
    found = settings(tmp_path)
    own = of_line(advise(found, Limits(deadline_h=train_s(1005, 1) / 3600 * 1.001)))
    assert own.best.point == {"gpu_clock_mhz": 1005}
    carbon_kg = energy_j(930, 1) / 3.6e6 * 0.4 * 1.001
    own = of_line(
        advise(found, Limits(carbon_kg=carbon_kg, deadline_h=train_s(930, 1) / 3600 * 1.001))
    )
    assert own.best.point == {"gpu_clock_mhz": 930}
    assert of_line(advise(found, Limits(deadline_h=1e-3))).best is None


def test_what_repeats_cannot_tell_apart_is_no_saving_that_is_promised(tmp_path: Path) -> None:
    own = of_line(advise(settings(tmp_path, scatter=0.2), Limits(slowdown=0.2)))
    assert own.saves is False
    assert own.tied or own.best.point == {"gpu_clock_mhz": 1155}
    assert own.unsure


def test_a_deadline_within_the_fastest_ones_interval_is_not_promised(tmp_path: Path) -> None:
    found = settings(tmp_path, scatter=0.02)
    fastest_h = train_s(1410, 1) / 3600
    own = of_line(advise(found, Limits(deadline_h=fastest_h * 1.01)))
    assert own.best is own.fastest and own.unsure
    assert not of_line(advise(found, Limits(slowdown=0.0))).unsure


def test_settings_of_another_n_are_compared_only_where_any_may_be_taken(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert len(advise(found, Limits(slowdown=0.1))) == 2
    (all_,) = advise(found, Limits(slowdown=0.1), any_setting=True)
    assert all_.settings == 2 * len(CLOCKS)
    assert all_.fastest.configuration.startswith("resnet50-local-n002")


def one_setting(energies: list[float], **more: Any) -> Any:
    """A setting with repeats of these energies in kWh; with `draws` a predicted one."""
    found = summarise(energies)
    row = {"runtime_h": found, "energy_kwh": found}
    columns = {f"{n}_{part}": getattr(s, part) for n, s in row.items() for part in SUMMARY}
    identity = {"configuration": f"c{next(NEW)}", "energy_origin": "measured", "device": "a100"}
    (own,) = measured_settings([identity | columns | {"n_repeats": len(energies)}], ())
    return replace(own, **more)


NEW = itertools.count()


def test_a_ratio_needs_repeats_of_both_and_is_never_below_0() -> None:
    single = one_setting([1.0])
    assert ratio_of(one_setting([1.8, 2.2]), single, "energy_kwh") == Interval(2.0)
    one, other = one_setting([0.5, 3.5]), one_setting([1.0, 3.0])
    found = ratio_of(one, other, "energy_kwh")
    squares = [(np.std(v, ddof=1) / np.mean(v)) ** 2 / 2 for v in ([0.5, 3.5], [1.0, 3.0])]
    freedom = sum(squares) ** 2 / sum(square**2 for square in squares)
    half = scipy.stats.t.ppf(0.975, freedom) * sum(squares) ** 0.5
    assert found.value == pytest.approx(1.0)
    assert (found.low, found.high) == pytest.approx((np.exp(-half), np.exp(half)))


def test_two_predictions_are_compared_within_the_models_draws_and_all_intervals_are_of_95() -> None:
    campaign = load_campaign(PAPER)
    model = PROJECT_ROOT / "reference" / "scaling_model.json"
    forecaster = Forecaster(read_model(model))
    plan = make_plan(campaign, Cluster(name="none", launcher="local", devices={}), forecaster)
    found = settings_of(campaign, Path("nowhere"), plan, Path("profile"))
    by_id = {one.configuration: one for one in found}
    ids = [f"fourcastnet.pretrain-a100-n{n:03d}-lbs0001-full" for n in (16, 64)]
    one, other = (by_id[id_] for id_ in ids)
    draws = [plan.draws(id_)["energy_kwh"] for id_ in ids]
    assert (one.energy_kwh.low, one.energy_kwh.high) == pytest.approx(
        np.quantile(draws[0], (0.025, 0.975))
    )
    ratio = energy_ratio(one, other)
    assert (ratio.low, ratio.high) == pytest.approx(
        np.quantile(draws[0] / draws[1], (0.025, 0.975))
    )
    # Beside repeats a prediction's draws stand for its spread, at the same level.
    measured = one_setting([0.99 * other.energy_kwh.value, 1.01 * other.energy_kwh.value])
    beside = energy_ratio(one, measured)
    of_draws = float(np.var(np.log(draws[0])))
    of_repeats = 0.01**2  # (sd / mean)² / 2, with one degree of freedom
    freedom = (of_draws + of_repeats) ** 2 / of_repeats**2
    half = scipy.stats.t.ppf(0.975, freedom) * (of_draws + of_repeats) ** 0.5
    assert (beside.low, beside.high) == pytest.approx(
        np.array([np.exp(-half), np.exp(half)])
        * np.exp(np.median(np.log(draws[0] / other.energy_kwh.value)))
    )


def test_epochs_of_the_same_executions_have_no_interval_of_their_ratio(tmp_path: Path) -> None:
    one, other = settings(tmp_path)[:2]
    assert energy_ratio(one, other).low is not None
    for setting in (one, other):
        setting.row.update({EPOCHS_COMBINED: True})
    assert energy_ratio(one, other).low is None
    (found,) = advise([one, other], Limits(slowdown=9.0))
    assert "of both one epoch was measured" in advice_text([found], Limits(slowdown=9.0))
    larger = replace(other, line=other.line.replace("lbs0016", "lbs0032"))
    assert energy_ratio(one, larger).low is not None  # other executions


def test_settings_without_a_known_energy_are_named_with_the_reason(tmp_path: Path) -> None:
    settings(tmp_path)
    assert without_energy(tmp_path) is None
    path = tmp_path / "tables" / "configurations.parquet"
    found = pq.read_table(path)
    why = {LINE: "devices without power or utilisation"}
    pq.write_table(with_metadata(found, {**metadata(found), "no_energy": why}), path)
    said = without_energy(tmp_path)
    assert said and said.endswith(f"so not compared: {LINE} (devices without power or utilisation)")


def test_an_estimate_leaves_more_open_than_its_repeats(tmp_path: Path) -> None:
    one, other = settings(tmp_path)[:2]
    before = energy_ratio(one, other)
    for setting in (one, other):
        setting.row.update(
            energy_origin="estimated", energy_low_kwh=0.5 * setting.energy_kwh.value,
            energy_high_kwh=2 * setting.energy_kwh.value, gpu_energy_low_kwh=0.5 * setting.energy_kwh.value,
            gpu_energy_high_kwh=2 * setting.energy_kwh.value,
        )  # fmt: skip
    after = energy_ratio(one, other)
    assert after.low < before.low and after.high > before.high


@pytest.mark.parametrize(
    ("text", "share"), [("10 %", 0.1), ("10%", 0.1), ("7.5", 0.075), ("0", 0.0)]
)
def test_a_slowdown_is_read_as_per_cent(text: str, share: float) -> None:
    assert share_of(text, "--slowdown") == pytest.approx(share)


@pytest.mark.parametrize("text", ["-1", "ten", "1e3", "2000", "10 %%", ""])
def test_another_slowdown_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected per cent"):
        share_of(text, "--slowdown")


@pytest.mark.parametrize(
    "limits", [Limits(), Limits(deadline_h=0.0), Limits(carbon_kg=float("nan"))]
)
def test_limits_that_are_none_are_refused(limits: Limits) -> None:
    with pytest.raises(InputError):
        check_limits(limits)


def command(folder: Path, clocks: tuple[int, ...] = CLOCKS, repeats: int = 3) -> list[str]:
    """The command without a limit, on results that it has."""
    settings(folder / "results" / "demo", clocks=clocks, repeats=repeats)
    keys = {"gpu_clock_mhz": list(clocks), "gpus": [1, 2], "repeats": repeats}
    content = edited({("series", SERIES, key): value for key, value in keys.items()}, DEMO)
    content |= {"series": {SERIES: content["series"][SERIES]}, "figures": {}}
    path = write_yaml(folder / "levers.yaml", content)
    where = {"--profile": LOCAL.parent, "--campaign": path, "--results": folder / "results"}
    return ["advise", *(str(word) for pair in where.items() for word in pair)]


def test_the_command_says_saving_slowdown_and_ties(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, *where = command(tmp_path)
    assert main(["advise", *where, "--slowdown", "35", "%"]) == 0
    said = capsys.readouterr().out
    assert f"{LINE}: 5 settings, within 35 % more time than the fastest" in said
    assert "least energy: GPU clock 930 MHz:" in said and "(3 runs)" in said
    assert "less energy for 34.4 % (" in said
    assert main(["advise", *where, "--slowdown", "35", "--json"]) == 0
    advice = json.loads(capsys.readouterr().out)["advice"]
    assert {one["best"]["gpu_clock_mhz"] for one in advice} == {930.0}
    monkeypatch.chdir(tmp_path)
    assert main(["advise", *where[:-1], "elsewhere", "--slowdown", "10"]) == 1
    said = capsys.readouterr().err
    assert (
        "tables/configurations.parquet: is missing; expected the tables of finished runs, which"
        in said
    )
    assert f"tables --config campaign={tmp_path / 'levers.yaml'}` makes" in said and "…" not in said


def test_a_limit_that_no_setting_keeps_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = command(tmp_path)
    assert main([*own, "--deadline-h", "0.001"]) == 1
    said = capsys.readouterr()
    assert "least energy: none keeps the limit" in said.out and said.err == ""
    assert main([*own, "--deadline-h", "0.001", "--json"]) == 1
    assert {one["best"] for one in json.loads(capsys.readouterr().out)["advice"]} == {None}
    # At two processes, unlike at one.
    assert main([*own, "--deadline-h", str(train_s(1410, 2) / 3600 * 1.01)]) == 1
    said = capsys.readouterr()
    assert "none keeps the limit" in said.out and "the fastest one itself" in said.out


def test_nothing_to_choose_from_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = command(tmp_path, clocks=(1410,))
    assert main([*own, "--slowdown", "10"]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("scalewatt: No training has several settings")
    assert main([*own, "--slowdown", "10", "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out) == {"advice": []} and "No training has several" in said.err


def test_single_runs_are_said_to_have_no_known_spread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = command(tmp_path, repeats=1)
    words = "single runs, without repeats: how far energy and time scatter is not known"
    for percent in ("35", "0"):
        assert main([*own, "--slowdown", percent]) == 0
        assert capsys.readouterr().out.count(words) == 2, "once for each training"


def test_repeats_are_said_nothing_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command(tmp_path), "--slowdown", "35"]) == 0
    assert "single run" not in capsys.readouterr().out


def test_runs_that_are_newer_than_the_tables_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = command(tmp_path)
    assert main([*own, "--slowdown", "35"]) == 0
    assert capsys.readouterr().err == ""
    table = tmp_path / "results" / "demo" / "tables" / "configurations.parquet"
    runs = sorted(tmp_path.glob("results/demo/runs/*/*/provenance.json"))
    for path in runs[:2]:
        os.utime(path, ns=(table.stat().st_mtime_ns + 1,) * 2)
    assert main([*own, "--slowdown", "35", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["advice"]
    assert said.err == (
        f"scalewatt: {table}: is older than 2 finished runs, first {runs[0].parts[-3]} repeat 1; "
        f"`snakemake --profile {LOCAL.parent} tables --config campaign={tmp_path / 'levers.yaml'}` "
        "makes it anew\n"
    )
