"""Clocks and power limits: in campaigns, specs and cluster files, in flags, tables and the figure."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from campaign_files import DEMO, LOCAL, edited, replaced
from energy_files import telemetry_block
from operating_runs import CLOCKS, GPUS, SAMPLES, campaign, energy_j, made, table, train_s

from scalewatt.campaign.cluster import known_devices, load_cluster, parse_cluster
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.load import check_devices, load_campaign
from scalewatt.campaign.operating_points import launcher_options, lever_commands
from scalewatt.campaign.run_spec import read_spec, run_spec
from scalewatt.campaign.table_definitions import table_definition
from scalewatt.common.errors import InputError
from scalewatt.common.yaml_files import read_yaml
from scalewatt.energies.checks import setting_flags, state_flags
from scalewatt.energies.node import Node
from scalewatt.figures.draw_figure import SUFFIXES, draw_figure
from scalewatt.recordings.block import Block
from scalewatt.recordings.terms import Flag
from scalewatt.results.build import write_figure_table

# --- campaigns ------------------------------------------------------------------------------------


def test_a_spec_without_levers_is_as_it_was_and_one_with_them_is_read_back(tmp_path: Path) -> None:
    plain = run_spec(load_campaign(DEMO), "resnet50-local-n001-lbs0016-full", 1)
    assert "operating_point" not in plain.text
    group = run_spec(campaign(), "resnet50-local-n001-lbs0016-full-gpuclock705mhz", 1)
    assert '"gpu_clock_mhz": 705.0' in group.text
    for spec in (plain, group):
        (tmp_path / "spec.json").write_text(spec.text)
        assert read_spec(tmp_path / "spec.json") == spec
    assert group.sha256 != replace(group, operating_point={"gpu_clock_mhz": 930.0}).sha256


def test_fine_tuning_starts_from_weights_that_were_trained_at_another_clock() -> None:
    content = edited({("series", "fourcastnet-finetune-lbs4", "gpu_clock_mhz"): 1200}, DEMO)
    result = expand(content, Path("made.yaml"), known_devices()).configurations
    group = result["fourcastnet.finetune-local-n001-lbs0004-full-gpuclock1200mhz"]
    assert group.initial_weights == "fourcastnet.pretrain-local-n001-lbs0004-full"


# --- cluster files --------------------------------------------------------------------------------


def cluster(levers: Any) -> dict[str, Any]:
    return {**read_yaml(LOCAL), "levers": levers}


SRUN = "--gpu-freq={value}"


def test_a_campaign_is_refused_where_the_cluster_says_no_way() -> None:
    with pytest.raises(InputError, match=r"the cluster file lacks levers\.gpu_clock_mhz"):
        check_devices(campaign(), load_cluster(LOCAL))
    able = parse_cluster(cluster({"gpu_clock_mhz": SRUN}), "cluster.yaml")
    check_devices(campaign(), able)
    with pytest.raises(
        InputError, match=r"levers.gpu_power_limit_w and levers.cpu_clock_mhz, which"
    ):
        check_devices(campaign((705,), gpu_power_limit_w=250, cpu_clock_mhz=2000), able)


def test_a_simulation_of_clocks_is_refused() -> None:
    simulating = replaced(
        parse_cluster(cluster({"gpu_clock_mhz": SRUN}), "cluster.yaml"), mode="simulate"
    )
    with pytest.raises(InputError, match="simulations know nothing of clocks"):
        check_devices(campaign(), simulating)


def test_options_are_filled_in() -> None:
    levers = {"gpu_clock_mhz": SRUN, "cpu_clock_mhz": "--cpu-freq={khz}"}
    point = {"gpu_clock_mhz": 1410.0, "cpu_clock_mhz": 2400.0}
    assert launcher_options(point, levers) == ["--gpu-freq=1410", "--cpu-freq=2400000"]
    assert launcher_options(None, levers) == []


@pytest.mark.parametrize("end", ["true", "false", "kill -TERM $$; sleep 0.1"])
def test_commands_set_a_point_and_undo_it_however_the_job_ends(end: str, tmp_path: Path) -> None:
    way = {"set": "echo {value} >> log", "undo": "echo undone >> log"}
    ways = {"levers": {"gpu_clock_mhz": way, "cpu_clock_mhz": "--cpu-freq={khz}"}}
    levers = parse_cluster({**read_yaml(LOCAL), **ways}, "cluster.yaml").levers
    point = {"gpu_clock_mhz": 705.0, "cpu_clock_mhz": 2400.0}
    assert launcher_options(point, levers) == ["--cpu-freq=2400000"]
    line = f"set -euo pipefail; {lever_commands(point, levers)}{end}; echo trained >> log"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path)
    log = (tmp_path / "log").read_text().split()
    assert log == ["705", *(["trained"] if end != "false" else []), "undone"]
    assert done.returncode == (end == "false")
    assert lever_commands(None, levers) == ""


# --- was it held? ---------------------------------------------------------------------------------

T0 = 1_700_000_000.0
TRAINING = (T0 + 10, T0 + 110)


def telemetry(quantity: str, values: list[float], index: int = 0, kind: str = "gpu") -> Block:
    times = T0 + np.linspace(0, 120, len(values))
    return telemetry_block(quantity, times, values, index, kind)


def flags_of(point: dict[str, float], *series: Block) -> list[Flag]:
    values = np.column_stack([block.values for block in series])
    sensors = pd.concat([block.sensors for block in series], ignore_index=True)
    block = Block("n1", series[0].time_s, values, sensors)
    return [*setting_flags(node_with(block), point, [TRAINING])]


def node_with(block: Block) -> Node:
    """A node whose GPU 0 the run held, with telemetry."""
    return Node("n1", [], telemetry=[block], held=[0], window=TRAINING)


def clocks(*values: float) -> Block:
    """A GPU's clock in MHz, at equal distances from 10 s before training to 10 s after it."""
    return telemetry("clock_sm", list(values))


