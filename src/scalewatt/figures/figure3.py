"""Figure 3: ResNet50 on a dataset that grows with n."""

from __future__ import annotations

import pyarrow as pa
from matplotlib.figure import Figure

from scalewatt.figures.curves import draw_curves
from scalewatt.figures.figure_data import plotted as plotted
from scalewatt.results.figures.figure_schema import PANELS


def draw(table: pa.Table) -> Figure:
    """Run time, top-1 error and energy against n and samples, and energy against GPU hours."""
    return draw_curves(table, PANELS["figure3"], columns=3)
