"""What figures share in layout: legends, and blocks of panels with a legend each."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from scalewatt.figures import style
from scalewatt.figures.figure_data import drawn_origins, series_origins
from scalewatt.figures.footnote_text import FILL_WORDS, ORIGINS

# --- legends --------------------------------------------------------------------------------------

LEGEND_EXTRA = 12
"""Characters that an entry takes besides its words: its line, and the gaps."""


def entry(label: str, **look: Any) -> Line2D:
    """Return an entry that shows a line of this look."""
    return Line2D([], [], label=label, **look)


def series_entry(
    points: pd.DataFrame, series: str, label: str, look: dict[str, Any], **more: Any
) -> Line2D:
    """Return a series' entry, its marker filled as its own points are; `more` goes on top of its look."""
    origin = series_origins(points)[series]
    return entry(label, **(style.of_origin(look, origin) | more))


def origin_entries(points: pd.DataFrame, width_mm: float) -> list[Line2D]:
    """Return what the fill of a marker means, where the points of a figure differ in it."""
    present = set(drawn_origins(points))
    if len(present) < 2:
        return []
    base: dict[str, Any] = {"color": style.GREY, "marker": "o", "linestyle": "none"}
    base["markersize"] = 5 * style.preset(width_mm).scale
    found = [
        entry(f"{FILL_WORDS[o]}: {o}", **style.of_origin(base, o)) for o in ORIGINS if o in present
    ]
    if None in present:
        look = base | style.origin_style(None)
        found.append(entry("grey markers: energy not known", **look))
    return found


def legend_above(figure: Figure, handles: Sequence[Artist], columns: int, length: float) -> None:
    """Draw all entries above the panels, `columns` beside each other; `length` of their lines."""
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, handlelength=length)


def legend_columns(handles: Sequence[Artist], characters: int) -> int:
    """Return the number of columns for which there are fewest rows of entries, about equally long."""
    lengths = [len(str(handle.get_label())) + LEGEND_EXTRA for handle in handles]
    fitting = [n for n in range(2, len(lengths) + 1) if _width(lengths, n) <= characters]
    most = max(fitting, default=1)
    rows = -(-len(lengths) // most)
    return min((n for n in fitting if -(-len(lengths) // n) == rows), default=1)


def _width(lengths: Sequence[int], columns: int) -> int:
    """Return the characters that entries take in so many columns."""
    # As matplotlib fills them: the first ones get one more.
    each, more = divmod(len(lengths), columns)
    ends = [(i + 1) * each + min(i + 1, more) for i in range(columns)]
    return sum(max(lengths[a:b]) for a, b in zip([0, *ends], ends, strict=False))


# --- blocks of panels -----------------------------------------------------------------------------

TALLEST_MM = 240.0
"""Of a figure: what fits onto a page of A4 with margins and a caption."""
LOWEST_MM = 32.0
"""Of a panel with its labels; of very many models the figure gets taller than a page instead."""
_TITLE_MM = 4.5

MODEL_WORDS = {"resnet50": "ResNet50", "fourcastnet": "FourCastNet"}
PHASE_WORDS = {"pretrain": "pre-training", "finetune": "fine-tuning"}


@dataclass(frozen=True)
class Block:
    """The panels of one model and phase, and the legend over them."""

    points: pd.DataFrame
    handles: Sequence[Artist]

    @property
    def title(self) -> str:
        """Model and phase."""
        model, phase = self.points["model"].iloc[0], self.points["phase"].iloc[0]
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
    nothing: str,
) -> Figure:
    """Draw a row of two panels for each block, as high as a page has room; then the small print.

    `draw_panel` gets a block, the panel's index in the figure, its axes and sizes. `small_print` is
    called before and after, as what is drawn may add a sentence. Without blocks the figure says `nothing`.
    """
    if not blocks:
        figure = style.new_figure(60.0, width_mm)
        style.say_instead(figure.subplots(), nothing)
        style.notes(figure, small_print())
        return figure
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
