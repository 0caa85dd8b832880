"""The points of the figures: which panels, which rows, the speed-up."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from campaign_files import demo
from run_files import make_run, part, write_energy

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import known_devices
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.operating_points import LEVERS
from scalewatt.campaign.run_spec import run_spec
from scalewatt.campaign.table_definitions import table_definition
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.common.yaml_files import read_yaml
from scalewatt.results.build import SCATTER, write_figure_table
from scalewatt.results.figures.figure_schema import POINTS
from scalewatt.results.figures.panel_points import panel_points
from scalewatt.results.tables.frames import frame_of, records
from scalewatt.results.tables.run_row import RunFiles, write_row
from scalewatt.results.tables.table_schema import CONFIGURATIONS, QUANTITIES, RUNS

Row = dict[str, Any]
NO_RUNS = frame_of([], RUNS)

GPU_COUNTS = [1, 2, 4]


def configuration(gpus: int, *, repeats: int = 1, **means: float | None) -> Row:
    """A row of the configurations table: every quantity is 100 + its place, unless given."""
    row: Row = dict.fromkeys(CONFIGURATIONS.names)
    identity = CONFIGURATIONS.names[: CONFIGURATIONS.names.index("metric_goal") + 1]
    row |= dict.fromkeys(identity, "word") | dict.fromkeys(LEVERS)
    row |= {"channels_last": None, "compile": None}
    row |= {"configuration": f"c{gpus}", "gpus": gpus, "nodes": 1, "n_repeats": repeats}
    row |= {"gpus_per_replica": 1, "gradient_accumulation_steps": 1}
    row |= {"local_batch_size": 64, "global_batch_size": 64 * gpus, "epochs": 4}
    row |= {"dataset_samples": 1000 * gpus, "energy_origin": "measured", "energy_scope": "cpu"}
    for position, name in enumerate(QUANTITIES):
        mean = means.get(name, 100.0 + position)
        spread = None if repeats == 1 or mean is None else 0.1 * mean
        row |= {f"{name}_mean": mean, f"{name}_sd": spread}
        row[f"{name}_low"] = None if spread is None else mean - 2 * spread  # type: ignore[operator]
        row[f"{name}_high"] = None if spread is None else mean + 2 * spread  # type: ignore[operator]
        row[f"{name}_population_sd"] = None if spread is None else 0.8 * spread
    return row


def definition(figure: str, counts: list[int] | None = None, **more: Any) -> Row:
    series = {
        "name": "line",
        "label": "a line",
        "points": [{"configuration": f"c{n}", "gpus": n} for n in counts or GPU_COUNTS],
    }
    return {"figure": figure, "campaign": "made", "series": [series], **more}


def rows_of(figure: str, rows: list[Row], counts: list[int] | None = None) -> list[Row]:
    return records(
        panel_points(definition(figure, counts), frame_of(rows, CONFIGURATIONS), NO_RUNS)
    )


# --- panels -------------------------------------------------------------------------------------


def test_a_planned_point_without_runs_has_a_row_without_a_value() -> None:
    rows = rows_of("figure2", [configuration(1), configuration(4)])
    assert {(r["gpus"], r["n_repeats"]) for r in rows} == {(1, 1), (2, None), (4, 1)}
    assert {r["y"] for r in rows if r["gpus"] == 2} == {None}
    assert {r["y"] for r in rows_of("figure2", [])} == {None}


@pytest.mark.parametrize("kind", ["sd", "population_sd", "none"])
def test_error_bars_are_what_the_campaign_asks_for(kind: str) -> None:
    source = configuration(4, repeats=3)
    asked = definition("figure6", [4], options={"error_bars": kind})
    for row in records(panel_points(asked, frame_of([source], CONFIGURATIONS), NO_RUNS)):
        if kind == "none":
            assert row["y_low"] is row["y_high"] is None
        else:
            half = source[f"{row['y_name']}_{kind}"]
            assert (row["y_low"], row["y_high"]) == pytest.approx(
                (row["y"] - half, row["y"] + half)
            )


def test_models_without_a_metric_in_common_have_no_point_of_it() -> None:
    """They share no axis."""
    both = [configuration(1), configuration(2)]
    for row, model, metric in zip(both, ("a", "b"), ("error", "rmse"), strict=True):
        row |= {"model": model, "metric_name": metric}
    metrics = [r["y"] for r in rows_of("figure2", both, [1, 2]) if r["y_name"] == "metric_last"]
    assert metrics == [None, None]
    both[1]["metric_name"] = "error"
    assert None not in [
        r["y"] for r in rows_of("figure2", both, [1, 2]) if r["y_name"] == "metric_last"
    ]


# --- from runs to a written table ---------------------------------------------------------------


def finished_runs(
    results: Path, figure: str, campaign: Campaign | None = None
) -> tuple[Row, list[list[Any]]]:
    """Made runs of a figure, by default of the demo's campaign."""
    campaign = campaign or demo()
    ids = campaign.figure_configurations(figure)
    runs = [[id_, r] for id_ in ids for r in range(1, campaign.repeats[id_] + 1)]
    for id_, repeat in runs:
        hours = 4 / campaign.configurations[id_].gpus + repeat / 10
        energy = [part("cpu", "train", 3600 * hours, 1e6 * hours, origin="estimated")]
        spec = run_spec(campaign, id_, repeat)
        make_run(results, energy, spec=spec, torch_device="cpu", device_name="AMD EPYC")
    return table_definition(campaign, figure, runs), runs


