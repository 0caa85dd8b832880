"""Figure 6: power and throughput of ResNet50."""

from __future__ import annotations

import pyarrow as pa
from matplotlib.figure import Figure

from scalewatt.figures.curves import Panel, draw_curves

PANELS = (
    Panel("A", "p_gpuh_kw"),
    Panel("B", "mean_gpu_power_w"),
    Panel("C", "mean_cpu_socket_power_w"),
    Panel("D", "samples_per_gpuh"),
    Panel("E", "passes_per_gpuh"),
)


def draw(table: pa.Table) -> Figure:
    """Energy, samples and passes per GPU hour and mean device powers against n."""
    return draw_curves(table, PANELS)
