"""Figure `breakdown`: where the energy of each configuration goes, by device kind and stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from scalewatt.figures import style
from scalewatt.figures.blocks import legend_above, paler, small_print_mm, width_of
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

SLOT_MM = 3.5
"""Height of one line: a series' heading, or one bar."""
KINDS = {"gpu": ("GPU", 0), "cpu": ("CPU", 1), "ram": ("memory", 2)}
"""Words and colour of each device kind, in the order of the bars."""
STAGES = {
    "train": 0.0,
    "evaluate_train": 0.22,
    "validate": 0.40,
    "checkpoint": 0.54,
    "stage_data": 0.64,
    "startup": 0.73,
    "shutdown": 0.81,
    "unattributed": 0.88,
}
"""Stages in the order of the bars, each with how much white is in its colour."""
BAR = 0.78
"""Height of a bar, in slots."""
HATCH = "/////"


@dataclass(frozen=True)
class Slot:
    """One line of the y axis: a heading (no rows) or a configuration with its rows."""

    y: float
    text: str
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Piece:
    """A part of a bar, all numbers in the panel's unit."""

    kind: str
    stage: str
    start: float
    length: float


def draw(table: pa.Table) -> Figure:
    """A bar for each configuration, in energy (A) and in shares of its energy (B)."""
    rows = table.to_pylist()
    width = width_of(table)
    slots = list(slots_of(rows))
    handles = _handles(rows)
    columns = max(1, style.preset(width).legend_characters // 24)
    sentences = _note_sentences(table, rows)
    height = max(len(slots), 6) * SLOT_MM + 12
    with style.applied(width):
        small = small_print_mm(sentences, len(handles), columns, width)
        figure = style.new_figure(height + small, width)
        if slots:
            _draw_panels(figure.subplots(1, 2, sharey=True), slots)
            legend_above(figure, handles, columns, 1.6)
        else:
            style.say_instead(figure.subplots(), nothing_sentence(metadata(table)))
        style.notes(figure, sentences)
    return figure


def plotted(table: pa.Table) -> pa.Table:
    """The parts that are drawn: those with an energy."""
    return table.filter(pc.is_valid(table["energy_kwh"]))


def slots_of(rows: Sequence[Row]) -> Iterator[Slot]:
    """The lines of the y axis from the top (y = 0) down: each series' heading and its bars."""
    y = 0.0
    several = len({row["energy_origin"] for row in rows if row["energy_kwh"] is not None}) > 1
    for series, label in series_labels(rows).items():
        yield Slot(y, label)
        y -= 1
        own = [row for row in rows if row["series"] == series]
        for configuration in dict.fromkeys(row["configuration"] for row in own):
            parts = tuple(row for row in own if row["configuration"] == configuration)
            first = parts[0]
            origin = f", {first['energy_origin']}" if several else ""
            yield Slot(y, f"n = {first['gpus']}, LBS {first['local_batch_size']}{origin}", parts)
            y -= 1


def pieces(rows: Sequence[Row], unit: float = 1.0) -> list[Piece]:
    """The parts of one bar from left to right: kind by kind, in each stage by stage; kWh times `unit`."""
    found = []
    start = 0.0
    for kind in KINDS:
        for stage in STAGES:
            for row in rows:
                if (row["device_kind"], row["stage"]) == (kind, stage) and row["energy_kwh"]:
                    found.append(Piece(kind, stage, start, row["energy_kwh"] * unit))
                    start += found[-1].length
    return found


def colour(kind: str, stage: str) -> str:
    """A stage of a device kind: the kind's colour, the paler the less it is training."""
    return paler(style.COLOURS[KINDS[kind][1]], STAGES[stage])


def _draw_panels(grid: Sequence[Axes], slots: Sequence[Slot]) -> None:
    bars = [slot for slot in slots if slot.rows]
    totals = [total for slot in bars if (total := _sum(slot.rows, "energy_kwh")) is not None]
    energy = quantity("energy_kwh", "", None).fitting(totals)
    share = Quantity("Share of energy (%)", factor=100.0)
    for axes, letter, shown in ((grid[0], "A", energy), (grid[1], "B", share)):
        style.panel_letter(axes, letter)
        axes.set_xlabel(shown.label)
        axes.grid(visible=False, axis="y")
        _draw_bars(axes, bars, energy if letter == "A" else None)
        axes.set_xlim(0, 100 if letter == "B" else 1.22 * shown.factor * max(totals, default=1.0))
        axes.xaxis.set_major_locator(
            MaxNLocator(nbins=4 if letter == "A" else 5, steps=style.ROUND)
        )
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: style.plain_number(value)))
        axes.tick_params(axis="y", length=0)
    grid[0].set_ylim(slots[-1].y - 0.7, slots[0].y + 0.7)
    grid[0].set_yticks([slot.y for slot in bars], [slot.text for slot in bars])
    # Long headings reach over the second panel.
    grid[0].set_zorder(1)
    grid[0].patch.set_visible(False)
    for slot in slots:
        if not slot.rows:
            _write(grid[0], 0.0, slot.y, slot.text, weight="bold")


