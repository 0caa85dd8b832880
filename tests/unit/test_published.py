"""The paper's published numbers as rows of `configurations`, and beside a campaign's own."""

from __future__ import annotations

import csv
import json
import math
from typing import Any

import pandas as pd
import pytest
import scipy.stats

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import known_devices
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.table_definitions import table_definition
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.common.yaml_files import read_yaml
from scalewatt.results.build import notes, table1
from scalewatt.results.figures.figure_schema import TABLE1
from scalewatt.results.figures.panel_points import panel_points
from scalewatt.results.tables.frames import frame_of, records, to_frame, to_table
from scalewatt.results.tables.published import REFERENCE, published_configurations, published_lines
from scalewatt.results.tables.scaling import TRAINING, points_of
from scalewatt.results.tables.table_schema import CONFIGURATIONS, RUNS
from scalewatt.results.text.text_tables import format_table

Row = dict[str, Any]
FIGURES = ("figure2", "figure3", "figure4", "figure6", "figure7")
PAPER = PROJECT_ROOT / "campaigns/paper.yaml"


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row["configuration"]: row for row in records(published_configurations())}


@pytest.fixture(scope="module")
def paper() -> Campaign:
    content = read_yaml(PAPER)
    for name, entry in content["figures"].items():
        if name in (*FIGURES, "table1"):
            entry["overlay"] = "published"
    return expand(content, PAPER, known_devices())


# --- rows -----------------------------------------------------------------------------------------


def test_published_rows_are_rows_of_configurations_each_once(rows: dict[str, Row]) -> None:
    published = to_table(published_configurations(), CONFIGURATIONS)
    assert len(published) == len(rows) == 28
    for name in ("campaign", "energy_origin"):
        assert set(published[name].to_pylist()) == {"published"}
    scopes = set(
        zip(published["device"].to_pylist(), published["energy_scope"].to_pylist(), strict=True)
    )
    assert scopes == {("a100", "gpu+cpu+ram"), ("h100", "gpu+cpu")}


def test_published_rows_are_named_as_the_papers_campaign_names_them(rows: dict[str, Row]) -> None:
    campaign = load_campaign(PAPER)
    assert set(rows) <= set(campaign.configurations)
    for id_, row in rows.items():
        group = campaign.configurations[id_]
        for name in ("model", "phase", "device", "gpus", "nodes", "dataset_samples", "epochs"):
            assert row[name] == getattr(group, name), (id_, name)
        assert (row["local_batch_size"], row["global_batch_size"]) == (
            group.local_batch_size,
            group.global_batch_size,
        )
        assert row["precision"] == group.settings["precision"]
        assert row["n_repeats"] == campaign.repeats[id_]


def test_every_number_of_the_reference_is_in_a_row(rows: dict[str, Row]) -> None:
    by_place = {(r["gpus"], r["device"], r["dataset_samples"], r["local_batch_size"], r["epochs"]): r
                for r in rows.values()}  # fmt: skip
    names = {"metric_value": "metric_last"}
    with open(REFERENCE, newline="") as file:
        for given in csv.DictReader(file):
            key = (int(given["gpus"]), given["device"], int(given["dataset_samples"]))
            row = by_place[*key, int(given["local_batch_size"]), int(given["epochs"])]
            for name in ("runtime_h", "gpu_hours", "energy_kwh", "gpu_energy_kwh",
                         "cpu_energy_kwh", "metric_value"):  # fmt: skip
                if given[name]:
                    assert row[f"{names.get(name, name)}_mean"] == pytest.approx(float(given[name]))
            for name, given_sd in (
                ("gpu_hours", "gpu_hours_popstd"),
                ("energy_kwh", "energy_popstd_kwh"),
            ):
                if given[given_sd]:
                    assert row[f"{name}_population_sd"] == pytest.approx(float(given[given_sd]))


