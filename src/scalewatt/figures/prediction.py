"""Figure `prediction`: what was found, as a part of what the scaling model had said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.figures import style
from scalewatt.figures.figure_data import (
    Row,
    drawn_origins,
    gpu_word,
    metadata,
    options,
    series_labels,
)
from scalewatt.figures.footnote_text import (
    device_sentence,
    excluded_sentence,
    judged_sentence,
    missing_sentence,
    nothing_sentence,
    origin_sentence,
    quantity,
)
from scalewatt.figures.legends import (
    entry,
    legend_above,
    legend_columns,
    origin_entries,
    series_entry,
)
from scalewatt.figures.panel_blocks import paler

PANEL_HEIGHT_MM = 62.0
PANELS = {"runtime_h": "run time", "energy_kwh": "energy"}
"""Quantities that have a panel, in words."""
_LINE: Any = {"color": style.INK, "linewidth": 0.8, "linestyle": (0, (4, 2)), "zorder": 1}


def draw(table: pa.Table) -> Figure:
    """A panel of run times and one of energies: found ÷ predicted against predicted."""
    rows = _rows(table)
    width = options(table).width_mm
    preset = style.preset(width)
    looks = {name: style.series_style(i, width) for i, name in enumerate(series_labels(rows))}
    columns = 1 if preset.narrow else len(PANELS)
    sentences = _sentences(table, rows)
    handles = _handles(rows, looks, width)
    in_line = legend_columns(handles, preset.legend_characters)
    legend_rows = -(-len(handles) // in_line)
    small = len(style.note_lines(sentences, width)) + 1.25 * legend_rows + 1
    height = len(PANELS) // columns * PANEL_HEIGHT_MM + style.lines_mm(small, preset.text_size)
    with style.applied(width):
        figure = style.new_figure(height, width)
        if rows:
            grid = figure.subplots(len(PANELS) // columns, columns, squeeze=False).ravel().tolist()
            for letter, name, axes in zip("AB", PANELS, grid, strict=True):
                style.panel_letter(axes, letter)
                own = [row for row in rows if row["quantity"] == name]
                _draw_panel(axes, own, looks, gpu_word(table), dense=not preset.narrow)
            legend_above(figure, handles, in_line, 3)
        else:
            style.say_instead(figure.subplots(), nothing_sentence(metadata(table)))
        style.notes(figure, sentences)
    return figure


def plotted(table: pa.Table) -> pa.Table:
    """The rows that are drawn as points."""
    shown = pc.is_in(table["quantity"], pa.array(list(PANELS)))
    return table.filter(
        pc.and_(shown, pc.and_(pc.is_valid(table["found"]), pc.is_valid(table["predicted"])))
    )


def _rows(table: pa.Table) -> list[Row]:
    """The rows of the panels, each with the series that it is drawn as: one for each kind of training."""
    rows = []
    for row in table.to_pylist():
        if row["quantity"] in PANELS:
            model, phase, device = row["model"], row["phase"], row["device"]
            label = f"{model} on {device}" if phase == "train" else f"{model} {phase} on {device}"
            rows.append(row | {"series": label, "label": label})
    return [
        row | {"drawn_origin": origin}
        for row, origin in zip(rows, drawn_origins(rows), strict=True)
    ]


def _has_point(row: Row) -> bool:
    return row["found"] is not None and bool(row["predicted"])


def _draw_panel(
    axes: Axes, rows: Sequence[Row], looks: dict[str, Any], word: str, dense: bool
) -> None:
    points = [row for row in rows if _has_point(row)]
    name = rows[0]["quantity"]
    if not points:
        style.say_instead(axes, f"No {PANELS[name]} is both found and predicted.")
        return
    shown = quantity(name, word, None).fitting([row["predicted"] for row in points])
    axes.set(xlabel=f"Predicted {shown.label[0].lower()}{shown.label[1:]}")
    axes.set(ylabel=f"Found ÷ predicted {PANELS[name]}")
    axes.axhline(1.0, **_LINE)
    for row in points:
        _draw_point(axes, row, looks[row["series"]], shown.factor)
    style.log_axis(axes, "x", [row["predicted"] * shown.factor for row in points], 10, dense)
    ends = [end for row in points for end in (*_band(row), row["found"] / row["predicted"])]
    style.linear_axis(axes, [*ends, 1.0], from_zero=False)


def _band(row: Row) -> tuple[float, float]:
    """The prediction's interval as parts of its median."""
    low, high = row["predicted_low"], row["predicted_high"]
    return low / row["predicted"], high / row["predicted"]


def _draw_point(axes: Axes, row: Row, look: dict[str, Any], factor: float) -> None:
    x, y = row["predicted"] * factor, row["found"] / row["predicted"]
    pale = paler(look["color"], 0.55)
    axes.plot([x, x], _band(row), color=pale, linewidth=2.2, solid_capstyle="butt", zorder=2)
    look = look | {"linestyle": "none"} | style.origin_style(row["drawn_origin"], look["color"])
    axes.plot([x], [y], **look, zorder=3)


def _handles(rows: Sequence[Row], looks: dict[str, Any], width_mm: float) -> list[Line2D]:
    handles = [
        series_entry(rows, series, label, looks[series], linestyle="none")
        for series, label in series_labels(rows).items()
    ]
    if rows:
        band: Any = {"color": style.NOT_KNOWN, "linewidth": 3}
        handles.append(entry("90 % interval of the prediction", **band))
    return handles + origin_entries(rows, width_mm)


def _sentences(table: pa.Table, rows: Sequence[Row]) -> list[str]:
    stored = metadata(table)
    said = [
        f"{origin_sentence(rows)} {device_sentence(rows)}".strip(),
        f"Predicted by {stored.get('scaling_model')}, calibrated on "
        f"{', '.join(stored.get('sources', []))}.",
        judged_sentence(rows, PANELS),
        _lacking(rows),
    ]
    return [
        *filter(None, said if rows else []),
        *dict.fromkeys(f"{one[:1].upper()}{one[1:]}." for row in rows if (one := row["warnings"])),
        excluded_sentence(stored.get("excluded", [])),
        missing_sentence(stored.get("missing", [])),
        *stored.get("notes", []),
    ]


def _lacking(rows: Sequence[Row]) -> str:
    reasons: dict[str, int] = {}
    for row in rows:
        if row["reason"]:
            reasons[row["reason"]] = reasons.get(row["reason"], 0) + 1
    parts = [f"{reason} ({count} points)" for reason, count in reasons.items()]
    return f"Not predicted: {'; '.join(parts)}." if parts else ""
