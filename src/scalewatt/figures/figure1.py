"""Figure 1: the campaign's four scaling procedures as n grows."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, style
from scalewatt.results.columns import singular
from scalewatt.results.text.captions import caption

CELLS = {
    ("fixed", "constant LBS"): "A",
    ("fixed", "constant GBS"): "B",
    ("scaled", "constant LBS"): "C",
    ("scaled", "constant GBS"): "D",
}
"""Panel of each pair of rules, for the dataset and the batch size."""
MOST_COUNTS = 5
QUANTITIES = {
    "gpus": ("{gpus} n", style.COLOURS[6]),
    "local_batch_size": ("LBS", style.COLOURS[0]),
    "global_batch_size": ("GBS", style.COLOURS[5]),
    "samples_per_gpu": ("samples per {gpu}", style.COLOURS[2]),
    "updates": ("updates N", style.COLOURS[3]),
}
"""Words and colour of each row of a panel, from top to bottom."""
HEIGHT_MM = 52.0
BAR_WIDTH, HIGHEST_BAR, LOWEST_BAR = 0.6, 0.45, 0.08
"""In places along a row, and of the distance of two rows."""


def draw(rows: pd.DataFrame) -> style.Drawing:
    """Draw four panels: fixed or scaled dataset, constant local or global batch size.

    Two by two, or at column width one below the other.
    """
    drawn, width_mm = plotted(rows), data.width_mm(rows)
    letters = _letters(drawn)
    with layout.styled(rows):
        figure = style.new_figure(width_mm)
        columns = 1 if style.preset_at(figure).narrow else 2
        style.fit_rows(figure, 4 // columns, 4.0, HEIGHT_MM, HEIGHT_MM)
        grid = figure.subplots(4 // columns, columns, squeeze=False)
        for axes, (rules, letter) in zip(grid.ravel(), CELLS.items(), strict=True):
            style.panel_letter(axes, letter)
            title = f"{rules[0].capitalize()} dataset, {rules[1]}"
            axes.set_title(title, loc="left", fontweight="bold")
            _draw_panel(axes, drawn[letters == letter])
        others = rows[~rows["series"].isin(drawn["series"])]
        also = {
            str(letter): list(group["series"].unique())
            for letter, group in others.groupby(_letters(others))
        }
        style.notes(figure, caption(rows, "figure1", also=also))
    return figure


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Choose the rows that are drawn: the longest series of each panel, at most MOST_COUNTS of its points."""
    chosen = [frame[:0]]
    for letter in CELLS.values():
        rows = frame[_letters(frame) == letter]
        if len(rows):
            longest = rows["series"].value_counts(sort=False).idxmax()
            series = rows[rows["series"] == longest].sort_values("gpus", kind="stable")
            indices = np.linspace(0, len(series) - 1, min(len(series), MOST_COUNTS))
            chosen.append(series.iloc[indices.round().astype(int)])
    return pd.concat(chosen)


def _letters(rows: pd.DataFrame) -> pd.Series:
    """Letter of the panel of each row; none where neither batch size is constant."""
    rules = zip(rows["dataset_rule"], rows["batch_rule"], strict=True)
    return pd.Series([CELLS.get(pair, "") for pair in rules], rows.index, dtype=object)


def _draw_panel(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw a row of bars for each quantity, with its numbers, and at the right how it changes with n."""
    if rows.empty:
        style.say_instead(axes, "No series of this campaign scales this way.")
        return
    axes.set_axis_off()
    axes.set(xlim=(-2.1, MOST_COUNTS + 0.9), ylim=(-len(QUANTITIES) + 0.7, 1.4))
    name = textwrap.shorten(rows["label"].iloc[0] or rows["series"].iloc[0], 62, placeholder=" …")
    axes.text(-2.1, 1.1, name, fontsize=6.2)
    centres = np.arange(len(rows)) * MOST_COUNTS / len(rows)
    ranks = data.gpu_word(rows)
    look: Any = {"fontsize": 6, "ha": "center", "va": "bottom"}
    for index, (column, (words, colour)) in enumerate(QUANTITIES.items()):
        values = rows[column].to_numpy(float)
        words = textwrap.fill(words.format(gpus=ranks, gpu=singular(ranks)), 12)
        axes.text(-2.1, 0.2 - index, words, va="center")
        if np.isnan(values).any():
            axes.text(0, 0.2 - index, "unknown", va="center", color=style.GREY)
            continue
        heights = _heights(values)
        axes.bar(centres, heights, BAR_WIDTH, -index, color=colour, linewidth=0, gid=column)
        for centre, height, value in zip(centres, heights, values, strict=True):
            axes.text(centre, height - index + 0.04, style.plain_number(value), **look)
        if column != "gpus":
            change = trend(rows["gpus"].iloc[-1] / rows["gpus"].iloc[0], values[0], values[-1])
            axes.text(MOST_COUNTS - 0.4, 0.2 - index, change, va="center", fontweight="bold")


def _heights(values: Any) -> Any:
    """Heights of bars, logarithmic between the smallest and the largest value."""
    low, high = values.min(), values.max()
    # A dataset that does not divide gives a few samples more or less: not a difference to draw.
    differ = 0 < low * 1.05 < high
    shares = np.log(values / low) / np.log(high / low) if differ else 0.4 * values**0
    return LOWEST_BAR + (HIGHEST_BAR - LOWEST_BAR) * shares


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
