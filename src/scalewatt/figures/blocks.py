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


def write_labels(axes: Axes, labels: Sequence[Label], size_mm: tuple[float, float]) -> None:
    """Write each label beside its point, where it covers no other label; none where there is no room.

    The limits of the axes are set, and `size_mm` is about their size on paper. Points come before
    words: a place that covers fewer of the labelled points is preferred.
    """
    across, upright = (mm / style.MM_PER_INCH * 72 for mm in size_mm)
    to_axes = axes.transData + axes.transAxes.inverted()
    places = [to_axes.transform((one.x, one.y)) for one in labels]
    points = [(float(x) * across, float(y) * upright) for x, y in places]
    marks = [(x - 3, y - 3, x + 3, y + 3) for x, y in points]
    taken: list[Extent] = []
    for one, (x, y) in zip(labels, points, strict=True):
        width, height = 0.58 * LABEL_SIZE * len(one.text), 1.1 * LABEL_SIZE
        found = []
        for order, (right, up) in enumerate(_PLACES):
            left = x + right if right > 0 else x + right - width
            low = y + up - height / 2
            box = (left, low, left + width, low + height)
            inside = box[0] >= 0 and box[2] <= across + 8 and box[1] >= 0 and box[3] <= upright
            if inside and not any(_overlap(box, other) for other in taken):
                found.append((sum(_overlap(box, mark) for mark in marks), order, box, (right, up)))
        if not found:
            continue
        _, _, box, (right, up) = min(found)
        taken.append(box)
        axes.annotate(
            one.text,
            (one.x, one.y),
            (right, up),
            textcoords="offset points",
            ha="left" if right > 0 else "right",
            va="center_baseline",
            fontsize=LABEL_SIZE,
            zorder=6,
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
