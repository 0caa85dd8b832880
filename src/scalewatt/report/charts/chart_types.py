"""What a chart consists of: series, panels, axes, and a table of places."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from scalewatt.figures import style

CURVES, POINTS, LINES, BARS, SLOTS = "curves", "points", "lines", "bars", "slots"
"""Kinds of panels: joined points, single points, dense lines, stacked bars, and points beside words."""
PLACES = ("series", "name", "x", "y", "origin", "runs", "target")
"""Columns of a panel's table of places.

More where there are such: x_low, x_high, y_low, y_high (error bars), x_open_low, … (where the true value
of an estimate lies), line (what is joined), front and opacity; of BARS x_end, energy, part and share.
"""
ORIGIN = "energy is"
"""Heading of the column `origin`: beside a time or an error, too, it is that of the run's energy."""
DEFINED = "defined"
"""In place of an origin: what no run has, but a definition."""
_DARK = ("#a9c8f7", "#f58a72", "#52d0b7", "#f2c14e", "#e688b2", "#5b9bf0", "#e8e8e8")
_SHAPES = (
    *("circle", "square", "triangle-up", "diamond", "triangle-down", "cross"),
    "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z",
    "M0,-1L.95,-.31L.59,.81L-.59,.81L-.95,-.31Z",
)
_DASHES = ((1, 0), (6, 2), (2, 2), (7, 2, 2, 2))


@dataclass(frozen=True)
class Series:
    """What can be shown and hidden, with its look: as in the figure, and in the dark."""

    id: str
    label: str
    light: str
    dark: str
    shape: str = "circle"
    dash: tuple[int, ...] = (1, 0)


@dataclass(frozen=True)
class Axis:
    """An axis: its title with the unit, its scale (linear, log, log2), and from where to where it goes."""

    title: str
    scale: str = "linear"
    domain: tuple[float, float] | None = None
    ticks: tuple[float, ...] = ()
    """Where its numbers are; empty: wherever they fit."""


@dataclass(frozen=True)
class Panel:
    """One panel: its axes, what kind it is of, and its places (columns PLACES)."""

    letter: str
    x: Axis
    y: Axis
    places: pd.DataFrame
    kind: str = CURVES
    title: str = ""
    """Empty: what is on the axes."""
    line_at: float | None = None
    """Where a reference line is: of SLOTS along x, of others along y."""
    ideal: bool = False
    """True if the line x = y is drawn."""

    @property
    def heading(self) -> str:
        """Return what stands above the panel."""
        return self.title or f"{self.y.title} against {_in_sentence(self.x.title)}"


@dataclass(frozen=True)
class Chart:
    """The panels of one figure, and the series that they share."""

    series: tuple[Series, ...]
    panels: tuple[Panel, ...]
    bars: str = "95 % interval"
    """What error bars are."""
    open: str = "truly within, of an estimate"
    """What broad pale bars are."""


def _in_sentence(title: str) -> str:
    first = title[:2]
    return title if first.isupper() else title[:1].lower() + title[1:]


def series_of(
    labels: Mapping[str, str], places: Mapping[str, int] | None = None
) -> tuple[Series, ...]:
    """Return series in the looks that the figure gives them, by their labels; `places`: by which they have
    these, else those of the labels."""
    return tuple(
        Series(
            id_,
            label,
            style.COLOURS[at % len(style.COLOURS)],
            _DARK[at % len(_DARK)],
            _SHAPES[at % len(_SHAPES)],
            _DASHES[at % len(_DASHES)],
        )
        for place, (id_, label) in enumerate(labels.items())
        for at in [place if places is None else places[id_]]
    )


def fitted(title: str, scale: str, values: Iterable[Any], from_zero: bool = False) -> Axis:
    """Return an axis around values with some room; a log axis leaves out what it cannot show."""
    known = [float(v) for v in values if v is not None and math.isfinite(v)]
    if scale != "linear":
        known = [value for value in known if value > 0]
        if not known:
            return Axis(title)
        low, high = min(known), max(known)
        room = max((high / low) ** 0.06, 1.1)
        ticks = _powers_of_two(low, high) if scale == "log2" else ()
        return Axis(title, scale, (low / room, high * room), ticks)
    if not known:
        return Axis(title)
    low, high = min(known), max(known)
    start = min(low, 0.0) if from_zero else low
    room = 0.08 * (high - start) or 0.08 * abs(high) or 1.0
    bottom = start - room
    return Axis(
        title, "linear", (0.0 if low >= 0 and (from_zero or bottom < 0) else bottom, high + room)
    )


def _powers_of_two(low: float, high: float) -> tuple[float, ...]:
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    return tuple(2.0**k for k in range(first, last + 1)) if last > first else ()


def ends_of(places: pd.DataFrame, axis: str) -> list[float]:
    """Return the values of an axis with the ends of estimates, and error bars as far as they are no
    more than the span of the values."""
    values = places[axis].dropna().to_list()
    found = list(values)
    for name in (f"{axis}_open_low", f"{axis}_open_high"):
        found += places[name].dropna().to_list() if name in places else []
    if values and f"{axis}_low" in places:
        span = max(max(values) - min(values), 0.3 * max(map(abs, values)))
        least, most = min(values) - span, max(values) + span
        for name in (f"{axis}_low", f"{axis}_high"):
            found += [v for v in places[name].dropna() if least <= v <= most and v * values[0] > 0]
    return found


def configuration_target(configurations: Iterable[str]) -> list[str]:
    """Return the anchors of rows in the table of configurations."""
    return [f"configuration-{one}" for one in configurations]


def run_target(configuration: str, repeat: int) -> str:
    """Return the anchor of a row in the table of runs."""
    return f"run-{configuration}-{repeat}"
