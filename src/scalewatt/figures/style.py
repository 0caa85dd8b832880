"""One style for all figures: size, colours, markers, log axes with plain numbers, notes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path as MarkerPath
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

MM_PER_INCH = 25.4
GREY = "#666666"
INK = "#262626"
NOT_KNOWN = "#bdbdbd"
"""What fills markers of points whose series has no known energy."""
ROUND = [1, 2, 5, 10]  # first digits of tick labels
LOG_SCALE = "log\u00a0scale"  # in one line


@dataclass(frozen=True)
class Preset:
    """A width in print, and what goes with it: font sizes in points."""

    width_mm: float
    label_size: float
    text_size: float
    note_size: float
    letter_size: float
    scale: float  # of lines and markers

    @property
    def narrow(self) -> bool:
        """True for one column of a page of two."""
        return self.width_mm < 120

    @property
    def note_characters(self) -> int:
        """Characters of notes that fit into a line."""
        return int(self.width_mm / (0.2006 * self.note_size))

    @property
    def legend_characters(self) -> int:
        """Characters of a legend that fit into a line, its lines and gaps counted."""
        return int(self.width_mm / (0.1948 * self.text_size))


PAGE = Preset(180.0, label_size=7.5, text_size=7.0, note_size=6.0, letter_size=10.0, scale=1.0)
COLUMN = Preset(88.0, label_size=6.5, text_size=6.2, note_size=6.0, letter_size=8.0, scale=0.72)


PRESETS = {int(preset.width_mm): preset for preset in (PAGE, COLUMN)}
"""The widths in mm that a figure may have in print."""
WIDTH_MM = PAGE.width_mm
NOTE_LINES = 2
"""Of the notes, in the drawing; captions have all."""

# Distinct for any common colour vision, and in grey. Each series also has its marker and line style.
COLOURS = ("#14305e", "#c13a22", "#35b199", "#e2aa1c", "#8a1f4e", "#4a7fc4", "#0d0d0d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
_LEAST_SIZE = {"P": 6.0, "X": 6.2}  # their arms are thin
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.2, 1.5)))

_RC: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": 100,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same on every machine
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "patch.edgecolor": "white",
    "patch.force_edgecolor": True,
    "patch.linewidth": 0.8,
    "lines.solid_capstyle": "round",
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "svg.fonttype": "none",
    "svg.hashsalt": "scalewatt",
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
}
# Without it a published point would vanish in a marker of its colour.
_HALO = withStroke(linewidth=1.9, foreground="white")


def paler(colour: str, white: float) -> str:
    """Return a colour mixed with white, of which it gets the share `white` (0 to 1)."""
    red, green, blue = (part + (1 - part) * white for part in to_rgb(colour))
    return to_hex((red, green, blue))


def legible(colour: str) -> str:
    """Return a colour for small words: dark enough to be read on white."""
    dark = min(1.0, 0.42 / max(luma(colour), 0.01))
    red, green, blue = to_rgb(colour)
    return to_hex((red * dark, green * dark, blue * dark))


def luma(colour: str) -> float:
    """Return how light a colour is in grey, from 0 (black) to 1."""
    red, green, blue = to_rgb(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue


@contextmanager
def applied(width_mm: float = WIDTH_MM) -> Iterator[None]:
    """Apply matplotlib's defaults with the style of a width on top, whatever the user's settings."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_rc(preset(width_mm)))
        yield


def _rc(preset: Preset) -> Any:
    texts = ("font.size", "legend.fontsize", "xtick.labelsize", "ytick.labelsize")
    sizes = dict.fromkeys(texts, preset.text_size)
    sizes |= dict.fromkeys(("axes.labelsize", "axes.titlesize"), preset.label_size)
    ticks = {"color": INK, "direction": "out", "major.width": 0.6, "major.size": 4.5 * preset.scale}
    ticks |= {"minor.width": 0.8, "minor.size": 3.2}
    both = {f"{which}.{key}": value for which in ("xtick", "ytick") for key, value in ticks.items()}
    return _RC | sizes | both | {"lines.linewidth": 0.4 + 0.7 * preset.scale}


def preset(width_mm: float) -> Preset:
    """Return the preset of a width, or the nearest one."""
    return min((PAGE, COLUMN), key=lambda known: abs(known.width_mm - width_mm))


def preset_of(figure: Figure) -> Preset:
    """Return the preset in which a figure is drawn."""
    return preset(figure.get_figwidth() * MM_PER_INCH)


class Drawing(Figure):
    """A figure and its notes."""

    sentences: tuple[str, ...] = ()
    """All of them; in the drawing are the first NOTE_LINES lines."""


