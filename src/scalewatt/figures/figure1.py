"""Figure 1: the campaign's four scaling procedures as n grows."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from scalewatt.figures import figure_data as data
from scalewatt.figures import prose, style
from scalewatt.results.figures.figure_schema import OVERVIEW
from scalewatt.results.tables.frames import frame_of, records

Row = dict[str, Any]

DATASET_RULES = ("fixed", "scaled")
BATCH_RULES = ("constant LBS", "constant GBS")
MOST_COUNTS = 5
LONGEST_NAME = 62

# A cell is drawn in these units, about millimetres.
CELL_WIDTH, CELL_HEIGHT, EMPTY_HEIGHT = 84.0, 52.6, 13.0
BARS_LEFT, BARS_RIGHT, TREND_LEFT = 21.0, 67.0, 68.5
FIRST_ROW, ROW_PITCH, BAR_HEIGHT, BAR_WIDTH = 32.0, 7.7, 3.4, 5.4
GPUS_BASE = FIRST_ROW + 0.8
ROW_COLOURS = (0, 5, 2, 3)
QUANTITIES = ("local_batch_size", "global_batch_size", "samples_per_gpu", "updates")
MOST_LINEAR = 8.0
"""Largest ratio of a row's greatest and smallest value for which bars are linear."""
_CELLS = [(dataset, batch) for dataset in DATASET_RULES for batch in BATCH_RULES]


def draw(frame: pd.DataFrame) -> Figure:
    """Draw four cells: fixed or scaled dataset, constant local or global batch size.

    Two by two, or at column width one below the other; a row without any series is low.
    """
    rows = records(frame)
    word, width = data.gpu_word(frame), data.options(frame).width_mm
    narrow = style.preset(width).narrow
    cells = [[row for row in rows if _rules(row) == rules] for rules in _CELLS]
    across = 1 if narrow else 2
    lines = [cells[at : at + across] for at in range(0, len(cells), across)]
    heights = [CELL_HEIGHT if any(line) else EMPTY_HEIGHT for line in lines]
    sentences = _note_sentences(cells, rows, word)
    notes_mm = style.notes_mm(style.preset(width))
    with style.applied(width):
        figure = style.new_figure(sum(heights) + 2 * len(heights) + notes_mm, width)
        grid = figure.subplots(
            len(lines), across, squeeze=False, gridspec_kw={"height_ratios": heights}
        )
        places = [
            (axes, height) for line, height in zip(grid, heights, strict=True) for axes in line
        ]
        for letter, (axes, height), rules, inside in zip(
            "ABCD", places, _CELLS, cells, strict=True
        ):
            title = f"{rules[0].capitalize()} dataset, {rules[1]}"
            _draw_cell(axes, height, letter, title, inside, word, _is_linear(cells))
            for artist in axes.get_children():
                # All of it lies inside the cell: nothing for which to make room around it.
                artist.set_in_layout(False)
        style.notes(figure, sentences)
    return figure


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that are drawn: the first series of each cell, some of its points if they are many."""
    rows = records(frame)
    cells = ([row for row in rows if _rules(row) == rules] for rules in _CELLS)
    chosen = [_thinned(_series(inside)[0]) for inside in cells if inside]
    return frame_of([row for shown in chosen for row in shown], OVERVIEW)


def _rules(row: Row) -> tuple[str, str]:
    return row["dataset_rule"], row["batch_rule"]


def _draw_cell(
    axes: Axes,
    height: float,
    letter: str,
    title: str,
    rows: Sequence[Row],
    word: str,
    linear: bool,
) -> None:
    axes.set_axis_off()
    axes.set(xlim=(0, CELL_WIDTH), ylim=(0, height))
    axes.add_patch(
        Rectangle((0, 0), CELL_WIDTH, height, fill=False, edgecolor="#bbbbbb", linewidth=0.7)
    )
    axes.text(2, height - 4.7, letter, fontsize=9, fontweight="bold")
    axes.text(7, height - 4.5, title, fontsize=7.5, fontweight="bold")
    series = _series(rows)
    if not series:
        sentence = "No series of this campaign scales this way."
        axes.text(CELL_WIDTH / 2, (height - 6) / 2, sentence, ha="center", color=style.GREY)
        return
    main = series[0]
    label = main[0]["label"] or main[0]["series"]
    own = f"{label} ({main[0]['series']})"
    if len(own) > LONGEST_NAME:
        own = main[0]["series"]
    axes.text(7, height - 8.2, own[:LONGEST_NAME], fontsize=6.2)
    shown = _thinned(main)
    centres = _centres(len(shown))
    _draw_gpus(axes, shown, centres, word)
    names = ("LBS", "GBS", f"samples per {prose.singular(word)}", "updates N")
    for index, (name, column) in enumerate(zip(names, QUANTITIES, strict=True), start=1):
        base = FIRST_ROW - index * ROW_PITCH
        values = [(row["gpus"], row[column]) for row in shown]
        colour = style.COLOURS[ROW_COLOURS[index - 1]]
        _draw_row(axes, base, name, values, centres, colour, linear)


def _note_sentences(cells: Sequence[Sequence[Row]], rows: Sequence[Row], word: str) -> list[str]:
    also = [
        f"{letter}: {', '.join(_extent(own) for own in _series(inside)[1:])}"
        for letter, inside in zip("ABCD", cells, strict=True)
        if len(_series(inside)) > 1
    ]
    other = [_extent(own) for own in _series([row for row in rows if _rules(row) not in _CELLS])]
    return [
        f"Drawn from the campaign's definitions alone; n counts {word}. LBS and GBS: local and "
        "global batch size. N: optimiser updates in the whole training. Bar heights are "
        f"{'proportional to the values' if _is_linear(cells) else 'logarithmic'} within a row.",
        f"Also – {'; '.join(also)}." if also else "",
        f"In no panel, as neither LBS nor GBS is constant: {', '.join(other)}." if other else "",
    ]


def _is_linear(cells: Sequence[Sequence[Row]]) -> bool:
    """Return True if linear bars would show the smallest value in all rows of the figure."""
    for inside in filter(None, cells):
        shown = _thinned(_series(inside)[0])
        for column in QUANTITIES:
            values = [row[column] for row in shown if row[column]]
            if values and max(values) > MOST_LINEAR * min(values):
                return False
    return True


def _extent(rows: Sequence[Row]) -> str:
    """Return a series by name with its smallest and largest n."""
    first, last = rows[0]["gpus"], rows[-1]["gpus"]
    # No break inside of the brackets.
    return f"{rows[0]['series']} (n\u00a0=\u00a0{first if first == last else f'{first}…{last}'})"


def _series(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows by series, each ordered by n; the series with the most points first."""
    names = dict.fromkeys(row["series"] for row in rows)
    by_name = [
        sorted((r for r in rows if r["series"] == name), key=lambda r: r["gpus"]) for name in names
    ]
    return sorted(by_name, key=len, reverse=True)


