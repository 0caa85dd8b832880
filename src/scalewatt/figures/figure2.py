"""Figure 2: ResNet50 on the full dataset."""

from __future__ import annotations

import pyarrow as pa
from matplotlib.figure import Figure

from scalewatt.figures.curves import draw_curves
from scalewatt.figures.figure_data import plotted as plotted
from scalewatt.results.figures.figure_schema import PANELS


def draw(table: pa.Table) -> Figure:
    """Speed-up, top-1 error and energy against n, and energy against GPU hours."""
    return draw_curves(table, PANELS["figure2"])
