"""Figure `breakdown`: where the energy of each configuration goes, by device kind and stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from scalewatt.figures import style
from scalewatt.figures.breakdown_text import (
    KINDS,
    STAGES,
    idle_kwh,
    note_sentences,
    sum_of,
    total_bar,
)
from scalewatt.figures.figure_data import (
    Row,
    is_beyond,
    metadata,
    options,
    series_labels,
)
from scalewatt.figures.footnote_text import (
    KIND_WORDS,
    Quantity,
    nothing_sentence,
    quantity,
)
from scalewatt.figures.legends import legend_above, legend_columns
from scalewatt.figures.panel_blocks import TALLEST_MM, paler

SLOT_MM = (2.3, 3.5)
"""Least and greatest height of one line: a series' heading, or one bar."""
PALEST = 0.82
"""How much white is in the last shade; the first has none."""
BAR = 0.78
"""Height of a bar, in slots."""
HATCH = "////"
LONGEST = 1.4
"""How far an error bar may lengthen the axis, in parts of the longest bar."""


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
    stored, chosen = metadata(table), options(table)
    preset = style.preset(chosen.width_mm)
    slots = list(slots_of(rows))
    whites = shades(rows)
    handles = _handles(rows, whites)
    columns = legend_columns(handles, preset.legend_characters)
    cut: list[str] = []
    sentences = note_sentences(stored, rows, chosen.error_bars, cut)
    small = style.lines_mm(len(style.note_lines(sentences, chosen.width_mm)), preset.note_size)
    small += style.lines_mm(-(-len(handles) // columns), 1.3 * preset.text_size) + 18.0
    lines = max(len(slots), 6)
    slot_mm = max(SLOT_MM[0], min(SLOT_MM[1], (TALLEST_MM - small) / lines))
    with style.applied(chosen.width_mm):
        figure = style.new_figure(lines * slot_mm + small, chosen.width_mm)
        if slots:
            grid = figure.subplots(1, 2, sharey=True)
            cut += _draw_panels(grid, slots, whites, chosen.error_bars)
            grid[0].tick_params(
                axis="y", labelsize=max(6.0, min(preset.text_size, 2.0 * slot_mm + 0.6))
            )
            legend_above(figure, handles, columns, 1.6)
        else:
            style.say_instead(figure.subplots(), nothing_sentence(stored))
        style.notes(figure, note_sentences(stored, rows, chosen.error_bars, cut))
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


def shades(rows: Sequence[Row]) -> dict[str, float]:
    """How much white each shade of the stages in `rows` has, evenly from none to PALEST."""
    there = {STAGES[row["stage"]] for row in rows if row["energy_kwh"]}
    words = [name for name in dict.fromkeys(STAGES.values()) if name in there]
    last = max(len(words) - 1, 1)
    return {name: PALEST * place / last for place, name in enumerate(words)}


def colour(kind: str, stage: str, whites: dict[str, float]) -> str:
    """A stage of a device kind: the kind's colour in the stage's shade."""
    return paler(style.COLOURS[KINDS[kind]], whites[STAGES[stage]])


def three_digits(value: float) -> str:
    """A number with three digits: 0.0398, 2.50, 13.0, 1235."""
    rounded = float(f"{value:.3g}")
    if abs(rounded) >= 100:
        return style.plain_number(round(value))
    return f"{rounded:#.3g}" if abs(rounded) >= 1e-4 or not rounded else f"{rounded:.3g}"


def _draw_panels(
    grid: Sequence[Axes], slots: Sequence[Slot], whites: dict[str, float], bars: str
) -> list[str]:
    """Both panels; the configurations whose error bars reach beyond the axis."""
    drawn = [slot for slot in slots if slot.rows]
    totals = [total for slot in drawn if (total := sum_of(slot.rows, "energy_kwh")) is not None]
    energy = quantity("energy_kwh", "GPUs", None).fitting(totals)
    longest = max(totals, default=1.0)
    ends = [end for slot in drawn for end in (total_bar(slot.rows, bars) or ())]
    reach = min(max([longest, *ends]), LONGEST * longest)
    share = Quantity("Share of energy (%)", factor=100.0)
    for axes, letter, shown in ((grid[0], "A", energy), (grid[1], "B", share)):
        style.panel_letter(axes, letter)
        axes.set_xlabel(shown.label)
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, 100 if letter == "B" else 1.22 * shown.factor * reach)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: style.plain_number(value)))
        axes.tick_params(axis="y", length=0)
        _draw_bars(axes, drawn, energy if letter == "A" else None, whites)
    _draw_spreads(grid[0], drawn, energy, bars)
    grid[0].set_ylim(slots[-1].y - 0.7, slots[0].y + 0.7)
    grid[0].set_yticks([slot.y for slot in drawn], [slot.text for slot in drawn])
    # Long headings reach over the second panel.
    grid[0].set_zorder(1)
    grid[0].patch.set_visible(False)
    for slot in slots:
        if not slot.rows:
            _write(grid[0], 0.0, slot.y, slot.text, weight="bold")
    limit = grid[0].get_xlim()[1] / energy.factor
    return [
        slot.rows[0]["configuration"]
        for slot in drawn
        if is_beyond((0.0, limit), total_bar(slot.rows, bars) or ())
    ]


