"""Figure `learning`: the quality metric after each epoch, against energy and against time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, style
from scalewatt.figures.axes import Quantity, quantity, scale_axis
from scalewatt.results.figures.figure_schema import panel_letter
from scalewatt.results.text.captions import caption, larger_is_better, metric_words

COSTS = {"energy_kwh": "energy_kwh", "time_h": "runtime_h"}
"""The table's columns on the horizontal axes, and the quantities that they are."""
WHY_EMPTY = {
    "energy_kwh": "No energy of these runs' epochs is known.",
    "time_h": "When the epochs of these runs ended is not known.",
}
PALEST = 0.35
"""How much white is in the colour of a series' smallest n; its largest has none."""


def draw(points: pd.DataFrame) -> style.Drawing:
    """Draw a row of two panels for each model and phase: against energy, and against time."""
    points = points.assign(drawn_origin=data.drawn_origins(points))
    width = data.width_mm(points)
    looks = layout.looks_of(points, width)
    blocks = [rows for _, rows in points.groupby(["model", "phase"], sort=False)]
    with layout.styled(points):
        if blocks:
            handles = layout.series_entries(points, looks)
            figure, grid = layout.panel_grid([2] * len(blocks), 2, handles, width)
        else:
            figure, grid = layout.nothing(points), list[Axes]()
        for index, axes in enumerate(grid):
            rows, cost = blocks[index // 2], list(COSTS)[index % 2]
            style.panel_letter(axes, panel_letter(index))
            _draw_panel(axes, rows, cost, looks)
            if index % 2 == 0:
                layout.set_block_title(axes, rows)
        layout.wrap_labels(figure)
        style.notes(figure, caption(points, "learning", larger_is_better=larger_is_better(points)))
    return figure


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Choose the epochs that are drawn: with a metric, and a place in energy or in time."""
    return frame[frame["metric"].notna() & (frame["energy_kwh"].notna() | frame["time_h"].notna())]


def curves(points: pd.DataFrame, cost: str) -> pd.DataFrame:
    """Place the epochs of each run in a panel, at x and y."""
    return points.assign(x=points[cost], y=points["metric"]).dropna(subset=["x", "y"])


def mean_curves(epochs: pd.DataFrame, runs: pd.Series) -> pd.DataFrame:
    """Average x and y over the runs of each configuration, epoch by epoch, in table order.

    A mean curve ends where one of its `runs`, the number by configuration, lacks a value.
    """
    firsts = {name: (name, "first") for name in ("series", "gpus", "drawn_origin")}
    groups = epochs.groupby(["configuration", "epoch"])
    mean = groups.agg(x=("x", "mean"), y=("y", "mean"), known=("x", "size"), **firsts).reset_index()
    lacks = mean["known"] < mean["configuration"].map(runs)
    mean = mean[~lacks.groupby(mean["configuration"]).cummax()]
    order = {name: index for index, name in enumerate(epochs["configuration"].unique())}
    return mean.sort_values("configuration", key=lambda names: names.map(order), kind="stable")


def _draw_panel(axes: Axes, points: pd.DataFrame, cost: str, looks: layout.Looks) -> None:
    """Draw mean curves with a marker at the end of each, and thin lines for several repeats."""
    epochs = curves(points, cost)
    if epochs.empty:
        has_metric = points["metric"].notna().any()
        style.say_instead(axes, WHY_EMPTY[cost] if has_metric else "These runs have no metric.")
        return
    shown = quantity(COSTS[cost], data.gpu_word(points), epochs["x"])
    epochs = epochs.assign(x=epochs["x"] * shown.factor)
    means, labels = mean_curves(epochs, points.groupby("configuration")["repeat"].nunique()), []
    for series, rows in means.groupby("series", sort=False):
        look = looks[str(series)]
        counts = sorted(rows["gpus"].unique())
        whites = dict(zip(counts, np.linspace(PALEST, 0.0, len(counts)), strict=True))
        for (gpus, configuration), mean in rows.groupby(["gpus", "configuration"]):
            colour = style.paler(look["color"], whites[gpus] if len(counts) > 1 else 0.0)
            runs = epochs[epochs["configuration"] == configuration]
            if runs["repeat"].nunique() > 1:
                for _, run in runs.groupby("repeat"):
                    axes.plot(run["x"], run["y"], color=colour, linewidth=0.4, alpha=0.6)
            line: Any = {"color": colour, "linestyle": look["linestyle"], "zorder": 3}
            axes.plot(mean["x"], mean["y"], **line)
            end = mean.iloc[-1]
            marker = style.origin_style(look | {"color": colour}, end["drawn_origin"])
            axes.plot(end["x"], end["y"], **marker, zorder=4)
            if gpus in (counts[0], counts[-1]):
                labels.append((end["x"], end["y"], str(gpus)))
    axes.set(xlabel=shown.label, ylabel=metric_words(points))
    scale_axis(axes, "x", shown, epochs["x"].tolist())
    scale_axis(axes, "y", Quantity("metric", ""), epochs["y"].tolist())
    layout.write_labels(axes, labels)
