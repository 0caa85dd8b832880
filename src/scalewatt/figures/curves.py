"""Panels of curves: one line per series, one marker per configuration."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.figures import style
from scalewatt.figures.points import (
    Options,
    Row,
    bar,
    gpu_word,
    has_value,
    metadata,
    options,
    series_labels,
)
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

MOST_IN_A_CELL = 9
"""Entries of a legend that fit into a free cell of the grid."""
WIDEST_BAR = 1.0
"""How far an error bar may widen an axis: in parts of what the points take up, at either end."""


@dataclass(frozen=True)
class Panel:
    """One panel: its letter in the table, and the columns on its axes."""

    letter: str
    y_name: str
    x_name: str = "gpus"


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
    label_characters: int

    def quantity(self, name: str, values: Sequence[float]) -> Quantity:
        """The quantity in column `name` in units that suit its values."""
        return quantity(name, self.word, self.model, self.metric_name).fitting(values)


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
    """Draw `panels`, row by row in `columns` columns (at most two at column width), from a curve table."""
    rows = table.to_pylist()
    width = options(table).width_mm
    preset = style.preset(width)
    columns = min(columns, 2) if preset.narrow else columns
    panel_mm = 40.0 if preset.narrow else 56.0
    context = _context(table, rows, panel_mm, dense=columns < 3 and not preset.narrow)
    n_rows = -(-len(panels) // columns)
    handles = _handles(rows, context, preset)
    widest = max((len(str(handle.get_label())) for handle in handles), default=0)
    in_cell = n_rows * columns > len(panels) and len(handles) <= MOST_IN_A_CELL
    in_cell = in_cell and widest <= (19 if preset.narrow else 40)
    legend_columns = _legend_columns(handles, preset.legend_characters)
    legend_rows = 0 if in_cell else -(-len(handles) // legend_columns)
    sentences = _note_sentences(table, rows, context)
    height = n_rows * panel_mm + style.lines_mm(
        len(style.note_lines(sentences, width)) + legend_rows * 1.25 + 1, preset.text_size
    )
    with style.applied(width):
        figure = style.new_figure(height, width)
        grid = figure.subplots(n_rows, columns, squeeze=False).ravel().tolist()
        for panel, axes in zip(panels, grid, strict=False):
            _draw_panel(axes, panel, [r for r in rows if r["panel"] == panel.letter], context)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        if handles and in_cell:
            grid[len(panels)].legend(
                handles=handles, loc="center", labelspacing=0.9, handlelength=4
            )
        elif handles:
            figure.legend(
                handles=handles, loc="outside upper center", ncols=legend_columns, handlelength=4
            )
        style.notes(figure, sentences)
    return figure


def _legend_columns(handles: Sequence[Line2D], characters: int) -> int:
    """Into how many columns a legend's entries can go; each takes 9 characters besides its words."""
    lengths = [len(str(handle.get_label())) + 9 for handle in handles]
    for columns in range(len(lengths), 1, -1):
        # As matplotlib fills them: the first ones get one more.
        each, more = divmod(len(lengths), columns)
        ends = [(i + 1) * each + min(i + 1, more) for i in range(columns)]
        widths = [max(lengths[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
        if sum(widths) <= characters:
            return columns
    return 1


def _context(table: pa.Table, rows: Sequence[Row], panel_mm: float, dense: bool) -> _Context:
    stored, chosen = metadata(table), options(table)
    preset = style.preset(chosen.width_mm)
    models = {row["model"] for row in rows}
    labels = series_labels(rows)
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
    )


def _draw_panel(axes: Axes, panel: Panel, rows: Sequence[Row], context: _Context) -> None:
    style.panel_letter(axes, panel.letter)
    points = [row for row in rows if has_value(row)]
    if not rows:
        style.say_instead(axes, context.nothing)
        return
    if not points:
        sentence = no_value_sentence(panel.y_name, context.word, context.model, context.metric_name)
        style.say_instead(axes, sentence)
        return
    x = context.quantity(panel.x_name, [p["x"] for p in points])
    y = context.quantity(panel.y_name, [p["y"] for p in points])
    axes.set(xlabel=x.label, ylabel=y.label)
    for series, series_style in context.styles.items():
        lines = _by_origin([p for p in points if p["series"] == series])
        for origin in (*ORIGINS, None):
            if chosen := lines.get(origin):
                look = series_style | style.origin_style(origin, series_style["color"])
                line = _draw_line(axes, chosen, look, x.factor, y.factor, context)
                line.set_gid(f"points-{panel.letter}-{series}-{origin}")
    _scale(axes, "x", x, [p["x"] * x.factor for p in points], context.dense)
    extent = [v * y.factor for v in _y_extent(points, context.options.error_bars, y)]
    if panel.y_name == "speedup":
        extent += [p["x"] for p in points]
    _scale(axes, "y", y, extent, dense=True)
    if panel.y_name == "speedup":
        _draw_ideal(axes)
    axes.set_ylabel(textwrap.fill(axes.get_ylabel(), context.label_characters))


def _by_origin(points: Sequence[Row]) -> dict[str | None, list[Row]]:
    """A series' points by origin; one of unknown energy belongs to the only origin there is."""
    known = {p["energy_origin"] for p in points} - {"published", None}
    only = known.pop() if len(known) == 1 else None
    found: dict[str | None, list[Row]] = {}
    for point in points:
        found.setdefault(point["energy_origin"] or only, []).append(point)
    return found


def _draw_line(
    axes: Axes,
    points: Sequence[Row],
    look: dict[str, Any],
    x_factor: float,
    y_factor: float,
    context: _Context,
) -> Line2D:
    """One series of one origin: its line with markers, error bars, and rings around single runs."""
    ordered = sorted(points, key=lambda point: (point["gpus"], point["x"]))
    if ordered[0]["energy_origin"] == "published":
        look = look | {"markersize": look["markersize"] * style.preset(context.options.width_mm).scale}
    x = [p["x"] * x_factor for p in ordered]
    y = [p["y"] * y_factor for p in ordered]
    (line,) = axes.plot(x, y, **look, zorder=3 if look["marker"] != "x" else 4)
    kind = context.options.error_bars
    ends = {i: found for i, p in enumerate(ordered) if (found := bar(p, kind)) is not None}
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
    if any((p["n_repeats"] or 1) > 1 for p in points):
        _draw_rings(axes, [(x[i], y[i]) for i, p in enumerate(ordered) if _single(p)], look)
    return line


def _single(point: Row) -> bool:
    return bool((point["n_repeats"] or 1) == 1)


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
}


def _draw_ideal(axes: Axes) -> None:
    low, high = axes.get_xlim()
    (line,) = axes.plot([low, high], [low, high], color=style.GREY, linewidth=0.8, zorder=1)
    line.set_linestyle((0, (4, 3)))
    line.set_gid("ideal")


def _y_extent(points: Sequence[Row], kind: str, shown: Quantity) -> list[float]:
    """The points, and their error bars as far as these leave room for the points."""
    values = [p["y"] for p in points]
    low, high = min(values), max(values)
    if shown.scale != "linear" and low > 0:
        factor = max((high / low) ** WIDEST_BAR, 1.5)
        least, most = low / factor, high * factor
    else:
        room = max(WIDEST_BAR * (high - low), 0.2 * abs(high))
        least, most = (max(low - room, 0.0) if low >= 0 else low - room), high + room
    ends = [end for p in points for end in bar(p, kind) or ()]
    return values + [min(max(end, least), most) for end in ends]


def _scale(axes: Axes, which: str, shown: Quantity, values: list[float], dense: bool) -> None:
    """Fit an axis to its values; a log axis leaves out what it cannot show (zero and below)."""
    positive = [value for value in values if value > 0]
    if shown.scale != "linear" and positive:
        style.log_axis(axes, which, positive, 2 if shown.scale == "log2" else 10, dense)
    elif which == "y":
        style.linear_axis(axes, values, shown.from_zero)


def _handles(rows: Sequence[Row], context: _Context, preset: style.Preset) -> list[Line2D]:
    """The legend's entries: all series once, the ideal line, and what origins look like."""
    widest = preset.legend_characters - 9
    handles = [
        _series_handle(rows, s, textwrap.fill(label, widest), context.styles[s])
        for s, label in context.labels.items()
    ]
    if any(row["y_name"] == "speedup" and has_value(row) for row in rows):
        handles.append(_handle("ideal: S(n) = n", linestyle=(0, (4, 3)), color=style.GREY))
    origins = [o for o in ORIGINS if any(r["energy_origin"] == o for r in rows)]
    if len(origins) > 1:
        handles += [_origin_handle(origin, preset.scale) for origin in origins]
    return handles


def _handle(label: str, **line: Any) -> Line2D:
    return Line2D([], [], label=label, **line)


def _series_handle(
    rows: Sequence[Row], series: str, label: str, series_style: dict[str, Any]
) -> Line2D:
    origins = [row["energy_origin"] for row in rows if row["series"] == series]
    own = next((origin for origin in origins if origin != "published"), "published")
    return _handle(label, **(series_style | style.origin_style(own, series_style["color"])))


def _origin_handle(origin: str, scale: float) -> Line2D:
    base = {"color": style.GREY, "marker": "o", "linestyle": "none", "markersize": 5 * scale}
    label = f"{FILL_WORDS[origin]}: {origin}"
    return _handle(label, **(base | style.origin_style(origin, style.GREY)))


def _note_sentences(table: pa.Table, rows: Sequence[Row], context: _Context) -> list[str]:
    stored = metadata(table)
    counts = "n counts processes." if context.word == "processes" else "n counts GPUs."
    return [
        f"{origin_sentence(rows)} {counts} {device_sentence(rows)}",
        _bar_sentence(rows, context),
        _null_sentence(rows, context.labels),
        missing_sentence(stored.get("missing", [])),
        excluded_sentence(stored.get("excluded", [])),
        *stored.get("notes", []),
    ]


def _bar_sentence(rows: Sequence[Row], context: _Context) -> str:
    """Which error bars are drawn, which points have none and why."""
    kind = context.options.error_bars
    points = [row for row in rows if has_value(row)]
    if not points:
        return ""
    bare = [p for p in points if bar(p, kind) is None]
    singles = [p for p in points if _single(p)]
    if len(singles) == len(points):
        return "No error bars: each point is a single run."
    ringed = " Ringed: single runs." if singles else ""
    if kind == "none":
        return f"Error bars are not drawn.{ringed}"
    if len(bare) == len(points):
        return f"No error bars: not known ({BAR_WORDS[kind]}).{ringed}"
    said = f"Error bars: {BAR_WORDS[kind]}"
    lacking = dict.fromkeys(p["panel"] for p in bare if not _single(p) and not _exact(p))
    if lacking:
        said += f"; not known for all points of {_panels(lacking)}"
    cut = [panel for panel, own in _by_panel(points).items() if _is_cut(own, context)]
    said += f"; in {_panels(cut)} some reach beyond the axis" if cut else ""
    return f"{said}.{ringed}"


def _panels(letters: Iterable[str]) -> str:
    named = list(letters)
    return f"panel{'s' * (len(named) > 1)} {', '.join(named)}"


def _by_panel(points: Sequence[Row]) -> dict[str, list[Row]]:
    panels: dict[str, list[Row]] = {}
    for point in points:
        panels.setdefault(point["panel"], []).append(point)
    return panels


def _is_cut(points: Sequence[Row], context: _Context) -> bool:
    """Whether an error bar of a panel reaches beyond what its axis shows."""
    kind = context.options.error_bars
    ends = [end for p in points for end in bar(p, kind) or ()]
    shown = context.quantity(points[0]["y_name"], [p["y"] for p in points])
    extent = _y_extent(points, kind, shown)
    return bool(ends) and (min(ends) < min(extent) or max(ends) > max(extent))


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
