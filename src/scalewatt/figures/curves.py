"""Figures 2, 3, 4, 6 and 7: panels of curves, one line per series, one marker per configuration."""

from __future__ import annotations

import textwrap
from bisect import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, prose, style
from scalewatt.recordings.terms import NODE
from scalewatt.results.figures.figure_schema import PANELS, Panel

plotted = data.plotted  # which `draw_figure` reads
COLUMNS = {"figure3": 3}
"""Panels beside each other, where they are not two; at column width two are."""
_INSTEAD = {
    "speedup": "No speed-up was measured: each series has a single point here.",
}
"""What a panel says whose points are all left out, by the quantity of its y axis."""
_OF_PARTS = ("mean_gpu_power_w", "mean_cpu_socket_power_w")
MOST_IN_A_CELL = 9
"""Entries of a legend that fit into a free cell of the grid."""


@dataclass(frozen=True)
class _Context:
    """The properties that all panels of a figure share."""

    labels: dict[str, str]
    looks: layout.Looks
    word: str
    model: str | None
    metric_name: str | None
    dense: bool
    options: data.Options
    no_runs: str
    """Text of a panel without any run."""
    label_characters: tuple[int, int]
    """Most of a line of the labels of x and y."""
    places: dict[str, list[float]]
    """The x of the points of all panels, by quantity."""
    planned: dict[str, set[int]]
    """Each n of each series in the campaign, with and without a run."""
    ringed: bool
    """True if single runs are marked, as other points are means over repeats."""

    def quantity(self, name: str, values: Iterable[float]) -> prose.Quantity:
        """Return the quantity in column `name` in units that suit its values."""
        return prose.quantity(name, self.word, self.model, self.metric_name).fitting(list(values))


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the panels of the figure that the table is of, row by row."""
    figure_name = frame.attrs["figure"]
    everything = data.points_of(frame)
    pointless = _without_points(everything)
    panels = [one for one in PANELS[figure_name] if one.letter not in pointless]
    lone, unlike = data.lone_speedups(everything), data.unlike_metrics(everything)
    points = everything[~lone & ~unlike]
    width = data.options(frame).width_mm
    preset = style.preset(width)
    columns = 2 if preset.narrow else COLUMNS.get(figure_name, 2)
    panel_mm = 40.0 if preset.narrow else 56.0
    left_out = everything[lone].drop_duplicates("panel")
    instead = {row.panel: _INSTEAD[row.y_name] for row in data.each(left_out)}
    size_mm = (width / columns - 16, panel_mm - 12)
    context = _context(everything, size_mm, columns < 3 and not preset.narrow)
    n_rows = -(-len(panels) // columns)
    handles = _handles(points, context, preset)
    widest = max((len(str(handle.get_label())) for handle in handles), default=0)
    in_cell = n_rows * columns > len(panels) and len(handles) <= MOST_IN_A_CELL
    in_cell = in_cell and widest <= (19 if preset.narrow else 40)
    legend_columns_ = layout.legend_columns(handles, preset.legend_characters)
    legend_rows = 0 if in_cell else -(-len(handles) // legend_columns_)
    with style.applied(width):
        figure = style.new_figure(n_rows * panel_mm, width)
        grid = figure.subplots(n_rows, columns, squeeze=False).ravel().tolist()
        for panel, axes in zip(panels, grid, strict=False):
            own = points[points["panel"] == panel.letter]
            _draw_panel(axes, panel, own, context, instead.get(panel.letter, context.no_runs))
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        if handles and in_cell:
            grid[len(panels)].legend(
                handles=handles, loc="center", labelspacing=0.9, handlelength=4
            )
        elif handles:
            layout.legend_above(figure, handles, legend_columns_, 4)
        sentences = [
            prose.opening(points),
            _bar_sentence(points[points["valued"]], context),
            _base_sentence(points, everything[lone], context.labels),
            _left_out_sentence(pointless),
            prose.estimate_sentence(points[points["valued"]]),
            prose.null_sentence(points),
            prose.no_energy_sentence(points),
            *prose.table_notes(points),
        ]
        small = style.notes_mm(preset) + style.lines_mm(legend_rows * 1.25, preset.text_size)
        figure.set_figheight((n_rows * panel_mm + small) / style.MM_PER_INCH)
        style.notes(figure, sentences)
    return figure


def _without_points(points: pd.DataFrame) -> dict[str, str]:
    """Return the letters of panels that are left out, and why no run of these could have a point there.

    That is so of a metric that the series have not in common, and of the power of parts of nodes of
    which only the whole was measured.
    """
    whole = bool((points["energy_scope"] == NODE).all())
    reasons = {
        "the series have metrics of their own": data.unlike_metrics(points),
        "only whole nodes were measured": points["y_name"].isin(_OF_PARTS)
        & ~points["valued"]
        & whole,
    }
    return {
        str(letter): reason
        for reason, without in reasons.items()
        for letter, own in without.groupby(points["panel"], sort=False)
        if own.all()
    }


def _left_out_sentence(letters: Mapping[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for letter, reason in letters.items():
        by_reason.setdefault(reason, []).append(letter)
    return " ".join(f"No {_panels(own)}: {reason}." for reason, own in by_reason.items())


def _context(points: pd.DataFrame, panel_size_mm: tuple[float, float], dense: bool) -> _Context:
    chosen = data.options(points)
    preset = style.preset(chosen.width_mm)
    models = points["model"].unique()
    labels = data.series_labels(points)
    valued = points[points["valued"]]
    return _Context(
        labels=labels,
        looks=layout.looks_of(points, chosen.width_mm),
        word=data.gpu_word(points),
        model=models[0] if len(models) == 1 else None,
        metric_name=points.attrs.get("metric_name"),
        dense=dense,
        options=chosen,
        no_runs=prose.nothing_sentence(data.stored(points)),
        label_characters=layout.label_characters(panel_size_mm, preset),
        planned=planned_gpus(points),
        places={str(name): own.to_list() for name, own in valued.groupby("x_name")["x"]},
        ringed=valued.loc[~valued["published"], "single"].nunique() == 2,
    )


def _draw_panel(
    axes: Axes, panel: Panel, rows: pd.DataFrame, context: _Context, without_rows: str
) -> None:
    """Draw one panel."""
    style.panel_letter(axes, panel.letter)
    points = rows[rows["valued"]]
    if rows.empty:
        style.say_instead(axes, without_rows)
        return
    if points.empty:
        sentence = prose.no_value_sentence(
            panel.y_name, context.word, context.model, context.metric_name
        )
        style.say_instead(axes, sentence)
        return
    x = context.quantity(panel.x_name, context.places[panel.x_name])
    y = context.quantity(panel.y_name, points["y"])
    of_y = ("y", "y_bar_low", "y_bar_high", "y_estimate_low", "y_estimate_high")
    factors = {"x": x.factor, **dict.fromkeys(of_y, y.factor)}
    scaled = with_stretches(rows, context.planned).assign(
        **{name: rows[name] * f for name, f in factors.items()}
    )
    _draw_points(axes, panel.letter, scaled, context)
    axes.set(xlabel=x.label, ylabel=y.label)
    # The same in all panels of one x.
    places = [place * x.factor for place in context.places[panel.x_name]]
    _scale(axes, "x", x, places, context.dense)
    drawn = scaled[scaled["valued"]]
    ends = data.bar_ends(drawn)
    extent = data.room_for(drawn["y"].to_list(), ends, log=y.scale != "linear")
    extent += drawn[["y_estimate_low", "y_estimate_high"]].dropna().to_numpy().ravel().tolist()
    if panel.y_name == "speedup":
        extent += drawn["x"].to_list()
    _scale(axes, "y", y, extent, dense=True)
    if panel.y_name == "speedup":
        _draw_ideal(axes)
    layout.wrap_labels(axes, *context.label_characters)


def with_stretches(rows: pd.DataFrame, planned: Mapping[str, set[int]]) -> pd.DataFrame:
    """Return the rows of a panel in the order of their lines.

    A line breaks, as `stretch` changes, at own points without a value and at each n that the series
    has by `planned` and that has no row, as its runs are excluded or missing.
    """
    ordered = rows.sort_values(["gpus", "x"], kind="stable")
    own = ordered[~ordered["published"]]
    there = {series: set(of_series["gpus"]) for series, of_series in data.groups(own, "series")}
    absent = {name: sorted(planned.get(name, set()) - gpus) for name, gpus in there.items()}
    gaps = ~ordered["valued"] & ~ordered["published"]
    passed = [
        bisect(absent.get(series, []), gpus)
        for series, gpus in zip(ordered["series"], ordered["gpus"], strict=True)
    ]
    return ordered.assign(stretch=gaps.groupby(ordered["series"]).cumsum() + passed)


def planned_gpus(points: pd.DataFrame) -> dict[str, set[int]]:
    """Return each n of each series in the campaign, by the definition that the table is made from."""
    series = points.attrs.get("definition", {}).get("series", [])
    return {one["name"]: {point["gpus"] for point in one["points"]} for one in series}


def _draw_points(axes: Axes, letter: str, rows: pd.DataFrame, context: _Context) -> None:
    """Draw each series of each origin: its line with markers, error bars, and rings around single runs."""
    for series, origin, line in layout.draw_series(axes, rows, context.looks):
        line.set_gid(f"points-{letter}-{series}-{origin}")
    points = rows[rows["valued"]]
    layout.draw_error_bars(axes, points, context.looks)
    layout.draw_estimates(axes, points, context.looks)
    if context.ringed:
        ringed = points[points["single"] & ~points["published"]]
        for series, own in data.groups(ringed, "series"):
            size = context.looks[series]["markersize"] + 3.2
            (rings,) = axes.plot(own["x"], own["y"], **_RING, markersize=size, zorder=2.5)
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


def _scale(axes: Axes, which: str, shown: prose.Quantity, values: list[float], dense: bool) -> None:
    """Fit an axis to its values; a log axis leaves out what it cannot show (zero and below)."""
    positive = [value for value in values if value > 0]
    if shown.scale != "linear" and positive:
        style.log_axis(axes, which, positive, 2 if shown.scale == "log2" else 10, dense)
    elif which == "y":
        style.linear_axis(axes, values, shown.from_zero)


def _handles(points: pd.DataFrame, context: _Context, preset: style.Preset) -> list[Line2D]:
    """Return the legend's entries: all series once, the ideal line, and what origins look like."""
    handles = layout.series_entries(points, context.looks)
    for handle in handles:
        words = textwrap.fill(
            str(handle.get_label()), preset.legend_characters - layout.LEGEND_EXTRA
        )
        handle.set_label(words)
    if (points["valued"] & (points["y_name"] == "speedup")).any():
        handles.append(layout.entry("ideal: S(n) = n", linestyle=(0, (4, 3)), color=style.GREY))
    return handles + layout.origin_entries(points, preset.width_mm)


