"""One style for all figures: size, colours, markers, log axes with plain numbers, saving."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from scalewatt.files import atomic_path

WIDTH_MM = 180.0
MM_PER_INCH = 25.4
NOTE_SIZE = 6.0
NOTE_CHARACTERS = 148  # of NOTE_SIZE fit into WIDTH_MM
GREY = "#666666"
ROUND = [1, 2, 5, 10]  # first digits of tick labels

# Colours that people with any common colour vision tell apart. In grey some of them look alike, so
# that each series also has a marker and a line style of its own. No yellow: too pale for a line.
COLOURS = tuple(sns.color_palette("colorblind").as_hex()[i] for i in (0, 3, 2, 4, 7, 9, 1))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.2, 1.5)))

_RC: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 7.5,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 7.5,
    "figure.dpi": 100,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same on every machine
    "font.size": 7,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.5,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.1,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "svg.fonttype": "none",
    "svg.hashsalt": "scalewatt",
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "xtick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.labelsize": 7,
    "ytick.major.width": 0.6,
}
# No dates and no tool versions: the same table gives the same bytes.
_METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}


@contextmanager
def applied() -> Iterator[None]:
    """matplotlib's defaults with this style on top, whatever the user's matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        sns.set_theme(context="paper", style="ticks", rc=_RC)
        yield


def new_figure(height_mm: float) -> Figure:
    """An empty figure, WIDTH_MM wide, that makes room for labels, legend and notes."""
    figure = Figure(figsize=(WIDTH_MM / MM_PER_INCH, height_mm / MM_PER_INCH), layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=0.05, h_pad=0.05, wspace=0.03, hspace=0.04)
    return figure


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.pdf, .svg and .png, each whole or not at all; the same bytes each time."""
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in _METADATA]
    with applied():
        # Laid out once: less time, and the same geometry in all three.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for path, (suffix, metadata) in zip(paths, _METADATA.items(), strict=True):
            with atomic_path(path) as temporary:
                figure.savefig(temporary, format=suffix, metadata=metadata)
    return paths


def series_style(index: int) -> dict[str, Any]:
    """Colour, line and marker of the series at `index`; later ones smaller, to show on top."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": LINES[index % len(LINES)],
        "markersize": max(6.2 - 0.6 * index, 3.6),
        "markeredgewidth": 1.0,
    }


def origin_style(origin: str | None, colour: str) -> dict[str, Any]:
    """How a marker of this energy origin is filled; published points are crosses without a line."""
    if origin == "published":
        return {"marker": "x", "markersize": 3.5, "linestyle": "none"}
    if origin in ("simulated", "mixed"):
        fill = "left" if origin == "simulated" else "bottom"
        return {"fillstyle": fill, "markerfacecolor": colour, "markerfacecoloralt": "white"}
    return {"markerfacecolor": colour if origin == "measured" else "white"}


def panel_letter(axes: Axes, letter: str, above: float = 3) -> None:
    """The panel's letter, `above` points over its upper left corner."""
    axes.annotate(
        letter,
        (0, 1),
        xycoords="axes fraction",
        xytext=(-6, above),
        textcoords="offset points",
        fontsize=10,
        fontweight="bold",
        ha="right",
        va="bottom",
    )


def say_instead(axes: Axes, sentence: str) -> None:
    """A sentence in place of an axis that would be empty."""
    axes.set_axis_off()
    axes.text(
        0.5,
        0.5,
        textwrap.fill(sentence, 34),
        transform=axes.transAxes,
        ha="center",
        va="center",
        color=GREY,
        fontsize=8,
        linespacing=1.5,
    )


def notes(figure: Figure, sentences: Sequence[str]) -> None:
    """Small print under the panels, wrapped to the figure's width; empty sentences are left out."""
    lines = [line for s in sentences if s for line in _wrapped(s)]
    figure.supxlabel("\n".join(lines), x=0.012, ha="left", fontsize=NOTE_SIZE, color="#333333")


def _wrapped(sentence: str) -> list[str]:
    # Configuration ids have hyphens and must stay whole.
    return textwrap.wrap(sentence, NOTE_CHARACTERS, break_on_hyphens=False)


def plain_number(value: float) -> str:
    """A number without exponent, thousands set apart from 10 000 on."""
    if abs(value) >= 9999.5:
        return f"{value:,.0f}".replace(",", "\u2009")
    return f"{float(f'{value:.6g}'):.10f}".rstrip("0").rstrip(".")


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between `low` and `high` (both positive): three to about seven of them."""
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
    """The powers of two from `low` to `high` (both positive)."""
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    return [2.0**k for k in range(first, last + 1)]


def log_axis(axes: Axes, which: str, values: Sequence[float], base: int, dense: bool) -> None:
    """Make an axis logarithmic around positive `values`, ticks as plain numbers.

    base 2 ticks at powers of two (each labelled when `dense`, else every second when there are
    more than six), base 10 at round numbers.
    """
    low, high = min(values), max(values)
    room = max((high / low) ** 0.06, 1.08)
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log", base=base)
    (axes.set_xlim if which == "x" else axes.set_ylim)(low / room, high * room)
    ticks = power_of_two_ticks(low / room, high * room) if base == 2 else []
    if len(ticks) < 2:
        ticks = sorted(set(values)) if base == 2 and len(set(values)) < 4 else []
    labels_every = 1 if dense or len(ticks) <= 6 or base != 2 else 2
    ticks = ticks or log_ticks(low / room, high * room)
    shown = set(ticks[::labels_every])
    unit = _thousands(axes, which, max(ticks, default=1))
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(
        FuncFormatter(lambda value, _: plain_number(value / unit) if value in shown else "")
    )
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def linear_axis(axes: Axes, values: Sequence[float], from_zero: bool) -> None:
    """Limits of a linear y axis around `values` with room, ticks as plain numbers."""
    low, high = min(values), max(values)
    start = min(low, 0.0) if from_zero else low
    room = 0.08 * (high - start) or 0.08 * abs(high) or 1.0
    bottom = start - room
    if low >= 0 and (from_zero or bottom < 0):
        bottom = 0.0
    axes.set_ylim(bottom, high + room)
    unit = _thousands(axes, "y", high)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=ROUND))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value / unit)))


def _thousands(axes: Axes, which: str, largest: float) -> float:
    """Divide tick labels by a thousand, and say so, where they would not fit."""
    if largest < 20_000:
        return 1.0
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_label_text(f"{axis.get_label_text()} (10³)")
    return 1000.0
