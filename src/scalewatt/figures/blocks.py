"""What the figures beside the paper's share: their width, shades, metrics in words, legends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from scalewatt.figures import style
from scalewatt.figures.points import Row, metadata
from scalewatt.figures.words import SEVERAL, metric_label


def width_of(table: pa.Table) -> float:
    """The width in mm that the campaign wants a figure to have."""
    return float(metadata(table).get("options", {}).get("width_mm", style.WIDTH_MM))


def paler(colour: str, white: float) -> str:
    """A colour mixed with white, of which it gets the share `white` (0 to 1)."""
    red, green, blue = (part + (1 - part) * white for part in to_rgb(colour))
    return to_hex((red, green, blue))


def metric_words(rows: Sequence[Row]) -> str:
    """A block's metric as an axis label, with the phase where a model has several."""
    named = {row["metric_name"] for row in rows if row["metric_name"]}
    name = SEVERAL if len(named) > 1 else next(iter(named), None)
    label = metric_label(rows[0]["model"], name)
    return label if rows[0]["phase"] == "train" else f"{label}, {rows[0]['phase']}"


def goal_sentence(rows: Sequence[Row]) -> str:
    """Which metrics are better the larger they are; usually none is."""
    larger = dict.fromkeys(row["model"] for row in rows if row["metric_goal"] == "max")
    return f"Larger is better: {', '.join(larger)}." if larger else ""


def legend_columns(handles: Sequence[Artist], width_mm: float) -> int:
    """How many entries of a legend stand beside each other."""
    widest = max((len(str(handle.get_label())) for handle in handles), default=1)
    return max(1, min(len(handles), style.preset(width_mm).legend_characters // (widest + 9)))


def legend_above(figure: Figure, handles: Sequence[Artist], columns: int, length: float) -> None:
    """All entries above the panels, `columns` beside each other; `length` of their lines."""
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, handlelength=length)


def small_print_mm(sentences: Sequence[str], entries: int, columns: int, width_mm: float) -> float:
    """Height in mm of a legend of so many entries, and of the notes."""
    preset = style.preset(width_mm)
    lines = len(style.note_lines(sentences, width_mm))
    legend = style.lines_mm(-(-entries // columns), 1.3 * preset.text_size) if entries else 0.0
    return style.lines_mm(lines, preset.note_size) + legend + 6.0


@dataclass(frozen=True)
class Label:
    """Words for a point in the data's coordinates."""

    x: float
    y: float
    text: str


def write_labels(
    axes: Axes,
    labels: Sequence[Label],
    marks: Sequence[tuple[float, float]],
    size_mm: tuple[float, float],
) -> None:
    """Write each label beside its point, where it covers no other label and no mark; else not at all.

    The limits of the axes are set, and `size_mm` is about their size on paper.
    """
    across, upright = (mm / style.MM_PER_INCH * 72 for mm in size_mm)
    to_axes = axes.transData + axes.transAxes.inverted()

    def on_paper(x: float, y: float) -> tuple[float, float]:
        right, up = to_axes.transform((x, y))
        return float(right) * across, float(up) * upright

    taken = [(x - 2.5, y - 2.5, x + 2.5, y + 2.5) for x, y in (on_paper(*mark) for mark in marks)]
    for one in labels:
        x, y = on_paper(one.x, one.y)
        for right, up in _PLACES:
            box = _extent(one.text, x + right, y + up, right > 0)
            inside = box[0] >= 0 and box[2] <= across + 2 and box[1] >= 0 and box[3] <= upright
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                _write_label(axes, one, right, up)
                break


def _write_label(axes: Axes, one: Label, right: float, up: float) -> None:
    axes.annotate(
        one.text,
        (one.x, one.y),
        (right, up),
        textcoords="offset points",
        ha="left" if right > 0 else "right",
        va="center_baseline",
        fontsize=LABEL_SIZE,
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


def _overlap(one: Extent, other: Extent) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _extent(text: str, x: float, y: float, rightwards: bool) -> Extent:
    """About what a text covers, in points, that begins (or ends) at x and is centred on y."""
    width, height = 0.58 * LABEL_SIZE * len(text), 1.1 * LABEL_SIZE
    left = x if rightwards else x - width
    return left, y - height / 2, left + width, y + height / 2
