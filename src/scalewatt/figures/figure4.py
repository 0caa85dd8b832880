"""Figure 4: FourCastNet, pre-training and fine-tuning."""

from __future__ import annotations

import pyarrow as pa
from matplotlib.figure import Figure

from scalewatt.figures.curves import draw_curves
from scalewatt.figures.figure_data import plotted as plotted
from scalewatt.results.figures.figure_schema import PANELS


def draw(table: pa.Table) -> Figure:
    """Speed-up, Z500 RMSE and energy against n, and energy against GPU hours."""
    return draw_curves(table, PANELS["figure4"])
