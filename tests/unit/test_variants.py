"""Variants of one training: what a campaign says of them, their table, their figure."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import scipy.stats
from campaign_files import ROOT
from run_files import epochs, make_run, make_spec, part

from scalewatt.campaign.cluster import known_devices
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.table_definitions import table_definition
from scalewatt.common.errors import InputError
from scalewatt.common.yaml_files import read_yaml
from scalewatt.results.build import write_figure_table
from scalewatt.results.text.text_tables import table_text

VARIANTS = ROOT / "campaigns" / "variants.yaml"


def campaign(**changes: Any) -> Any:
    content = read_yaml(VARIANTS) | changes
    return expand(content, Path("made.yaml"), known_devices())


def definition_of(made: Any, runs: list[list[Any]]) -> dict[str, Any]:
    return json.loads(json.dumps(table_definition(made, "variants", runs)))


# --- the campaign ---------------------------------------------------------------------------------


def test_a_point_is_compared_with_the_baseline_of_its_own_n() -> None:
    content = read_yaml(VARIANTS)
    for name in ("resnet50", "resnet50-bf16"):
        content["series"][name] |= {"gpus": [1, 2]}
    made = campaign(series=content["series"])
    result = {e["configuration"]: e for e in definition_of(made, [])["variants"]}
    two = "resnet50-local-n002-lbs0032-full"
    assert result[f"{two}-precisionbf16"]["baseline"] == two
    assert result[f"{two}-precisionbf16"]["label"] == "bf16, n = 2"


@pytest.mark.parametrize(
    ("baselines", "named"),
    [
        (
            ["resnet50"],
            ["none of fourcastnet", "allowed: one of fourcastnet, fourcastnet-synthetic"],
        ),
        (["resnet50", "resnet50-fp32", "fourcastnet"], ["resnet50 and resnet50-fp32 of resnet50"]),
        (["resnet50", "fourcastnt"], ["'fourcastnt' is not among", "did you mean 'fourcastnet'?"]),
    ],
)
def test_a_campaign_without_one_baseline_for_each_model_is_refused(
    baselines: list[str], named: list[str]
) -> None:
    figures = read_yaml(VARIANTS)["figures"]
    figures["variants"]["baselines"] = baselines
    with pytest.raises(InputError) as caught:
        campaign(figures=figures)
    assert "figures.variants.baselines" in str(caught.value)
    assert all(text in str(caught.value) for text in named)


# --- the table ------------------------------------------------------------------------------------


RUNS = {
    # series: what a run takes in s and W on the GPU, waits for in s a step, and its last error
    "resnet50": (40.0, 200.0, 0.3, 20.0),
    "resnet50-corrected": (20.0, 220.0, 0.3, 19.0),
    "resnet50-synthetic": (10.0, 300.0, 0.0, None),
    "resnet50-fp16": (38.0, 180.0, 0.3, 20.5),
    "fourcastnet": (30.0, 250.0, 0.1, 900.0),
    "fourcastnet-compiled": (25.0, 260.0, 0.12, 901.0),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of some of the shipped campaign's runs, with made numbers."""
    results, made = tmp_path_factory.mktemp("results"), load_campaign(VARIANTS)
    runs = []
    for series, (seconds, watts, waiting, error) in RUNS.items():
        each = made.configurations[made.series[series].points[1]]
        for repeat in (1, 2, 3):
            s = seconds + repeat
            make_run(
                results,
                [part("gpu", "train", s, s * watts), part("cpu", "train", s, s * 100)],
                spec=make_spec(
                    configuration=each.id, model=each.model, phase=each.phase, repeat=repeat, gpus=1,
                    ranks_per_node=1, settings=each.settings, protocol=each.protocol, epochs=1,
                ),
                history=epochs([error], step_data_s=waiting),
                metric_name="z500_rmse_m2_s2" if each.model == "fourcastnet" else "top1_error_percent",
                precision_used="tf32_convolutions" if each.model == "resnet50" else "fp32",
            )  # fmt: skip
            runs.append([each.id, repeat])
    out = results / "tables" / "variants.parquet"
    write_figure_table(definition_of(made, runs), results, out)
    return results


@pytest.fixture(scope="module")
def table(results: Path) -> Any:
    return pq.read_table(results / "tables" / "variants.parquet")


def row_of(table: Any, series: str) -> dict[str, Any]:
    (row,) = [row for row in table.to_pylist() if row["series"] == series]
    return row


def test_the_table_has_one_row_for_each_variant_with_runs_in_the_campaigns_order(
    table: Any,
) -> None:
    assert table["series"].to_pylist() == list(RUNS)
    missing = json.loads(table.schema.metadata[b"scalewatt"])["missing"]
    planned = definition_of(load_campaign(VARIANTS), [])["variants"]
    assert len(missing) == len(planned) - len(RUNS)
    assert "resnet50-local-n001-lbs0032-full-compiletrue" in missing


def test_time_energy_and_their_ratios_are_those_of_the_runs(table: Any) -> None:
    row = row_of(table, "resnet50-synthetic")
    assert row["runtime_h_mean"] == pytest.approx(12 / 3600)
    assert row["energy_kwh_mean"] == pytest.approx(12 * 400 / 3.6e6)
    assert row["mean_gpu_power_w_mean"] == pytest.approx(300)
    assert row["energy_per_sample_j_mean"] == pytest.approx(12 * 400 / 1436)
    assert row["runtime_ratio"] == pytest.approx(12 / 42)
    assert row["energy_ratio"] == pytest.approx(12 * 400 / (42 * 300))
    # sd 1 s of both times
    error = math.hypot(1 / 12, 1 / 42) / math.sqrt(3)
    freedom = error**4 / ((1 / 12) ** 4 + (1 / 42) ** 4) * 9 * 2
    half = scipy.stats.t.ppf(0.975, freedom) * error
    assert row["runtime_ratio_high"] == pytest.approx(12 / 42 * math.exp(half), rel=1e-6)
    assert row["n_repeats"] == 3


def test_the_table_in_markdown_says_what_differs_and_where_energy_comes_from(results: Path) -> None:
    printed = table_text(results / "tables" / "variants.parquet", ".md")
    assert "| no loading | tf32_convolutions | 3 | 12.0 ± 2.5 |" in printed
    assert "baseline: the paper's way |" in printed
    assert "Energy: measured by sensors, scope gpu+cpu." in printed
    assert printed.count("**") == 4  # one heading for each model
