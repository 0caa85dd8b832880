"""Figure 1: the campaign's four scaling procedures as n grows."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from scalewatt.figures import figure_data as data
from scalewatt.figures import prose, style

CELLS = {
    "A": ("fixed", "constant LBS"),
    "B": ("fixed", "constant GBS"),
    "C": ("scaled", "constant LBS"),
    "D": ("scaled", "constant GBS"),
}
"""Rules of dataset and batch size of each panel."""
MOST_COUNTS = 5
LONGEST_NAME = 62
QUANTITIES = {
    "local_batch_size": "LBS",
    "global_batch_size": "GBS",
    "samples_per_gpu": "samples per {}",
    "updates": "updates N",
}
MOST_LINEAR = 8.0
"""Largest ratio of a row's greatest and smallest value for which bars are linear."""

# A cell is drawn in these units, about millimetres.
CELL_WIDTH, CELL_HEIGHT, EMPTY_HEIGHT = 84.0, 52.6, 13.0
BARS_LEFT, BARS_RIGHT, TREND_LEFT = 21.0, 67.0, 68.5
FIRST_ROW, ROW_PITCH, BAR_HEIGHT, BAR_WIDTH = 32.0, 7.7, 3.4, 5.4
ROW_COLOURS = (0, 5, 2, 3)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw four cells: fixed or scaled dataset, constant local or global batch size.

    Two by two, or at column width one below the other; a row without any series is low.
    """
    rows = data.drawable(frame)
    width_mm = data.options(frame).width_mm
    preset = style.preset(width_mm)
    letters = np.reshape(list(CELLS), (-1, 1 if preset.narrow else 2))
    used = set(_letters(rows))
    heights = [CELL_HEIGHT if used & set(line) else EMPTY_HEIGHT for line in letters]
    drawn = data.drawable(plotted(frame))
    with style.applied(width_mm):
        height_mm = sum(heights) + 2 * len(heights) + style.notes_mm(preset)
        figure = style.new_figure(height_mm, width_mm)
        grid = figure.subplots(*letters.shape, squeeze=False, height_ratios=heights)
        for axes, letter in zip(grid.ravel(), letters.ravel(), strict=True):
            height = heights[int(np.argwhere(letters == letter)[0, 0])]
            _draw_cell(axes, height, letter, drawn[_letters(drawn) == letter], _is_linear(drawn))
            for artist in axes.get_children():
                # All of it lies inside the cell: nothing for which to make room around it.
                artist.set_in_layout(False)
        style.notes(figure, _note_sentences(rows, drawn))
    return figure


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Choose the rows that are drawn: the longest series of each cell, at most MOST_COUNTS of its points."""
    chosen = []
    for letter in CELLS:
        cell = frame[_letters(frame) == letter]
        if len(cell):
            longest = cell["series"].value_counts(sort=False).idxmax()
            series = cell[cell["series"] == longest].sort_values("gpus", kind="stable")
            places = np.linspace(0, len(series) - 1, min(len(series), MOST_COUNTS))
            chosen.append(series.iloc[places.round().astype(int)])
    return pd.concat([frame[:0], *chosen])


def _letters(rows: pd.DataFrame) -> pd.Series:
    """Letter of the panel of each row; none where neither batch size is constant."""
    by_rules = {rules: letter for letter, rules in CELLS.items()}
    rules = zip(rows["dataset_rule"], rows["batch_rule"], strict=True)
    return pd.Series([by_rules.get(pair, "") for pair in rules], rows.index, dtype=object)


def _is_linear(drawn: pd.DataFrame) -> bool:
    """Whether linear bars would show the smallest value in all rows of the figure."""
    values = drawn[list(QUANTITIES)].where(lambda values: values > 0).groupby(drawn["series"])
    return bool(
        (values.max() <= MOST_LINEAR * values.min())
        .where(values.max().notna(), True)
        .all(axis=None)
    )


