"""Figure `pareto`: the quality metric against energy and against run time, with their fronts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.figures import style
from scalewatt.figures.blocks import (
    Label,
    goal_sentence,
    legend_above,
    legend_columns,
    metric_words,
    small_print_mm,
    width_of,
    write_labels,
)
from scalewatt.figures.points import Row, gpu_word, has_value, metadata, series_labels
from scalewatt.figures.words import (
    BAR_WORDS,
    FILL_WORDS,
    ORIGINS,
    Quantity,
    device_sentence,
    excluded_sentence,
    missing_sentence,
    no_value_sentence,
    nothing_sentence,
    origin_sentence,
    quantity,
)

PANEL_HEIGHT_MM = 62.0
FRONT: Any = {"color": style.INK, "linewidth": 0.8, "linestyle": (0, (4, 2)), "zorder": 2}


@dataclass(frozen=True)
class _Context:
    """What all panels of one figure share."""

    looks: dict[str, dict[str, Any]]
    word: str
    bars: str
    size_mm: tuple[float, float]
    """About the size of a panel's axes."""


def draw(table: pa.Table) -> Figure:
    """A row of two panels for each model and phase; the non-dominated points are joined."""
    rows = table.to_pylist()
    width = width_of(table)
    labels = series_labels(rows)
    looks = {name: style.series_style(i, width) for i, name in enumerate(labels)}
    bars = metadata(table).get("options", {}).get("error_bars", "interval")
    columns = 1 if style.preset(width).narrow else 2
    size_mm = (width / columns - 18, PANEL_HEIGHT_MM - 14)
    context = _Context(looks, gpu_word(table), bars, size_mm)
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    sentences = _note_sentences(table, rows, context)
    handles = _handles(rows, labels, context)
    in_line = legend_columns(handles, width)
    panel_rows = max(1, -(-len(panels) // columns))
    height = panel_rows * PANEL_HEIGHT_MM + small_print_mm(sentences, len(handles), in_line, width)
    with style.applied(width):
        figure = style.new_figure(height, width)
        if panels:
            grid = figure.subplots(panel_rows, columns, squeeze=False).ravel().tolist()
            for letter, axes in zip(panels, grid, strict=True):
                style.panel_letter(axes, letter)
                _draw_panel(axes, [row for row in rows if row["panel"] == letter], context)
            legend_above(figure, handles, in_line, 3)
        else:
            style.say_instead(figure.subplots(), nothing_sentence(metadata(table)))
        style.notes(figure, sentences)
    return figure


def plotted(table: pa.Table) -> pa.Table:
    """The rows that are drawn as points."""
    return table.filter(pc.and_(pc.is_valid(table["x"]), pc.is_valid(table["y"])))


def fronts(points: Sequence[Row]) -> list[list[Row]]:
    """The non-dominated points of one panel from the cheapest on, one list for each comparable set."""
    best = sorted((p for p in points if p["non_dominated"]), key=lambda p: (p["x"], p["y"]))
    energy = bool(best) and best[0]["x_name"] == "energy_kwh"
    sets: dict[Any, list[Row]] = {}
    for point in best:
        key = (point["energy_origin"], point["energy_scope"]) if energy else None
        sets.setdefault(key, []).append(point)
    return list(sets.values())


def _draw_panel(axes: Axes, rows: Sequence[Row], context: _Context) -> None:
    points = [row for row in rows if has_value(row)]
    first = rows[0]
    metric = metric_words(rows)
    cost = quantity(first["x_name"], context.word, first["model"])
    if not points:
        lacking = first["x_name"] if all(row["x"] is None for row in rows) else first["y_name"]
        sentence = no_value_sentence(lacking, context.word, first["model"], first["metric_name"])
        style.say_instead(axes, sentence)
        return
    cost = cost.fitting([point["x"] for point in points])
    axes.set(xlabel=cost.label, ylabel=metric)
    for point in points:
        _draw_point(axes, point, cost, context)
    for front in fronts(points):
        axes.plot([p["x"] * cost.factor for p in front], [p["y"] for p in front], **FRONT)
    costs = [point["x"] for point in points]
    costs += [end for point in points for end in _bar(point, "x", context.bars) or ()]
    positive = [value * cost.factor for value in costs if value > 0]
    if positive:
        style.log_axis(axes, "x", positive, 10, dense=True)
    ends = [end for point in points for end in _bar(point, "y", context.bars) or ()]
    style.linear_axis(axes, [point["y"] for point in points] + ends, from_zero=False)
    labels = [
        Label(p["x"] * cost.factor, p["y"], f"{p['gpus']}, {p['local_batch_size']}")
        for front in fronts(points)
        for p in front
    ]
    marks = [(point["x"] * cost.factor, point["y"]) for point in points]
    write_labels(axes, labels, marks, context.size_mm)


def _draw_point(axes: Axes, point: Row, cost: Quantity, context: _Context) -> None:
    look = context.looks[point["series"]] | {"linestyle": "none"}
    look |= style.origin_style(point["energy_origin"], look["color"])
    axes.plot([point["x"] * cost.factor], [point["y"]], **look, zorder=3)
    across, upright = (_bar(point, axis, context.bars) for axis in "xy")
    if across is None and upright is None:
        return
    axes.errorbar(
        [point["x"] * cost.factor],
        [point["y"]],
        xerr=_errors(across, point["x"], cost.factor),
        yerr=_errors(upright, point["y"], 1.0),
        fmt="none",
        ecolor=look["color"],
        elinewidth=0.7,
        zorder=2,
    )


def _bar(point: Row, axis: str, bars: str) -> tuple[float, float] | None:
    """The ends of a point's error bar; None without one, as of a single run."""
    middle = point[axis]
    if bars == "interval":
        low, high = point[f"{axis}_low"], point[f"{axis}_high"]
    else:
        half = point.get(f"{axis}_{bars}")
        low, high = (None, None) if half is None else (middle - half, middle + half)
    return None if low is None or high is None else (low, high)


def _errors(
    ends: tuple[float, float] | None, middle: float, factor: float
) -> list[list[float]] | None:
    if ends is None:
        return None
    return [[(middle - ends[0]) * factor], [(ends[1] - middle) * factor]]


def _handles(rows: Sequence[Row], labels: dict[str, str], context: _Context) -> list[Line2D]:
    handles = []
    for series, label in labels.items():
        origins = [row["energy_origin"] for row in rows if row["series"] == series]
        own = next((origin for origin in origins if origin != "published"), "published")
        look = context.looks[series] | {"linestyle": "none"}
        look |= style.origin_style(own, look["color"])
        handles.append(Line2D([], [], label=label, **look))
    if any(row["non_dominated"] for row in rows):
        handles.append(Line2D([], [], label="not dominated (n, LBS)", **FRONT))
    origins = [o for o in ORIGINS if any(row["energy_origin"] == o for row in rows)]
    if len(origins) > 1:
        for origin in origins:
            look = {"color": style.GREY, "marker": "o", "linestyle": "none", "markersize": 5}
            look |= style.origin_style(origin, style.GREY)
            handles.append(Line2D([], [], label=f"{FILL_WORDS[origin]}: {origin}", **look))
    return handles


def _note_sentences(table: pa.Table, rows: Sequence[Row], context: _Context) -> list[str]:
    stored = metadata(table)
    said = [
        f"{origin_sentence(rows)} n counts {gpu_word(table)}. {device_sentence(rows)}",
        "Dashed: points that no other is as good and as cheap as, with n and local batch size as far as"
        " there is room. Energies are"
        " compared within one origin and scope only. A configuration that several series share stands under"
        " the first of them.",
        _bar_sentence(rows, context.bars),
        goal_sentence(rows),
        _null_sentence(rows),
    ]
    return [
        *(said if rows else []),
        excluded_sentence(stored.get("excluded", [])),
        missing_sentence(stored.get("missing", [])),
        *stored.get("notes", []),
    ]


def _bar_sentence(rows: Sequence[Row], bars: str) -> str:
    if bars == "none":
        return "Error bars are not drawn."
    points = [row for row in rows if has_value(row)]
    barred = [row for row in points if _bar(row, "x", bars) or _bar(row, "y", bars)]
    if not barred:
        return "No error bars: each point is a single run." if points else ""
    bare = len(barred) < len(points)
    return f"Error bars: {BAR_WORDS[bars]}" + ("; points without are single runs." if bare else ".")


def _null_sentence(rows: Sequence[Row]) -> str:
    """Configurations without a place in a panel that has other points."""
    drawn = {row["panel"] for row in rows if has_value(row)}
    lacking: dict[str, list[str]] = {}
    for row in rows:
        if not has_value(row) and row["panel"] in drawn:
            lacking.setdefault(row["panel"], []).append(row["configuration"])
    parts = [f"{panel}: {', '.join(names)}" for panel, names in lacking.items()]
    return f"Runs without a value – {'; '.join(parts)}." if parts else ""