def test_a_figures_table_is_written_from_its_own_runs_and_no_others(tmp_path: Path) -> None:
    made, runs = finished_runs(tmp_path, "figure4")
    out = tmp_path / "tables" / "figure4.parquet"
    write_figure_table(made, tmp_path, out)
    result = pq.read_table(out)
    assert result.schema.equals(POINTS)
    with_runs = [row["configuration"] for row in result.to_pylist() if row["n_repeats"]]
    assert set(with_runs) == {id_ for id_, _ in runs}
    repeated = [r for r in result.to_pylist() if r["series"] == "fourcastnet-pretrain-gbs12"]
    assert {r["n_repeats"] for r in repeated} == {3}
    assert all(r["y_sd"] > 0 for r in repeated if r["panel"] in "CD" and r["gpus"] == 4)
    metadata = json.loads(result.schema.metadata[b"scalewatt"])
    assert metadata["figure"] == "figure4" and metadata["campaign"] == "demo"
    assert metadata["missing"] == []
    assert metadata["gpu_word"] == "processes"
    with open(out.with_suffix(".csv"), newline="") as file:
        assert len(list(csv.DictReader(file))) == len(result)


ONE_SEED = f"Repeats share one seed: {SCATTER}"


@pytest.mark.parametrize("figure", ["figure4", "pareto", "table1"])
def test_where_errors_of_repeats_are_shown_it_is_said_that_they_share_one_seed(
    figure: str, tmp_path: Path
) -> None:
    content = read_yaml(PROJECT_ROOT / "campaigns" / "demo.yaml")
    shown = {"series": ["fourcastnet-pretrain-gbs12"]}
    if figure == "table1":
        shown = {"points": [{"series": "fourcastnet-pretrain-gbs12", "gpus": 2}]}  # type: ignore[dict-item]
    content["figures"] = {figure: shown}
    for seeds, note in (("same", ONE_SEED), ("varied", None)):
        content["series"]["fourcastnet-pretrain-gbs12"]["seeds"] = seeds
        campaign = expand(content, Path("demo.yaml"), known_devices())
        made, _ = finished_runs(tmp_path / seeds, figure, campaign)
        out = tmp_path / seeds / f"{figure}.parquet"
        write_figure_table(made, tmp_path / seeds, out)
        text = [each for each in metadata_of(out)["notes"] if each.endswith(SCATTER)]
        assert text == ([note] if note else [])


def test_a_run_that_is_left_out_is_named_and_its_configuration_is_not_missing(
    tmp_path: Path,
) -> None:
    made, runs = finished_runs(tmp_path, "figure2")
    alone = next(id_ for id_, _ in runs if [i for i, _ in runs].count(id_) == 1)
    out = [{"configuration": alone, "repeat": 1, "reason": "the fan failed"}]
    kept = [run for run in runs if run[0] != alone]
    made = table_definition(demo(), "figure2", kept[1:], out)
    write_figure_table(made, tmp_path, tmp_path / "figure2.parquet")
    result = pq.read_table(tmp_path / "figure2.parquet")
    text = json.loads(result.schema.metadata[b"scalewatt"])
    assert text["excluded"] == out
    assert text["missing"] == [kept[0][0]]
    assert {row["y"] for row in result.to_pylist() if row["configuration"] == alone} == {None}


def metadata_of(path: Path) -> Row:
    return json.loads(pq.read_schema(path).metadata[b"scalewatt"])  # type: ignore[no-any-return]


def test_why_energies_are_not_known_is_stored_by_configuration(tmp_path: Path) -> None:
    made, runs = finished_runs(tmp_path, "figure2")
    unknown = [part("cpu", "train", 3600, None, flags=("node_shared",))]
    for id_ in (runs[0][0], runs[-1][0]):
        files = RunFiles(tmp_path, id_, 1)
        write_energy(files.energy, unknown)
        write_row(files)
    made["excluded"] = [{"configuration": runs[-1][0], "repeat": 1, "reason": "busy"}]
    write_figure_table(made, tmp_path, tmp_path / "figure2.parquet")
    text = metadata_of(tmp_path / "figure2.parquet")["no_energy"]
    assert text == {runs[0][0]: "other runs measured on the node at the same time"}
