"""Figure 3: ResNet50 on a dataset that grows with n."""

from __future__ import annotations

import pyarrow as pa
from matplotlib.figure import Figure

from scalewatt.figures.curves import Panel, draw_curves

# B2 and C2 stand under B and C: the same quantity, against samples instead of n.
PANELS = (
    Panel("A", "runtime_h"),
    Panel("B", "metric_last"),
    Panel("C", "energy_kwh"),
    Panel("D", "energy_kwh", "gpu_hours"),
    Panel("B2", "metric_last", "dataset_samples"),
    Panel("C2", "energy_kwh", "dataset_samples"),
)


def draw(table: pa.Table) -> Figure:
    """Run time, top-1 error and energy against n and samples, and energy against GPU hours."""
    return draw_curves(table, PANELS, columns=3)