# --- notes ----------------------------------------------------------------------------------------


def _bar_sentence(points: pd.DataFrame, context: _Context) -> str:
    """Return which error bars are drawn, and how single runs are marked."""
    ringed = " Ringed: single runs." if context.ringed else ""
    return prose.bar_sentence(context.options.error_bars, points["single"]) + ringed


def _base_sentence(points: pd.DataFrame, lone: pd.DataFrame, labels: dict[str, str]) -> str:
    """Return from which n on speed-ups count, where not all series begin at 1, and which are not drawn."""
    own = points[points["valued"] & ~points["published"] & (points["y_name"] == "speedup")]
    first = own.groupby("series", sort=False)["gpus"].min()
    later = [f"{labels[str(series)]} (n₀\u00a0=\u00a0{n})" for series, n in first.items() if n > 1]
    sentences = [f"Speed-ups from above n\u00a0=\u00a01: {', '.join(later)}."] if later else []
    pairs = lone[["series", "gpus"]].drop_duplicates().itertuples(index=False)
    if names := [f"{labels[series]} (n\u00a0=\u00a0{n})" for series, n in pairs]:
        sentences.append(f"No speed-up, as there is no second n: {', '.join(names)}.")
    return " ".join(sentences)


def _panels(letters: Iterable[str]) -> str:
    named = list(letters)
    return f"panel{'s' * (len(named) > 1)} {', '.join(named)}"
