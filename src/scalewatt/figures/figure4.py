"""Figure 4: FourCastNet, pre-training and fine-tuning."""

from __future__ import annotations

import pyarrow as pa
from matplotlib.figure import Figure

from scalewatt.figures.curves import Panel, draw_curves

PANELS = (
    Panel("A", "speedup"),
    Panel("B", "metric_last"),
    Panel("C", "energy_kwh"),
    Panel("D", "energy_kwh", "gpu_hours"),
)


def draw(table: pa.Table) -> Figure:
    """Speed-up, Z500 RMSE and energy against n, and energy against GPU hours."""
    return draw_curves(table, PANELS)