def _thinned(rows: Sequence[Row]) -> list[Row]:
    """Return at most MOST_COUNTS rows, evenly chosen, first and last among them."""
    if len(rows) <= MOST_COUNTS:
        return list(rows)
    step = (len(rows) - 1) / (MOST_COUNTS - 1)
    return [rows[round(index * step)] for index in range(MOST_COUNTS)]


def _centres(count: int) -> list[float]:
    pitch = (BARS_RIGHT - BARS_LEFT) / count
    return [BARS_LEFT + (index + 0.5) * pitch for index in range(count)]


def _draw_gpus(axes: Axes, rows: Sequence[Row], centres: Sequence[float], word: str) -> None:
    """Draw one small square per GPU."""
    counts = [row["gpus"] for row in rows]
    axes.text(2, GPUS_BASE + 2.0, f"{word} n", va="center")
    side = min(6.2 / math.ceil(math.sqrt(max(counts))), 1.8)
    squares = []
    for count, centre in zip(counts, centres, strict=True):
        across = math.ceil(math.sqrt(count))
        for index in range(count):
            x = centre + (index % across - across / 2) * side
            squares.append(_square(x, GPUS_BASE + (index // across) * side, 0.8 * side))
        top = GPUS_BASE + math.ceil(count / across) * side
        axes.text(centre, top + 0.6, str(count), fontsize=6, ha="center", va="bottom")
    # Not snapped to pixels, or the gaps of many small squares would vary.
    axes.add_collection(PolyCollection(squares, facecolors="#444444", linewidths=0, snap=False))


def _square(x: float, y: float, side: float) -> list[tuple[float, float]]:
    return [(x, y), (x + side, y), (x + side, y + side), (x, y + side)]


def _draw_row(
    axes: Axes,
    base: float,
    name: str,
    found: Sequence[tuple[int, float | None]],
    centres: Sequence[float],
    colour: str,
    linear: bool,
) -> None:
    """Draw one quantity: a bar with its number per GPU count, and its trend at the right."""
    axes.text(2, base + 1.4, textwrap.fill(name, 12), va="center", linespacing=1.1)
    values = [(gpus, value) for gpus, value in found if value is not None]
    if len(values) < len(found):
        axes.text(TREND_LEFT, base + 1.4, "unknown", va="center", color=style.GREY)
        return
    numbers = [value for _, value in values]
    low, high = min(numbers), max(numbers)
    # A dataset that does not divide gives a few samples more or less: not a difference to draw.
    differs = 0 < low * 1.05 < high
    for (_, value), centre in zip(values, centres, strict=True):
        if linear:
            height = BAR_HEIGHT * (value / high if high > 0 else 0.0)
        else:
            part = math.log(value / low) / math.log(high / low) if differs else 0.4
            height = BAR_HEIGHT * (0.18 + 0.82 * part)
        axes.add_patch(
            Rectangle(
                (centre - BAR_WIDTH / 2, base),
                BAR_WIDTH,
                height,
                facecolor=colour,
                linewidth=0,
            )
        )
        number = prose.abbreviated(value)
        axes.text(centre, base + height + 0.5, number, fontsize=6, ha="center", va="bottom")
    look: Any = {"va": "center", "fontweight": "bold", "fontsize": 6}
    axes.text(TREND_LEFT, base + 1.4, prose.trend(values), **look)
