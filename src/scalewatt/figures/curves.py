"""Panels of curves: one line per series, one marker per configuration."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.figures import style
from scalewatt.figures.figure_data import (
    Options,
    Row,
    bar,
    drawn_origins,
    gpu_word,
    has_value,
    is_beyond,
    is_single,
    lone_speedups,
    metadata,
    options,
    room_for,
    series_labels,
    unlike_metrics,
)
from scalewatt.figures.footnote_text import (
    ORIGINS,
    Quantity,
    bar_sentence,
    device_sentence,
    excluded_sentence,
    missing_sentence,
    no_energy_sentence,
    no_value_sentence,
    nothing_sentence,
    null_sentence,
    origin_sentence,
    quantity,
)
from scalewatt.figures.legends import (
    LEGEND_EXTRA,
    entry,
    legend_above,
    legend_columns,
    origin_entries,
    series_entry,
)
from scalewatt.results.figures.figure_schema import Panel

_INSTEAD = {
    "speedup": "No speed-up was measured: each series has a single point here.",
    "metric_last": "The models of these series have metrics of their own, which no axis can share.",
}
"""What a panel says whose points are all left out, by the quantity of its y axis."""
MOST_IN_A_CELL = 9
"""Entries of a legend that fit into a free cell of the grid."""


@dataclass(frozen=True)
class _Context:
    """What every panel of one figure shares."""

    labels: dict[str, str]
    styles: dict[str, dict[str, Any]]
    word: str
    model: str | None
    metric_name: str | None
    dense: bool
    options: Options
    nothing: str
    """What a panel says without any run."""
    label_characters: int
    places: dict[str, list[float]]
    """Where the points of all panels are on each quantity of an x axis."""
    ringed: bool
    """Whether single runs are marked, as others of the campaign are means over repeats."""

    def quantity(self, name: str, values: Sequence[float]) -> Quantity:
        """The quantity in column `name` in units that suit its values."""
        return quantity(name, self.word, self.model, self.metric_name).fitting(values)


def draw_curves(table: pa.Table, panels: Sequence[Panel], columns: int = 2) -> Figure:
    """Draw `panels`, row by row in `columns` columns (at most two at column width), from a curve table."""
    everything = table.to_pylist()
    lone = lone_speedups(everything)
    left_out = [*lone, *unlike_metrics(table, everything)]
    rows = [row for row in everything if not any(row is out for out in left_out)]
    width = options(table).width_mm
    preset = style.preset(width)
    columns = min(columns, 2) if preset.narrow else columns
    panel_mm = 40.0 if preset.narrow else 56.0
    instead = {row["panel"]: _INSTEAD[row["y_name"]] for row in left_out}
    context = _context(table, everything, panel_mm, columns < 3 and not preset.narrow)
    n_rows = -(-len(panels) // columns)
    handles = _handles(rows, context, preset)
    widest = max((len(str(handle.get_label())) for handle in handles), default=0)
    in_cell = n_rows * columns > len(panels) and len(handles) <= MOST_IN_A_CELL
    in_cell = in_cell and widest <= (19 if preset.narrow else 40)
    legend_columns_ = legend_columns(handles, preset.legend_characters)
    legend_rows = 0 if in_cell else -(-len(handles) // legend_columns_)
    with style.applied(width):
        figure = style.new_figure(n_rows * panel_mm, width)
        grid = figure.subplots(n_rows, columns, squeeze=False).ravel().tolist()
        cut = [
            panel.letter
            for panel, axes in zip(panels, grid, strict=False)
            if _draw_panel(
                axes,
                panel,
                [r for r in rows if r["panel"] == panel.letter],
                context,
                instead.get(panel.letter, context.nothing),
            )
        ]
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        if handles and in_cell:
            grid[len(panels)].legend(
                handles=handles, loc="center", labelspacing=0.9, handlelength=4
            )
        elif handles:
            legend_above(figure, handles, legend_columns_, 4)
        sentences = _note_sentences(table, rows, context, cut)
        sentences.insert(2, _base_sentence(rows, lone, context.labels))
        small = style.lines_mm(
            len(style.note_lines(sentences, width)) + legend_rows * 1.25 + 1, preset.text_size
        )
        figure.set_figheight((n_rows * panel_mm + small) / style.MM_PER_INCH)
        style.notes(figure, sentences)
    return figure


def _context(table: pa.Table, rows: Sequence[Row], panel_mm: float, dense: bool) -> _Context:
    stored, chosen = metadata(table), options(table)
    preset = style.preset(chosen.width_mm)
    models = {row["model"] for row in rows}
    labels = series_labels(rows)
    points = [row for row in rows if has_value(row)]
    return _Context(
        labels=labels,
        styles={s: style.series_style(index, chosen.width_mm) for index, s in enumerate(labels)},
        word=gpu_word(table),
        model=models.pop() if len(models) == 1 else None,
        metric_name=stored.get("metric_name"),
        dense=dense,
        options=chosen,
        nothing=nothing_sentence(stored),
        label_characters=int((panel_mm - 12) / (0.19 * preset.label_size)),
        places={
            n: [p["x"] for p in points if p["x_name"] == n] for n in {p["x_name"] for p in points}
        },
        ringed=len({is_single(p) for p in points if not _is_published(p)}) == 2,
    )


def _draw_panel(
    axes: Axes, panel: Panel, rows: Sequence[Row], context: _Context, nothing: str
) -> bool:
    """Draw one panel; whether an error bar reaches beyond its axis. Without `rows` it says `nothing`."""
    style.panel_letter(axes, panel.letter)
    points = [row for row in rows if has_value(row)]
    if not rows:
        style.say_instead(axes, nothing)
        return False
    if not points:
        sentence = no_value_sentence(panel.y_name, context.word, context.model, context.metric_name)
        style.say_instead(axes, sentence)
        return False
    places = context.places[panel.x_name]
    x = context.quantity(panel.x_name, places)
    y = context.quantity(panel.y_name, [p["y"] for p in points])
    axes.set(xlabel=x.label, ylabel=y.label)
    for series, series_style in context.styles.items():
        for origin, own in _lines([r for r in rows if r["series"] == series]).items():
            look = style.of_origin(series_style, origin)
            line = _draw_line(axes, own, look, x.factor, y.factor, context)
            line.set_gid(f"points-{panel.letter}-{series}-{origin}")
    # The same in all panels of one x.
    _scale(axes, "x", x, [place * x.factor for place in places], context.dense)
    kind = context.options.error_bars
    values = [p["y"] * y.factor for p in points]
    ends = [end * y.factor for p in points for end in bar(p, kind) or ()]
    extent = room_for(values, ends, log=y.scale != "linear")
    if panel.y_name == "speedup":
        extent += [p["x"] for p in points]
    _scale(axes, "y", y, extent, dense=True)
    if panel.y_name == "speedup":
        _draw_ideal(axes)
    axes.set_ylabel(textwrap.fill(axes.get_ylabel(), context.label_characters))
    return is_beyond(axes.get_ylim(), ends)


def _lines(rows: Sequence[Row]) -> dict[str | None, list[Row]]:
    """A series' rows by origin, each a line from its first to its last point, in the order of ORIGINS.

    Rows without a value are in all lines of the series' own runs, to break them.
    """
    found: dict[str | None, list[Row]] = {origin: [] for origin in (*ORIGINS, None)}
    for row, origin in zip(rows, drawn_origins(rows), strict=True):
        if has_value(row):
            found.setdefault(origin, []).append(row)
    gaps = [row for row in rows if not has_value(row) and not _is_published(row)]
    for origin, points in found.items():
        if points and origin != "published":
            first, last = min(p["gpus"] for p in points), max(p["gpus"] for p in points)
            points += [gap for gap in gaps if first < gap["gpus"] < last]
        points.sort(key=lambda row: (row["gpus"], row["x"] or 0.0))
    return {origin: points for origin, points in found.items() if points}


def _draw_line(
    axes: Axes,
    rows: Sequence[Row],
    look: dict[str, Any],
    x_factor: float,
    y_factor: float,
    context: _Context,
) -> Line2D:
    """One series of one origin: its line with markers, error bars, and rings around single runs."""
    if _is_published(rows[0]):
        look = look | {
            "markersize": look["markersize"] * style.preset(context.options.width_mm).scale
        }
    # NaN breaks the line.
    x = [p["x"] * x_factor if has_value(p) else math.nan for p in rows]
    y = [p["y"] * y_factor if has_value(p) else math.nan for p in rows]
    (line,) = axes.plot(x, y, **look, zorder=4 if _is_published(rows[0]) else 3)
    kind = context.options.error_bars
    ends = {i: found for i, p in enumerate(rows) if (found := bar(p, kind)) is not None}
    if ends:
        axes.errorbar(
            [x[i] for i in ends],
            [y[i] for i in ends],
            yerr=[
                [y[i] - low * y_factor for i, (low, _) in ends.items()],
                [high * y_factor - y[i] for i, (_, high) in ends.items()],
            ],
            fmt="none",
            ecolor=look["color"],
            elinewidth=0.8,
            capsize=0.4 * look["markersize"],
            capthick=0.8,
            zorder=2,
        )
    if context.ringed and not _is_published(rows[0]):
        _draw_rings(axes, [(x[i], y[i]) for i, p in enumerate(rows) if is_single(p)], look)
    return line


def _is_published(point: Row) -> bool:
    return bool(point["energy_origin"] == "published")


def _exact(point: Row) -> bool:
    """Whether a point is a series' first speed-up, n0 by definition."""
    return bool(point["y_name"] == "speedup" and point["y"] == point["gpus"])


