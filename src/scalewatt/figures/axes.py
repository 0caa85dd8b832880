"""Axes: the label and unit of a quantity, its scale, and the numbers at its ticks.

Rows of `axes` in `columns.csv` have the scale in their tags: log, log2, or linear without either; `zero` if
the axis begins at 0, and `joined` if lines join points along it. Without a label it is that of `runs`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from scalewatt.figures import style
from scalewatt.results import columns
from scalewatt.results.text.number_format import unit_for

ROUND = [1, 2, 5, 10]
"""First digits of tick labels."""
WIDEST_BAR = 0.3
"""How far error bars may widen an axis at either end, as a share of the range of the points."""
LEAST_ROOM = 0.05
"""The same where the points are all but equal, as a share of the greatest point."""


class Quantity(NamedTuple):
    """A quantity on an axis: its label with the unit, the factor of its values in that unit, and its tags."""

    name: str
    label: str
    factor: float = 1.0
    tags: Sequence[str] = ()

    @property
    def base(self) -> int:
        """Base of a logarithmic scale, 0 of a linear one."""
        return 2 if "log2" in self.tags else 10 * ("log" in self.tags)


def quantity(
    name: str, gpu_word: str = "GPUs", values: Iterable[float] = (), label: str | None = None
) -> Quantity:
    """Describe a quantity in the unit that suits `values`; one without a row has `label`, or its name."""
    row = columns.columns("axes").get(name)
    if row is None:
        return Quantity(name, label or name)
    words = columns.in_words(row.label, gpu_word) or columns.label(name, gpu_word)
    unit = unit_for(values, row.unit if row.label else columns.unit(name))
    words += f" ({unit.name})" if unit.name else ""
    return Quantity(name, words, unit.factor, row.tags.split())


# --- scales ---------------------------------------------------------------------------------------


def scale_axis(axes: Axes, which: str, shown: Quantity, values: Sequence[float]) -> None:
    """Fit the axis `x` or `y` to values with room around them, and number it."""
    axis: Any = getattr(axes, f"{which}axis")
    positive = [value for value in values if value > 0]
    if shown.base and positive:
        low, high = min(positive), max(positive)
        room = max((high / low) ** 0.06, 1.08)
        limits = low / room, high * room
        axes.set(**{f"{which}scale": "log"})
        ticks = log_ticks(*limits, shown.base)
        if which == "x":
            ticks = _thinned(ticks, *limits, style.preset_at(axes).narrow)
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
    else:
        low, high = min(values), max(values)
        start = min(low, 0.0) if "zero" in shown.tags else low
        room = 0.08 * (high - start) or 0.08 * abs(high) or 1.0
        # Nothing below 0 is shown of what is never below it.
        ends_at_0 = low >= 0 and ("zero" in shown.tags or start < room)
        limits = 0.0 if ends_at_0 else start - room, high + room
        axis.set_major_locator(MaxNLocator(nbins=6, steps=ROUND))
    axes.set(**{f"{which}lim": limits})
    axis.set_major_formatter(FuncFormatter(lambda value, _: style.plain_number(value)))


def room_for(values: Sequence[float], ends: Sequence[float], log: bool) -> list[float]:
    """Points, and the ends of error bars as far as they do not squeeze the points."""
    low, high = min(values), max(values)
    if log and low > 0:
        factor = max((high / low) ** WIDEST_BAR, 1.5)
        least, most = low / factor, high * factor
    else:
        room = max(WIDEST_BAR * (high - low), LEAST_ROOM * abs(high))
        least, most = (max(low - room, 0.0) if low >= 0 else low - room), high + room
    return [*values, *np.clip(ends, least, most).tolist()]


def log_ticks(low: float, high: float, base: int = 10) -> list[float]:
    """Choose three to about seven round numbers between `low` and `high` (both positive).

    Of base 2 all powers of two, if there are at least two, else whole numbers, if these are few.
    """
    if base == 2:
        ends = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
        powers = [2.0**k for k in range(ends[0], ends[1] + 1)]
        if len(powers) >= 2:
            return powers
        whole = range(math.ceil(low), math.floor(high) + 1)
        if 0 < len(whole) <= 6:
            return [*map(float, whole)]
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / 7))
    candidates = [
        [d * 10.0**k for k in range(first, last + 1, every) for d in digits]
        for digits in ((1,), (1, 3), (1, 2, 5))
    ]
    # Over less than a decade: evenly spaced numbers.
    candidates += [
        list(MaxNLocator(nbins=most, steps=ROUND).tick_values(low, high)) for most in (5, 6, 8)
    ]
    inside = [[float(tick) for tick in ticks if low <= tick <= high] for ticks in candidates]
    return next((ticks for ticks in inside if len(ticks) >= 3), inside[-1])


def _thinned(ticks: Sequence[float], low: float, high: float, narrow: bool) -> list[float]:
    """Rising ticks of a logarithmic axis whose labels do not touch."""
    width = 0.06 if narrow else 0.022  # of a character, in parts of the axis
    shown: list[float] = []
    for tick in ticks:
        needed = width * (len(style.plain_number(tick)) + 1)
        if not shown or math.log(tick / shown[-1]) / math.log(high / low) >= needed:
            shown.append(tick)
    return shown


# --- power against time ---------------------------------------------------------------------------


def time_axis(axes: Axes, length_s: float, since: str, most_ticks: int = 7) -> None:
    """Number an axis of times in s from 0 to `length_s` in a unit that suits; `since` names their origin."""
    length_s = length_s or 1.0
    unit = unit_for([length_s / 3600], "h")
    unit_s = 3600 / unit.factor
    ticks = np.asarray(MaxNLocator(most_ticks, steps=ROUND).tick_values(0, length_s / unit_s))
    axes.set(xlim=(0, length_s), xlabel=f"Time since {since} ({unit.name})")
    axes.set_xticks(ticks[(ticks >= 0) & (ticks * unit_s <= length_s * (1 + 1e-9))] * unit_s)
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: style.plain_number(round(value / unit_s, 6)))
    )


def power_axis(axes: Axes, watts: Iterable[float]) -> None:
    """Number an axis of powers from 0 on; NaN is none."""
    known = [value for value in watts if np.isfinite(value)]
    if known:
        scale_axis(axes, "y", Quantity("power_w", "", tags=("zero",)), known)
