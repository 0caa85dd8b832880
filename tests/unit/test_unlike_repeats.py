"""One repeat whose sensors differ: its configuration has no mean energy, the rest is made and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from figure_tables import any_table, as_table, draw, legend_of, words
from run_files import make_run, part

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import known_devices
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.run_spec import run_spec
from scalewatt.campaign.table_definitions import table_definition
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.common.yaml_files import read_yaml
from scalewatt.figures.draw_figure import draw_figure
from scalewatt.results.build import write_figure_table

REPEATED = "fourcastnet-pretrain-gbs12"
"""A series of the demo's campaign with three repeats at n = 1 and 2."""
ENERGIES = ("", "energy_kwh", "p_gpuh_kw", "mean_gpu_power_w")
WHY = "repeats differ in origin (measured, mixed)"


def campaign_of(figure: str) -> Campaign:
    """The demo's campaign with a figure of two series."""
    content = read_yaml(PROJECT_ROOT / "campaigns" / "demo.yaml")
    content["figures"] = {figure: {"series": ["fourcastnet-pretrain-lbs4", REPEATED]}}
    return expand(content, Path("demo.yaml"), known_devices())


def finished(results: Path, campaign: Campaign, ids: list[str]) -> tuple[str, list[list[Any]]]:
    """All runs of these configurations; the CPUs of one's second repeat could not be read."""
    unlike = next(id_ for id_ in ids if campaign.repeats[id_] > 1)
    runs = [[id_, r] for id_ in ids for r in range(1, campaign.repeats[id_] + 1)]
    for id_, repeat in runs:
        read = [id_, repeat] != [unlike, 2]
        cpus = part(
            "cpu", "train", 3600, 1.8e6 + repeat, origin="measured" if read else "estimated"
        )
        if not read:
            cpus |= {"energy_low_j": 1e6, "energy_high_j": 3e6}
        energy = [part("gpu", "train", 3600, 3.6e6 + repeat), cpus]
        make_run(results, energy, spec=run_spec(campaign, id_, repeat))
    return unlike, runs


@pytest.mark.parametrize("figure", ["figure4", "figure6", "breakdown", "pareto"])
def test_a_figure_shows_the_other_points_and_says_why_one_has_no_energy(
    figure: str, tmp_path: Path
) -> None:
    campaign = campaign_of(figure)
    unlike, runs = finished(tmp_path, campaign, campaign.figure_configurations(figure))
    path = tmp_path / f"{figure}.parquet"
    write_figure_table(table_definition(campaign, figure, runs), tmp_path, path)
    draw_figure(figure, path, tmp_path / figure)
    rows = pq.read_table(path).to_pylist()
    column = "energy_kwh" if figure == "breakdown" else "x" if figure == "pareto" else "y"
    of_energy = [row for row in rows if row.get(f"{column}_name", "") in ENERGIES]
    known = {row["configuration"] for row in of_energy if row[column] is not None}
    assert known == {id_ for id_, _ in runs} - {unlike}
    caption = (tmp_path / f"{figure}.caption.md").read_text()
    assert unlike in caption and WHY in caption


def test_points_of_a_series_with_several_origins_are_drawn_each_in_its_fill() -> None:
    rows = any_table(2).to_pylist()
    mixed = [row | {"energy_origin": "mixed" if row["gpus"] == 4 else "measured"} for row in rows]
    figure = draw("figure2", as_table(mixed, "figure2"))
    assert "Energy: measured by sensors, scope gpu+cpu+ram; partly measured and partly" in words(
        figure
    )
    assert {"filled markers: measured", "markers filled below: mixed"} <= set(legend_of(figure))
