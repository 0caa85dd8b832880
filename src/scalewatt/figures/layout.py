"""What panels share: marks of series, error bars, labels beside points, legends, and blocks of panels."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D

from scalewatt.figures import style
from scalewatt.figures.figure_data import PUBLISHED, drawn_origins, groups, series_origins
from scalewatt.figures.footnote_text import FILL_WORDS, ORIGINS

Looks = Mapping[str, dict[str, Any]]
"""Colour, line and marker (style.series_style) of each series."""


def draw_series(
    axes: Axes, points: pd.DataFrame, looks: Looks, by: str = "series", joined: bool = True
) -> list[tuple[str, str | None, Line2D]]:
    """Draw points (columns x, y, drawn_origin, and `by`): colour and marker by series, fill by origin.

    If `joined`, a line goes through the points of a series and origin in the order of the rows, and
    breaks where column `stretch` changes. Return series, origin and artist of what is drawn.
    """
    known = points[points["x"].notna() & points["y"].notna()]
    drawn = []
    for found, own in known.groupby(known["drawn_origin"].fillna(""), sort=False):
        origin = str(found) or None
        present = set(own[by])
        own_looks = {s: style.of_origin(looks[s], origin) for s in looks if s in present}
        lines = joined and origin != PUBLISHED
        before = len(axes.lines)
        sns.lineplot(
            own,
            x="x",
            y="y",
            hue=by,
            style=by,
            units="stretch" if lines else None,
            estimator=None,
            sort=False,
            hue_order=list(own_looks),
            palette={series: look["color"] for series, look in own_looks.items()},
            markers={series: look["marker"] for series, look in own_looks.items()},
            dashes={s: style.dashes(look) for s, look in own_looks.items()} if lines else False,
            legend=False,
            ax=axes,
            zorder=4 if origin == PUBLISHED else 3,
            **({} if lines else {"linestyle": "none"}),
        )
        series_of = {(look["color"], look["marker"]): s for s, look in own_looks.items()}
        for line in axes.lines[before:]:
            series = series_of[line.get_color(), line.get_marker()]
            line.set(**style.marker_look(own_looks[series]))
            drawn.append((series, origin, line))
    return drawn


def draw_error_bars(
    axes: Axes,
    points: pd.DataFrame,
    looks: Looks,
    across: pd.DataFrame | None = None,
    upright: pd.DataFrame | None = None,
    width: float = 0.8,
) -> None:
    """Draw error bars around points (columns x, y, series), whose ends are `low` and `high` of `across`
    and `upright` (NaN: none)."""
    lows = [ends["low"] for ends in (across, upright) if ends is not None]
    barred = points[pd.concat(lows, axis=1).notna().any(axis=1)]
    for series, own in groups(barred, "series"):
        errors: dict[str, Any] = {}
        for axis, ends in (("x", across), ("y", upright)):
            if ends is not None and ends.loc[own.index, "low"].notna().any():
                low, high = (ends.loc[own.index, end] for end in ("low", "high"))
                errors[f"{axis}err"] = [(own[axis] - low).to_list(), (high - own[axis]).to_list()]
        if errors:
            axes.errorbar(
                own["x"].to_list(),
                own["y"].to_list(),
                **errors,
                fmt="none",
                ecolor=looks[series]["color"],
                elinewidth=width,
                capsize=0.4 * looks[series]["markersize"],
                capthick=width,
                zorder=2,
            )


# --- labels beside points -------------------------------------------------------------------------


@dataclass(frozen=True)
class Label:
    """A label for a point in the data's coordinates."""

    x: float
    y: float
    text: str
    colour: str = style.INK


Places = Sequence[tuple[float, float]]


def places_of(points: pd.DataFrame) -> list[tuple[float, float]]:
    """Return the coordinates (columns x, y) of points."""
    return list(zip(points["x"], points["y"], strict=True))


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
    """Return places along a line on paper, at most three points (of print) apart."""
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
    """Return the approximate box, in points, of a text that begins (or ends) at x and is centred on y."""
    width, height = 0.58 * LABEL_SIZE * len(text) + 2.0, 1.1 * LABEL_SIZE
    left = x if rightwards else x - width
    return left, y - height / 2, left + width, y + height / 2


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
        """Return model and phase."""
        model, phase = self.points["model"].iloc[0], self.points["phase"].iloc[0]
        name = MODEL_WORDS.get(model, str(model))
        return name if phase == "train" else f"{name}, {PHASE_WORDS.get(phase, phase)}"

    def legend_mm(self, width_mm: float) -> float:
        """Return the height of the legend."""
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
        """Return True if an axis has room for many tick labels."""
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
