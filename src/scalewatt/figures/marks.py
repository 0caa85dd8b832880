"""Marks on panels: lines and markers of series, error bars, and labels beside points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from scalewatt.figures import style
from scalewatt.figures.figure_data import PUBLISHED, groups

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
    """Words for a point in the data's coordinates."""

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
