"""Figure 1: the campaign's four scaling procedures as n grows."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Rectangle

from scalewatt.figures import figure_data as data
from scalewatt.figures import style
from scalewatt.results.columns import singular
from scalewatt.results.text.captions import caption

CELLS = {
    "A": ("fixed", "constant LBS"),
    "B": ("fixed", "constant GBS"),
    "C": ("scaled", "constant LBS"),
    "D": ("scaled", "constant GBS"),
}
"""Rules of dataset and batch size of each panel."""
MOST_COUNTS = 5
QUANTITIES = {
    "local_batch_size": ("LBS", style.COLOURS[0]),
    "global_batch_size": ("GBS", style.COLOURS[5]),
    "samples_per_gpu": ("samples per {}", style.COLOURS[2]),
    "updates": ("updates N", style.COLOURS[3]),
}
"""Words and colour of each row of a cell."""

# A cell is drawn in these units, about millimetres.
CELL_WIDTH, CELL_HEIGHT = 84.0, 52.6
BARS_LEFT, BARS_RIGHT, TREND_LEFT = 21.0, 67.0, 68.5
FIRST_ROW, ROW_PITCH, BAR_HEIGHT, BAR_WIDTH = 32.0, 7.7, 3.4, 5.4
LOWEST_BAR = 0.18
"""Height of the smallest value's bar, in parts of the largest one's."""


def draw(frame: pd.DataFrame) -> style.Drawing:
    """Draw four cells: fixed or scaled dataset, constant local or global batch size.

    Two by two, or at column width one below the other.
    """
    rows, drawn = data.drawable(frame), data.drawable(plotted(frame))
    letters, width_mm = _letters(drawn), data.options(frame).width_mm
    with style.applied(width_mm):
        figure = style.new_figure(width_mm)
        columns = 1 if style.preset_at(figure).narrow else 2
        style.fit_rows(figure, 4 // columns, 4.0, CELL_HEIGHT, CELL_HEIGHT)
        grid = figure.subplots(4 // columns, columns, squeeze=False)
        for axes, letter in zip(grid.ravel(), CELLS, strict=True):
            _draw_cell(axes, letter, drawn[letters == letter])
            for artist in axes.get_children():
                # All of it lies inside the cell: nothing for which to make room around it.
                artist.set_in_layout(False)
        others = rows[~rows["series"].isin(drawn["series"])]
        also = {
            str(letter): list(group["series"].unique())
            for letter, group in others.groupby(_letters(others))
        }
        style.notes(figure, caption(rows, "figure1", also=also))
    return figure


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Choose the rows that are drawn: the longest series of each cell, at most MOST_COUNTS of its points."""
    chosen = [frame[:0]]
    for letter in CELLS:
        cell = frame[_letters(frame) == letter]
        if len(cell):
            longest = cell["series"].value_counts(sort=False).idxmax()
            series = cell[cell["series"] == longest].sort_values("gpus", kind="stable")
            indices = np.linspace(0, len(series) - 1, min(len(series), MOST_COUNTS))
            chosen.append(series.iloc[indices.round().astype(int)])
    return pd.concat(chosen)


def _letters(rows: pd.DataFrame) -> pd.Series:
    """Letter of the panel of each row; none where neither batch size is constant."""
    by_rules = {rules: letter for letter, rules in CELLS.items()}
    rules = zip(rows["dataset_rule"], rows["batch_rule"], strict=True)
    return pd.Series([by_rules.get(pair, "") for pair in rules], rows.index, dtype=object)


def _draw_cell(axes: Axes, letter: str, rows: pd.DataFrame) -> None:
    axes.set_axis_off()
    axes.set(xlim=(0, CELL_WIDTH), ylim=(0, CELL_HEIGHT))
    border: Any = {"fill": False, "edgecolor": "#bbbbbb", "linewidth": 0.7}
    axes.add_patch(Rectangle((0, 0), CELL_WIDTH, CELL_HEIGHT, **border))
    dataset, batch = CELLS[letter]
    title = f"{dataset.capitalize()} dataset, {batch}"
    axes.text(2, CELL_HEIGHT - 4.7, letter, fontsize=9, fontweight="bold")
    axes.text(7, CELL_HEIGHT - 4.5, title, fontsize=7.5, fontweight="bold")
    if rows.empty:
        sentence = "No series of this campaign scales this way."
        axes.text(CELL_WIDTH / 2, 20, sentence, ha="center", color=style.GREY)
        return
    name = textwrap.shorten(rows["label"].iloc[0] or rows["series"].iloc[0], 62, placeholder=" …")
    axes.text(7, CELL_HEIGHT - 8.2, name, fontsize=6.2)
    pitch = (BARS_RIGHT - BARS_LEFT) / len(rows)
    centres = BARS_LEFT + (np.arange(len(rows)) + 0.5) * pitch
    word = data.gpu_word(rows)
    _draw_gpus(axes, rows["gpus"].to_numpy(), centres, word)
    for index, (column, (words, colour)) in enumerate(QUANTITIES.items(), 1):
        base = FIRST_ROW - index * ROW_PITCH
        text = textwrap.fill(words.format(singular(word)), 12)
        axes.text(2, base + 1.4, text, va="center", linespacing=1.1)
        _draw_row(axes, base, rows.set_index("gpus")[column], centres, colour)


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
        lower_left = np.stack([centre + (column - columns / 2) * side, base + row * side], axis=1)
        squares.extend(lower_left[:, None] + corners)
        top = base + np.ceil(count / columns) * side
        axes.text(centre, top + 0.6, str(count), fontsize=6, ha="center", va="bottom")
    # Not snapped to pixels, or the gaps of many small squares would vary.
    axes.add_collection(PolyCollection(squares, facecolors="#444444", linewidths=0, snap=False))


def _draw_row(axes: Axes, base: float, values: pd.Series, centres: Any, colour: str) -> None:
    """Draw one quantity: a bar with its number per GPU count, and its trend at the right."""
    if values.isna().any():
        axes.text(TREND_LEFT, base + 1.4, "unknown", va="center", color=style.GREY)
        return
    low, high = values.min(), values.max()
    # A dataset that does not divide gives a few samples more or less: not a difference to draw.
    differ = 0 < low * 1.05 < high
    shares = np.log(values / low) / np.log(high / low) if differ else 0.4 * values**0
    heights = BAR_HEIGHT * (LOWEST_BAR + (1 - LOWEST_BAR) * shares)
    for value, centre, height in zip(values, centres, heights, strict=True):
        corner = centre - BAR_WIDTH / 2, base
        axes.add_patch(Rectangle(corner, BAR_WIDTH, height, facecolor=colour, linewidth=0))
        look: Any = {"fontsize": 6, "ha": "center", "va": "bottom"}
        axes.text(centre, base + height + 0.5, style.plain_number(value), **look)
    words = trend(values.index[-1] / values.index[0], values.iloc[0], values.iloc[-1])
    axes.text(TREND_LEFT, base + 1.4, words, va="center", fontweight="bold", fontsize=6)


def trend(scale: float, first: float, last: float) -> str:
    """How a quantity changes while n grows by a factor `scale`: constant, ∝ n, ∝ 1/n, grows, shrinks.

    A few per cent of rounding (of a dataset that does not divide) are ignored.
    """
    if scale == 1 or min(first, last) <= 0:
        return "–"
    for words, expected in (("constant", 1.0), ("∝ n", scale), ("∝ 1/n", 1 / scale)):
        if abs(last / first / expected - 1) < 0.05:
            return words
    return "grows" if last > first else "shrinks"
