"""The columns of figures' tables and of Table 1 (docs/tables/index.md), and what figures of panels show.

A line of figures.csv describes figures of panels. Of its columns, `lines` is what a line joins (the points of
a series; one point a configuration; the batches or the clocks and limits of one training), `blocks` what has
rows of panels of its own, `labels` what is written at points, and `panels` are the quantities `x:y` on their
axes. A star marks panels with a Pareto front, and `B2=` is a letter other than the next one.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

from scalewatt.campaign.operating_points import LEVERS
from scalewatt.common.columns import schema
from scalewatt.common.errors import InputError

SWEPT = ("local_batch_size", "dataset_samples", *LEVERS)
"""Against these only lines of several values are drawn."""


def panel_letter(index: int) -> str:
    """Column `panel` for the panel at `index`: A … Z, AA, AB, …"""
    before, last = divmod(index, len(ascii_uppercase))
    return (panel_letter(before - 1) if before else "") + ascii_uppercase[last]


class Panel(NamedTuple):
    """One panel: its letter, and the quantities on its axes."""

    letter: str
    x_name: str
    y_name: str
    has_front: bool


class PanelFigure(NamedTuple):
    """A line of figures.csv."""

    lines: str
    blocks: list[str]
    columns: int
    labels: list[str]
    panels: list[Panel]
    bars: str
    """What error bars are by default; empty if `text` says it."""
    text: str


def _panel(index: int, words: str) -> Panel:
    letter, _, axes = words.rpartition("=")
    x_name, y_name = axes.split(":")
    has_front = y_name.endswith("*")
    return Panel(letter or panel_letter(index), x_name, y_name.rstrip("*"), has_front)


with Path(__file__).with_name("figures.csv").open(encoding="utf-8", newline="") as _file:
    PANEL_FIGURES = {
        name: PanelFigure(
            row["lines"],
            row["blocks"].split(),
            int(row["columns"]),
            row["labels"].split(),
            [_panel(index, words) for index, words in enumerate(row["panels"].split())],
            row["bars"],
            row["text"],
        )
        for row in csv.DictReader(_file)
        for name in row["figures"].split()
    }


def check_panels(name: str, letters: Sequence[str], series: Iterable[Any]) -> None:
    """Raise InputError if a figure of these series has no panels of these letters."""
    figure = PANEL_FIGURES[name]
    known = [panel.letter for panel in figure.panels]
    if figure.blocks:  # letters run on from block to block
        blocks = {tuple(getattr(line, key) for key in figure.blocks) for line in series}
        known = [panel_letter(index) for index in range(len(blocks) * len(known))]
    for letter in letters:
        if letter not in known:
            raise InputError(f"figures.{name}.panels: {letter}; allowed: {', '.join(known)}")


TABLE1_QUANTITIES = ("energy_kwh", "energy_per_node_kwh", "runtime_h", "gpu_hours", "metric_last")
VARIANT_QUANTITIES = (
    *("runtime_h", "energy_kwh", "energy_per_sample_j", "mean_gpu_power_w"),
    *("mean_cpu_socket_power_w", "throughput_samples_per_s", "step_data_share"),
    *("metric_last", "metric_best"),
)
RATIOS = {
    "runtime_ratio": "runtime_h",
    "energy_ratio": "energy_kwh",
    "energy_per_sample_ratio": "energy_per_sample_j",
}
"""What is divided by the baseline's."""
PREDICTION_IDENTITY = (
    *("campaign", "configuration", "model", "phase", "device", "gpus", "nodes"),
    *("local_batch_size", "global_batch_size", "dataset_samples", "epochs", "n_repeats"),
    *("energy_origin", "energy_scope"),
)
"""What a row of table prediction takes over from its configuration's."""

OVERVIEW = schema("figure1")
POINTS = schema("figure-points")
"""Of all figures of panels."""
POWER = schema("figure5")
TABLE1 = schema("table1")
VARIANTS = schema("variants", VARIANT_QUANTITIES)
PREDICTION = schema("prediction")
BREAKDOWN = schema("breakdown")
LEARNING = schema("learning")

SCHEMAS = {
    **dict.fromkeys(PANEL_FIGURES, POINTS),
    **{"figure1": OVERVIEW, "figure5": POWER, "table1": TABLE1, "variants": VARIANTS},
    **{"breakdown": BREAKDOWN, "learning": LEARNING, "prediction": PREDICTION},
}
"""The columns of each figure's table."""
