"""What the figures beside the paper's share: shades, blocks of panels, words beside points."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure, SubFigure

from scalewatt.figures import style
from scalewatt.figures.figure_data import Row
from scalewatt.figures.legends import legend_columns

TALLEST_MM = 240.0
"""Of a figure: what fits onto a page of A4 with margins and a caption."""
LOWEST_MM = 32.0
"""Of a panel with its labels; of very many models the figure gets taller than a page instead."""
_TITLE_MM = 4.5


def paler(colour: str, white: float) -> str:
    """A colour mixed with white, of which it gets the share `white` (0 to 1)."""
    red, green, blue = (part + (1 - part) * white for part in to_rgb(colour))
    return to_hex((red, green, blue))


def legible(colour: str) -> str:
    """A colour for small words: dark enough to be read on white."""
    red, green, blue = to_rgb(colour)
    grey = 0.299 * red + 0.587 * green + 0.114 * blue
    dark = min(1.0, 0.42 / grey) if grey else 1.0
    return to_hex((red * dark, green * dark, blue * dark))


MODEL_WORDS = {"resnet50": "ResNet50", "fourcastnet": "FourCastNet"}
PHASE_WORDS = {"pretrain": "pre-training", "finetune": "fine-tuning"}

# --- blocks of panels -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """The panels of one model and phase, and the legend over them."""

    rows: list[Row]
    handles: Sequence[Artist]

    @property
    def title(self) -> str:
        """Model and phase."""
        model, phase = self.rows[0]["model"], self.rows[0]["phase"]
        name = MODEL_WORDS.get(model, str(model))
        return name if phase == "train" else f"{name}, {PHASE_WORDS.get(phase, phase)}"

    def legend_mm(self, width_mm: float) -> float:
        """Height of the legend."""
        preset = style.preset(width_mm)
        rows = -(-len(self.handles) // legend_columns(self.handles, preset.legend_characters))
        return style.lines_mm(rows, 1.3 * preset.text_size) + _TITLE_MM


@dataclass(frozen=True)
class Panels:
    """The width of a figure in mm, and the size of its panels' axes."""

    width_mm: float
    size_mm: tuple[float, float]

    @property
    def dense(self) -> bool:
        """Whether an axis has room for many tick labels."""
        return not style.preset(self.width_mm).narrow

    def set_labels(self, axes: Axes, across: str, upright: str) -> None:
        """Name both axes; words that are longer than an axis go over two lines."""
        per_mm = 1 / (0.19 * style.preset(self.width_mm).label_size)
        axes.set_xlabel(textwrap.fill(across, int(self.size_mm[0] * per_mm)))
        axes.set_ylabel(textwrap.fill(upright, int(self.size_mm[1] * per_mm)))


def draw_blocks(
    blocks: Sequence[Block],
    width_mm: float,
    small_print: Callable[[], Sequence[str]],
    draw_panel: Callable[[Block, int, Axes, Panels], None],
) -> Figure:
    """A row of two panels for each block, as high as a page has room; then the small print.

    `draw_panel` gets a block, the panel's index in the figure, its axes and sizes. `small_print` is
    called before and after, as what is drawn may add a sentence.
    """
    preset = style.preset(width_mm)
    tallest = 44.0 if preset.narrow else 60.0
    notes_mm = _notes_mm(small_print(), width_mm)
    legends = [block.legend_mm(width_mm) for block in blocks]
    room = (TALLEST_MM - notes_mm - sum(legends)) / len(blocks)
    panel_mm = max(LOWEST_MM, min(tallest, room))
    panels = Panels(width_mm, (width_mm / 2 - (12 if preset.narrow else 18), panel_mm - 13))
    heights = [panel_mm + legend for legend in legends]
    figure = style.new_figure(sum(heights) + notes_mm, width_mm)
    parts = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights).ravel()
    for place, (block, part) in enumerate(zip(blocks, parts, strict=True)):
        for index, axes in enumerate(part.subplots(1, 2), 2 * place):
            draw_panel(block, index, axes, panels)
        _draw_legend(part, block, preset)
    style.notes(figure, small_print())
    return figure


