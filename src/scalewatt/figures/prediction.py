"""Figure `prediction`: what was found, relative to what the scaling model predicted."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, prose, style
from scalewatt.results.text.number_format import count

PANEL_HEIGHT_MM = 62.0
PANELS = {"runtime_h": "run time", "energy_kwh": "energy"}
"""Quantities that have a panel, and their labels."""
_LINE: Any = {"color": style.INK, "linewidth": 0.8, "linestyle": (0, (4, 2)), "zorder": 1}


def draw(frame: pd.DataFrame) -> Figure:
    """Draw a panel of run times and one of energies: found ÷ predicted against predicted."""
    points = _points(frame)
    width = data.options(frame).width_mm
    preset = style.preset(width)
    looks = layout.looks_of(points, width)
    columns = 1 if preset.narrow else len(PANELS)
    sentences = _note_sentences(points)
    handles = _handles(points, looks, width)
    in_line = layout.legend_columns(handles, preset.legend_characters)
    legend_rows = -(-len(handles) // in_line)
    small = style.notes_mm(preset) + style.lines_mm(1.25 * legend_rows, preset.text_size)
    height = len(PANELS) // columns * PANEL_HEIGHT_MM + small
    with style.applied(width):
        figure = style.new_figure(height, width)
        if points.empty:
            style.say_instead(figure.subplots(), prose.nothing_sentence(data.stored(frame)))
        else:
            grid = figure.subplots(len(PANELS) // columns, columns, squeeze=False).ravel().tolist()
            for letter, name, axes in zip("AB", PANELS, grid, strict=True):
                style.panel_letter(axes, letter)
                own = points[points["quantity"] == name]
                _draw_panel(axes, own, name, looks, data.gpu_word(frame), dense=not preset.narrow)
            layout.legend_above(figure, handles, in_line, 3)
        style.notes(figure, sentences)
    return figure


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that are drawn as points."""
    known = frame["found"].notna() & frame["predicted"].notna()
    return frame[frame["quantity"].isin(list(PANELS)) & known]


def _points(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the panels, each with the series it is drawn as: one for each kind of training."""
    rows = data.drawable(frame)
    rows = rows[rows["quantity"].isin(list(PANELS))]
    phase = rows["phase"].map(lambda one: "" if one == "train" else f" {one}")
    label = (rows["model"] + phase + " on " + rows["device"]).astype(object)
    rows = rows.assign(series=label, label=label)
    return rows.assign(drawn_origin=data.drawn_origins(rows))


def _draw_panel(
    axes: Axes, rows: pd.DataFrame, name: str, looks: layout.Looks, word: str, dense: bool
) -> None:
    points = rows[rows["found"].notna() & (rows["predicted"].fillna(0) != 0)]
    if points.empty:
        style.say_instead(axes, f"No {PANELS[name]} is both found and predicted.")
        return
    shown = prose.quantity(name, word, None).fitting(points["predicted"].to_list())
    x = points["predicted"] * shown.factor
    parts = {end: points[end] / points["predicted"] for end in ("predicted_low", "predicted_high")}
    points = points.assign(x=x, y=points["found"] / points["predicted"], **parts)
    axes.axhline(1.0, **_LINE)
    for series, own in data.groups(points, "series"):
        pale = style.paler(looks[series]["color"], 0.55)
        ends = (own["predicted_low"], own["predicted_high"])
        axes.vlines(own["x"], *ends, color=pale, linewidth=2.2, zorder=2)
    layout.draw_series(axes, points, looks, joined=False)
    axes.set(
        xlabel=f"Predicted {shown.label[0].lower()}{shown.label[1:]}",
        ylabel=f"Found ÷ predicted {PANELS[name]}",
    )
    style.log_axis(axes, "x", points["x"].to_list(), 10, dense)
    extent = points[["predicted_low", "predicted_high", "y"]].to_numpy().ravel().tolist()
    style.linear_axis(axes, [*extent, 1.0], from_zero=False)


def _handles(points: pd.DataFrame, looks: layout.Looks, width_mm: float) -> list[Line2D]:
    handles = layout.series_entries(points, looks, linestyle="none")
    if not points.empty:
        band: Any = {"color": style.NOT_KNOWN, "linewidth": 3}
        handles.append(layout.entry("nominal 90 % interval of the prediction", **band))
    return handles + layout.origin_entries(points, width_mm)


# --- notes ----------------------------------------------------------------------------------------


def _note_sentences(points: pd.DataFrame) -> list[str]:
    table = data.stored(points)
    sentences = [
        prose.origin_sentence(points),
        f"Predicted by {table.get('scaling_model')}, calibrated on "
        f"{', '.join(table.get('sources', []))}.",
        prose.accuracy_sentence(points, PANELS),
        _lacking(points),
    ]
    warnings = points["warnings"].dropna().unique()
    return [
        *filter(None, sentences if len(points) else []),
        *(f"{one[:1].upper()}{one[1:]}." for one in warnings if one),
        *prose.table_notes(points),
    ]


def _lacking(points: pd.DataFrame) -> str:
    reasons = points.loc[points["reason"].fillna("") != "", "reason"]
    counts = reasons.value_counts(sort=False)
    parts = [f"{reason} ({count(number, 'point')})" for reason, number in counts.items()]
    return f"Not predicted: {'; '.join(parts)}." if parts else ""