def new_figure(height_mm: float, width_mm: float = WIDTH_MM) -> Drawing:
    """Return an empty figure that makes room for labels, legend and notes."""
    figure = Drawing(
        figsize=(width_mm / MM_PER_INCH, height_mm / MM_PER_INCH), layout="constrained"
    )
    engine: Any = figure.get_layout_engine()
    pad = 0.05 if width_mm == WIDTH_MM else 0.03
    engine.set(w_pad=pad, h_pad=pad, wspace=0.03, hspace=0.04)
    return figure


def series_style(index: int, width_mm: float = WIDTH_MM) -> dict[str, Any]:
    """Return colour, line and marker of the series at `index`; later ones are smaller, to show on top."""
    scale = preset(width_mm).scale
    marker = MARKERS[index % len(MARKERS)]
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": marker,
        "linestyle": LINES[index % len(LINES)],
        "markersize": max(6.4 - 0.4 * index, 5.2, _LEAST_SIZE.get(marker, 0.0)) * scale,
        "markeredgewidth": 0.3 + 0.5 * scale,
    }


def origin_style(origin: str | None) -> dict[str, Any]:
    """Return how a marker of this energy origin is filled: `auto` is its colour, grey an unknown origin."""
    if origin in ("simulated", "mixed"):
        fill = "left" if origin == "simulated" else "bottom"
        return {"fillstyle": fill, "markerfacecolor": "auto", "markerfacecoloralt": "white"}
    if origin is None:
        return {"markerfacecolor": NOT_KNOWN}
    return {"markerfacecolor": "auto" if origin == "measured" else "white"}


def of_origin(look: dict[str, Any], origin: str | None) -> dict[str, Any]:
    """Return a series' look for an energy origin; published points are crossed outlines without a line."""
    if origin != "published":
        return look | origin_style(origin)
    return look | {
        "marker": crossed(look["marker"]),
        "markersize": 1.1 * look["markersize"],
        "markerfacecolor": "none",
        "markeredgewidth": 0.8,
        "linestyle": "none",
        "path_effects": [_HALO],
    }


@cache
def crossed(marker: str) -> MarkerPath:
    """Return the outline of a marker, with a small cross in its middle."""
    known = MarkerStyle(marker)
    outline = known.get_path().transformed(known.get_transform())
    across, up = np.asarray(outline.vertices)[:-1].mean(axis=0).tolist()
    arm = 0.24
    ends = [(across + x * arm, up + y * arm) for x, y in ((-1, -1), (1, 1), (-1, 1), (1, -1))]
    strokes = [MarkerPath.MOVETO, MarkerPath.LINETO]
    return MarkerPath.make_compound_path(outline, MarkerPath(ends, strokes * 2))


def panel_letter(axes: Axes, letter: str, above: float = 3) -> None:
    """Write the panel's letter, `above` points over its upper left corner."""
    axes.annotate(
        letter,
        (0, 1),
        xycoords="axes fraction",
        xytext=(-6, above),
        textcoords="offset points",
        fontsize=_preset_at(axes).letter_size,
        fontweight="bold",
        ha="right",
        va="bottom",
    )


def say_instead(axes: Axes, sentence: str) -> None:
    """Write a sentence in place of an axis that would be empty, without breaking words."""
    lines = [
        textwrap.fill(line, 34, break_on_hyphens=False, break_long_words=False)
        for line in sentence.split("\n")
    ]
    axes.set_axis_off()
    size = _preset_at(axes).label_size
    look: Any = {"ha": "center", "va": "center", "color": GREY, "fontsize": size}
    axes.text(0.5, 0.5, "\n".join(lines), transform=axes.transAxes, linespacing=1.4, **look)


def _preset_at(axes: Axes) -> Preset:
    figure = axes.get_figure(root=True)
    return PAGE if figure is None else preset_of(figure)


def notes(figure: Drawing, sentences: Sequence[str], most: int | None = NOTE_LINES) -> None:
    """Keep sentences for the captions, and write those that fit into `most` lines below the panels."""
    figure.sentences = tuple(filter(None, sentences))
    preset = preset_of(figure)
    lines = note_lines(figure.sentences, preset)[:most]
    while lines and not lines[-1].endswith("."):
        *lines, last = lines
        if ". " in last:
            lines.append(last[: last.rindex(". ") + 1])
    look: Any = {"x": 0.012, "ha": "left", "fontsize": preset.note_size, "color": "#333333"}
    figure.supxlabel("\n".join(lines), **look)


def note_lines(sentences: Sequence[str], preset: Preset) -> list[str]:
    """Return sentences as lines that are as wide as the figure."""
    # Configuration ids have hyphens and must stay whole.
    wrapped = (
        textwrap.wrap(one, preset.note_characters, break_on_hyphens=False) for one in sentences
    )
    return [line for lines in wrapped for line in lines]


def notes_mm(preset: Preset) -> float:
    """Return the height in mm of the notes in a drawing."""
    return lines_mm(NOTE_LINES, preset.note_size) + 2.0


