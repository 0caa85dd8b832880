"""One style for all figures: sizes, colours and markers, legend and print around the panels."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.patheffects import withStroke

from scalewatt.common.errors import InputError

MM_PER_INCH = 25.4
GREY = "#666666"
INK = "#262626"
NOT_KNOWN = "#bdbdbd"
"""What fills markers of points whose series has no known energy."""
NOTE_SIZE = 6.0
NOTE_LINES = 2
"""Lines of print in a drawing; captions have the rest."""
FONT = "DejaVu Sans"
"""Comes with matplotlib: the same on every machine."""
TALLEST_MM = 240.0
"""Height that fits onto a page of A4 with margins and a caption."""


@dataclass(frozen=True)
class Preset:
    """A width in print, and what goes with it: font sizes in points."""

    width_mm: float
    label_size: float
    text_size: float
    letter_size: float
    scale: float
    """Of lines and markers."""

    @property
    def narrow(self) -> bool:
        """True for one column of a page of two."""
        return self.width_mm < 120


PAGE = Preset(180.0, label_size=7.5, text_size=7.0, letter_size=10.0, scale=1.0)
COLUMN = Preset(88.0, label_size=6.5, text_size=6.2, letter_size=8.0, scale=0.72)
PRESETS = {int(preset.width_mm): preset for preset in (PAGE, COLUMN)}
"""The widths in mm that a figure may have in print."""

# Distinct for any common colour vision, and in grey. Each series also has its marker and line style.
COLOURS = ("#14305e", "#c13a22", "#35b199", "#e2aa1c", "#8a1f4e", "#4a7fc4", "#0d0d0d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
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
_HALO = withStroke(linewidth=2.4, foreground="white")


def check_font(font: str) -> None:
    """Raise InputError if a font is not installed."""
    try:
        findfont(FontProperties(family=[font]), fallback_to_default=False)
    except ValueError:
        raise InputError(
            f"font: {font} is not installed; install it, or leave the key out"
        ) from None


@contextmanager
def applied(width_mm: float = PAGE.width_mm, font: str = FONT) -> Iterator[None]:
    """Apply matplotlib's defaults with the style of a width on top, whatever the user's settings.

    InputError if the font is not installed.
    """
    check_font(font)
    preset = PRESETS[int(width_mm)]
    texts = ("font.size", "legend.fontsize", "xtick.labelsize", "ytick.labelsize")
    labels = ("axes.labelsize", "axes.titlesize", "legend.title_fontsize")
    sizes: Any = dict.fromkeys(texts, preset.text_size)
    sizes |= dict.fromkeys(labels, preset.label_size)
    for axis in ("xtick", "ytick"):
        sizes |= {f"{axis}.major.width": 0.6, f"{axis}.major.size": 4.5 * preset.scale}
    sizes["lines.linewidth"] = 0.4 + 0.7 * preset.scale
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC | sizes | {"font.sans-serif": [*dict.fromkeys((font, FONT))]})
        yield


# --- colours and marks ----------------------------------------------------------------------------


def paler(colour: str, white: float) -> str:
    """Mix a colour with white, of which it gets the share `white` (0 to 1)."""
    red, green, blue = (part + (1 - part) * white for part in to_rgb(colour))
    return to_hex((red, green, blue))


def series_style(index: int, width_mm: float = PAGE.width_mm) -> dict[str, Any]:
    """Colour, line and marker of the series at `index`; later ones are smaller, to show on top."""
    scale = PRESETS[int(width_mm)].scale
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": LINES[index % len(LINES)],
        "markersize": max(6.4 - 0.4 * index, 5.6) * scale,
        "markeredgewidth": 0.3 + 0.5 * scale,
    }


def origin_style(look: dict[str, Any], origin: str | None) -> dict[str, Any]:
    """Look of a series for an energy origin, which fills its marker; published points are crosses."""
    if origin == "published":
        cross = {"marker": "x", "linestyle": "none", "markeredgewidth": 1.2}
        return look | cross | {"path_effects": [_HALO]}
    if origin in ("simulated", "mixed"):
        fill = "left" if origin == "simulated" else "bottom"
        half = {"markerfacecolor": "auto", "markerfacecoloralt": "white"}
        return look | {"fillstyle": fill} | half
    faces = {"measured": "auto", "estimated": "white"}
    return look | {"markerfacecolor": faces.get(origin or "", NOT_KNOWN)}


# --- figures --------------------------------------------------------------------------------------


class Drawing(Figure):
    """A figure, its font and the sentences of its caption."""

    font: str = FONT
    sentences: tuple[str, ...] = ()


def new_figure(width_mm: float, height_mm: float = 60.0) -> Drawing:
    """Make an empty figure that makes room for labels, legend and print."""
    size = width_mm / MM_PER_INCH, height_mm / MM_PER_INCH
    figure = Drawing(figsize=size, layout="constrained")
    figure.font = mpl.rcParams["font.sans-serif"][0]
    engine: Any = figure.get_layout_engine()
    pad = 0.03 if PRESETS[int(width_mm)].narrow else 0.05
    engine.set(w_pad=pad, h_pad=pad, wspace=0.03, hspace=0.04)
    return figure


def preset_at(artist: Artist) -> Preset:
    """Preset of the figure that an artist is in."""
    figure = artist.get_figure(root=True)
    return PRESETS[round(figure.get_figwidth() * MM_PER_INCH)] if figure else PAGE


def add_legend(figure: Figure, handles: Sequence[Artist], length: float = 3.2) -> float:
    """Put a legend above the panels, in as few rows as fit its width; return its height in mm."""
    look: Any = {"loc": "outside upper center", "handlelength": length, "columnspacing": 1.2}
    for columns in range(len(handles), 0, -1):
        legend = figure.legend(handles=handles, ncols=columns, **look)
        box = legend.get_window_extent()
        if box.width <= figure.bbox.width or columns == 1:
            return float(box.height / figure.dpi * MM_PER_INCH)
        legend.remove()
    return 0.0


def fit_rows(figure: Figure, rows: int, around_mm: float, least_mm: float, most_mm: float) -> float:
    """Make a figure as high as its rows, which a page has room for, and what is around them.

    Return the height of a row in mm. The print has room, too.
    """
    around_mm += lines_mm(NOTE_LINES, NOTE_SIZE) + 2.0
    row_mm = max(least_mm, min(most_mm, (TALLEST_MM - around_mm) / rows))
    figure.set_figheight((rows * row_mm + around_mm) / MM_PER_INCH)
    return row_mm


def panel_letter(axes: Axes, letter: str, above: float = 3) -> None:
    """Write the panel's letter, `above` points over its upper left corner."""
    look: Any = {"xycoords": "axes fraction", "textcoords": "offset points"}
    look |= {"ha": "right", "va": "bottom", "fontweight": "bold"}
    size = preset_at(axes).letter_size
    axes.annotate(letter, (0, 1), (-6, above), fontsize=size, **look)


