"""What panels share: marks of series, error bars, labels beside points, legends, and blocks of panels."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.transforms import Affine2D, Bbox

from scalewatt.figures import figure_data as data
from scalewatt.figures import prose, style

Looks = Mapping[str, dict[str, Any]]
"""Colour, line and marker (style.series_style) of each series."""


def draw_series(
    axes: Axes, points: pd.DataFrame, looks: Looks, joined: bool = True
) -> list[tuple[str, str | None, Line2D]]:
    """Draw points (columns series, x, y, drawn_origin) with error bars from x_low, y_low to x_high, y_high.

    Colour and marker are those of the series, the fill that of the origin. If `joined`, a line goes through
    the points of a series by n and x; it breaks at those without a value, and of another origin. Return
    series, origin and artist of what is drawn.
    """
    ordered = points.sort_values(["gpus", "x"], kind="stable")
    ordered = ordered if joined else ordered.dropna(subset=["x", "y"])
    ordered = ordered.assign(origin=ordered["drawn_origin"].fillna("").astype(str))
    drawn = []
    for key in ordered[["series", "origin"]].drop_duplicates().itertuples(index=False):
        series, origin = map(str, key)
        rows = ordered[ordered["series"] == series]
        rows = rows[rows["origin"].eq(data.PUBLISHED) == (origin == data.PUBLISHED)]
        look = style.of_origin(looks[series], origin or None)
        look |= {} if joined and origin != data.PUBLISHED else {"linestyle": "none"}
        bars = {f"{axis}err": _errors(rows, axis) for axis in "xy" if f"{axis}_low" in rows}
        line, _, _ = axes.errorbar(
            rows["x"].to_numpy(float),
            rows["y"].where(rows["origin"] == origin).to_numpy(float),
            **bars,
            **look,
            elinewidth=0.8,
            capsize=0.4 * look["markersize"],
            capthick=0.8,
            zorder=4 if origin == data.PUBLISHED else 3,
        )
        drawn.append((series, origin or None, line))
    return drawn


def _errors(rows: pd.DataFrame, axis: str) -> Any:
    """Lengths of error bars below and above the points, or None without any."""
    ends = rows[[f"{axis}_low", f"{axis}_high"]].to_numpy(float)
    lengths = abs(ends - rows[[axis]].to_numpy(float))
    return None if np.isnan(lengths).all() else lengths.T


def write_beside(axes: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """Write a small text right of a bar's end."""
    place: Any = {"textcoords": "offset points", "va": "center", "ha": "left", "fontsize": 6}
    axes.annotate(text, (x, y), (3, 0), **(place | look)).set_in_layout(False)


# --- labels beside points -------------------------------------------------------------------------


@dataclass(frozen=True)
class Label:
    """A label for a point in the data's coordinates."""

    x: float
    y: float
    text: str
    colour: str = style.INK


LABEL_SIZE = 6.0
_PLACES = (
    *((4, 5), (-4, 5), (4, -5), (-4, -5), (6, 0), (-6, 0)),
    *((4, 12), (-4, 12), (4, -12), (-4, -12)),
)
"""Where a label's near end may be, in points from its point."""


def write_labels(
    axes: Axes,
    labels: Sequence[Label],
    marks: pd.DataFrame,
    lines: Sequence[pd.DataFrame],
    size_mm: tuple[float, float],
) -> None:
    """Write each label beside its point where it covers no other, no mark and no line; else not at all.

    `marks` and `lines` have columns x and y. The limits of the axes are set, and `size_mm` is about
    their size on paper.
    """
    width, height = (mm / style.MM_PER_INCH * 72 for mm in size_mm)
    on_paper = axes.transData + axes.transAxes.inverted() + Affine2D().scale(width, height)
    room = Bbox.from_extents(0, 2, width + 2, height)
    taken = [_box(x, y, 5, 5) for x, y in on_paper.transform(marks[["x", "y"]].astype(float))]
    paths = [Path(on_paper.transform(line[["x", "y"]].astype(float))) for line in lines]
    for one in labels:
        x, y = on_paper.transform((one.x, one.y))
        length = 0.58 * LABEL_SIZE * len(one.text) + 2.0
        for right, up in _PLACES:
            middle = x + right + (length if right > 0 else -length) / 2
            box = _box(middle, y + up, length, 1.1 * LABEL_SIZE)
            inside = room.x0 <= box.x0 and box.x1 <= room.x1
            inside = inside and room.y0 <= box.y0 and box.y1 <= room.y1
            crossed = any(path.intersects_bbox(box.padded(0.5), filled=False) for path in paths)
            if inside and not crossed and not box.count_overlaps(taken):
                taken.append(box)
                _write_label(axes, one, right, up)
                break


def _box(x: float, y: float, width: float, height: float) -> Bbox:
    return Bbox.from_bounds(x - width / 2, y - height / 2, width, height)


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


# --- legends --------------------------------------------------------------------------------------

LEGEND_EXTRA = 12
"""Characters that an entry takes besides its words: its line, and the gaps."""


def entry(label: str, **look: Any) -> Line2D:
    """Return an entry that shows a line of this look."""
    return Line2D([], [], label=label, **look)


def looks_of(points: pd.DataFrame, width_mm: float) -> dict[str, dict[str, Any]]:
    """Return the look of each series, which is the same in every figure of a campaign."""
    places = data.series_places(points)
    return {series: style.series_style(place, width_mm) for series, place in places.items()}


