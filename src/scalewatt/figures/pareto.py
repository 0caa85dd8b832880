"""Figure `pareto`: the quality metric against energy and against run time, with their fronts."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, prose, style
from scalewatt.results.figures.figure_schema import panel_letter

plotted = data.plotted  # which `draw_figure` reads
COSTS = ("energy_kwh", "runtime_h")
"""On the horizontal axes of a block's panels."""
FRONT: Any = {"color": style.INK, "linewidth": 0.8, "zorder": 2}
DASHES: tuple[Any, ...] = (
    (0, (4, 2)),
    (0, (1.2, 1.4)),
    (0, (7, 1.5, 1.2, 1.5)),
    (0, (2, 3)),
)
"""Of the only front of a panel, and of its first, second, third where it has several."""


def draw(frame: pd.DataFrame) -> Figure:
    """Draw a row of two panels for each model and phase; the non-dominated points are joined."""
    points = data.points_of(frame, "xy")
    width = data.options(frame).width_mm
    blocks = data.blocks_of(points)
    looks = layout.looks_of(points, width)

    def draw_panel(block: layout.Block, index: int, axes: Axes, panels: layout.Panels) -> None:
        cost = COSTS[index % len(COSTS)]
        own = block.points[block.points["x_name"] == cost]
        style.panel_letter(axes, panel_letter(index) if own.empty else own["panel"].iloc[0])
        if not own["valued"].any():
            style.say_instead(axes, _why_empty(block.points, cost))
        else:
            _draw_panel(axes, own, looks, panels)

    with style.applied(width):
        figure = layout.draw_blocks(
            [layout.Block(own, _handles(own, looks, width)) for own in blocks],
            width,
            draw_panel,
            prose.nothing_sentence(data.stored(frame)),
        )
        style.notes(figure, _note_sentences(points))
    return figure


def fronts(points: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the Pareto-optimal points of one panel from the cheapest on, one table for each comparable set.

    Energies are compared within one origin and scope only.
    """
    best = points[(points["non_dominated"] == True) & data.has_value(points)]  # noqa: E712
    best = best.sort_values(["x", "y"], kind="stable")
    if best.empty or best["x_name"].iloc[0] != "energy_kwh":
        return [] if best.empty else [best]
    keys = ["energy_origin", "energy_scope"]
    return [own for _, own in best.groupby(keys, sort=False, dropna=False)]


def named_fronts(points: pd.DataFrame) -> list[tuple[str, Any, pd.DataFrame]]:
    """Return the fronts of one panel, each with its label in the legend and its dashes.

    Labels of several fronts name what tells them apart: scope, origin or both.
    """
    found = fronts(points)
    if len(found) < 2:
        return [("Pareto-optimal (n, LBS)", DASHES[0], front) for front in found]
    kinds = [front.iloc[0][["energy_scope", "energy_origin"]].astype(str) for front in found]
    apart = [name for name in kinds[0].index if len({kind[name] for kind in kinds}) > 1]
    return [
        (f"Pareto-optimal, {', '.join(kind[apart])}", DASHES[1 + index % (len(DASHES) - 1)], front)
        for index, (kind, front) in enumerate(zip(kinds, found, strict=True))
    ]


def _draw_panel(axes: Axes, rows: pd.DataFrame, looks: layout.Looks, panels: layout.Panels) -> None:
    """Draw one panel."""
    points = rows[rows["valued"]]
    first = points.iloc[0]
    cost = prose.quantity(first["x_name"], data.gpu_word(rows), first["model"])
    cost = cost.fitting(points["x"].to_list())
    across = ("x", "x_bar_low", "x_bar_high", "x_estimate_low", "x_estimate_high")
    points = points.assign(**{name: points[name] * cost.factor for name in across})
    layout.draw_series(axes, points, looks, joined=False)
    axes.set(xlabel=cost.label, ylabel=prose.metric_words(rows))
    layout.draw_error_bars(axes, points, looks, "xy", width=0.7)
    layout.draw_estimates(axes, points, looks, "x")
    ends = {axis: data.bar_ends(points, axis) for axis in "xy"}
    costs = data.room_for(points["x"].to_list(), ends["x"], log=True)
    costs += points[["x_estimate_low", "x_estimate_high"]].dropna().to_numpy().ravel().tolist()
    if positive := [value for value in costs if value > 0]:
        style.log_axis(axes, "x", positive, 10, panels.dense)
    style.linear_axis(axes, data.room_for(points["y"].to_list(), ends["y"], log=False), False)
    panels.wrap_labels(axes)
    _draw_fronts(axes, points, panels)


def _why_empty(rows: pd.DataFrame, cost: str) -> str:
    """Return why a block has no point against a cost; `rows` are those of the block."""
    first = rows.iloc[0]
    lacks_cost = rows.loc[rows["x_name"] == cost, "x"].isna().all()
    lacking = cost if lacks_cost else first["y_name"]
    return prose.no_value_sentence(
        lacking, data.gpu_word(rows), first["model"], first["metric_name"]
    )


def _draw_fronts(axes: Axes, points: pd.DataFrame, panels: layout.Panels) -> None:
    """Join the points of each front, and label them with n and local batch size."""
    named = named_fronts(points)
    for _, dashes, front in named:
        axes.plot(front["x"], front["y"], **FRONT, linestyle=dashes, gid="front")
    lines = [front for _, _, front in named]
    labels = [
        layout.Label(row.x, row.y, f"{row.gpus}, {row.local_batch_size}")
        for front in lines
        for row in data.each(front)
    ]
    layout.write_labels(axes, labels, points, lines, panels.size_mm)


def _handles(points: pd.DataFrame, looks: layout.Looks, width: float) -> list[Line2D]:
    """Return the series of a block, its fronts, and what origins look like where there are several."""
    handles = layout.series_entries(points, looks, linestyle="none")
    of_fronts: dict[str, Any] = {}
    for _, own in data.groups(points, "panel"):
        of_fronts |= {label: dashes for label, dashes, _ in named_fronts(own)}
    handles += [
        layout.entry(label, **FRONT, linestyle=dashes) for label, dashes in of_fronts.items()
    ]
    return handles + layout.origin_entries(points, width)


# --- notes ----------------------------------------------------------------------------------------


def _note_sentences(points: pd.DataFrame) -> list[str]:
    sentences = [
        prose.opening(points),
        "Dashed: Pareto-optimal by means, within one origin and scope; labelled with n and local batch size.",
        prose.bar_sentence(data.options(points).error_bars, points.loc[points["valued"], "single"]),
        prose.estimate_sentence(points[points["valued"]], "x"),
        prose.goal_sentence(points),
        prose.null_sentence(points),
        prose.no_energy_sentence(points),
    ]
    return [
        *(sentences if len(points) else []),
        *prose.table_notes(points),
    ]
