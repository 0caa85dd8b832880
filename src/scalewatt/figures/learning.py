"""Figure `learning`: the quality metric after each epoch, against energy and against time."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, prose, style
from scalewatt.results.figures.figure_schema import panel_letter

COSTS = {"energy_kwh": "energy_kwh", "time_h": "runtime_h"}
"""The table's columns on the horizontal axes, and the quantities that they are."""
MOST_STRONG = 12
"""Of a block with more curves only each series' smallest and largest n are in its colour."""
PALEST = 0.35
"""How much white is in the colour of a series' smallest n; its largest has none."""
BETWEEN: Any = {"color": "#b8b8b8", "linewidth": 0.5}
"""Look of the curves that are not in colour."""

Looks = dict[str, dict[str, Any]]


def draw(frame: pd.DataFrame) -> Figure:
    """Draw a row of two panels for each model and phase: against energy, and against time."""
    points = data.drawable(frame)
    points = points.assign(drawn_origin=data.drawn_origins(points))
    width = data.options(frame).width_mm
    bases = layout.looks_of(points, width)
    nothing = prose.nothing_sentence(data.stored(frame))
    blocks = [
        layout.Block(rows, _handles(rows, width, bases), layout.block_title(rows))
        for rows in data.blocks_of(points)
    ]
    draw_panel = partial(_draw_panel, bases=bases, word=data.gpu_word(frame))
    with style.applied(width):
        figure = layout.draw_blocks(blocks, width, draw_panel, nothing)
        style.notes(figure, _note_sentences(points))
    return figure


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Choose the epochs that are drawn: with a metric, and a place in energy or in time."""
    return frame[frame["metric"].notna() & (frame["energy_kwh"].notna() | frame["time_h"].notna())]


def curves(points: pd.DataFrame, cost: str) -> pd.DataFrame:
    """Place the epochs of each run in a panel, at x and y."""
    placed = points.assign(x=points[cost], y=points["metric"])
    return placed.dropna(subset=["x", "y"])


def means(places: pd.DataFrame) -> pd.DataFrame:
    """Average x and y over the runs of each configuration, epoch by epoch.

    A mean curve ends where one of the runs lacks a value. Rows are in table order.
    """
    runs = places.groupby("configuration")["repeat"].nunique()
    firsts = {name: (name, "first") for name in ("series", "gpus", "drawn_origin")}
    mean = (
        places.groupby(["configuration", "epoch"])
        .agg(x=("x", "mean"), y=("y", "mean"), known=("x", "size"), **firsts)
        .reset_index()
    )
    lacks = mean["known"] < mean["configuration"].map(runs)
    mean = mean[~lacks.groupby(mean["configuration"]).cummax()]
    order = {name: place for place, name in enumerate(places["configuration"].unique())}
    place = mean["configuration"].map(order)
    return mean.assign(place=place).sort_values(["place", "epoch"]).drop(columns="place")


def _looks(points: pd.DataFrame, bases: layout.Looks) -> Looks:
    """Choose the look of a block's curves: the series' marker and line, its colour paler the smaller n.

    Where there are many curves, those between a series' smallest and largest n have none.
    """
    lines = points.drop_duplicates("configuration").sort_values(["gpus", "configuration"])
    looks: Looks = {}
    for series, own in lines.groupby("series"):
        names = own["configuration"].to_list()
        whites = np.linspace(PALEST, 0.0, len(names)) if len(names) > 1 else [0.0]
        for name, white in zip(names, whites, strict=True):
            if len(lines) <= MOST_STRONG or name in (names[0], names[-1]):
                base = bases[str(series)]
                looks[name] = {**base, "color": style.paler(base["color"], white)}
    return looks


def _draw_panel(
    block: layout.Block,
    index: int,
    axes: Axes,
    panels: layout.Panels,
    bases: layout.Looks,
    word: str,
) -> None:
    points = block.points
    style.panel_letter(axes, panel_letter(index))
    cost = list(COSTS)[index % len(COSTS)]
    places = curves(points, cost)
    if places.empty:
        style.say_instead(axes, _why_empty(points, cost))
        return
    shown = prose.quantity(COSTS[cost], word, None).fitting(places["x"].to_list())
    places = places.assign(x=places["x"] * shown.factor)
    mean, looks = means(places), _looks(points, bases)
    _draw_curves(axes, places, mean, looks)
    axes.set(xlabel=shown.label, ylabel=prose.metric_words(points))
    if positive := [value for value in places["x"] if value > 0]:
        style.log_axis(axes, "x", positive, 10, panels.dense)
    style.linear_axis(axes, places["y"].to_list(), False)
    panels.wrap_labels(axes)
    lines = [line for _, line in mean[mean["configuration"].isin(looks)].groupby("configuration")]
    ends = pd.concat([mean[:0], *(line.tail(1) for line in lines)])
    labels = [
        layout.Label(end.x, end.y, f"{end.gpus}", style.legible(looks[end.configuration]["color"]))
        for end in data.each(ends)
    ]
    layout.write_labels(
        axes, labels, ends, [line for line in lines if len(line) > 1], panels.size_mm
    )


def _draw_curves(axes: Axes, places: pd.DataFrame, mean: pd.DataFrame, looks: Looks) -> None:
    """Draw mean curves with n at their ends, and repeats as thin lines; curves without a look in grey."""
    repeats = places.groupby("configuration")["repeat"].transform("nunique")
    repeated = places[places["configuration"].isin(looks) & (repeats > 1)]
    if not repeated.empty:
        seaborn.lineplot(
            repeated,
            x="x",
            y="y",
            hue="configuration",
            units="repeat",
            palette={name: look["color"] for name, look in looks.items()},
            estimator=None,
            sort=False,
            legend=False,
            linewidth=0.4,
            alpha=0.6,
            ax=axes,
        )
    for name, line in mean.groupby("configuration", sort=False):
        look = looks.get(str(name))
        if look is None:
            axes.plot(line["x"], line["y"], **BETWEEN)
            continue
        axes.plot(line["x"], line["y"], color=look["color"], linestyle=look["linestyle"], zorder=3)
        end = line.iloc[-1]
        axes.plot(end["x"], end["y"], **style.of_origin(look, end["drawn_origin"]), zorder=4)


def _why_empty(points: pd.DataFrame, cost: str) -> str:
    if points["metric"].isna().all():
        return "None of these runs has a metric."
    if cost == "energy_kwh":
        return "No energy of these runs' epochs is known."
    return "When the epochs of these runs ended is not known."


def _handles(points: pd.DataFrame, width_mm: float, bases: layout.Looks) -> list[Line2D]:
    """Legend entries of a block's series, with the marker of their energies' origin."""
    handles = layout.series_entries(points, bases)
    if len(_looks(points, bases)) < points["configuration"].nunique():
        handles.append(layout.entry("n in between", **BETWEEN))
    return handles + layout.origin_entries(points, width_mm)


def _note_sentences(points: pd.DataFrame) -> list[str]:
    if points.empty:
        return prose.table_notes(points)
    runs = "Thick: mean over repeats; thin: each repeat."
    return [
        prose.opening(points),
        "Ends are labelled with n; the darker, the larger n. "
        + (runs if (points["n_repeats"] > 1).any() else "All are single runs."),
        "Energy and time count from the start of the run, with work lost by killed segments.",
        prose.no_energy_sentence(points),
        prose.goal_sentence(points),
        *prose.table_notes(points),
    ]
