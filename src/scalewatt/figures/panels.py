"""Figures of panels, each a line of results/figures/figures.csv, drawn from one table of points.

Colour, marker and line are those of the series, the fill of a marker is the energy's origin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, style
from scalewatt.figures.axes import Quantity, quantity, room_for, scale_axis
from scalewatt.results.figures.figure_schema import PANEL_FIGURES, POINTS, SWEPT
from scalewatt.results.tables.frames import PUBLISHED
from scalewatt.results.text.captions import (
    caption,
    larger_is_better,
    metric_words,
    prediction_facts,
)

FRONT: Any = {"color": style.INK, "linewidth": 0.8, "linestyle": (0, (4, 2)), "zorder": 2}
REFERENCE: Any = {"color": style.GREY, "linewidth": 0.8, "linestyle": (0, (4, 3)), "zorder": 1}
RATIOS = ("runtime_ratio", "energy_ratio")
"""Quantities that are 1 where a prediction holds."""


def draw(frame: pd.DataFrame) -> style.Drawing:
    """Draw a grid of panels for each block; panels without points are left out."""
    figure, width = PANEL_FIGURES[frame.attrs["figure"]], data.width_mm(frame)
    points = points_table(frame)
    valued = points[["x", "y"]].notna().all(axis=1)
    points = points.assign(valued=valued, drawn_origin=data.drawn_origins(points))
    looks = layout.looks_of(points, width)
    shown = points[points["panel"].isin(points.loc[points["valued"], "panel"])]
    blocks = [block for _, block in shown.groupby(figure.blocks or "figure", sort=False)]
    with layout.styled(frame):
        if not blocks:
            drawing = layout.nothing(frame)
        else:
            counts = [block["panel"].nunique() for block in blocks]
            drawing, grid = layout.panel_grid(counts, figure.columns, _handles(shown, looks), width)
        for block in blocks:
            panels, grid = grid[: block["panel"].nunique()], grid[block["panel"].nunique() :]
            if figure.blocks:
                layout.set_block_title(panels[0], block, "phase" in figure.blocks)
            for axes, (letter, rows) in zip(
                panels, block.groupby("panel", sort=False), strict=True
            ):
                style.panel_letter(axes, str(letter))
                _draw_points(axes, rows, block, looks)
        layout.wrap_labels(drawing)
        style.notes(drawing, _caption(frame, points))
    return drawing


def points_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Points of a figure from its table, of the panels that the campaign asks for."""
    points = prediction_points(frame) if frame.attrs["figure"] == "prediction" else frame
    chosen = data.option(frame, "panels")
    return points[points["panel"].isin(chosen)] if chosen else points


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the points that are drawn: those with a place on both axes."""
    return points_table(frame).dropna(subset=["x", "y"])


def prediction_points(predictions: pd.DataFrame) -> pd.DataFrame:
    """Points of the figure `prediction`, from its table: measured over predicted values, and the interval
    that the prediction's leaves to the ratio."""
    rows = []
    for panel in PANEL_FIGURES["prediction"].panels:
        known = predictions[predictions["quantity"] == panel.x_name.removeprefix("predicted_")]
        phase = known["phase"].map(lambda name: "" if name == "train" else f" {name}")
        series = known["model"] + phase + " on " + known["device"]
        ends = {"y": "predicted", "y_low": "predicted_high", "y_high": "predicted_low"}
        ratios = {name: known["found"] / known[end] for name, end in ends.items()}
        names = {"x_name": panel.x_name, "y_name": panel.y_name, "panel": panel.letter}
        points = known.assign(**names, **ratios, x=known["predicted"], series=series, label=series)
        rows.append(points.reindex(columns=POINTS.names))
    points = pd.concat(rows, ignore_index=True).assign(figure="prediction")
    points.attrs = predictions.attrs
    return points


# --- one panel ------------------------------------------------------------------------------------


def _draw_points(axes: Axes, rows: pd.DataFrame, block: pd.DataFrame, looks: layout.Looks) -> None:
    """Draw the lines of one panel with their error bars, its front, and what stands for comparison."""
    x, y = (_quantity(rows[rows["valued"]], axis) for axis in "xy")
    for axis, shown in (("x", x), ("y", y)):
        columns = [axis, f"{axis}_low", f"{axis}_high"]
        rows = rows.assign(**{name: rows[name] * shown.factor for name in columns})
    valued = rows[rows["valued"]]
    _draw_series(axes, rows, looks, "joined" in x.tags)
    # The same x in all panels of a block.
    same = block[block["valued"] & (block["x_name"] == x.name)]
    extents = {"x": (x, (same["x"] * x.factor).tolist()), "y": (y, valued["y"].tolist())}
    if y.name == "speedup":
        extents["y"][1].extend(valued["x"])
    if y.name in RATIOS:
        extents["y"][1].append(1.0)
        axes.axhline(1.0, **REFERENCE)
    for which, (shown, values) in extents.items():
        axes.set(**{f"{which}label": shown.label})
        ends = valued[[f"{which}_low", f"{which}_high"]].dropna().to_numpy(float).ravel().tolist()
        scale_axis(axes, which, shown, room_for(values, ends, log=bool(shown.base)))
    if y.name == "speedup":
        axes.plot(axes.get_xlim(), axes.get_xlim(), **REFERENCE, gid="ideal")
    if x.name not in SWEPT:
        _draw_fronts(axes, valued)