def _draw_rings(axes: Axes, places: Sequence[tuple[float, float]], look: dict[str, Any]) -> None:
    if places:
        size = look["markersize"] + 3.2
        (rings,) = axes.plot(*zip(*places, strict=True), **_RING, markersize=size, zorder=2.5)
        rings.set_gid("single-runs")


_RING: dict[str, Any] = {
    "linestyle": "none",
    "marker": "o",
    "markerfacecolor": "none",
    "markeredgecolor": style.INK,
    "markeredgewidth": 0.6,
    "clip_on": False,
}


def _draw_ideal(axes: Axes) -> None:
    low, high = axes.get_xlim()
    (line,) = axes.plot([low, high], [low, high], color=style.GREY, linewidth=0.8, zorder=1)
    line.set_linestyle((0, (4, 3)))
    line.set_gid("ideal")


def _scale(axes: Axes, which: str, shown: Quantity, values: list[float], dense: bool) -> None:
    """Fit an axis to its values; a log axis leaves out what it cannot show (zero and below)."""
    positive = [value for value in values if value > 0]
    if shown.scale != "linear" and positive:
        style.log_axis(axes, which, positive, 2 if shown.scale == "log2" else 10, dense)
    elif which == "y":
        style.linear_axis(axes, values, shown.from_zero)