GPU, LIMIT = {"gpu_clock_mhz": 1200.0}, {"gpu_power_limit_w": 250.0}
CPU = {"cpu_clock_mhz": 2400.0}
SLOW, CAPPED = clocks(*[900.0] * 13), telemetry("throttle_reasons", [4.0] * 13)
LOAD = telemetry("gpu_utilisation", [0.0] * 6 + [95.0] * 7)
HELD: dict[str, tuple[dict[str, float], list[Block]]] = {
    "another clock before and after": (GPU, [clocks(345.0, *[1200.0, 1215.0] * 6, 345.0)]),
    "another clock for 4 s": (GPU, [clocks(*[1200.0] * 50, *[900.0] * 4, *[1200.0] * 67)]),
    "a lower clock while idle": (GPU, [clocks(*[345.0] * 6, *[1200.0] * 7), LOAD]),
    "a lower clock at a limit that was asked for": (
        GPU | LIMIT,
        [SLOW, CAPPED, telemetry("power_limit", [250.0] * 13)],
    ),
    "a slower CPU": (CPU, [telemetry("cpu_clock", [1500.0] * 13, kind="node")]),
}


@pytest.mark.parametrize(("asked", "series"), HELD.values(), ids=HELD)
def test_no_flag_is_set_for(asked: dict[str, float], series: list[Block]) -> None:
    assert flags_of(asked, *series) == []


FOR_ALL_OF_IT = "MHz for 100 s of 100 s, where"
NOT_HELD: dict[str, tuple[dict[str, float], list[Block], str]] = {
    "another clock": (GPU, [clocks(*[1410.0] * 13)], f"GPU 0: 1410 {FOR_ALL_OF_IT} 1200 were"),
    "another clock for 7 s": (
        GPU,
        [clocks(*[1200.0] * 50, *[900.0] * 7, *[1200.0] * 64)],
        "GPU 0: 900 MHz",
    ),
    "a lower clock at the node's limit": (GPU, [SLOW, CAPPED], "GPU 0: 900 MHz"),
    "another limit": (LIMIT, [telemetry("power_limit", [400.0] * 13)], "GPU 0: 400 W"),
    "a faster CPU": (
        CPU,
        [telemetry("cpu_clock", [2900.0] * 13, kind="node")],
        f"CPUs: 2900 {FOR_ALL_OF_IT} 2400 were asked for",
    ),
}


