"""Advice: the finished settings of least energy within a limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from campaign_files import DEMO, LOCAL, edited, write_yaml
from operating_runs import CLOCKS, SERIES, campaign, energy_j, made, train_s

from scalewatt.campaign.table_definitions import runs_definition
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.results.build import write_runs
from scalewatt.scaling.advise import advise, read_settings

LINE = "resnet50-local-n001-lbs0016-full"


def settings(folder: Path, clocks: tuple[int, ...] = CLOCKS) -> pd.DataFrame:
    of = campaign(clocks, repeats=3)
    made(folder, of, 0.004)
    definition = runs_definition(of, [[*run] for run in of.runs()])
    write_runs(definition, folder, folder / "tables")
    return read_settings(folder)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Settings of a campaign with three repeats at each clock."""
    return settings(tmp_path_factory.mktemp("settings"))


def of_line(kept: pd.DataFrame) -> pd.DataFrame:
    return kept[kept["training"] == LINE]


def clocks_of(kept: pd.DataFrame) -> list[int]:
    return [int(clock) for clock in kept["configuration"].str.extract(r"gpuclock(\d+)mhz")[0]]


@pytest.mark.parametrize("slowdown", [0.0, 0.05, 0.1, 0.3, 0.8])
def test_the_least_energy_within_a_slowdown_is_that_of_the_law(
    known: pd.DataFrame, slowdown: float
) -> None:
    arguments = of_line(advise(known, slowdown=slowdown))
    kept = [c for c in CLOCKS if train_s(c, 1) <= (1 + slowdown) * train_s(1410, 1)]
    assert clocks_of(arguments) == sorted(kept, key=lambda clock: energy_j(clock, 1))
    best = arguments.iloc[0]
    saved = 1 - energy_j(clocks_of(arguments)[0], 1) / energy_j(1410, 1)
    slower = train_s(clocks_of(arguments)[0], 1) / train_s(1410, 1) - 1
    assert best["saved"] == pytest.approx(saved, rel=1e-3)
    assert best["slower"] == pytest.approx(slower, rel=1e-3)
    assert best["energy_kwh_low"] < best["energy_kwh_mean"] < best["energy_kwh_high"]


def test_a_deadline_is_kept_or_none_is_advised(known: pd.DataFrame) -> None:
    deadline_h = train_s(1005, 1) / 3600 * 1.001
    assert clocks_of(of_line(advise(known, deadline_h=deadline_h)))[0] == 1005
    assert advise(known, deadline_h=1e-3).empty


@pytest.mark.parametrize("lacks", [{"energy_kwh_mean": None}, {"energy_scope": "gpu"}])
def test_the_fastest_setting_counts_whatever_is_known_of_its_energy(
    known: pd.DataFrame, lacks: dict[str, Any]
) -> None:
    """Energies of another scope than its own are no share of it."""
    changed = known.copy()
    is_fastest = changed["configuration"].str.contains("gpuclock1410mhz")
    for name, value in lacks.items():
        changed.loc[is_fastest, name] = value
    kept = of_line(advise(changed, slowdown=0.1))
    assert sorted(clocks_of(kept)) == [c for c in CLOCKS if train_s(c, 1) <= 1.1 * train_s(1410, 1)]
    assert kept.loc[~is_fastest, "saved"].isna().all()


@pytest.mark.parametrize("limits", [{}, {"slowdown": -0.1}, {"deadline_h": float("nan")}])
def test_limits_that_are_none_are_refused(known: pd.DataFrame, limits: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected"):
        advise(known, **limits)


def command(folder: Path, clocks: tuple[int, ...] = CLOCKS) -> list[str]:
    """The command without a limit, on results that it has."""
    settings(folder / "results" / "demo", clocks)
    content = edited({}, DEMO)
    entry = {**content["series"][SERIES], "gpus": [1, 2], "repeats": 3}
    series = {f"clock-{clock}": {**entry, "gpu_clock_mhz": clock} for clock in clocks}
    content |= {"series": series, "figures": {}}
    path = write_yaml(folder / "levers.yaml", content)
    where = {
        "--site": LOCAL,
        "--campaign": path,
        "--results": folder / "results",
    }
    return ["advise", *(str(word) for pair in where.items() for word in pair)]


def test_the_command_prints_settings_and_ends_with_1_where_none_keeps_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = command(tmp_path)
    assert main([*arguments, "--slowdown", "35"]) == 0
    printed = capsys.readouterr().out
    assert LINE in printed and "gpuclock930mhz" in printed and "34.4%" in printed
    assert main([*arguments, "--slowdown", "35", "--json"]) == 0
    advice = json.loads(capsys.readouterr().out)["advice"]
    assert "gpuclock930mhz" in advice[0]["configuration"]
    assert main([*arguments, "--deadline-h", "0.001"]) == 1
    assert "no setting keeps the limits" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert main([*arguments[:-1], "elsewhere", "--slowdown", "10"]) == 1
    assert "tables/configurations.parquet: does not exist" in capsys.readouterr().err


def test_nothing_to_choose_from_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command(tmp_path, clocks=(1410,))
    assert main([*arguments, "--slowdown", "10", "--json"]) == 1
    assert "no training has several settings" in capsys.readouterr().err
