"""Figure 7: power and throughput of FourCastNet."""

from __future__ import annotations

import pyarrow as pa
from matplotlib.figure import Figure

from scalewatt.figures.curves import draw_curves
from scalewatt.figures.figure_data import plotted as plotted
from scalewatt.results.figures.figure_schema import PANELS


def draw(table: pa.Table) -> Figure:
    """The panels of figure 6 for FourCastNet's series."""
    return draw_curves(table, PANELS["figure7"])
