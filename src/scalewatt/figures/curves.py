"""Panels of curves: one line per series, one marker per configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.figures import style
from scalewatt.figures.points import Row, gpu_word, has_value, metadata, series_labels
from scalewatt.figures.words import (
    FILL_WORDS,
    ORIGINS,
    Quantity,
    device_sentence,
    missing_sentence,
    no_value_sentence,
    origin_sentence,
    quantity,
)

PANEL_HEIGHT_MM = 56.0
NOTES_HEIGHT_MM = 28.0


@dataclass(frozen=True)
class Panel:
    """One panel: its letter in the table, and the columns on its axes."""

    letter: str
    y_name: str
    x_name: str = "gpus"


@dataclass(frozen=True)
class _Context:
    """What every panel of one figure shares."""

    styles: dict[str, dict[str, Any]]
    word: str
    model: str | None
    metric_name: str | None
    dense: bool


SPEEDUP_PANELS = (
    Panel("A", "speedup"),
    Panel("B", "metric_last"),
    Panel("C", "energy_kwh"),
    Panel("D", "energy_kwh", "gpu_hours"),
)
"""Figures 2 and 4."""
RATE_PANELS = (
    Panel("A", "p_gpuh_kw"),
    Panel("B", "mean_gpu_power_w"),
    Panel("C", "mean_cpu_socket_power_w"),
    Panel("D", "samples_per_gpuh"),
    Panel("E", "passes_per_gpuh"),
)
"""Figures 6 and 7."""


def draw_curves(table: pa.Table, panels: Sequence[Panel], columns: int = 2) -> Figure:
    """Draw `panels`, row by row in `columns` columns, from a curve table."""
    rows = table.to_pylist()
    labels = series_labels(rows)
    models = {row["model"] for row in rows}
    context = _Context(
        styles={series: style.series_style(index) for index, series in enumerate(labels)},
        word=gpu_word(table),
        model=models.pop() if len(models) == 1 else None,
        metric_name=metadata(table).get("metric_name"),
        dense=columns < 3,
    )
    n_rows = -(-len(panels) // columns)
    with style.applied():
        figure = style.new_figure(n_rows * PANEL_HEIGHT_MM + NOTES_HEIGHT_MM)
        grid = figure.subplots(n_rows, columns, squeeze=False).ravel().tolist()
        for panel, axes in zip(panels, grid, strict=False):
            _draw_panel(axes, panel, [r for r in rows if r["panel"] == panel.letter], context)
        _draw_legend(figure, rows, labels, context, grid[len(panels) :])
        style.notes(figure, _note_sentences(table, rows, labels, context))
    return figure


def _draw_panel(axes: Axes, panel: Panel, rows: Sequence[Row], context: _Context) -> None:
    style.panel_letter(axes, panel.letter)
    points = [row for row in rows if has_value(row)]
    if not rows:
        style.say_instead(axes, "No run of these series has finished.")
        return
    if not points:
        sentence = no_value_sentence(panel.y_name, context.word, context.model, context.metric_name)
        style.say_instead(axes, sentence)
        return
    x = quantity(panel.x_name, context.word, context.model)
    y = quantity(panel.y_name, context.word, context.model, context.metric_name)
    axes.set(xlabel=x.label, ylabel=y.label)
    for series, series_style in context.styles.items():
        for origin in (*ORIGINS, None):
            chosen = [p for p in points if (p["series"], p["energy_origin"]) == (series, origin)]
            if chosen:
                _draw_line(axes, chosen, series_style, f"{panel.letter}-{series}-{origin}")
    _scale(axes, "x", x, [p["x"] for p in points], context.dense)
    extent = _y_extent(points)
    if panel.y_name == "speedup":
        extent += [p["x"] for p in points]
    _scale(axes, "y", y, extent, dense=True)
    if panel.y_name == "speedup":
        _draw_ideal(axes)


def _draw_line(axes: Axes, points: Sequence[Row], series_style: dict[str, Any], gid: str) -> None:
    ordered = sorted(points, key=lambda point: (point["gpus"], point["x"]))
    origin = style.origin_style(ordered[0]["energy_origin"], series_style["color"])
    (line,) = axes.plot(
        [p["x"] for p in ordered], [p["y"] for p in ordered], **(series_style | origin), zorder=3
    )
    line.set_gid(f"points-{gid}")
    bars = [p for p in ordered if p["y_low"] is not None and p["y_high"] is not None]
    if bars:
        axes.errorbar(
            [p["x"] for p in bars],
            [p["y"] for p in bars],
            yerr=[[p["y"] - p["y_low"] for p in bars], [p["y_high"] - p["y"] for p in bars]],
            fmt="none",
            ecolor=series_style["color"],
            elinewidth=0.8,
            capsize=2,
            capthick=0.8,
            zorder=2,
        )


def _draw_ideal(axes: Axes) -> None:
    low, high = axes.get_xlim()
    (line,) = axes.plot([low, high], [low, high], color=style.GREY, linewidth=0.8, zorder=1)
    line.set_linestyle((0, (4, 3)))
    line.set_gid("ideal")


def _y_extent(points: Sequence[Row]) -> list[float]:
    values = [p["y"] for p in points]
    return values + [p[end] for p in points for end in ("y_low", "y_high") if p[end] is not None]


def _scale(axes: Axes, which: str, shown: Quantity, values: list[float], dense: bool) -> None:
    """Fit an axis to its values; a log axis leaves out what it cannot show (zero and below)."""
    positive = [value for value in values if value > 0]
    if shown.scale != "linear" and positive:
        style.log_axis(axes, which, positive, 2 if shown.scale == "log2" else 10, dense)
    elif which == "y":
        style.linear_axis(axes, values, shown.from_zero)


def _draw_legend(
    figure: Figure,
    rows: Sequence[Row],
    labels: dict[str, str],
    context: _Context,
    free: Sequence[Axes],
) -> None:
    """All series once; in a free cell of the grid if there is one, else above the panels."""
    for axes in free:
        axes.set_axis_off()
    handles = [_series_handle(rows, s, labels[s], context.styles[s]) for s in labels]
    if any(row["y_name"] == "speedup" and has_value(row) for row in rows):
        handles.append(_handle("ideal: S(n) = n", linestyle=(0, (4, 3)), color=style.GREY))
    origins = [o for o in ORIGINS if any(r["energy_origin"] == o for r in rows)]
    if len(origins) > 1:
        handles += [_origin_handle(origin) for origin in origins]
    if not handles:
        return
    if free:
        free[0].legend(handles=handles, loc="center", labelspacing=0.9, handlelength=4)
    else:
        widest = max(len(str(handle.get_label())) for handle in handles)
        columns = max(1, min(len(handles), 132 // (widest + 9)))
        figure.legend(handles=handles, loc="outside upper center", ncols=columns, handlelength=4)


def _handle(label: str, **line: Any) -> Line2D:
    return Line2D([], [], label=label, **line)


def _series_handle(
    rows: Sequence[Row], series: str, label: str, series_style: dict[str, Any]
) -> Line2D:
    origins = [row["energy_origin"] for row in rows if row["series"] == series]
    own = next((origin for origin in origins if origin != "published"), "published")
    return _handle(label, **(series_style | style.origin_style(own, series_style["color"])))


def _origin_handle(origin: str) -> Line2D:
    base = {"color": style.GREY, "marker": "o", "linestyle": "none", "markersize": 5}
    label = f"{FILL_WORDS[origin]}: {origin}"
    return _handle(label, **(base | style.origin_style(origin, style.GREY)))


def _note_sentences(
    table: pa.Table, rows: Sequence[Row], labels: dict[str, str], context: _Context
) -> list[str]:
    stored = metadata(table)
    counts = "n counts processes." if context.word == "processes" else "n counts GPUs."
    return [
        f"{origin_sentence(rows)} {counts} {device_sentence(rows)}",
        _bar_sentence(rows),
        _null_sentence(rows, labels),
        missing_sentence(stored.get("missing", [])),
        *stored.get("notes", []),
    ]


def _bar_sentence(rows: Sequence[Row]) -> str:
    points = [row for row in rows if has_value(row)]
    barred = [row for row in points if row["y_low"] is not None and row["y_high"] is not None]
    if not points:
        return ""
    bare = [p for p in points if p["y_low"] is None or p["y_high"] is None]
    single = all((point["n_repeats"] or 1) == 1 for point in bare)
    if not barred:
        return f"No error bars: {'each point is a single run' if single else 'no interval known'}."
    start = "Error bars: 95 % t interval of the mean over repeats"
    if not bare:
        return f"{start}."
    return f"{start}; points without a bar {'are single runs' if single else 'have no interval'}."


def _null_sentence(rows: Sequence[Row], labels: dict[str, str]) -> str:
    """Points without a value in panels that have other points, by panel and series."""
    drawn = {row["panel"] for row in rows if has_value(row)}
    lacking: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if not has_value(row) and row["panel"] in drawn:
            lacking.setdefault((row["panel"], row["series"]), []).append(row["gpus"])
    parts = [
        f"{panel}: {labels[series]} at n = {', '.join(map(str, sorted(counts)))}"
        for (panel, series), counts in lacking.items()
    ]
    return f"Runs without a value – {'; '.join(parts)}." if parts else ""
