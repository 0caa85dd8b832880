"""Figures of panels, each a line of results/figures/figures.csv, drawn from one table of points.

Colour, marker and line are those of the series, the fill of a marker is the energy's origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, prose, style
from scalewatt.results.figures.figure_schema import PANEL_FIGURES
from scalewatt.results.figures.panel_points import SWEPT, prediction_points

FRONT: Any = {"color": style.INK, "linewidth": 0.8, "linestyle": (0, (4, 2)), "zorder": 2}
REFERENCE: Any = {"color": style.GREY, "linewidth": 0.8, "linestyle": (0, (4, 3)), "zorder": 1}
RATIOS = ("runtime_ratio", "energy_ratio")
"""Quantities that are 1 where a prediction holds."""
PART_WORDS = {
    "data_j": "waiting for data",
    "copy_j": "copying, decoding",
    "forward_j": "forward",
    "backward_j": "backward",
    "optimizer_j": "optimiser",
}
MOST_LABELLED = 20
"""Points of a panel with a front that are labelled; of more, those on the front alone."""


def draw(frame: pd.DataFrame) -> style.Drawing:
    """Draw a grid of panels for each block; panels without points are left out."""
    name = frame.attrs["figure"]
    points = data.points_of(points_table(frame))
    figure = PANEL_FIGURES[name]
    width = data.options(frame).width_mm
    shown = points[points["valued"]]
    looks = layout.looks_of(points, width)
    drawn = points[points["panel"].isin(shown["panel"])]
    blocks = [block for _, block in drawn.groupby(figure.blocks or "figure", sort=False)]
    letters = [letter for block in blocks for letter in block["panel"].unique()]

    def draw_panel(block: layout.Block, index: int, axes: Axes, panels: layout.Panels) -> None:
        rows = block.points[block.points["panel"] == letters[index]]
        style.panel_letter(axes, letters[index])
        if rows["y_name"].iloc[0] == "line":
            _draw_bars(axes, rows)
        else:
            _draw_points(axes, rows, block.points, looks, panels)
        panels.wrap_labels(axes)

    with style.applied(width):
        drawing = layout.draw_blocks(
            [
                layout.Block(
                    block,
                    _handles(block, looks, width),
                    _title(block, figure.blocks),
                    block["panel"].nunique(),
                    figure.columns,
                )
                for block in blocks
            ],
            width,
            draw_panel,
            prose.nothing_sentence(data.stored(frame)),
        )
        sentences = (
            prose.prediction_sentences(data.drawable(frame), figure.text)
            if name == "prediction"
            else prose.panel_sentences(points, figure.text)
        )
        style.notes(drawing, sentences)
    return drawing


def points_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Points of a figure from its table."""
    return prediction_points(frame) if frame.attrs["figure"] == "prediction" else frame


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the points that are drawn."""
    points = points_table(frame)
    return points[data.has_value(data.drawable(points)).to_numpy()]


def _title(block: pd.DataFrame, names: Sequence[str]) -> str:
    if not names:
        return ""
    return layout.block_title(block if "phase" in names else block.assign(phase="train"))


def _draw_points(
    axes: Axes,
    rows: pd.DataFrame,
    block: pd.DataFrame,
    looks: layout.Looks,
    panels: layout.Panels,
) -> None:
    """Draw the lines of one panel with their error bars, its front, and what stands for comparison."""
    valued = rows[rows["valued"]]
    x, y = (_quantity(valued, axis) for axis in "xy")
    factors = {
        f"{axis}{end}": q.factor
        for axis, q in (("x", x), ("y", y))
        for end in ("", "_low", "_high")
    }
    rows = rows.assign(**{name: rows[name] * factor for name, factor in factors.items()})
    valued = rows[rows["valued"]]
    for series, origin, line in layout.draw_series(axes, rows, looks, joined=x.joined):
        line.set_gid(f"points-{rows['panel'].iloc[0]}-{series}-{origin}")
    axes.set(xlabel=x.label, ylabel=y.label)
    # The same x in all panels of a block.
    same = block[block["valued"] & (block["x_name"] == rows["x_name"].iloc[0])]
    _scale(axes, "x", x, (same["x"] * x.factor).tolist(), data.bar_ends(valued, "x"), panels.dense)
    reference = valued["x"].tolist() if y.name == "speedup" else [1.0] * (y.name in RATIOS)
    _scale(axes, "y", y, valued["y"].tolist() + reference, data.bar_ends(valued), dense=True)
    if y.name == "speedup":
        axes.plot(axes.get_xlim(), axes.get_xlim(), **REFERENCE, gid="ideal")
    if y.name in RATIOS:
        axes.axhline(1.0, **REFERENCE)
    _draw_fronts(axes, valued, panels)


def _quantity(rows: pd.DataFrame, axis: str) -> prose.Quantity:
    """What an axis shows, in the unit that suits its values."""
    name = rows[f"{axis}_name"].iloc[0]
    label = prose.metric_words(rows) if name == "metric_last" else None
    return prose.quantity(name, data.gpu_word(rows), label).fitting(rows[axis].tolist())


def _scale(
    axes: Axes,
    which: str,
    shown: prose.Quantity,
    values: list[float],
    ends: list[float],
    dense: bool,
) -> None:
    """Fit an axis to its points, and to error bars as far as they do not squeeze the points."""
    extent = data.room_for(values, ends, log=shown.scale != "linear")
    positive = [value for value in extent if value > 0]
    if shown.scale != "linear" and positive:
        style.log_axis(axes, which, positive, 2 if shown.scale == "log2" else 10, dense)
    else:
        style.linear_axis(axes, extent, shown.from_zero, which)


def _draw_fronts(axes: Axes, points: pd.DataFrame, panels: layout.Panels) -> None:
    """Join the Pareto-optimal points of one origin and scope, and label points where there is room."""
    if points["pareto_optimal"].isna().all() and points["point_label"].isna().all():
        return
    on_front = points["pareto_optimal"].eq(True).astype(bool)
    fronts = [
        front.sort_values("x") for _, front in points[on_front].groupby(data.front_keys(points))
    ]
    for front in fronts:
        axes.plot(front["x"], front["y"], **FRONT, gid="front")
    if points["x_name"].iloc[0] in SWEPT:
        return
    few = points if len(points) <= MOST_LABELLED else points[on_front]
    labels = [
        layout.Label(row.x, row.y, row.point_label)
        for row in data.each(few.sort_values("pareto_optimal", key=lambda c: c.ne(True)))
    ]
    layout.write_labels(axes, labels, points, fronts, panels.size_mm)


def _draw_bars(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw a horizontal bar for each configuration, in parts."""
    bars, parts = rows.drop_duplicates("configuration"), list(rows["x_name"].unique())
    by_part = rows.pivot(index="configuration", columns="x_name", values="x")
    lengths = by_part.loc[bars["configuration"]]
    left, places = np.zeros(len(bars)), np.arange(len(bars))[::-1]
    for index, part in enumerate(parts):
        widths = lengths[part].to_numpy(float)
        axes.barh(places, widths, 0.72, left, **_part_look(index, len(parts)), gid=part)
        left = left + widths
    axes.set_yticks(places, bars["label"].to_list())
    axes.grid(visible=False, axis="y")
    batches = "/".join(map(str, sorted(rows["local_batch_size"].unique())))
    axes.set_xlabel(f"Energy per sample (J), LBS {batches}")