def _handles(rows: Sequence[Row], context: _Context, preset: style.Preset) -> list[Line2D]:
    """The legend's entries: all series once, the ideal line, and what origins look like."""
    widest = preset.legend_characters - LEGEND_EXTRA
    handles = [
        series_entry(rows, s, textwrap.fill(label, widest), context.styles[s])
        for s, label in context.labels.items()
    ]
    if any(row["y_name"] == "speedup" and has_value(row) for row in rows):
        handles.append(entry("ideal: S(n) = n", linestyle=(0, (4, 3)), color=style.GREY))
    return handles + origin_entries(rows, preset.width_mm)


def _note_sentences(
    table: pa.Table, rows: Sequence[Row], context: _Context, cut: Sequence[str]
) -> list[str]:
    stored = metadata(table)
    return [
        f"{origin_sentence(rows)} n counts {context.word}. {device_sentence(rows)}",
        _bar_sentence(rows, context, cut),
        _shared_sentence(rows),
        _null_sentence(rows, context.labels),
        no_energy_sentence(stored, rows),
        missing_sentence(stored.get("missing", [])),
        excluded_sentence(stored.get("excluded", [])),
        *stored.get("notes", []),
    ]


def _bar_sentence(rows: Sequence[Row], context: _Context, cut: Sequence[str]) -> str:
    """Which error bars are drawn, which points have none and why."""
    kind = context.options.error_bars
    points = [row for row in rows if has_value(row)]
    bare = [p for p in points if bar(p, kind) is None]
    unknown = {p["panel"] for p in bare if not is_single(p) and not _exact(p)}
    barred = {p["panel"] for p in points if bar(p, kind) is not None}
    none, some = sorted(unknown - barred), sorted(unknown & barred)
    said = f"; not known for any point of {_panels(none)}" if none else ""
    said += f"; not known for some points of {_panels(some)}" if some else ""
    said += f"; in {_panels(cut)} some reach beyond the axis" if cut else ""
    singles = sum(map(is_single, points))
    sentence = bar_sentence(kind, len(points), singles, len(points) - len(bare), said)
    return sentence + (_single_sentences(points, context) if singles < len(points) else "")