def _draw_bars(
    axes: Axes, bars: Sequence[Slot], energy: Quantity | None, whites: dict[str, float]
) -> None:
    """All bars of a panel: in energy, or without that in shares. Few artists, as there may be many bars."""
    parts: list[Box] = []
    colours: list[str] = []
    hatched: dict[str, list[Box]] = {"white": [], style.GREY: []}
    discarded: list[Box] = []
    borders: list[list[tuple[float, float]]] = []
    for slot in bars:
        total = sum_of(slot.rows, "energy_kwh")
        if not total:
            words = "energy not known" if total is None else "0"
            _write(axes, 0.0, slot.y, words, color=style.GREY)
            continue
        unit = energy.factor if energy else 100.0 / total
        low, high = slot.y - BAR / 2, slot.y + BAR / 2
        found = pieces(slot.rows, unit)
        parts += [_box(one.start, one.start + one.length, low, high) for one in found]
        colours += [colour(one.kind, one.stage, whites) for one in found]
        for kind in dict.fromkeys(one.kind for one in found):
            own = [one for one in found if one.kind == kind]
            if (start := own[0].start) > 0:
                borders.append([(start, slot.y - 0.5), (start, slot.y + 0.5)])
            idle = own[0].start + (idle_kwh(slot.rows, kind) or 0.0) * unit
            for one in own:
                if one.start < idle:
                    box = _box(one.start, min(one.start + one.length, idle), low, high)
                    pale = _is_pale(colour(one.kind, one.stage, whites))
                    hatched[style.GREY if pale else "white"].append(box)
        lost = sum_of(slot.rows, "discarded_energy_kwh")
        if lost:
            discarded.append(_box(0.0, lost * unit, low, low + 0.25))
    axes.add_collection(PolyCollection(parts, facecolors=colours, linewidths=0))
    for edge, boxes in hatched.items():
        look: Any = {"facecolors": "none", "edgecolors": edge, "linewidths": 0, "hatch": HATCH}
        axes.add_collection(PolyCollection(boxes, **look, gid=f"idle-{edge}"))
    black: Any = {"facecolors": "black", "edgecolors": "white", "linewidths": 0.4}
    axes.add_collection(PolyCollection(discarded, **black))
    axes.add_collection(LineCollection(borders, colors=style.INK, linewidths=0.7))


def _is_pale(colour: str) -> bool:
    red, green, blue = to_rgb(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue > 0.6


def _draw_spreads(axes: Axes, drawn: Sequence[Slot], energy: Quantity, bars: str) -> None:
    """An error bar at the end of each bar whose spread is known, and the total beside it."""
    lines: list[list[tuple[float, float]]] = []
    for slot in drawn:
        total = sum_of(slot.rows, "energy_kwh")
        if not total:
            continue
        right = total * energy.factor
        if ends := total_bar(slot.rows, bars):
            low, high = (end * energy.factor for end in ends)
            lines.append([(low, slot.y), (high, slot.y)])
            lines += [[(end, slot.y - 0.2), (end, slot.y + 0.2)] for end in (low, high)]
            right = min(max(right, high), axes.get_xlim()[1] / 1.22)
        _write(axes, right, slot.y, three_digits(total * energy.factor))
    axes.add_collection(
        LineCollection(lines, colors="black", linewidths=0.8, zorder=3, gid="spreads")
    )


Box = list[tuple[float, float]]


def _box(left: float, right: float, low: float, high: float) -> Box:
    return [(left, low), (right, low), (right, high), (left, high)]


def _write(axes: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """Small words right of a bar's end."""
    place: Any = {"textcoords": "offset points", "va": "center", "ha": "left", "fontsize": 6}
    axes.annotate(text, (x, y), (3, 0), **(place | look)).set_in_layout(False)


def _handles(rows: Sequence[Row], whites: dict[str, float]) -> list[Artist]:
    """Legend entries of what is there: device kinds, stages, idle and discarded energy."""
    drawn = [row for row in rows if row["energy_kwh"]]
    kinds = {row["device_kind"] for row in drawn}
    handles: list[Artist] = [
        Patch(facecolor=style.COLOURS[index], label=KIND_WORDS[kind])
        for kind, index in KINDS.items()
        if kind in kinds
    ]
    edge: Any = {"edgecolor": style.GREY, "linewidth": 0.3}
    handles += [
        Patch(facecolor=paler("#404040", white), label=words, **edge)
        for words, white in whites.items()
    ]
    if any(row["idle_energy_kwh"] for row in drawn):
        idle: Any = {"facecolor": style.GREY, "edgecolor": "white", "hatch": HATCH, "linewidth": 0}
        handles.append(Patch(label="idle baseline", **idle))
    if any(row["discarded_energy_kwh"] for row in drawn):
        handles.append(Line2D([], [], color="black", linewidth=1.8, label="discarded"))
    return handles