def _part_look(index: int, count: int) -> dict[str, Any]:
    white = 0.88 * (1 - index / max(count - 1, 1))
    return {
        "facecolor": style.paler(style.COLOURS[0], white),
        "edgecolor": "white",
        "linewidth": 0.3,
    }


def _handles(block: pd.DataFrame, looks: layout.Looks, width_mm: float) -> list[Any]:
    """The legend's entries: series, reference, front, and what the fill of markers means."""
    valued = block[block["valued"]]
    entry = partial(Line2D, [], [])
    has_lines = any(prose.quantity(name, "GPUs").joined for name in valued["x_name"].unique())
    handles: list[Any] = layout.series_entries(
        valued, looks, **({} if has_lines else {"linestyle": "none"})
    )
    if valued["y_name"].eq("speedup").any():
        handles.append(entry(label="ideal: S(n) = n", **REFERENCE))
    optimal = valued[valued["pareto_optimal"].eq(True)]
    if optimal.groupby(["panel", *data.front_keys(valued)]).size().gt(1).any():
        handles.append(entry(label="Pareto-optimal", **FRONT))
    parts = list(block.loc[block["y_name"] == "line", "x_name"].unique())
    handles += [
        Patch(label=PART_WORDS.get(part, part), **_part_look(index, len(parts)))
        for index, part in enumerate(parts)
    ]
    return handles + layout.origin_entries(valued, width_mm)