def _single_sentences(points: Sequence[Row], context: _Context) -> str:
    """Which points are single runs, where others are means over repeats."""
    own = {is_single(p) for p in points if not _is_published(p)}
    theirs = {is_single(p) for p in points if _is_published(p)}
    said = " Ringed: single runs." if context.ringed else ""
    said += " This campaign's points are single runs." if own == {True} else ""
    said += " Published points are single runs." if theirs == {True} else ""
    return said + (" Published single runs are not marked." if len(theirs) == 2 else "")


def _base_sentence(rows: Sequence[Row], lone: Sequence[Row], labels: Mapping[str, str]) -> str:
    """From which n on speed-ups count, where not all series begin at 1, and which are not drawn."""
    first: dict[str, int] = {}
    for row in rows:
        if row["y_name"] == "speedup" and has_value(row) and not _is_published(row):
            first[row["series"]] = min(row["gpus"], first.get(row["series"], row["gpus"]))
    later = [f"{labels[series]} (n0\u00a0=\u00a0{n})" for series, n in first.items() if n > 1]
    said = [f"Speed-ups from above n\u00a0=\u00a01: {', '.join(later)}."] if later else []
    if names := dict.fromkeys(f"{labels[r['series']]} (n\u00a0=\u00a0{r['gpus']})" for r in lone):
        said.append(f"No speed-up, as there is no second n: {', '.join(names)}.")
    return " ".join(said)


def _panels(letters: Iterable[str]) -> str:
    named = list(letters)
    return f"panel{'s' * (len(named) > 1)} {', '.join(named)}"


def _shared_sentence(rows: Sequence[Row]) -> str:
    """Whether markers cover each other, as series have a configuration in common."""
    owners: dict[str, set[str]] = {}
    for row in rows:
        if has_value(row) and not _is_published(row):
            owners.setdefault(row["configuration"], set()).add(row["series"])
    if all(len(series) == 1 for series in owners.values()):
        return ""
    return "A configuration that several series share has a marker of each, one upon the other."


def _null_sentence(rows: Sequence[Row], labels: dict[str, str]) -> str:
    """Points without a value in panels that have other points, by panel and series."""
    drawn = {row["panel"] for row in rows if has_value(row)}
    lacking: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if not has_value(row) and row["panel"] in drawn:
            lacking.setdefault((row["panel"], row["series"]), []).append(row["gpus"])
    return null_sentence(
        [
            (panel, f"{labels[series]} at n\u00a0=\u00a0{', '.join(map(str, sorted(counts)))}")
            for (panel, series), counts in lacking.items()
        ]
    )
