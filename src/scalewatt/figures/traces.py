"""What drawings of power against time share: the axis of time, and that of power."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from scalewatt.figures import style

_UNITS = ((7200.0, 3600.0, "h"), (600.0, 60.0, "min"), (0.0, 1.0, "s"))
"""Least length in s for which a unit is used, its seconds, its name."""


def time_axis(axes: Axes, length_s: float, since: str, most_ticks: int = 7) -> None:
    """Show times from 0 to `length_s` in a unit that suits; `since` is what they count from."""
    length_s = length_s or 1.0
    unit_s, name = next((unit, name) for least, unit, name in _UNITS if length_s >= least)
    axes.set(xlim=(0, length_s), xlabel=f"Time since {since} ({name})")
    locator = MaxNLocator(most_ticks, steps=style.ROUND)
    ticks = np.asarray(locator.tick_values(0, length_s / unit_s)) * unit_s
    axes.set_xticks(ticks[(ticks >= 0) & (ticks <= length_s * (1 + 1e-9))])
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: style.plain_number(round(value / unit_s, 6)))
    )


def power_axis(axes: Axes, watts: Iterable[float]) -> None:
    """Show powers from 0 on; NaN is none."""
    known = np.asarray(list(watts), dtype=float)
    known = known[np.isfinite(known)]
    if known.size:
        style.linear_axis(axes, [float(known.min()), float(known.max())], from_zero=True)