def test_the_published_population_spread_becomes_a_sample_spread_and_an_interval(
    rows: dict[str, Row],
) -> None:
    row = rows["resnet50-a100-n016-lbs0016-full"]
    assert row["n_repeats"] == 5
    sd = 0.2384 * math.sqrt(5 / 4)
    half = scipy.stats.t.ppf(0.975, 4) * sd / math.sqrt(5)
    assert row["energy_kwh_sd"] == pytest.approx(sd)
    assert row["energy_kwh_low"] == pytest.approx(33.277 - half)
    assert row["energy_kwh_high"] == pytest.approx(33.277 + half)
    # the run time is that of each of 16 GPUs, and so is its spread
    assert row["runtime_h_sd"] == pytest.approx(0.1042 * math.sqrt(5 / 4) / 16)
    # energy per node is the same number over four nodes
    assert row["energy_per_node_kwh_sd"] == pytest.approx(sd / 4)
    probe = rows["fourcastnet.pretrain-a100-n064-lbs0001-full-epochs20"]
    assert probe["n_repeats"] == 3
    assert probe["energy_kwh_sd"] / probe["energy_kwh_mean"] == pytest.approx(0.0471, abs=1e-4)


def test_what_follows_from_published_numbers_is_there(rows: dict[str, Row]) -> None:
    row = rows["fourcastnet.pretrain-a100-n016-lbs0001-full"]
    assert row["p_gpuh_kw_mean"] == pytest.approx(144.87 / 692.55)
    # 54 020 samples leave 3376 for each of 16 GPUs, in batches of one, over 80 epochs
    assert row["samples_per_gpuh_mean"] == pytest.approx(3376 * 16 * 80 / 692.55)
    assert row["passes_per_gpuh_mean"] == row["samples_per_gpuh_mean"]
    assert row["energy_per_sample_j_mean"] == pytest.approx(144.87 * 3.6e6 / (3376 * 16 * 80))
    assert row["energy_per_update_j_mean"] == pytest.approx(144.87 * 3.6e6 / (3376 * 80))
    assert row["energy_per_node_kwh_mean"] == pytest.approx(144.87 / 4)
    small = rows["resnet50-a100-n001-lbs0256-s0005004"]
    assert small["energy_per_node_kwh_mean"] == small["energy_kwh_mean"]


# --- beside a campaign's own ----------------------------------------------------------------------


def made_row(configuration: Any, **changes: Any) -> Row:
    """A row of ours of a configuration: the published form with other numbers."""
    row = records(published_configurations())[0]
    row |= {name: getattr(configuration, name) for name in (
        "model", "phase", "device", "gpus", "nodes", "local_batch_size", "global_batch_size",
        "dataset_samples", "epochs")}  # fmt: skip
    return row | {
        "configuration": configuration.id,
        "campaign": "paper",
        "energy_origin": "measured",
        **changes,
    }


def ours(paper: Campaign, figure: str) -> pd.DataFrame:
    ids = paper.figure_configurations(figure)
    return frame_of([made_row(paper.configurations[i]) for i in ids], CONFIGURATIONS)


NONE, NO_RUNS = frame_of([], CONFIGURATIONS), frame_of([], RUNS)


def points(definition: Row, configurations: pd.DataFrame) -> pd.DataFrame:
    """The points of a figure that have a value."""
    drawn = panel_points(definition, configurations, NO_RUNS)
    return drawn[drawn["y"].notna()]


@pytest.mark.parametrize("figure", FIGURES)
def test_published_points_stand_behind_the_campaigns_own(paper: Campaign, figure: str) -> None:
    definition = table_definition(paper, figure, [])
    group = records(points({**definition, "options": {}}, ours(paper, figure)))
    both = records(points(definition, ours(paper, figure)))
    assert [r for r in both if r["energy_origin"] == "measured"] == group
    added = [r for r in both if r["energy_origin"] == "published"]
    assert added
    labels = {s["name"]: s["label"] for s in definition["series"]}
    for row in added:
        assert row["label"] == labels[row["series"]]
        assert row["configuration"] in paper.series[row["series"]].points.values()
        assert row["x"] is not None and row["y"] is not None
    order = [(r["panel"], r["series"], r["energy_origin"]) for r in both]
    assert order == sorted(order, key=order.index)  # no line is taken up again