@pytest.mark.parametrize(("asked", "series", "words"), NOT_HELD.values(), ids=NOT_HELD)
def test_a_point_is_not_held_by(asked: dict[str, float], series: list[Block], words: str) -> None:
    flag = flags_of(asked, *series)[0]
    assert flag["code"] == "contradicts_spec" and flag["detail"].startswith(f"n1: {words}")


def test_what_no_sensor_of_the_runs_gpus_tells_is_unknown() -> None:
    (flag,) = flags_of(GPU, telemetry("clock_sm", [1410.0] * 13, index=1))
    assert flag["code"] == "unconfirmed"


def test_a_power_limit_that_was_asked_for_is_no_flag() -> None:
    node = node_with(CAPPED)
    assert [flag["code"] for flag in state_flags(node)] == ["throttled"]
    assert [*state_flags(node, limit_is_wanted=True)] == []


# --- table and figure -----------------------------------------------------------------------------


def test_points_have_the_time_and_energy_of_a_sample(tmp_path: Path) -> None:
    of = campaign()
    made(tmp_path, of)
    rows = table(tmp_path, of)
    assert len(rows) == 3 * len(CLOCKS) * len(GPUS)
    for _, row in rows[rows.panel == "A"].iterrows():
        clock = float(row.point_label)
        assert row.y == pytest.approx(energy_j(clock, row.gpus) / SAMPLES)
        assert row.x == pytest.approx(train_s(clock, row.gpus) / SAMPLES, rel=1e-4)
        assert row.x_low < row.x < row.x_high
    assert set(rows.label) == {"n = 1", "n = 2"}


@pytest.mark.parametrize("width_mm", [88, 180])
def test_the_figure_has_every_point_and_the_front(tmp_path: Path, width_mm: int) -> None:
    series = {"series": list(campaign().series), "width_mm": width_mm}
    of = replace(campaign(), figures={"operating_points": series})
    made(tmp_path, of, scatter=0.075)
    rows = table(tmp_path, of)
    path = tmp_path / "tables" / "operating_points.parquet"
    draw_figure("operating_points", path, tmp_path / "figure")
    assert all((tmp_path / f"figure{suffix}").is_file() for suffix in SUFFIXES)
    svg = (tmp_path / "figure.svg").read_text()
    assert 'id="front' in svg and svg.count('id="points-') >= 3 * rows.series.nunique()


@pytest.mark.parametrize("figure", ["breakdown", "cost_per_sample"])
def test_a_run_without_its_clock_is_left_out_of_every_figure(tmp_path: Path, figure: str) -> None:
    of = replace(campaign(), figures={figure: {"series": list(campaign().series)}})
    id_ = "resnet50-local-n001-lbs0016-full-gpuclock705mhz"
    made(tmp_path, of, flags={f"{id_} repeat 1": "contradicts_spec"})
    runs = [[*run] for run in of.runs()]
    by_hand = {"configuration": id_, "repeat": 3, "reason": "by hand"}
    definition = table_definition(of, figure, [r for r in runs if r != [id_, 3]], [by_hand])
    out = tmp_path / "tables" / f"{figure}.parquet"
    write_figure_table(definition, tmp_path, out)
    group = pq.read_table(out).to_pandas()
    group = group[group.configuration == id_]
    law_j = energy_j(705, 1)
    if figure == "breakdown":
        assert group.energy_kwh.sum() * 3.6e6 == pytest.approx(law_j)
    else:
        assert group[group.panel == "A"].y.iloc[0] == pytest.approx(law_j / SAMPLES)
    stated = pq.read_schema(out).metadata
    assert '"reason": "by hand"' in str(stated) and '"reason": "contradicts_spec"' in str(stated)
