"""Figure 7: power and throughput of FourCastNet."""

from __future__ import annotations

import pyarrow as pa
from matplotlib.figure import Figure

from scalewatt.figures.curves import RATE_PANELS, draw_curves


def draw(table: pa.Table) -> Figure:
    """The panels of figure 6 for FourCastNet's series."""
    return draw_curves(table, RATE_PANELS)
