"""Figure `pareto`: the quality metric against energy and against run time, with their fronts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.figures import style
from scalewatt.figures.figure_data import (
    bar_ends,
    blocks_of,
    drawable,
    drawn_origins,
    each,
    error_bars,
    gpu_word,
    groups,
    has_value,
    is_beyond,
    is_published,
    is_single,
    options,
    room_for,
    series_labels,
    stored,
)
from scalewatt.figures.figure_data import plotted as plotted
from scalewatt.figures.footnote_text import (
    bar_sentence,
    device_sentence,
    goal_sentence,
    metric_words,
    named,
    no_energy_sentence,
    no_value_sentence,
    nothing_sentence,
    null_sentence,
    origin_sentence,
    quantity,
    table_notes,
)
from scalewatt.figures.layout import (
    Block,
    Label,
    Looks,
    Panels,
    draw_blocks,
    draw_error_bars,
    draw_series,
    entry,
    origin_entries,
    places_of,
    series_entry,
    write_labels,
)
from scalewatt.results.figures.figure_schema import PARETO, panel_letter
from scalewatt.results.tables.frames import records

SCHEMA: pa.Schema = PARETO
KEY: tuple[str, ...] = ()
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


@dataclass(frozen=True)
class _Context:
    """What all panels of one figure share."""

    looks: Looks
    """By series; they begin anew in each block."""
    word: str
    cut: list[str] = field(default_factory=list)
    """Panels with error bars that reach beyond their axes, as far as they are drawn."""


def draw(frame: pd.DataFrame) -> Figure:
    """Draw a row of two panels for each model and phase; the non-dominated points are joined."""
    points = _points(frame)
    width = options(frame).width_mm
    blocks = blocks_of(points)
    looks = {
        s: style.series_style(i, width) for own in blocks for i, s in enumerate(series_labels(own))
    }
    context = _Context(looks, gpu_word(frame))

    def draw_panel(block: Block, index: int, axes: Axes, panels: Panels) -> None:
        cost = COSTS[index % len(COSTS)]
        own = block.points[block.points["x_name"] == cost]
        style.panel_letter(axes, panel_letter(index) if own.empty else own["panel"].iloc[0])
        if own["valued"].any():
            _draw_panel(axes, own, context, panels)
        else:
            style.say_instead(axes, _why_empty(block.points, cost, context.word))

    with style.applied(width):
        return draw_blocks(
            [Block(own, _handles(own, context, width)) for own in blocks],
            width,
            lambda: _note_sentences(points, context),
            draw_panel,
            nothing_sentence(stored(frame)),
        )


def _points(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with what drawing needs of each: its origin, and its error bars on both axes."""
    points = drawable(frame)
    kind = options(frame).error_bars
    bars = {
        f"{axis}_bar_{end}": ends
        for axis in "xy"
        for end, ends in error_bars(points, kind, axis).items()
    }
    return points.assign(
        valued=has_value(points),
        single=is_single(points),
        published=is_published(points),
        drawn_origin=drawn_origins(points),
        **bars,
    )


