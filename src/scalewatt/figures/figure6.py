"""Figure 6: power and throughput of ResNet50."""

from __future__ import annotations

import pyarrow as pa
from matplotlib.figure import Figure

from scalewatt.figures.curves import draw_curves
from scalewatt.figures.figure_data import plotted as plotted
from scalewatt.results.figures.figure_schema import PANELS


def draw(table: pa.Table) -> Figure:
    """Energy, samples and passes per GPU hour and mean device powers against n."""
    return draw_curves(table, PANELS["figure6"])