def _draw_legend(part: SubFigure, block: Block, preset: style.Preset) -> None:
    part.legend(
        handles=block.handles,
        loc="outside upper center",
        ncols=legend_columns(block.handles, preset.legend_characters),
        handlelength=3.2,
        title=block.title,
        title_fontproperties={"weight": "bold", "size": preset.label_size},
    )


def _notes_mm(sentences: Sequence[str], width_mm: float) -> float:
    lines = len(style.note_lines(sentences, width_mm))
    return style.lines_mm(lines, style.preset(width_mm).note_size) + 2.0


# --- words beside points --------------------------------------------------------------------------


@dataclass(frozen=True)
class Label:
    """Words for a point in the data's coordinates."""

    x: float
    y: float
    text: str
    colour: str = style.INK


Places = Sequence[tuple[float, float]]


def write_labels(
    axes: Axes,
    labels: Sequence[Label],
    marks: Places,
    lines: Sequence[Places],
    size_mm: tuple[float, float],
) -> None:
    """Write each label beside its point where it covers no other, no mark and no line; else not at all.

    The limits of the axes are set, and `size_mm` is about their size on paper.
    """
    across, upright = (mm / style.MM_PER_INCH * 72 for mm in size_mm)
    to_axes = axes.transData + axes.transAxes.inverted()

    def on_paper(x: float, y: float) -> tuple[float, float]:
        right, up = to_axes.transform((x, y))
        return float(right) * across, float(up) * upright

    taken = [_around(*on_paper(*mark), 2.5) for mark in marks]
    for line in lines:
        taken += [_around(x, y, 0.5) for x, y in _dots([on_paper(*place) for place in line])]
    for one in labels:
        x, y = on_paper(one.x, one.y)
        for right, up in _PLACES:
            box = _extent(one.text, x + right, y + up, right > 0)
            inside = box[0] >= 0 and box[2] <= across + 2 and box[1] >= 2 and box[3] <= upright
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                _write_label(axes, one, right, up)
                break


def _dots(line: Places) -> list[tuple[float, float]]:
    """Points along a line on paper, three points (of print) apart at most."""
    found = list(line[:1])
    for (x0, y0), (x1, y1) in pairwise(line):
        steps = max(1, int(max(abs(x1 - x0), abs(y1 - y0)) / 3) + 1)
        found += [
            (x0 + (x1 - x0) * k / steps, y0 + (y1 - y0) * k / steps) for k in range(1, steps + 1)
        ]
    return found


def _write_label(axes: Axes, one: Label, right: float, up: float) -> None:
    axes.annotate(
        one.text,
        (one.x, one.y),
        (right, up),
        textcoords="offset points",
        ha="left" if right > 0 else "right",
        va="center_baseline",
        fontsize=LABEL_SIZE,
        color=one.colour,
        zorder=6,
        bbox={"facecolor": "white", "alpha": 0.6, "linewidth": 0, "pad": 0.2},
    ).set_in_layout(False)


LABEL_SIZE = 6.0
_PLACES = (
    (4, 5),
    (-4, 5),
    (4, -5),
    (-4, -5),
    (6, 0),
    (-6, 0),
    (4, 12),
    (-4, 12),
    (4, -12),
    (-4, -12),
)
"""Where a label's near end may be, in points from its point."""

Extent = tuple[float, float, float, float]


def _around(x: float, y: float, half: float) -> Extent:
    return x - half, y - half, x + half, y + half


def _overlap(one: Extent, other: Extent) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _extent(text: str, x: float, y: float, rightwards: bool) -> Extent:
    """About what a text covers, in points, that begins (or ends) at x and is centred on y."""
    width, height = 0.58 * LABEL_SIZE * len(text) + 2.0, 1.1 * LABEL_SIZE
    left = x if rightwards else x - width
    return left, y - height / 2, left + width, y + height / 2
