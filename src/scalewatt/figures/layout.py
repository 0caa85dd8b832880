"""What figures with a grid of panels share: the grid, legend entries of series, labels at points."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.figures import figure_data as data
from scalewatt.figures import style
from scalewatt.results.text.captions import nothing_sentence

Looks = Mapping[str, dict[str, Any]]
"""Colour, line and marker (style.series_style) of each series."""
LOWEST_MM = 32.0
"""Least height of a panel with its labels; of very many models the figure is taller than a page."""
LABEL_SIZE = 6.0
LABEL_ROOM = 0.16, 0.06
"""Part of the axes of a figure of 180 mm that a label at a point takes."""
FILL_WORDS = {
    "measured": "filled markers: measured",
    "estimated": "open markers: estimated",
    "simulated": "half-filled markers: simulated",
    "published": "crosses: published",
    "mixed": "markers filled below: mixed",
    None: "grey markers: energy not known",
}
MODEL_WORDS = {"resnet50": "ResNet50", "fourcastnet": "FourCastNet"}
PHASE_WORDS = {"train": "", "pretrain": "pre-training", "finetune": "fine-tuning"}


def styled(frame: pd.DataFrame) -> AbstractContextManager[None]:
    """Style of a figure, in the width and the font that the campaign asks for."""
    return style.applied(data.width_mm(frame), data.option(frame, "font", style.FONT))


def panel_grid(
    counts: Sequence[int], columns: int, handles: Sequence[Artist], width_mm: float
) -> tuple[style.Drawing, list[Axes]]:
    """Make a figure with a legend above panels; each block of `counts` panels begins a row."""
    figure = style.new_figure(width_mm)
    narrow = style.preset_at(figure).narrow
    columns = min(columns, max(counts), 2 if narrow else columns)
    block_rows = [-(-count // columns) for count in counts]
    legend_mm = style.add_legend(figure, handles)
    style.fit_rows(figure, sum(block_rows), legend_mm, LOWEST_MM, 44.0 if narrow else 58.0)
    grid = figure.subplots(sum(block_rows), columns, squeeze=False)
    panels: list[Axes] = []
    for count, rows in zip(counts, block_rows, strict=True):
        block, grid = grid[:rows].ravel().tolist(), grid[rows:]
        panels += block[:count]
        for axes in block[count:]:
            axes.set_axis_off()
    return figure, panels


def nothing(frame: pd.DataFrame) -> style.Drawing:
    """Make a figure that says why a table has nothing to draw."""
    figure = style.new_figure(data.width_mm(frame))
    style.say_instead(figure.subplots(), nothing_sentence(frame))
    return figure


def set_block_title(axes: Axes, points: pd.DataFrame, with_phase: bool = True) -> None:
    """Write model and phase of points above the first panel of their block."""
    model, phase = points["model"].iloc[0], points["phase"].iloc[0]
    words = [MODEL_WORDS.get(model, model), PHASE_WORDS.get(phase, phase) if with_phase else ""]
    axes.set_title(", ".join(filter(None, words)), loc="left", fontweight="bold")


def wrap_labels(figure: Figure) -> None:
    """Break labels of axes that are longer than their panel into lines."""
    preset = style.preset_at(figure)
    height_mm = figure.get_figheight() * style.MM_PER_INCH
    for axes in figure.axes:
        spec = axes.get_subplotspec()
        rows, columns = spec.get_geometry()[:2] if spec else (1, 1)
        across_mm = preset.width_mm / columns - (12 if preset.narrow else 18)
        for label, mm in ((axes.xaxis.label, across_mm), (axes.yaxis.label, height_mm / rows - 16)):
            label.set_text(textwrap.fill(label.get_text(), int(mm / (0.19 * preset.label_size))))


# --- legend entries -------------------------------------------------------------------------------


def looks_of(points: pd.DataFrame, width_mm: float) -> dict[str, dict[str, Any]]:
    """Look of each series, which is the same in every figure of a campaign."""
    indices = data.series_places(points)
    return {series: style.series_style(index, width_mm) for series, index in indices.items()}


def series_entries(points: pd.DataFrame, looks: Looks, **more: Any) -> list[Artist]:
    """Legend entries of series, and of what the fill of markers means where points differ in it.

    `more` goes on top of the series' looks.
    """
    origins = data.series_origins(points)
    entries: list[Artist] = [
        Line2D([], [], label=label, **(style.origin_style(looks[series], origins[series]) | more))
        for series, label in data.series_labels(points).items()
    ]
    present = set(points["drawn_origin"])
    if len(present) > 1:
        marker: Any = {"color": style.GREY, "marker": "o", "linestyle": "none", "markersize": 5.0}
        entries += [
            Line2D([], [], label=words, **style.origin_style(marker, origin))
            for origin, words in FILL_WORDS.items()
            if origin in present
        ]
    return entries


# --- labels at points -----------------------------------------------------------------------------


def write_labels(axes: Axes, labels: Sequence[tuple[float, float, str]]) -> None:
    """Write labels (x, y, text) at points, first ones first, where they do not lie on one another."""
    fraction = axes.transData + axes.transAxes.inverted()
    scale = style.PAGE.width_mm / style.preset_at(axes).width_mm
    width, height = (scale * part for part in LABEL_ROOM)
    box: Any = {"facecolor": "white", "alpha": 0.6, "linewidth": 0, "pad": 0.2}
    look: Any = {"textcoords": "offset points", "fontsize": LABEL_SIZE, "bbox": box, "zorder": 6}
    taken: list[tuple[float, float]] = []
    for x, y, text in labels:
        across, up = fraction.transform((x, y))
        if any(abs(across - a) < width and abs(up - b) < height for a, b in taken):
            continue
        taken.append((across, up))
        side, offset = ("left", 4) if across < 1 - width else ("right", -4)
        axes.annotate(text, (x, y), (offset, 4), ha=side, **look).set_in_layout(False)


def write_beside(axes: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """Write a small text right of a bar's end."""
    look |= {"textcoords": "offset points", "va": "center", "ha": "left"}
    axes.annotate(text, (x, y), (3, 0), fontsize=6, **look).set_in_layout(False)
