"""Clocks and power limits: in campaigns, specs and cluster files, in flags, tables and the figure."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from campaign_files import DEMO, LOCAL, edited, write_yaml
from energy_files import telemetry_block
from figure_tables import draw
from operating_runs import (
    CLOCKS,
    FIGURE,
    GPUS,
    SAMPLES,
    SERIES,
    campaign,
    energy_j,
    made,
    table,
    train_s,
)

from scalewatt.campaign.cluster import known_devices, load_cluster, parse_cluster
from scalewatt.campaign.load import check_devices, expand, load_campaign
from scalewatt.campaign.operating_points import commands_of, launcher_options, without_point
from scalewatt.campaign.run_spec import parse_spec, run_spec
from scalewatt.campaign.table_requests import table_definition
from scalewatt.common.errors import InputError
from scalewatt.common.yaml_files import read_yaml
from scalewatt.energies.checks import (
    setting_flags,
    state_flags,
)
from scalewatt.figures.draw_figure import SUFFIXES, draw_figure
from scalewatt.recordings.block import Block
from scalewatt.recordings.terms import Flag
from scalewatt.results.build import write_tables
from scalewatt.scaling.planning.pilot import make_pilot

# --- campaigns ------------------------------------------------------------------------------------


def test_a_list_gives_a_series_for_each_value_and_figures_show_all_of_them() -> None:
    made_ = campaign()
    assert list(made_.series) == [f"{SERIES}-gpuclock{clock}mhz" for clock in CLOCKS]
    assert made_.figures["operating_points"]["series"] == list(made_.series)
    assert [len(series.points) for series in made_.series.values()] == [len(GPUS)] * len(CLOCKS)
    first = next(iter(made_.series.values()))
    assert first.label == "LBS 16, GPU clock 705 MHz"
    (id_, *_) = first.points.values()
    assert id_ == "resnet50-local-n001-lbs0016-full-gpuclock705mhz"
    assert without_point(id_) == "resnet50-local-n001-lbs0016-full"


def test_lists_of_several_levers_are_combined_and_a_value_stays_one_series() -> None:
    both = campaign((705, 1410), gpu_power_limit_w=[250, 300], cpu_clock_mhz=2000)
    assert len(both.series) == 4
    points = {
        tuple(c.operating_point.items()) for c in both.configurations.values() if c.operating_point
    }
    assert len(points) == 4 and all(("cpu_clock_mhz", 2000.0) in point for point in points)
    alone = edited({("series", SERIES, "gpu_clock_mhz"): 1200}, DEMO)
    assert SERIES in expand(alone, Path("made.yaml"), known_devices()).series


def test_a_spec_without_levers_is_as_it_was_and_one_with_them_is_read_back() -> None:
    plain = run_spec(load_campaign(DEMO), "resnet50-local-n001-lbs0016-full", 1)
    assert "operating_point" not in plain.text
    own = run_spec(campaign(), "resnet50-local-n001-lbs0016-full-gpuclock705mhz", 1)
    assert '"gpu_clock_mhz": 705.0' in own.text
    for spec in (plain, own):
        assert parse_spec(spec.as_json(), "spec.json") == spec
    assert own.sha256 != replace(own, operating_point={"gpu_clock_mhz": 930.0}).sha256


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({"gpu_clock": 1.0}, "unknown lever 'gpu_clock'"),
        ({"gpu_clock_mhz": -1.0}, "expected a number above 0"),
        ({"gpu_clock_mhz": True}, "expected a number above 0"),
        ({}, "names no lever"),
        (3, "an object"),
    ],
)
def test_a_wrong_operating_point_of_a_spec_is_refused(point: Any, words: str) -> None:
    spec = run_spec(load_campaign(DEMO), "resnet50-local-n001-lbs0016-full", 1).as_json()
    with pytest.raises(InputError, match=words):
        parse_spec(spec | {"operating_point": point}, "spec.json")


def test_fine_tuning_starts_from_weights_that_were_trained_at_another_clock() -> None:
    content = edited({("series", "fourcastnet-finetune-lbs4", "gpu_clock_mhz"): [1200]}, DEMO)
    found = expand(content, Path("made.yaml"), known_devices()).configurations
    own = found["fourcastnet.finetune-local-n001-lbs0004-full-gpuclock1200mhz"]
    assert own.initial_weights == "fourcastnet.pretrain-local-n001-lbs0004-full"


def test_a_pilot_of_clocks_calibrates_each_of_them(tmp_path: Path) -> None:
    content = edited({("series", SERIES, "gpu_clock_mhz"): [705, 1410]}, DEMO)
    path = write_yaml(tmp_path / "levers.yaml", content)
    pilot = expand(yaml.safe_load(make_pilot(path).text), path, known_devices())
    asked = {
        str(one.operating_point) for one in pilot.configurations.values() if one.model == "resnet50"
    }
    assert {str({"gpu_clock_mhz": clock}) for clock in (705.0, 1410.0)} <= asked


# --- cluster files --------------------------------------------------------------------------------


def cluster(levers: Any) -> dict[str, Any]:
    return {**read_yaml(LOCAL), "levers": levers}


SRUN = {"launcher": "--gpu-freq={value}"}
SET = {"set": "nvidia-smi -i {gpus} -lgc {value}", "undo": "nvidia-smi -i {gpus} -rgc"}


@pytest.mark.parametrize(
    ("levers", "words"),
    [
        ({"gpu_clock_mhz": {}}, "gives nothing"),
        ({"gpu_clock_mhz": {"set": SET["set"]}}, "gives set"),
        ({"gpu_clock_mhz": SRUN | SET}, "either launcher, or set and undo"),
        ({"gpu_clock_mhz": {"launcher": "--gpu-freq={clock}"}}, r"unknown placeholder \{clock\}"),
        ({"gpu_clock_mhz": {"launcher": "--gpu-freq"}}, "sets the same for every value"),
        ({"gpu_clock_mhz": SET | {"set": "nvidia-smi -lgc"}}, "sets the same for every value"),
        ({"gpu_clock_mhz": {"launcher": "--gpu-freq={gpus}"}}, r"unknown placeholder \{gpus\}"),
        ({"gpu_clock_mhz": SET | {"undo": "'"}}, "No closing quotation"),
        ({"clock": SRUN}, "unknown key 'clock'"),
    ],
)
def test_a_wrong_way_to_set_a_lever_is_refused(levers: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_cluster(cluster(levers), "cluster.yaml")


def test_a_campaign_is_refused_where_the_cluster_says_no_way() -> None:
    with pytest.raises(InputError, match=r"gpu_clock_mhz: the cluster 'local' does not say how"):
        check_devices(campaign(), load_cluster(LOCAL))
    check_devices(campaign(), parse_cluster(cluster({"gpu_clock_mhz": SRUN}), "cluster.yaml"))


def test_a_simulation_of_clocks_is_refused() -> None:
    simulating = replace(
        parse_cluster(cluster({"gpu_clock_mhz": SRUN}), "cluster.yaml"), mode="simulate"
    )
    with pytest.raises(InputError, match="simulations know nothing of clocks"):
        check_devices(campaign(), simulating)


def test_commands_and_options_are_filled_in() -> None:
    ways = {"gpu_clock_mhz": SET, "cpu_clock_mhz": {"launcher": "--cpu-freq={khz}"}}
    point = {"gpu_clock_mhz": 1410.0, "cpu_clock_mhz": 2400.0}
    assert launcher_options(point, ways) == ["--cpu-freq=2400000"]
    assert commands_of(point, ways) == [
        {"set": "nvidia-smi -i {gpus} -lgc 1410", "undo": "nvidia-smi -i {gpus} -rgc"}
    ]
    assert launcher_options(None, ways) == [] == commands_of(None, ways)


# --- was it held? ---------------------------------------------------------------------------------

T0 = 1_700_000_000.0
TRAINING = (T0 + 10, T0 + 110)


def telemetry(quantity: str, values: list[float], index: int = 0, kind: str = "gpu") -> Block:
    times = T0 + np.linspace(0, 120, len(values))
    return telemetry_block(quantity, times, values, index, kind)


def held(point: dict[str, float], *series: Block) -> list[tuple[str, str]]:
    return [(one["code"], one["detail"]) for one in flags_of(point, [0], *series)]


def flags_of(point: dict[str, float], gpus: list[int], *series: Block) -> list[Flag]:
    values = np.column_stack([block.values for block in series])
    sensors = pd.concat([block.sensors for block in series], ignore_index=True)
    block = Block("n1", series[0].time_s, values, sensors)
    return setting_flags([block], gpus, point, [TRAINING], "n1")


def test_a_clock_that_was_held_is_no_flag_and_another_one_is() -> None:
    asked = {"gpu_clock_mhz": 1200.0}
    assert held(asked, telemetry("clock_sm", [345.0, *[1200.0, 1215.0] * 6, 345.0])) == []
    ((code, detail),) = held(asked, telemetry("clock_sm", [1410.0] * 13))
    assert code == "not_held"
    assert detail == "n1: GPU 0: 1410 MHz for 100 s of 100 s, where 1200 were asked for"
    assert (
        held(asked, telemetry("clock_sm", [1410.0] * 13, index=1))[0][0]
        == "operating_point_unknown"
    )


def test_up_to_5_percent_of_the_time_may_be_outside() -> None:
    clocks = [1200.0] * 121
    clocks[50:54] = [900.0] * 4  # of 100 s of training
    assert held({"gpu_clock_mhz": 1200.0}, telemetry("clock_sm", clocks)) == []
    clocks[50:57] = [900.0] * 7
    assert held({"gpu_clock_mhz": 1200.0}, telemetry("clock_sm", clocks))[0][0] == "not_held"


def test_an_idle_gpu_may_lower_its_clock() -> None:
    clock = telemetry("clock_sm", [345.0] * 6 + [1200.0] * 7)
    load = telemetry("gpu_utilisation", [0.0] * 6 + [95.0] * 7)
    assert held({"gpu_clock_mhz": 1200.0}, clock, load) == []


def test_at_a_power_limit_that_was_asked_for_a_lower_clock_is_held_and_no_flag() -> None:
    clock, capped = telemetry("clock_sm", [900.0] * 13), telemetry("throttle_reasons", [4.0] * 13)
    limit = telemetry("power_limit", [250.0] * 13)
    asked = {"gpu_clock_mhz": 1200.0, "gpu_power_limit_w": 250.0}
    assert held(asked, clock, capped, limit) == []
    assert held({"gpu_clock_mhz": 1200.0}, clock, capped)[0][0] == "not_held"
    assert [one["code"] for one in state_flags([capped], [0], TRAINING)] == ["power_capped"]
    assert state_flags([capped], [0], TRAINING, limit_is_wanted=True) == []


def test_another_limit_in_force_and_a_faster_cpu_are_found() -> None:
    asked = {"gpu_power_limit_w": 250.0}
    assert held(asked, telemetry("power_limit", [400.0] * 13))[0][0] == "not_held"
    slow, fast = ([c] * 13 for c in (1500.0, 2900.0))
    assert held({"cpu_clock_mhz": 2400.0}, telemetry("cpu_clock", slow, kind="node")) == []
    found = held({"cpu_clock_mhz": 2400.0}, telemetry("cpu_clock", fast, kind="node"))
    assert found[0] == (
        "not_held", "n1: CPUs: 2900 MHz for 100 s of 100 s, where 2400 were asked for"
    )  # fmt: skip


# --- table and figure -----------------------------------------------------------------------------


def test_the_table_has_time_and_energy_of_each_point_and_its_lines_optima(tmp_path: Path) -> None:
    of = campaign()
    made(tmp_path, of)
    rows = table(tmp_path, of)
    assert len(rows) == len(CLOCKS) * len(GPUS)
    for _, row in rows.iterrows():
        law = energy_j(row.gpu_clock_mhz, row.gpus), train_s(row.gpu_clock_mhz, row.gpus)
        assert row.basis == "sample"
        assert row.energy_j_mean == pytest.approx(law[0] / SAMPLES)
        assert row.time_s_mean == pytest.approx(law[1] / SAMPLES, rel=1e-4)
        assert row.time_s_low < row.time_s_mean < row.time_s_high
    for _, own in rows.groupby("line"):
        best = min(CLOCKS, key=lambda clock: energy_j(clock, 1))
        assert own.cost.isna().all(), "there is no price"
        fastest = own[own.gpu_clock_mhz == 1410].iloc[0]
        assert fastest.time_ratio == 1 == fastest.energy_ratio
        frugal = own[own.gpu_clock_mhz == best].iloc[0]
        assert frugal.energy_ratio == pytest.approx(energy_j(best, 1) / energy_j(1410, 1), rel=1e-4)
        assert frugal.energy_ratio_low < frugal.energy_ratio < frugal.energy_ratio_high


def test_cost_is_that_of_energy_with_pue_and_of_gpu_hours(tmp_path: Path) -> None:
    of = campaign()
    made(tmp_path, of)
    row = table(tmp_path, of, pue=1.1, price_per_kwh=0.3, price_per_gpu_hour=2.0).iloc[-1]
    energy = row.energy_j_mean * 1.1 * 0.3 / 3.6e6
    assert row.cost == pytest.approx(energy + row.time_s_mean / 3600 * row.gpus * 2.0)


@pytest.mark.parametrize("width_mm", [88, 180])
def test_the_figure_has_every_point_and_the_front(tmp_path: Path, width_mm: int) -> None:
    series = {"series": list(campaign().series), "width_mm": width_mm}
    of = replace(campaign(), figures={"operating_points": series})
    made(tmp_path, of, scatter=0.075)
    rows = table(tmp_path, of)
    path = tmp_path / "tables" / "operating_points.parquet"
    files = draw_figure("operating_points", path, tmp_path / "figure")
    assert [file.name for file in files] == [f"figure{suffix}" for suffix in SUFFIXES]
    svg = (tmp_path / "figure.svg").read_text()
    assert 'id="front' in svg and svg.count('id="points-') >= 3 * rows.line.nunique()


def test_points_of_another_scope_are_in_no_ratio(tmp_path: Path) -> None:
    of = campaign()
    made(tmp_path, of, with_cpu=(1410,))
    rows = table(tmp_path, of)
    one = rows[rows.gpus == 1].set_index("gpu_clock_mhz")
    assert set(one.energy_scope) == {"gpu", "gpu+cpu"}
    assert one.energy_ratio[1410] == 1 and one.time_ratio[1155] == 1


@pytest.mark.parametrize("figure", ["breakdown", "cost_per_sample"])
def test_a_run_without_its_clock_is_left_out_of_every_figure(tmp_path: Path, figure: str) -> None:
    of = replace(campaign(), figures={figure: {"series": list(campaign().series)}})
    id_ = "resnet50-local-n001-lbs0016-full-gpuclock705mhz"
    made(tmp_path, of, flags={f"{id_} repeat 1": "not_held"})
    runs = [[run.configuration.id, run.repeat] for run in of.runs()]
    by_hand = {"configuration": id_, "repeat": 3, "reason": "by hand"}
    definition = table_definition(of, figure, [r for r in runs if r != [id_, 3]], [by_hand])
    out = tmp_path / "tables" / f"{figure}.parquet"
    write_tables(definition, tmp_path, out)
    own = pq.read_table(out).to_pandas()
    own = own[own.configuration == id_]
    law_j = energy_j(705, 1)
    if figure == "breakdown":
        assert own.energy_kwh.sum() * 3.6e6 == pytest.approx(law_j)
    else:
        assert own.energy_per_sample_j_mean.iloc[0] == pytest.approx(law_j / SAMPLES)
    told = pq.read_schema(out).metadata
    assert '"reason": "by hand"' in str(told) and '"reason": "not_held"' in str(told)


def test_a_run_that_did_not_have_its_clock_is_left_out_of_its_configuration(tmp_path: Path) -> None:
    of = campaign()
    id_ = "resnet50-local-n001-lbs0016-full-gpuclock705mhz"
    made(tmp_path, of, flags={f"{id_} repeat 2": "not_held"})
    rows = table(tmp_path, of)
    assert list(rows[rows.configuration == id_].n_repeats) == [2]
    metadata = pq.read_schema(tmp_path / "tables" / "operating_points.parquet").metadata
    assert f'{{"configuration": "{id_}", "repeat": 2, "reason": "not_held"}}' in str(metadata)


def test_lines_over_clocks_break_where_a_clock_has_no_run(tmp_path: Path) -> None:
    of = campaign()
    made(tmp_path, of)
    for folder in (tmp_path / "runs").glob("*gpuclock1005*"):
        shutil.rmtree(folder)
    table(tmp_path, of)
    figure = draw(FIGURE, pq.read_table(tmp_path / "tables" / f"{FIGURE}.parquet"))
    over = [a for part in figure.subfigs for a in part.axes if a.get_xlabel() == "GPU clock (MHz)"]
    lines = [
        line for axes in over for line in axes.lines if str(line.get_gid()).startswith("points-")
    ]
    assert len(lines) == 2 * len(GPUS)
    for line in lines:
        assert list(line.get_xdata()) == list(CLOCKS)
        assert [np.isnan(y) for y in line.get_ydata()] == [clock == 1005 for clock in CLOCKS]