def fronts(points: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the Pareto-optimal points of one panel from the cheapest on, one table for each comparable set.

    Energies are compared within one origin and scope only.
    """
    best = points[(points["non_dominated"] == True) & has_value(points)]  # noqa: E712
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


def _draw_panel(axes: Axes, rows: pd.DataFrame, context: _Context, panels: Panels) -> None:
    points = rows[rows["valued"]]
    first = points.iloc[0]
    cost = quantity(first["x_name"], context.word, first["model"]).fitting(points["x"].to_list())
    across = ("x", "x_bar_low", "x_bar_high")
    points = points.assign(**{name: points[name] * cost.factor for name in across})
    draw_series(axes, points, context.looks, joined=False)
    panels.set_labels(axes, cost.label, metric_words(records(rows)))
    bars = {
        axis: points[[f"{axis}_bar_low", f"{axis}_bar_high"]].set_axis(["low", "high"], axis=1)
        for axis in "xy"
    }
    draw_error_bars(axes, points, context.looks, across=bars["x"], upright=bars["y"], width=0.7)
    ends = {axis: bar_ends(own) for axis, own in bars.items()}
    costs = room_for(points["x"].to_list(), ends["x"], log=True)
    if positive := [value for value in costs if value > 0]:
        style.log_axis(axes, "x", positive, 10, panels.dense)
    style.linear_axis(axes, room_for(points["y"].to_list(), ends["y"], log=False), False)
    if is_beyond(axes.get_xlim(), ends["x"]) or is_beyond(axes.get_ylim(), ends["y"]):
        context.cut.append(first["panel"])
    _draw_fronts(axes, points, panels)


def _why_empty(rows: pd.DataFrame, cost: str, word: str) -> str:
    """Return why a block has no point against a cost; `rows` are those of the block."""
    first = rows.iloc[0]
    lacks_cost = rows.loc[rows["x_name"] == cost, "x"].isna().all()
    lacking = cost if lacks_cost else first["y_name"]
    return no_value_sentence(lacking, word, first["model"], first["metric_name"])


def _draw_fronts(axes: Axes, points: pd.DataFrame, panels: Panels) -> None:
    """Join the points of each front, and label them with n and local batch size."""
    labels, lines = [], []
    for _, dashes, front in named_fronts(points):
        axes.plot(front["x"], front["y"], **FRONT, linestyle=dashes, gid="front")
        lines.append(places_of(front))
        labels += [
            Label(row.x, row.y, f"{row.gpus}, {row.local_batch_size}") for row in each(front)
        ]
    write_labels(axes, labels, places_of(points), lines, panels.size_mm)


def _handles(points: pd.DataFrame, context: _Context, width: float) -> list[Line2D]:
    """Return the series of a block, its fronts, and what origins look like where there are several."""
    handles = [
        series_entry(points, series, label, context.looks[series], linestyle="none")
        for series, label in series_labels(points).items()
    ]
    of_fronts: dict[str, Any] = {}
    for _, own in groups(points, "panel"):
        of_fronts |= {label: dashes for label, dashes, _ in named_fronts(own)}
    handles += [entry(label, **FRONT, linestyle=dashes) for label, dashes in of_fronts.items()]
    return handles + origin_entries(points, width)


# --- notes ----------------------------------------------------------------------------------------


def _note_sentences(points: pd.DataFrame, context: _Context) -> list[str]:
    table, rows = stored(points), records(points)
    said = [
        f"{origin_sentence(rows)} n counts {context.word}. {device_sentence(rows)}",
        "Dashed: Pareto-optimal points by their means: no other point is at least as good and as cheap,"
        " and better in one; labelled with n and local batch size where there is room. Energies are"
        " compared within one origin and scope only. A configuration shared by several series is shown"
        " with the first of them.",
        _bar_sentence(points[points["valued"]], context, options(points).error_bars),
        goal_sentence(map(records, blocks_of(points))),
        _null_sentence(points),
        no_energy_sentence(table, rows),
    ]
    return [
        *(said if rows else []),
        *table_notes(table),
    ]


def _bar_sentence(points: pd.DataFrame, context: _Context, kind: str) -> str:
    """Return which error bars are drawn, which points have none and why, which are cut."""
    singles = int(points["single"].sum())
    barred = int(points[["x_bar_low", "y_bar_low"]].notna().any(axis=1).sum())
    said = "; points without one are single runs" if singles else ""
    if barred + singles < len(points):
        said += "; not known for some points"
    if context.cut:
        said += f"; in {', '.join(context.cut)} some reach beyond the axis"
    return bar_sentence(kind, len(points), singles, barred, said)


def _null_sentence(points: pd.DataFrame) -> str:
    """Return configurations without a place in a panel that has other points."""
    drawn = points.loc[points["valued"], "panel"]
    lacking = points[~points["valued"] & points["panel"].isin(drawn)]
    by_panel = groups(lacking, "panel")
    return null_sentence([(panel, named(list(own["configuration"]))) for panel, own in by_panel])