def lines_mm(count: float, size: float) -> float:
    """Return the height in mm of `count` lines of text of `size` points."""
    return count * size * 1.2 * MM_PER_INCH / 72


def plain_number(value: float) -> str:
    """Return a number without exponent, thousands set apart from 10 000 on."""
    if abs(value) >= 9999.5:
        return f"{value:,.0f}".replace(",", "\u2009")
    return f"{float(f'{value:.6g}'):.10f}".rstrip("0").rstrip(".")


def three_digits(value: float) -> str:
    """Return a number with three digits: 0.0398, 2.50, 13.0, 1235."""
    rounded = float(f"{value:.3g}")
    if abs(rounded) >= 100:
        return plain_number(round(value))
    return f"{rounded:#.3g}" if abs(rounded) >= 1e-4 or not rounded else f"{rounded:.3g}"


def log_ticks(low: float, high: float) -> list[float]:
    """Return three to about seven round numbers between `low` and `high` (both positive)."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / 7))
    for digits in ((1,), (1, 3), (1, 2, 5)):
        ticks = [d * 10.0**k for k in range(first, last + 1, every) for d in digits]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) >= 3:
            return inside
    for at_most in (5, 6, 8):  # less than a decade: evenly spaced numbers
        linear = MaxNLocator(nbins=at_most, steps=ROUND).tick_values(low, high)
        inside = [float(tick) for tick in linear if low <= tick <= high]
        if len(inside) >= 3:
            break
    return inside


def power_of_two_ticks(low: float, high: float) -> list[float]:
    """Return the powers of two from `low` to `high` (both positive)."""
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    return [2.0**k for k in range(first, last + 1)]


def log_axis(axes: Axes, which: str, values: Sequence[float], base: int, dense: bool) -> None:
    """Make an axis logarithmic around positive `values`, ticks as plain numbers.

    base 2 ticks at powers of two (each labelled when `dense`, else every second when there are
    more than six), base 10 at round numbers. The label, which is there before, says that the scale is
    logarithmic, but where powers of two show it.
    """
    low, high = min(values), max(values)
    room = max((high / low) ** 0.06, 1.08)
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log", base=base)
    (axes.set_xlim if which == "x" else axes.set_ylim)(low / room, high * room)
    ticks = power_of_two_ticks(low / room, high * room) if base == 2 else []
    is_evident = len(ticks) >= 2
    if not is_evident:
        ticks = sorted(set(values)) if base == 2 and len(set(values)) < 4 else []
    labels_every = 1 if dense or len(ticks) <= 6 or base != 2 else 2
    ticks = ticks or log_ticks(low / room, high * room)
    shown = set(ticks[::labels_every])
    unit = _thousands(axes, which, max(ticks, default=1))
    if which == "x" and base != 2:
        shown = _apart(ticks, unit, high / low * room * room, dense)
    if not is_evident and len(shown) > 1:
        axis.set_label_text(f"{axis.get_label_text()}, {LOG_SCALE}")
    axis.set_major_locator(FixedLocator(sorted(shown)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value / unit)))
    # Between the powers of two that have a number: short, and without a line over the panel.
    between = [tick for tick in ticks if base == 2 and tick not in shown]
    axis.set_minor_locator(FixedLocator(between) if between else NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _apart(ticks: Sequence[float], unit: float, span: float, dense: bool) -> set[float]:
    """Return those of rising ticks whose labels, in `unit`, do not touch on an axis over a factor `span`."""
    width = 0.022 if dense else 0.06  # of a character, in parts of the axis
    shown: list[float] = []
    for tick in ticks:
        needed = width * (len(plain_number(tick / unit)) + 1)
        if not shown or math.log(tick / shown[-1]) / math.log(span) >= needed:
            shown.append(tick)
    return set(shown)


def linear_axis(axes: Axes, values: Sequence[float], from_zero: bool, which: str = "y") -> None:
    """Set the limits of a linear axis around `values` with room, ticks as plain numbers."""
    low, high = min(values), max(values)
    start = min(low, 0.0) if from_zero else low
    room = 0.08 * (high - start) or 0.08 * abs(high) or 1.0
    bottom = start - room
    if low >= 0 and (from_zero or bottom < 0):
        bottom = 0.0
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xlim if which == "x" else axes.set_ylim)(bottom, high + room)
    unit = _thousands(axes, which, high)
    axis.set_major_locator(MaxNLocator(nbins=6, steps=ROUND))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value / unit)))


def _thousands(axes: Axes, which: str, largest: float) -> float:
    """Return by what to divide tick labels: a thousand, named in the axis label, if they would not fit."""
    if largest < 20_000:
        return 1.0
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_label_text(f"{axis.get_label_text()} (10³)")
    return 1000.0
