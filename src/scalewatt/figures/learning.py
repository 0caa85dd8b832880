"""Figure `learning`: the quality metric after each epoch, against energy and against time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.figures import style
from scalewatt.figures.figure_data import (
    Row,
    blocks_of,
    drawn_origins,
    gpu_word,
    metadata,
    options,
    series_labels,
)
from scalewatt.figures.footnote_text import (
    Quantity,
    device_sentence,
    excluded_sentence,
    goal_sentence,
    metric_words,
    missing_sentence,
    named,
    no_energy_sentence,
    nothing_sentence,
    origin_sentence,
    quantity,
)
from scalewatt.figures.legends import entry, origin_entries, series_entry
from scalewatt.figures.panel_blocks import (
    Block,
    Label,
    Panels,
    draw_blocks,
    legible,
    paler,
    write_labels,
)
from scalewatt.results.figures.figure_schema import panel_letter

COSTS = {"energy_kwh": "energy_kwh", "time_h": "runtime_h"}
"""The table's columns on the horizontal axes, and the quantities that they are."""
MOST_STRONG = 12
"""Of a block with more curves only each series' smallest and largest n are in its colour."""
PALEST = 0.35
"""How much white is in the colour of a series' smallest n; its largest has none."""
BETWEEN: Any = {"color": "#b8b8b8", "linewidth": 0.5}

Place = tuple[int, float, float]
"""Epoch, cost, metric."""


@dataclass(frozen=True)
class Curve:
    """One configuration: its look (None: one among many), and the known places of each of its runs."""

    gpus: int
    look: dict[str, Any] | None
    runs: tuple[tuple[Place, ...], ...]

    @property
    def mean(self) -> list[tuple[float, float]]:
        """Mean cost and metric over the runs, epoch by epoch; it ends where one of them lacks a value."""
        known = [{epoch: (x, y) for epoch, x, y in run} for run in self.runs]
        found = []
        for epoch in sorted({epoch for run in known for epoch in run}):
            places = [run[epoch] for run in known if epoch in run]
            if len(places) < len(known):
                break
            x, y = (sum(values) / len(known) for values in zip(*places, strict=True))
            found.append((x, y))
        return found


def draw(table: pa.Table) -> Figure:
    """A row of two panels for each model and phase: against energy, and against time."""
    rows = table.to_pylist()
    width = options(table).width_mm
    word = gpu_word(table)
    sentences = _note_sentences(table, rows)
    with style.applied(width):
        if not rows:
            figure = style.new_figure(60.0, width)
            style.say_instead(figure.subplots(), nothing_sentence(metadata(table)))
            style.notes(figure, sentences)
            return figure
        looks = {name: look for own in blocks_of(rows) for name, look in _looks(own, width).items()}
        blocks = [Block(own, _handles(own, width, looks)) for own in blocks_of(rows)]

        def draw_panel(block: Block, index: int, axes: Axes, panels: Panels) -> None:
            style.panel_letter(axes, panel_letter(index))
            cost = list(COSTS)[index % len(COSTS)]
            _draw_panel(axes, block.rows, cost, looks, word, panels)

        return draw_blocks(blocks, width, lambda: sentences, draw_panel)


def plotted(table: pa.Table) -> pa.Table:
    """The epochs that are drawn: with a metric, and a place in energy or in time."""
    placed = pc.or_(pc.is_valid(table["energy_kwh"]), pc.is_valid(table["time_h"]))
    return table.filter(pc.and_(pc.is_valid(table["metric"]), placed))


def curves(
    rows: Sequence[Row], cost: str, looks: dict[str, dict[str, Any] | None]
) -> Iterator[Curve]:
    """The curves of one panel; runs without a single point have none."""
    for configuration in dict.fromkeys(row["configuration"] for row in rows):
        own = [row for row in rows if row["configuration"] == configuration]
        runs: dict[int, list[Place]] = {}
        for row in own:
            if row[cost] is not None and row["metric"] is not None:
                place = (row["epoch"], row[cost], row["metric"])
                runs.setdefault(row["repeat"], []).append(place)
        if runs:
            yield Curve(own[0]["gpus"], looks[configuration], tuple(map(tuple, runs.values())))


def _looks(rows: Sequence[Row], width: float) -> dict[str, dict[str, Any] | None]:
    """By configuration of a block the series' colour, marker and line, the paler the smaller n is.

    None of those between a series' smallest and largest n where there are many curves.
    """
    origins = dict(zip((r["configuration"] for r in rows), drawn_origins(rows), strict=True))
    crowded = len(origins) > MOST_STRONG
    looks: dict[str, dict[str, Any] | None] = {}
    for index, series in enumerate(series_labels(rows)):
        own = {(r["gpus"], r["configuration"]) for r in rows if r["series"] == series}
        base = style.series_style(index, width)
        for place, (_, configuration) in enumerate(sorted(own)):
            white = PALEST * (1 - place / (len(own) - 1)) if len(own) > 1 else 0.0
            colour = paler(base["color"], white)
            look = base | {"color": colour} | style.origin_style(origins[configuration], colour)
            between = crowded and 0 < place < len(own) - 1
            looks[configuration] = None if between else look
    return looks


