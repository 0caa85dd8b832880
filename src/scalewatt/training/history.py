"""A run's history, one row an epoch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

PHASES = ("data", "copy", "forward", "backward", "optimizer")
"""What a training step's time divides into."""
PHASE_STATISTICS = ("", "q25", "median", "q75", "slowest")
"""Mean, quartiles and median over steps and ranks, and the mean of the slowest rank."""


def phase_column(phase: str, statistic: str = "") -> str:
    """Column of a phase's statistic in a history, in s; without a statistic that of the mean."""
    return "_".join(part for part in ("step", phase, statistic, "s") if part)


PHASE_COLUMNS = [
    phase_column(phase, statistic) for statistic in PHASE_STATISTICS for phase in PHASES
]

_INTEGERS = ("samples", "updates")
_NUMBERS = (
    *("train_loss", "validation_loss", "metric", "train_metric", "learning_rate", *_INTEGERS),
    *("epoch_s", "train_s", "evaluate_train_s", "validate_s", "throughput_samples_per_s"),
    *PHASE_COLUMNS,
)
HISTORY_SCHEMA = pa.schema(
    [
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("segment", pa.int32(), nullable=False),
        *(pa.field(n, pa.int64() if n in _INTEGERS else pa.float64()) for n in _NUMBERS),
        pa.field("peak_memory_bytes", pa.int64()),
    ]
)
"""What every history has; the results of a model follow as further columns of float64."""


def history_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Table of HISTORY_SCHEMA and the model's results, its numbers alone; what a row lacks is null."""
    rows = list(rows)
    numbers = {k: None for row in rows for k, v in row.items() if v is None or isinstance(v, float)}
    results = [(name, pa.float64()) for name in numbers if name not in HISTORY_SCHEMA.names]
    return pa.Table.from_pylist(rows, pa.schema([*HISTORY_SCHEMA, *results]))


def finite(value: float | None) -> float | None:
    """Number of a result; None for NaN or infinity: a diverged training has no loss."""
    return float(value) if value is not None and math.isfinite(value) else None
