"""Figure 1: what the campaign's four scaling procedures do as n grows."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from scalewatt.figures import style
from scalewatt.figures.points import Row, gpu_word
from scalewatt.figures.words import abbreviated, trend

DATASET_RULES = ("fixed", "scaled")
BATCH_RULES = ("constant LBS", "constant GBS")
MOST_COUNTS = 5

# A cell is drawn in these units, about millimetres.
CELL_WIDTH, CELL_HEIGHT = 84.0, 66.0
BARS_LEFT, BARS_RIGHT, TREND_LEFT = 21.0, 67.0, 69.5
FIRST_ROW, ROW_PITCH, BAR_HEIGHT, BAR_WIDTH = 43.5, 9.0, 4.6, 5.4


def draw(table: pa.Table) -> Figure:
    """Two by two cells: fixed or scaled dataset, constant local or global batch size."""
    rows = table.to_pylist()
    word = gpu_word(table)
    with style.applied():
        figure = style.new_figure(2 * CELL_HEIGHT + 16)
        grid = figure.subplots(2, 2)
        cells = [(d, b) for d in DATASET_RULES for b in BATCH_RULES]
        for letter, axes, rules in zip("ABCD", grid.ravel().tolist(), cells, strict=True):
            inside = [row for row in rows if (row["dataset_rule"], row["batch_rule"]) == rules]
            _draw_cell(axes, letter, f"{rules[0].capitalize()} dataset, {rules[1]}", inside, word)
            for artist in axes.get_children():
                # All of it lies inside the cell: nothing for which to make room around it.
                artist.set_in_layout(False)
        style.notes(
            figure,
            [
                f"Drawn from the campaign's definitions alone; n counts {word}. LBS and GBS: local "
                "and global batch size. N: optimiser updates in the whole training. Bar heights "
                "are logarithmic within a row."
            ],
        )
    return figure


def _draw_cell(axes: Axes, letter: str, title: str, rows: Sequence[Row], word: str) -> None:
    axes.set_axis_off()
    axes.set(xlim=(0, CELL_WIDTH), ylim=(0, CELL_HEIGHT))
    axes.add_patch(
        Rectangle((0, 0), CELL_WIDTH, CELL_HEIGHT, fill=False, edgecolor="#bbbbbb", linewidth=0.7)
    )
    axes.text(2, CELL_HEIGHT - 5.2, letter, fontsize=10, fontweight="bold")
    axes.text(7, CELL_HEIGHT - 5.0, title, fontsize=8, fontweight="bold")
    series = _series(rows)
    if not series:
        sentence = "No series of this campaign scales this way."
        axes.text(CELL_WIDTH / 2, CELL_HEIGHT / 2, sentence, ha="center", color=style.GREY)
        return
    main, *others = series
    label = main[0]["label"] or main[0]["series"]
    axes.text(7, CELL_HEIGHT - 9.2, f"{label}   ({main[0]['series']})", fontsize=6.5)
    shown = _thinned(main)
    centres = _centres(len(shown))
    _draw_gpus(axes, shown, centres, word)
    quantities = (
        ("LBS", "local_batch_size"),
        ("GBS", "global_batch_size"),
        ("samples per " + ("process" if word == "processes" else "GPU"), "samples_per_gpu"),
        ("updates N", "updates"),
    )
    for index, (name, column) in enumerate(quantities, start=1):
        base = FIRST_ROW - index * ROW_PITCH
        _draw_row(axes, base, name, [(row["gpus"], row[column]) for row in shown], centres, index)
    _draw_others(axes, others)


def _series(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows by series, each ordered by n; the series with the most points first."""
    names = dict.fromkeys(row["series"] for row in rows)
    by_name = [
        sorted((r for r in rows if r["series"] == name), key=lambda r: r["gpus"]) for name in names
    ]
    return sorted(by_name, key=len, reverse=True)


def _thinned(rows: Sequence[Row]) -> list[Row]:
    """At most MOST_COUNTS rows, evenly chosen, first and last among them."""
    if len(rows) <= MOST_COUNTS:
        return list(rows)
    step = (len(rows) - 1) / (MOST_COUNTS - 1)
    return [rows[round(index * step)] for index in range(MOST_COUNTS)]


def _centres(count: int) -> list[float]:
    pitch = (BARS_RIGHT - BARS_LEFT) / count
    return [BARS_LEFT + (index + 0.5) * pitch for index in range(count)]


def _draw_gpus(axes: Axes, rows: Sequence[Row], centres: Sequence[float], word: str) -> None:
    """One small square per GPU, as many as there are."""
    counts = [row["gpus"] for row in rows]
    name = word if word == "processes" else "GPUs"
    axes.text(2, FIRST_ROW + 2.2, f"{name} n", va="center")
    side = min(6.2 / math.ceil(math.sqrt(max(counts))), 1.8)
    for count, centre in zip(counts, centres, strict=True):
        across = math.ceil(math.sqrt(count))
        for index in range(count):
            x = centre + (index % across - across / 2) * side
            square = (x, FIRST_ROW + (index // across) * side)
            axes.add_patch(
                # Not snapped to pixels, or the gaps of many small squares would vary.
                Rectangle(square, 0.8 * side, 0.8 * side, color="#444444", lw=0, snap=False)
            )
        top = FIRST_ROW + math.ceil(count / across) * side
        axes.text(centre, top + 0.6, str(count), fontsize=6, ha="center", va="bottom")


def _draw_row(
    axes: Axes,
    base: float,
    name: str,
    found: Sequence[tuple[int, float | None]],
    centres: Sequence[float],
    index: int,
) -> None:
    """One quantity: a bar with its number per GPU count, and its trend in words at the right."""
    axes.text(2, base + 1.6, textwrap.fill(name, 12), va="center", linespacing=1.1)
    values = [(gpus, value) for gpus, value in found if value is not None]
    if len(values) < len(found):
        axes.text(TREND_LEFT, base + 1.6, "not known", va="center", color=style.GREY)
        return
    numbers = [value for _, value in values]
    low, high = min(numbers), max(numbers)
    # A dataset that does not divide gives a few samples more or less: not a difference to draw.
    differs = 0 < low * 1.05 < high
    for (_, value), centre in zip(values, centres, strict=True):
        part = math.log(value / low) / math.log(high / low) if differs else 0.4
        height = BAR_HEIGHT * (0.18 + 0.82 * part)
        axes.add_patch(
            Rectangle(
                (centre - BAR_WIDTH / 2, base),
                BAR_WIDTH,
                height,
                facecolor=style.COLOURS[index - 1],
                linewidth=0,
            )
        )
        number = abbreviated(value)
        axes.text(centre, base + height + 0.5, number, fontsize=6, ha="center", va="bottom")
    axes.text(TREND_LEFT, base + 1.6, trend(values), va="center", fontweight="bold")


def _draw_others(axes: Axes, others: Sequence[Sequence[Row]]) -> None:
    """Name the series that scale the same way and are not drawn."""
    if not others:
        return
    names = [
        f"{rows[0]['series']} (n = {rows[0]['gpus']}…{rows[-1]['gpus']})"
        if len(rows) > 1
        else f"{rows[0]['series']} (n = {rows[0]['gpus']})"
        for rows in others
    ]
    lines = textwrap.wrap("Also: " + ", ".join(names) + ".", 78)
    axes.text(2, 5.2, "\n".join(lines), fontsize=5.5, va="top", color="#444444", linespacing=1.2)
