"""Figure `pareto`: the quality metric against energy and against run time, with their fronts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.figures import style
from scalewatt.figures.figure_data import (
    Row,
    bar,
    blocks_of,
    drawn_origins,
    gpu_word,
    has_value,
    is_beyond,
    is_single,
    metadata,
    options,
    room_for,
    series_labels,
)
from scalewatt.figures.figure_data import plotted as plotted
from scalewatt.figures.footnote_text import (
    Quantity,
    bar_sentence,
    device_sentence,
    excluded_sentence,
    goal_sentence,
    metric_words,
    missing_sentence,
    named,
    no_energy_sentence,
    no_value_sentence,
    nothing_sentence,
    null_sentence,
    origin_sentence,
    quantity,
)
from scalewatt.figures.legends import entry, origin_entries, series_entry
from scalewatt.figures.panel_blocks import (
    Block,
    Label,
    Panels,
    draw_blocks,
    write_labels,
)
from scalewatt.results.figures.figure_schema import panel_letter

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

    looks: dict[str, dict[str, Any]]
    """By series; they begin anew in each block."""
    word: str
    bars: str
    cut: list[str] = field(default_factory=list)
    """Panels beyond whose axes error bars reach, as far as they are drawn."""


def draw(table: pa.Table) -> Figure:
    """A row of two panels for each model and phase; the non-dominated points are joined."""
    stored, chosen = metadata(table), options(table)
    found = table.to_pylist()
    rows = [r | {"drawn_origin": o} for r, o in zip(found, drawn_origins(found), strict=True)]
    width = chosen.width_mm
    own = blocks_of(rows)
    looks = {s: style.series_style(i, width) for b in own for i, s in enumerate(series_labels(b))}
    context = _Context(looks, gpu_word(table), chosen.error_bars)
    with style.applied(width):
        if not rows:
            figure = style.new_figure(60.0, width)
            style.say_instead(figure.subplots(), nothing_sentence(stored))
            style.notes(figure, _note_sentences(stored, rows, context))
            return figure

        def draw_panel(block: Block, index: int, axes: Axes, panels: Panels) -> None:
            cost = COSTS[index % len(COSTS)]
            points = [row for row in block.rows if row["x_name"] == cost]
            style.panel_letter(axes, points[0]["panel"] if points else panel_letter(index))
            if any(map(has_value, points)):
                _draw_panel(axes, points, context, panels)
            else:
                style.say_instead(axes, _why_empty(block.rows, cost, context.word))

        return draw_blocks(
            [Block(rows, _handles(rows, context, width)) for rows in own],
            width,
            lambda: _note_sentences(stored, rows, context),
            draw_panel,
        )


def fronts(points: Sequence[Row]) -> list[list[Row]]:
    """The non-dominated points of one panel from the cheapest on, one list for each comparable set."""
    found = [point for point in points if point["non_dominated"] and has_value(point)]
    best = sorted(found, key=lambda point: (point["x"], point["y"]))
    energy = bool(best) and best[0]["x_name"] == "energy_kwh"
    sets: dict[Any, list[Row]] = {}
    for point in best:
        key = (point["energy_origin"], point["energy_scope"]) if energy else None
        sets.setdefault(key, []).append(point)
    return list(sets.values())


def named_fronts(points: Sequence[Row]) -> list[tuple[str, Any, list[Row]]]:
    """The fronts of one panel, each with words for the legend and dashes.

    Where there are several the words tell them apart: by scope, origin or both.
    """
    found = fronts(points)
    if len(found) < 2:
        return [("not dominated (n, LBS)", DASHES[0], front) for front in found]
    columns = [
        column
        for column in ("energy_scope", "energy_origin")
        if len({front[0][column] for front in found}) > 1
    ]
    names = [", ".join(str(front[0][column]) for column in columns) for front in found]
    dashes = [DASHES[1 + index % (len(DASHES) - 1)] for index in range(len(found))]
    words = [f"not dominated, {name}" for name in names]
    return list(zip(words, dashes, found, strict=True))


def _draw_panel(axes: Axes, rows: Sequence[Row], context: _Context, panels: Panels) -> None:
    points = [row for row in rows if has_value(row)]
    first = points[0]
    cost = quantity(first["x_name"], context.word, first["model"])
    cost = cost.fitting([point["x"] for point in points])
    panels.set_labels(axes, cost.label, metric_words(rows))
    for point in points:
        _draw_point(axes, point, cost, context)
    ends = {a: [e for p in points for e in bar(p, context.bars, a) or ()] for a in "xy"}
    costs = [x * cost.factor for x in room_for([p["x"] for p in points], ends["x"], log=True)]
    positive = [value for value in costs if value > 0]
    if positive:
        style.log_axis(axes, "x", positive, 10, panels.dense)
    style.linear_axis(axes, room_for([p["y"] for p in points], ends["y"], log=False), False)
    across = [x * cost.factor for x in ends["x"]]
    if is_beyond(axes.get_xlim(), across) or is_beyond(axes.get_ylim(), ends["y"]):
        context.cut.append(first["panel"])
    _draw_fronts(axes, points, cost, panels)


def _why_empty(rows: Sequence[Row], cost: str, word: str) -> str:
    """Why a block has no point against a cost; `rows` are those of the block."""
    first = rows[0]
    lacks_cost = all(row["x"] is None for row in rows if row["x_name"] == cost)
    lacking = cost if lacks_cost else first["y_name"]
    return no_value_sentence(lacking, word, first["model"], first["metric_name"])


def _draw_fronts(axes: Axes, points: Sequence[Row], cost: Quantity, panels: Panels) -> None:
    """Join the points of each front, and name them by n and local batch size."""
    labels, lines = [], []
    for _, dashes, front in named_fronts(points):
        places = [(p["x"] * cost.factor, p["y"]) for p in front]
        axes.plot(*zip(*places, strict=True), **FRONT, linestyle=dashes, gid="front")
        lines.append(places)
        labels += [
            Label(*place, f"{p['gpus']}, {p['local_batch_size']}")
            for place, p in zip(places, front, strict=True)
        ]
    marks = [(point["x"] * cost.factor, point["y"]) for point in points]
    write_labels(axes, labels, marks, lines, panels.size_mm)


def _draw_point(axes: Axes, point: Row, cost: Quantity, context: _Context) -> None:
    look = style.of_origin(context.looks[point["series"]], point["drawn_origin"])
    look |= {"linestyle": "none"}
    order = 4 if point["drawn_origin"] == "published" else 3
    axes.plot([point["x"] * cost.factor], [point["y"]], **look, zorder=order)
    across, upright = (bar(point, context.bars, axis) for axis in "xy")
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
        capsize=0.4 * look["markersize"],
        capthick=0.7,
        zorder=2,
    )


def _errors(
    ends: tuple[float, float] | None, middle: float, factor: float
) -> list[list[float]] | None:
    if ends is None:
        return None
    return [[(middle - ends[0]) * factor], [(ends[1] - middle) * factor]]


def _handles(rows: Sequence[Row], context: _Context, width: float) -> list[Line2D]:
    """The series of a block, its fronts, and what origins look like where there are several."""
    handles = [
        series_entry(rows, series, label, context.looks[series], linestyle="none")
        for series, label in series_labels(rows).items()
    ]
    named: dict[str, Any] = {}
    for panel in dict.fromkeys(row["panel"] for row in rows):
        own = [row for row in rows if row["panel"] == panel]
        named |= {words: dashes for words, dashes, _ in named_fronts(own)}
    handles += [entry(words, **FRONT, linestyle=dashes) for words, dashes in named.items()]
    return handles + origin_entries(rows, width)


def _note_sentences(stored: Row, rows: Sequence[Row], context: _Context) -> list[str]:
    said = [
        f"{origin_sentence(rows)} n counts {context.word}. {device_sentence(rows)}",
        "Dashed: points that no other beats, by their means: none is at least as good and as cheap, and"
        " better in one; with n and local batch size as far as there is room. Energies are compared"
        " within one origin and scope only. A configuration that several series share stands under the"
        " first of them.",
        _bar_sentence(rows, context),
        goal_sentence(blocks_of(rows)),
        _null_sentence(rows),
        no_energy_sentence(stored, rows),
    ]
    return [
        *(said if rows else []),
        excluded_sentence(stored.get("excluded", [])),
        missing_sentence(stored.get("missing", [])),
        *stored.get("notes", []),
    ]


def _bar_sentence(rows: Sequence[Row], context: _Context) -> str:
    """Which error bars are drawn, which points have none and why, which are cut."""
    points = [row for row in rows if has_value(row)]
    singles = sum(map(is_single, points))
    barred = sum(any(bar(row, context.bars, axis) for axis in "xy") for row in points)
    said = "; points without one are single runs" if singles else ""
    if barred + singles < len(points):
        said += "; of some points not known"
    if context.cut:
        said += f"; in {', '.join(context.cut)} some reach beyond the axis"
    return bar_sentence(context.bars, len(points), singles, barred, said)


def _null_sentence(rows: Sequence[Row]) -> str:
    """Configurations without a place in a panel that has other points."""
    drawn = {row["panel"] for row in rows if has_value(row)}
    lacking: dict[str, list[str]] = {}
    for row in rows:
        if not has_value(row) and row["panel"] in drawn:
            lacking.setdefault(row["panel"], []).append(row["configuration"])
    return null_sentence([(panel, named(ids)) for panel, ids in lacking.items()])