def _quantity(rows: pd.DataFrame, axis: str) -> Quantity:
    """Quantity of an axis, in the unit that suits its values."""
    name = rows[f"{axis}_name"].iloc[0]
    label = metric_words(rows) if name == "metric_last" else None
    return quantity(name, data.gpu_word(rows), rows[axis], label)


def _draw_series(axes: Axes, points: pd.DataFrame, looks: layout.Looks, joined: bool) -> None:
    """Draw points with error bars. If `joined`, a line goes through those of a series by n and x.

    It breaks at points without a value, and of another origin.
    """
    ordered = points.sort_values(["gpus", "x"], kind="stable")
    ordered = ordered if joined else ordered.dropna(subset=["x", "y"])
    ordered = ordered.assign(
        origin=ordered["drawn_origin"].fillna("None").astype(str),
        published=ordered["drawn_origin"] == PUBLISHED,
    )
    keys = ordered[["series", "origin", "published"]].drop_duplicates()
    for series, origin, is_published in keys.itertuples(index=False, name=None):
        rows = ordered[(ordered["series"] == series) & (ordered["published"] == is_published)]
        look = style.origin_style(looks[series], origin)
        look |= {} if joined and not is_published else {"linestyle": "none"}
        line, _, _ = axes.errorbar(
            rows["x"].to_numpy(float),
            rows["y"].where(rows["origin"] == origin).to_numpy(float),
            _error_lengths(rows, "y"),
            _error_lengths(rows, "x"),
            **look,
            elinewidth=0.8,
            capsize=0.4 * look["markersize"],
            zorder=4 if is_published else 3,
        )
        line.set_gid(f"points-{rows['panel'].iloc[0]}-{series}-{origin}")


def _error_lengths(rows: pd.DataFrame, axis: str) -> Any:
    """Lengths of error bars below and above the points, or None without any."""
    ends = rows[[f"{axis}_low", f"{axis}_high"]].to_numpy(float)
    lengths = abs(ends - rows[[axis]].to_numpy(float))
    return None if np.isnan(lengths).all() else lengths.T


def _draw_fronts(axes: Axes, points: pd.DataFrame) -> None:
    """Join the Pareto-optimal points of each phase, origin and scope, and label them, then the others."""
    for _, front in _fronts(points):
        front = front.sort_values("x")
        axes.plot(front["x"], front["y"], **FRONT, gid="front")
    labelled = points[points["point_label"].notna()]
    labelled = labelled.sort_values("pareto_optimal", key=lambda column: column.ne(True))
    columns = labelled[["x", "y", "point_label"]]
    layout.write_labels(axes, list(columns.itertuples(index=False, name=None)))


def _fronts(points: pd.DataFrame) -> Any:
    """Group the Pareto-optimal points of panels by what points of one front agree in."""
    of_energy = points["x_name"].str.contains("energy") | points["y_name"].str.contains("energy")
    kinds = points["energy_origin"] + points["energy_scope"]
    optimal = points[points["pareto_optimal"].eq(True)]
    return optimal.groupby(["panel", "phase", kinds.where(of_energy, "")], dropna=False)


# --- words ----------------------------------------------------------------------------------------


def _handles(points: pd.DataFrame, looks: layout.Looks) -> list[Artist]:
    """Legend entries: series, what the fill of markers means, reference, front."""
    valued = points[points["valued"]]
    has_lines = any("joined" in quantity(name).tags for name in valued["x_name"].unique())
    look = {} if has_lines else {"linestyle": "none"}
    handles = layout.series_entries(valued, looks, **look)
    if valued["y_name"].eq("speedup").any():
        handles.append(Line2D([], [], label="ideal: S(n) = n", **REFERENCE))
    if (_fronts(valued).size() > 1).any():
        handles.append(Line2D([], [], label="Pareto-optimal", **FRONT))
    return handles


def _caption(frame: pd.DataFrame, points: pd.DataFrame) -> list[str]:
    name, word = frame.attrs["figure"], data.gpu_word(frame)
    figure = PANEL_FIGURES[name]
    if name == "prediction":
        return caption(frame, name, text=figure.text, **prediction_facts(frame))
    valued = points[points["valued"]]
    is_shown = points["panel"].isin(valued["panel"])
    empty = points[~is_shown].drop_duplicates("panel")
    return caption(
        points,
        name,
        text=figure.text,
        error_bars=data.option(frame, "error_bars", figure.bars) if len(valued) else "",
        larger_is_better=larger_is_better(valued[valued["y_name"] == "metric_last"]),
        empty_panels=[
            f"{panel} ({quantity(name, word, label='metric').label})"
            for panel, name in empty[["panel", "y_name"]].to_numpy()
        ],
    )
