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
from scalewatt.figures.blocks import (
    Label,
    goal_sentence,
    legend_above,
    legend_columns,
    metric_words,
    paler,
    small_print_mm,
    width_of,
    write_labels,
)
from scalewatt.figures.points import Row, gpu_word, metadata, series_labels
from scalewatt.figures.words import (
    Quantity,
    device_sentence,
    excluded_sentence,
    missing_sentence,
    nothing_sentence,
    origin_sentence,
    quantity,
)
from scalewatt.results.figure_schema import panel_letter

PANEL_HEIGHT_MM = 58.0
COSTS = {"energy_kwh": "energy_kwh", "time_h": "runtime_h"}
"""The table's columns on the horizontal axes, and the quantities that they are."""
MOST_LABELS = 12
"""Of more curves in a panel only some are labelled."""
PALEST = 0.55
"""How much white is in the colour of a series' smallest n; its largest has none."""


@dataclass(frozen=True)
class Curve:
    """One configuration: its look, and the (x, y) of each of its runs."""

    series: str
    gpus: int
    look: dict[str, Any]
    runs: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]

    @property
    def mean(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean over the runs, epoch by epoch, as far as all of them have a value."""
        length = min((len(x) for x, _ in self.runs), default=0)
        axes = [
            tuple(sum(run[axis][k] for run in self.runs) / len(self.runs) for k in range(length))
            for axis in (0, 1)
        ]
        return axes[0], axes[1]


def draw(table: pa.Table) -> Figure:
    """A row of two panels for each model and phase: against energy, and against time."""
    rows = table.to_pylist()
    width = width_of(table)
    blocks = blocks_of(rows)
    sentences = _note_sentences(table, rows)
    handles = _handles(rows)
    in_line = legend_columns(handles, width)
    columns = 1 if style.preset(width).narrow else len(COSTS)
    panel_rows = max(1, len(blocks) * len(COSTS) // columns)
    height = panel_rows * PANEL_HEIGHT_MM + small_print_mm(sentences, len(handles), in_line, width)
    with style.applied(width):
        figure = style.new_figure(height, width)
        if blocks:
            grid = figure.subplots(panel_rows, columns, squeeze=False).ravel().tolist()
            looks = _looks(rows, width)
            size_mm = (width / columns - 18, PANEL_HEIGHT_MM - 14)
            for index, axes in enumerate(grid):
                own, cost = blocks[index // len(COSTS)], list(COSTS)[index % len(COSTS)]
                style.panel_letter(axes, panel_letter(index))
                _draw_panel(axes, own, cost, looks, gpu_word(table), size_mm)
            legend_above(figure, handles, in_line, 4)
        else:
            style.say_instead(figure.subplots(), nothing_sentence(metadata(table)))
        style.notes(figure, sentences)
    return figure


def plotted(table: pa.Table) -> pa.Table:
    """The epochs that are drawn: with a metric, and a place in energy or in time."""
    placed = pc.or_(pc.is_valid(table["energy_kwh"]), pc.is_valid(table["time_h"]))
    return table.filter(pc.and_(pc.is_valid(table["metric"]), placed))


def blocks_of(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each model and phase, in the table's order."""
    kinds = dict.fromkeys((row["model"], row["phase"]) for row in rows)
    return [[r for r in rows if (r["model"], r["phase"]) == kind] for kind in kinds]


def curves(rows: Sequence[Row], cost: str, looks: dict[str, dict[str, Any]]) -> Iterator[Curve]:
    """The curves of one panel; runs without a single point have none."""
    for configuration in dict.fromkeys(row["configuration"] for row in rows):
        own = [row for row in rows if row["configuration"] == configuration]
        runs = []
        for repeat in dict.fromkeys(row["repeat"] for row in own):
            points = [
                (row[cost], row["metric"])
                for row in sorted(own, key=lambda row: row["epoch"])
                if row["repeat"] == repeat and None not in (row[cost], row["metric"])
            ]
            if points:
                runs.append((tuple(x for x, _ in points), tuple(y for _, y in points)))
        if runs:
            yield Curve(own[0]["series"], own[0]["gpus"], looks[configuration], tuple(runs))


def _looks(rows: Sequence[Row], width: float) -> dict[str, dict[str, Any]]:
    """By configuration: the series' colour, marker and line, the paler the smaller n is."""
    looks = {}
    for index, series in enumerate(series_labels(rows)):
        own = [row for row in rows if row["series"] == series]
        ordered = sorted({(row["gpus"], row["configuration"]) for row in own})
        base = style.series_style(index, width)
        for place, (_, configuration) in enumerate(ordered):
            white = PALEST * (1 - place / (len(ordered) - 1)) if len(ordered) > 1 else 0.0
            colour = paler(base["color"], white)
            origin = next(r["energy_origin"] for r in own if r["configuration"] == configuration)
            look = base | {"color": colour, "markersize": 0.75 * base["markersize"]}
            looks[configuration] = look | style.origin_style(origin, colour)
    return looks


def _draw_panel(
    axes: Axes,
    rows: Sequence[Row],
    cost: str,
    looks: dict[str, dict[str, Any]],
    word: str,
    size_mm: tuple[float, float],
) -> None:
    found = list(curves(rows, cost, looks))
    if not found:
        style.say_instead(axes, _why_empty(rows, cost))
        return
    values = [value for curve in found for x, _ in curve.runs for value in x]
    shown = quantity(COSTS[cost], word, None).fitting(values)
    for curve in found:
        _draw_curve(axes, curve, shown)
    axes.set(xlabel=shown.label, ylabel=metric_words(rows))
    positive = [value * shown.factor for value in values if value > 0]
    if positive:
        style.log_axis(axes, "x", positive, 10, dense=True)
    style.linear_axis(axes, [v for curve in found for _, y in curve.runs for v in y], False)
    _label_ends(axes, found, shown, size_mm)


def _label_ends(
    axes: Axes, found: Sequence[Curve], shown: Quantity, size_mm: tuple[float, float]
) -> None:
    """n at the curves' ends; of many curves at those of each series' smallest and largest n."""
    ends = [(curve.mean[0][-1] * shown.factor, curve.mean[1][-1]) for curve in found]
    labels = []
    for curve, end in zip(found, ends, strict=True):
        counts = [other.gpus for other in found if other.series == curve.series]
        if len(found) <= MOST_LABELS or curve.gpus in (min(counts), max(counts)):
            labels.append(Label(*end, f"{curve.gpus}"))
    write_labels(axes, labels, ends, size_mm)


def _draw_curve(axes: Axes, curve: Curve, shown: Quantity) -> None:
    """The mean, with a marker and n at its end; where there are repeats, each of them thin."""
    x, y = curve.mean
    x = tuple(value * shown.factor for value in x)
    line = {key: curve.look[key] for key in ("color", "linestyle")}
    if len(curve.runs) > 1:
        thin = [[(v * shown.factor, m) for v, m in zip(*run, strict=True)] for run in curve.runs]
        axes.add_collection(LineCollection(thin, colors=line["color"], linewidths=0.4, alpha=0.6))
    axes.plot(x, y, **line, zorder=3)
    axes.plot(x[-1:], y[-1:], **(curve.look | {"linestyle": "none"}), zorder=4)


def _why_empty(rows: Sequence[Row], cost: str) -> str:
    if all(row["metric"] is None for row in rows):
        return "None of these runs has a metric."
    if cost == "energy_kwh":
        return "No energy of these runs' epochs is known."
    return "When the epochs of these runs ended is not known."


def _handles(rows: Sequence[Row]) -> list[Line2D]:
    found = []
    for index, label in enumerate(series_labels(rows).values()):
        look = style.series_style(index)
        found.append(Line2D([], [], label=label, **(look | {"markerfacecolor": "none"})))
    return found


def _note_sentences(table: pa.Table, rows: Sequence[Row]) -> list[str]:
    stored = metadata(table)
    if not rows:
        return [
            excluded_sentence(stored.get("excluded", [])),
            missing_sentence(stored.get("missing", [])),
        ]
    repeated = any(row["n_repeats"] > 1 for row in rows)
    return [
        f"{origin_sentence(rows)} n counts {gpu_word(table)}. {device_sentence(rows)}",
        "One line for each configuration, from the first epoch to the last; its end is marked, with n"
        " beside it as far as there is room. The darker, the larger n."
        + (
            " Thick: mean over repeats; thin: each of them."
            if repeated
            else " All are single runs."
        ),
        "Energy and time count from the start of the run, and hold what killed segments lost.",
        _unplaced_sentence(rows),
        "A configuration that several series share stands under the first of them.",
        goal_sentence(rows),
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
            parts.append(f"against {words} {', '.join(lacking)}")
    return f"No curve, as a value is not known: {'; '.join(parts)}." if parts else ""