def series_entries(points: pd.DataFrame, looks: Looks, **more: Any) -> list[Line2D]:
    """Return an entry for each series, its marker filled as its own points are; `more` goes on top of
    their looks."""
    origins = data.series_origins(points)
    return [
        entry(label, **(style.of_origin(looks[series], origins[series]) | more))
        for series, label in data.series_labels(points).items()
    ]


def origin_entries(points: pd.DataFrame, width_mm: float) -> list[Line2D]:
    """Return what the fill of a marker means, where the points of a figure differ in it."""
    present = set(data.drawn_origins(points))
    if len(present) < 2:
        return []
    base: dict[str, Any] = {"color": style.GREY, "marker": "o", "linestyle": "none"}
    base["markersize"] = 5 * style.preset(width_mm).scale
    found = [
        entry(f"{prose.FILL_WORDS[o]}: {o}", **style.of_origin(base, o))
        for o in prose.FILL_WORDS
        if o in present
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
    """Panels that share a legend above them."""

    points: pd.DataFrame
    handles: Sequence[Artist]
    title: str
    panels: int = 2
    columns: int = 2

    def rows(self, width_mm: float) -> tuple[int, int]:
        """Return rows and columns of its panels."""
        columns = min(
            self.columns, self.panels, 2 if style.preset(width_mm).narrow else self.columns
        )
        return -(-self.panels // columns), columns

    def legend_mm(self, width_mm: float) -> float:
        """Return the height of the legend."""
        preset = style.preset(width_mm)
        rows = -(-len(self.handles) // legend_columns(self.handles, preset.legend_characters))
        return style.lines_mm(rows, 1.3 * preset.text_size) + (_TITLE_MM if self.title else 1.0)


def block_title(points: pd.DataFrame) -> str:
    """Return model and phase of a block's points."""
    model, phase = points["model"].iloc[0], points["phase"].iloc[0]
    name = MODEL_WORDS.get(model, str(model))
    return name if phase == "train" else f"{name}, {PHASE_WORDS.get(phase, phase)}"


@dataclass(frozen=True)
class Panels:
    """The width of a figure in mm, and the size of its panels' axes."""

    width_mm: float
    size_mm: tuple[float, float]

    @property
    def dense(self) -> bool:
        """Return True if an axis has room for many tick labels."""
        return not style.preset(self.width_mm).narrow

    def wrap_labels(self, axes: Axes) -> None:
        """Set the labels of both axes over two lines where they are longer than the axis."""
        wrap_labels(axes, *label_characters(self.size_mm, style.preset(self.width_mm)))


def label_characters(size_mm: tuple[float, float], preset: style.Preset) -> tuple[int, int]:
    """Return the characters of a label that fit along the x and the y axis of a panel of this size."""
    across, upright = (int(mm / (0.19 * preset.label_size)) for mm in size_mm)
    return across, upright


def wrap_labels(axes: Axes, across: int, upright: int) -> None:
    """Set labels of axes over two lines where they have more characters than these."""
    axes.set_xlabel(textwrap.fill(axes.get_xlabel(), across))
    axes.set_ylabel(textwrap.fill(axes.get_ylabel(), upright))


def draw_blocks(
    blocks: Sequence[Block],
    width_mm: float,
    draw_panel: Callable[[Block, int, Axes, Panels], None],
    nothing: str,
) -> style.Drawing:
    """Draw the panels of each block, as high as a page has room.

    `draw_panel` gets a block, the panel's index in the figure, its axes and sizes. Without blocks the
    figure says `nothing`.
    """
    if not blocks:
        figure = style.new_figure(60.0, width_mm)
        style.say_instead(figure.subplots(), nothing)
        return figure
    preset = style.preset(width_mm)
    tallest = 44.0 if preset.narrow else 58.0
    notes_mm = style.notes_mm(preset)
    legends = [block.legend_mm(width_mm) for block in blocks]
    grids = [block.rows(width_mm) for block in blocks]
    room = (TALLEST_MM - notes_mm - sum(legends)) / sum(rows for rows, _ in grids)
    panel_mm = max(LOWEST_MM, min(tallest, room))
    heights = [rows * panel_mm + legend for (rows, _), legend in zip(grids, legends, strict=True)]
    figure = style.new_figure(sum(heights) + notes_mm, width_mm)
    parts = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights).ravel()
    index = 0
    for block, part, (rows, columns) in zip(blocks, parts, grids, strict=True):
        across_mm = width_mm / columns - (12 if preset.narrow else 18)
        panels = Panels(width_mm, (across_mm, panel_mm - 13))
        grid = part.subplots(rows, columns, squeeze=False).ravel()
        for axes in grid[: block.panels]:
            draw_panel(block, index, axes, panels)
            index += 1
        for axes in grid[block.panels :]:
            axes.set_axis_off()
        _draw_legend(part, block, preset)
    return figure


def _draw_legend(part: SubFigure, block: Block, preset: style.Preset) -> None:
    part.legend(
        handles=block.handles,
        loc="outside upper center",
        ncols=legend_columns(block.handles, preset.legend_characters),
        handlelength=3.2,
        title=block.title or None,
        title_fontproperties={"weight": "bold", "size": preset.label_size},
    )