def _draw_cell(axes: Axes, height: float, letter: str, rows: pd.DataFrame, linear: bool) -> None:
    axes.set_axis_off()
    axes.set(xlim=(0, CELL_WIDTH), ylim=(0, height))
    frame: Any = {"fill": False, "edgecolor": "#bbbbbb", "linewidth": 0.7}
    axes.add_patch(Rectangle((0, 0), CELL_WIDTH, height, **frame))
    dataset, batch = CELLS[letter]
    title = f"{dataset.capitalize()} dataset, {batch}"
    axes.text(2, height - 4.7, letter, fontsize=9, fontweight="bold")
    axes.text(7, height - 4.5, title, fontsize=7.5, fontweight="bold")
    if rows.empty:
        sentence = "No series of this campaign scales this way."
        axes.text(CELL_WIDTH / 2, (height - 6) / 2, sentence, ha="center", color=style.GREY)
        return
    series, label = rows[["series", "label"]].iloc[0]
    name = f"{label or series} ({series})"
    axes.text(7, height - 8.2, name if len(name) <= LONGEST_NAME else series, fontsize=6.2)
    pitch = (BARS_RIGHT - BARS_LEFT) / len(rows)
    centres = BARS_LEFT + (np.arange(len(rows)) + 0.5) * pitch
    word = data.gpu_word(rows)
    _draw_gpus(axes, rows["gpus"].to_numpy(), centres, word)
    for index, (column, words) in enumerate(QUANTITIES.items()):
        base = FIRST_ROW - (index + 1) * ROW_PITCH
        text = textwrap.fill(words.format(prose.singular(word)), 12)
        axes.text(2, base + 1.4, text, va="center", linespacing=1.1)
        look: Any = {"facecolor": style.COLOURS[ROW_COLOURS[index]], "linewidth": 0}
        _draw_row(axes, base, rows.set_index("gpus")[column], centres, linear, look)


def _draw_gpus(axes: Axes, counts: Any, centres: Any, word: str) -> None:
    """Draw one small square per GPU."""
    base = FIRST_ROW + 0.8
    axes.text(2, base + 2.0, f"{word} n", va="center")
    across = np.ceil(np.sqrt(counts)).astype(int)
    side = min(6.2 / across.max(), 1.8)
    corners = 0.8 * side * np.array([(0, 0), (1, 0), (1, 1), (0, 1)])
    squares = []
    for count, columns, centre in zip(counts, across, centres, strict=True):
        row, column = np.divmod(np.arange(count), columns)
        places = np.stack([centre + (column - columns / 2) * side, base + row * side], axis=1)
        squares.extend(places[:, None] + corners)
        top = base + np.ceil(count / columns) * side
        axes.text(centre, top + 0.6, str(count), fontsize=6, ha="center", va="bottom")
    # Not snapped to pixels, or the gaps of many small squares would vary.
    axes.add_collection(PolyCollection(squares, facecolors="#444444", linewidths=0, snap=False))


def _draw_row(
    axes: Axes, base: float, values: pd.Series, centres: Any, linear: bool, look: dict[str, Any]
) -> None:
    """Draw one quantity: a bar with its number per GPU count, and its trend at the right."""
    if values.isna().any():
        axes.text(TREND_LEFT, base + 1.4, "unknown", va="center", color=style.GREY)
        return
    low, high = values.min(), values.max()
    if linear:
        heights = BAR_HEIGHT * values / (high or 1.0)
    elif 0 < low * 1.05 < high:
        heights = BAR_HEIGHT * (0.18 + 0.82 * np.log(values / low) / np.log(high / low))
    else:
        # A dataset that does not divide gives a few samples more or less: not a difference to draw.
        heights = pd.Series(BAR_HEIGHT * (0.18 + 0.82 * 0.4), values.index)
    for value, centre, height in zip(values, centres, heights, strict=True):
        axes.add_patch(Rectangle((centre - BAR_WIDTH / 2, base), BAR_WIDTH, height, **look))
        number = prose.abbreviated(value)
        axes.text(centre, base + height + 0.5, number, fontsize=6, ha="center", va="bottom")
    trend = prose.trend(list(zip(values.index, values, strict=True)))
    axes.text(TREND_LEFT, base + 1.4, trend, va="center", fontweight="bold", fontsize=6)


def _note_sentences(rows: pd.DataFrame, drawn: pd.DataFrame) -> list[str]:
    others = rows[~rows["series"].isin(drawn["series"])]
    by_letter = others.groupby(_letters(others))
    named = {letter: ", ".join(_extents(cell)) for letter, cell in by_letter}
    nowhere = named.pop("", "")
    also = "; ".join(f"{letter}: {names}" for letter, names in named.items())
    scale = "proportional to the values" if _is_linear(drawn) else "logarithmic"
    return [
        f"Drawn from the campaign's definitions alone; n counts {data.gpu_word(rows)}. LBS and GBS: "
        "local and global batch size. N: optimiser updates in the whole training. Bar heights are "
        f"{scale} within a row.",
        f"Also – {also}." if also else "",
        f"In no panel, as neither LBS nor GBS is constant: {nowhere}." if nowhere else "",
    ]


def _extents(rows: pd.DataFrame) -> list[str]:
    """Name series with their smallest and largest n, the longest first; no break inside of brackets."""
    lines = rows.groupby("series", sort=False)["gpus"].agg(["size", "min", "max"])
    lines = lines.sort_values("size", ascending=False, kind="stable")
    return [
        f"{series} (n\u00a0=\u00a0{low if low == high else f'{low}…{high}'})"
        for series, low, high in zip(lines.index, lines["min"], lines["max"], strict=True)
    ]