def _draw_panel(
    axes: Axes,
    rows: Sequence[Row],
    cost: str,
    looks: dict[str, dict[str, Any] | None],
    word: str,
    panels: Panels,
) -> None:
    found = list(curves(rows, cost, looks))
    if not found:
        style.say_instead(axes, _why_empty(rows, cost))
        return
    values = [x for curve in found for run in curve.runs for _, x, _ in run]
    shown = quantity(COSTS[cost], word, None).fitting(values)
    panels.set_labels(axes, shown.label, metric_words(rows))
    positive = [value * shown.factor for value in values if value > 0]
    if positive:
        style.log_axis(axes, "x", positive, 10, panels.dense)
    style.linear_axis(axes, [y for curve in found for run in curve.runs for _, _, y in run], False)
    for curve in found:
        _draw_curve(axes, curve, shown)
    _label_ends(axes, [curve for curve in found if curve.look], shown, panels.size_mm)


def _label_ends(
    axes: Axes, found: Sequence[Curve], shown: Quantity, size_mm: tuple[float, float]
) -> None:
    """n at the ends of the curves that have a series' colour, in that colour, where there is room."""
    ends = [(curve.mean[-1][0] * shown.factor, curve.mean[-1][1]) for curve in found if curve.mean]
    labels = [
        Label(*end, f"{curve.gpus}", legible(curve.look["color"]))
        for curve, end in zip((c for c in found if c.mean), ends, strict=True)
        if curve.look
    ]
    lines = [
        [(x * shown.factor, y) for x, y in curve.mean] for curve in found if len(curve.mean) > 1
    ]
    write_labels(axes, labels, ends, lines, size_mm)


def _draw_curve(axes: Axes, curve: Curve, shown: Quantity) -> None:
    """The mean, its end marked; where there are repeats, each of them thin. One among many: a grey mean."""
    mean = [(x * shown.factor, y) for x, y in curve.mean]
    if curve.look is None:
        axes.add_collection(LineCollection([mean], colors=BETWEEN["color"], linewidths=0.5))
        return
    line = {key: curve.look[key] for key in ("color", "linestyle")}
    if len(curve.runs) > 1:
        thin = [[(x * shown.factor, y) for _, x, y in run] for run in curve.runs]
        axes.add_collection(LineCollection(thin, colors=line["color"], linewidths=0.4, alpha=0.6))
    if mean:
        axes.plot(*zip(*mean, strict=True), **line, zorder=3)
        axes.plot(*mean[-1], **(curve.look | {"linestyle": "none"}), zorder=4)


def _why_empty(rows: Sequence[Row], cost: str) -> str:
    if all(row["metric"] is None for row in rows):
        return "None of these runs has a metric."
    if cost == "energy_kwh":
        return "No energy of these runs' epochs is known."
    return "When the epochs of these runs ended is not known."


def _handles(
    rows: Sequence[Row], width: float, looks: dict[str, dict[str, Any] | None]
) -> list[Line2D]:
    """The series of a block, with the marker of their energies' origin."""
    found = [
        series_entry(rows, series, label, style.series_style(index, width))
        for index, (series, label) in enumerate(series_labels(rows).items())
    ]
    if any(looks[row["configuration"]] is None for row in rows):
        found.append(entry("n in between", **BETWEEN))
    return found + origin_entries(rows, width)


def _note_sentences(table: pa.Table, rows: Sequence[Row]) -> list[str]:
    stored = metadata(table)
    if not rows:
        return [
            excluded_sentence(stored.get("excluded", [])),
            missing_sentence(stored.get("missing", [])),
            *stored.get("notes", []),
        ]
    repeated = any(row["n_repeats"] > 1 for row in rows)
    return [
        f"{origin_sentence(rows)} n counts {gpu_word(table)}. {device_sentence(rows)}",
        "One line for each configuration, from the first epoch to the last; its end is marked, with n"
        " beside it as far as there is room. The darker, the larger n."
        + (
            " Thick: mean over repeats, up to the epoch from which on one has no value; thin: each of"
            " them."
            if repeated
            else " All are single runs."
        ),
        "Energy and time count from the start of the run, and hold what killed segments lost.",
        _unplaced_sentence(rows),
        no_energy_sentence(stored, rows),
        "A configuration that several series share stands under the first of them.",
        goal_sentence(blocks_of(rows)),
        excluded_sentence(stored.get("excluded", [])),
        missing_sentence(stored.get("missing", [])),
        *stored.get("notes", []),
    ]


def _unplaced_sentence(rows: Sequence[Row]) -> str:
    """Configurations that a panel with other curves lacks."""
    parts = []
    for cost, words in (("energy_kwh", "energy"), ("time_h", "time")):
        drawn = {r["configuration"] for r in rows if None not in (r[cost], r["metric"])}
        lacking = dict.fromkeys(r["configuration"] for r in rows if r["configuration"] not in drawn)
        if drawn and lacking:
            parts.append(f"against {words} {named(list(lacking))}")
    return f"No curve, as a value is not known: {'; '.join(parts)}." if parts else ""