def test_equal_run_times_are_equal_speedups_whoever_published_them(paper: Campaign) -> None:
    """Ours at n₀ = 4 took 5 % less than ideal scaling from n = 16, where both have the same time."""
    definition = table_definition(paper, "figure4", [])
    hours = {4: 4 * 43.28 * 0.95, 16: 43.28, 64: 17.0}
    series = next(s for s in definition["series"] if s["name"] == "fourcastnet-pretrain-lbs1")
    group = [
        made_row(paper.configurations[p["configuration"]], runtime_h_mean=hours[p["gpus"]])
        for p in series["points"]
        if p["gpus"] in hours
    ]
    shown = {
        (r["gpus"], r["energy_origin"]): r["y"]
        for r in records(points(definition, frame_of(group, CONFIGURATIONS)))
        if (r["series"], r["y_name"]) == (series["name"], "speedup")
    }
    assert shown[4, "measured"] == 4
    assert shown[16, "published"] == shown[16, "measured"] == pytest.approx(16 * 0.95)
    assert shown[64, "published"] / shown[64, "measured"] == pytest.approx(17.0 / 16)


def test_without_runs_published_speedups_count_from_the_smallest_published_n(
    paper: Campaign,
) -> None:
    definition = table_definition(paper, "figure4", [])
    shown = {
        (r["series"], r["gpus"]): r["y"]
        for r in records(points(definition, NONE))
        if r["y_name"] == "speedup"
    }
    assert shown["fourcastnet-pretrain-lbs1", 16] == 16.0
    assert shown["fourcastnet-pretrain-lbs1", 64] == pytest.approx(16 * 43.28 / 16)
    assert shown["fourcastnet-pretrain-gbs16-h100", 16] == pytest.approx(4 * 105.32 / 32.26)
    # one time alone would be ideal by definition
    assert not [key for key in shown if key[0] == "fourcastnet-pretrain-gbs32-h100"]
    assert notes(definition, NO_RUNS)[0].startswith("Published: Huber et al. (2025)")


def test_what_the_scaling_model_does_not_know_is_said_of_each_kind_of_training() -> None:
    flags = json.dumps([{"code": "extrapolated", "detail": "n = 512 is far"}])
    run = {**dict.fromkeys(RUNS.names), "model": "resnet50", "phase": "train", "flags": flags}
    runs = frame_of([run | {"device": device} for device in ("a100", "h100")], RUNS)
    words = "Simulated resnet50.train on a100, resnet50.train on h100: n = 512 is far."
    assert notes({"figure": "figure2"}, runs) == [words]


@pytest.mark.parametrize("changed", ["epochs", "dataset_samples", "device", "phase", "gpus"])
def test_another_training_has_no_published_point(rows: dict[str, Row], changed: str) -> None:
    row = rows["fourcastnet.pretrain-a100-n016-lbs0001-full"]
    names = ("place", "series", "label", "configuration", *TRAINING)

    def found(point: Row) -> list[str]:
        series = {"name": "a", "label": "b", "points": [point]}
        return list(published_lines(points_of([series]))["configuration"])

    assert set(points_of([]).columns) == set(names)
    assert found(row) == [row["configuration"]]
    other = row[changed] + 1 if isinstance(row[changed], int) else "other"
    assert found({**row, changed: other}) == []


def test_table1_has_the_published_row_under_each_of_ours(paper: Campaign) -> None:
    definition = table_definition(paper, "table1", [])
    made = to_table(table1(definition, ours(paper, "table1")), TABLE1)
    assert made["energy_origin"].to_pylist() == ["measured", "published"] * 6
    ids = made["configuration"].to_pylist()
    assert ids[::2] == ids[1::2]
    assert made["energy_kwh"].to_pylist()[1::2] == [115.63, 120.7, 145.31, 144.87, 174.25, 175.72]
    text = format_table(to_frame(made), "table1")
    assert "published (gpu+cpu+ram)" in text and "115.63" in text
    alone = table1({**definition, "options": {}}, ours(paper, "table1"))
    assert list(alone["energy_origin"]) == ["measured"] * 6