def _draw_bars(axes: Axes, bars: Sequence[Slot], energy: Quantity | None) -> None:
    """All bars of a panel: in energy, or without that in shares. Few artists, as there may be many bars."""
    parts: list[Box] = []
    colours: list[str] = []
    idle: list[Box] = []
    discarded: list[Box] = []
    borders: list[list[tuple[float, float]]] = []
    for slot in bars:
        total = _sum(slot.rows, "energy_kwh")
        if not total:
            words = "energy not known" if total is None else "0"
            _write(axes, 0.0, slot.y, words, color=style.GREY)
            continue
        unit = energy.factor if energy else 100.0 / total
        low, high = slot.y - BAR / 2, slot.y + BAR / 2
        found = pieces(slot.rows, unit)
        parts += [_box(one.start, one.start + one.length, low, high) for one in found]
        colours += [colour(one.kind, one.stage) for one in found]
        for kind in dict.fromkeys(one.kind for one in found):
            own = [one for one in found if one.kind == kind]
            start, end = own[0].start, own[-1].start + own[-1].length
            borders.append([(end, slot.y - 0.5), (end, slot.y + 0.5)])
            own_idle = _sum([r for r in slot.rows if r["device_kind"] == kind], "idle_energy_kwh")
            if own_idle:
                idle.append(_box(start, min(start + own_idle * unit, end), low, high))
        lost = _sum(slot.rows, "discarded_energy_kwh")
        if lost:
            discarded.append(_box(0.0, lost * unit, low, low + 0.22))
        if energy:
            _write(axes, total * unit, slot.y, style.plain_number(float(f"{total * unit:.3g}")))
    axes.add_collection(PolyCollection(parts, facecolors=colours, linewidths=0))
    hatched: Any = {"facecolors": "none", "edgecolors": "white", "linewidths": 0, "hatch": HATCH}
    axes.add_collection(PolyCollection(idle, **hatched))
    axes.add_collection(PolyCollection(discarded, facecolors="black", linewidths=0))
    axes.add_collection(LineCollection(borders, colors=style.INK, linewidths=0.7))


Box = list[tuple[float, float]]


def _box(left: float, right: float, low: float, high: float) -> Box:
    return [(left, low), (right, low), (right, high), (left, high)]


def _write(axes: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """Small words right of a bar's end."""
    place: Any = {"textcoords": "offset points", "va": "center", "ha": "left", "fontsize": 6}
    axes.annotate(text, (x, y), (3, 0), **(place | look)).set_in_layout(False)


def _sum(rows: Iterable[Row], column: str) -> float | None:
    """The sum over the parts; None where one is not known, or there is none."""
    values = [row[column] for row in rows]
    return None if not values or None in values else sum(values)


def _handles(rows: Sequence[Row]) -> list[Artist]:
    """Legend entries of what is there: device kinds, stages, idle and discarded energy."""
    drawn = [row for row in rows if row["energy_kwh"]]
    kinds, stages = ({row[name] for row in drawn} for name in ("device_kind", "stage"))
    handles: list[Artist] = [
        Patch(facecolor=colour(kind, "train"), label=words)
        for kind, (words, _) in KINDS.items()
        if kind in kinds
    ]
    handles += [
        Patch(
            facecolor=paler("#404040", white),
            edgecolor=style.GREY,
            linewidth=0.3,
            label=stage.replace("_", " "),
        )
        for stage, white in STAGES.items()
        if stage in stages
    ]
    if any(row["idle_energy_kwh"] for row in drawn):
        idle: Any = {"facecolor": style.GREY, "edgecolor": "white", "hatch": HATCH, "linewidth": 0}
        handles.append(Patch(label="idle baseline", **idle))
    if any(row["discarded_energy_kwh"] for row in drawn):
        handles.append(Line2D([], [], color="black", linewidth=1.8, label="discarded"))
    return handles


def _note_sentences(table: pa.Table, rows: Sequence[Row]) -> list[str]:
    stored = metadata(table)
    counts = f"n counts {gpu_word(table)}."
    return [
        f"{_origin_sentences(rows)} {counts} {device_sentence(rows)}",
        "Colour: device kind; the paler, the less it is training. Means over repeats; numbers: totals."
        if rows
        else "",
        _idle_sentence(rows),
        "Discarded: spent by killed segments after their last checkpoint, and part of the total."
        if any(row["discarded_energy_kwh"] for row in rows)
        else "",
        "A configuration that several series share stands under the first of them." if rows else "",
        excluded_sentence(stored.get("excluded", [])),
        missing_sentence(stored.get("missing", [])),
        *stored.get("notes", []),
    ]


def _origin_sentences(rows: Sequence[Row]) -> str:
    """Origin and scope of the energies that are known; bars have no markers that could say it."""
    known = [row for row in rows if row["energy_kwh"] is not None]
    origins = dict.fromkeys(row["energy_origin"] for row in known)
    said = [origin_sentence([r for r in known if r["energy_origin"] == o]) for o in origins]
    return " ".join(said) or "No energy is known for these runs."


def _idle_sentence(rows: Sequence[Row]) -> str:
    known = [row for row in rows if row["energy_kwh"] is not None]
    if not known:
        return ""
    if all(row["idle_energy_kwh"] is None for row in known):
        return "The idle baseline is not known: the campaign has no idle probe of these devices."
    said = "Hatched: what the devices would have used idle over the same time."
    some = any(row["idle_energy_kwh"] is None for row in known)
    return said + (" Bars without hatching: not known." if some else "")
