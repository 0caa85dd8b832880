"""Times of a training step's phases, from the histories of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.results.figures.breakdown_table import counted_repeats
from scalewatt.results.tables.run_row import RunFiles, mean_over_updates, read_history
from scalewatt.training.history import PHASE_COLUMNS, PHASE_STATISTICS, PHASES, phase_column


def with_phase_times(
    lines: pd.DataFrame, definition: dict[str, Any], results: Path
) -> pd.DataFrame:
    """Add for each phase the median step in s, its ends the quartiles, and the mean of the slowest rank.

    Each is a mean over a run's epochs by their updates, and then over the repeats that timed their steps.
    """
    repeats = counted_repeats(definition)
    rows = []
    for configuration in lines["configuration"].unique():
        for repeat in repeats.get(configuration, []):
            history = read_history(
                RunFiles(results, configuration, repeat).folder / "history.parquet"
            )
            means = {name: mean_over_updates(history, name) for name in PHASE_COLUMNS}
            rows.append({"configuration": configuration, **means})
    runs = pd.DataFrame(rows, columns=["configuration", *PHASE_COLUMNS])
    runs[PHASE_COLUMNS] = runs[PHASE_COLUMNS].astype("float64")
    known = runs.groupby("configuration").mean().reindex(lines["configuration"])
    columns: dict[str, Any] = {}
    for phase in PHASES:
        q25, median, q75, slowest = (phase_column(phase, name) for name in PHASE_STATISTICS[1:])
        ends = {f"{median}_low": q25, f"{median}_mean": median, f"{median}_high": q75}
        ends[f"{slowest}_mean"] = slowest
        columns |= {name: known[column].to_numpy() for name, column in ends.items()}
    return lines.assign(**columns)
