"""Entries of legends: series, and what the fill of their markers says of their energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.figures import style
from scalewatt.figures.figure_data import Row, drawn_origins, series_origins
from scalewatt.figures.footnote_text import FILL_WORDS, ORIGINS

LEGEND_EXTRA = 12
"""Characters that an entry takes besides its words: its line, and the gaps."""


def entry(label: str, **look: Any) -> Line2D:
    """An entry that shows a line of this look."""
    return Line2D([], [], label=label, **look)


def series_entry(
    rows: Sequence[Row], series: str, label: str, look: dict[str, Any], **more: Any
) -> Line2D:
    """A series' entry, its marker filled as its own points are; `more` goes on top of its look."""
    origin = series_origins(rows)[series]
    return entry(label, **(style.of_origin(look, origin) | more))


def origin_entries(rows: Sequence[Row], width_mm: float) -> list[Line2D]:
    """What the fill of a marker says, where the points of a figure differ in it."""
    present = set(drawn_origins(rows))
    if len(present) < 2:
        return []
    base: dict[str, Any] = {"color": style.GREY, "marker": "o", "linestyle": "none"}
    base["markersize"] = 5 * style.preset(width_mm).scale
    found = [
        entry(f"{FILL_WORDS[o]}: {o}", **style.of_origin(base, o)) for o in ORIGINS if o in present
    ]
    if None in present:
        look = base | style.origin_style(None, style.GREY)
        found.append(entry("grey markers: energy not known", **look))
    return found


def legend_above(figure: Figure, handles: Sequence[Artist], columns: int, length: float) -> None:
    """All entries above the panels, `columns` beside each other; `length` of their lines."""
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, handlelength=length)


def legend_columns(handles: Sequence[Artist], characters: int) -> int:
    """Into how many columns entries can go: as few rows as there can be, these about equally long."""
    lengths = [len(str(handle.get_label())) + LEGEND_EXTRA for handle in handles]
    fitting = [n for n in range(2, len(lengths) + 1) if _width(lengths, n) <= characters]
    most = max(fitting, default=1)
    rows = -(-len(lengths) // most)
    return min((n for n in fitting if -(-len(lengths) // n) == rows), default=1)


def _width(lengths: Sequence[int], columns: int) -> int:
    """Characters that entries take in so many columns."""
    # As matplotlib fills them: the first ones get one more.
    each, more = divmod(len(lengths), columns)
    ends = [(i + 1) * each + min(i + 1, more) for i in range(columns)]
    return sum(max(lengths[a:b]) for a, b in zip([0, *ends], ends, strict=False))
