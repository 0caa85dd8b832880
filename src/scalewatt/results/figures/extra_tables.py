"""The tables of the figures beside the paper's: their columns, and what builds them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.results.figures.breakdown_table import BREAKDOWN, breakdown
from scalewatt.results.figures.learning_table import LEARNING, learning
from scalewatt.results.figures.pareto_table import PARETO, pareto

Row = dict[str, Any]

SCHEMAS: dict[str, pa.Schema] = {
    "breakdown": BREAKDOWN,
    "learning": LEARNING,
    "pareto": PARETO,
}

BUILDERS: dict[str, Callable[[dict[str, Any], list[Row], Path], pa.Table]] = {
    "breakdown": breakdown,
    "learning": learning,
    "pareto": pareto,
}
"""Of the figure's definition, its configurations' rows, and the campaign's results."""