def say_instead(axes: Axes, sentence: str) -> None:
    """Write a sentence in place of an axis that would be empty, without breaking words."""
    text = textwrap.fill(sentence, 34, break_on_hyphens=False, break_long_words=False)
    axes.set_axis_off()
    look: Any = {"ha": "center", "va": "center", "color": GREY, "linespacing": 1.4}
    size = preset_at(axes).label_size
    axes.text(0.5, 0.5, text, transform=axes.transAxes, fontsize=size, **look)


def notes(figure: Drawing, sentences: Sequence[str]) -> None:
    """Keep the sentences of the caption, and print the first of them below the panels.

    Ids of configurations stay whole.
    """
    figure.sentences = tuple(sentences)
    characters = int(preset_at(figure).width_mm / (0.2006 * NOTE_SIZE))
    printed = textwrap.wrap("".join(sentences[:1]), characters, break_on_hyphens=False)
    if len(printed) > NOTE_LINES:
        printed = printed[:NOTE_LINES]
        printed[-1] = f"{printed[-1].rpartition(' ')[0]} …"
    figure.supxlabel("\n".join(printed), x=0.012, ha="left", fontsize=NOTE_SIZE, color="#333333")


def lines_mm(count: float, size: float) -> float:
    """Height in mm of `count` lines of text of `size` points."""
    return count * size * 1.2 * MM_PER_INCH / 72


# --- numbers --------------------------------------------------------------------------------------

_LETTERS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def plain_number(value: float) -> str:
    """Number without exponent; from 10 000 on with k, M or G: 0.25, 5004, 80.1k, 1.28M."""
    if abs(value) < 9999.5:
        return f"{float(f'{value:.6g}'):.10f}".rstrip("0").rstrip(".")
    unit, letter = next(pair for pair in _LETTERS if abs(value) >= 0.9995 * pair[0])
    return f"{value / unit:.3g}{letter}"
