"""The same energies by other sources: all runs' cross-checks, summed over the nodes and segments of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.energies.accounting.energy_schema import CROSS_CHECKS_SCHEMA
from scalewatt.recordings.series import J_PER_KWH
from scalewatt.results.tables.derived_quantities import ratio
from scalewatt.results.tables.frames import frame_of, to_frame, to_table
from scalewatt.results.tables.read_table import read_checked
from scalewatt.results.tables.run_row import RunFiles

CROSS_CHECKS = pa.schema(
    [
        *((name, pa.string()) for name in ("campaign", "configuration", "model", "device")),
        *((name, pa.int32()) for name in ("gpus", "nodes", "repeat")),
        ("source", pa.string()),
        ("device_kind", pa.string()),
        ("checks", pa.int32()),
        ("duration_s", pa.float64()),
        ("energy_kwh", pa.float64()),
        ("recorded_kwh", pa.float64()),
        ("difference", pa.float64()),
    ]
)
"""One row per run, source and device kind."""
_RUN = ("campaign", "configuration", "model", "device", "gpus", "nodes", "repeat")


def cross_checks_of(runs: pd.DataFrame, files: Iterable[RunFiles]) -> pd.DataFrame:
    """Return the table CROSS_CHECKS of runs (a table RUNS) from their energy tables.

    `recorded_kwh` is null if that of one node or GPU is. InputError if a run's table is damaged.
    """
    rows: list[dict[str, Any]] = []
    for one in files:
        path = one.energy.with_name(f"{one.repeat}.cross-checks.parquet")
        if path.is_file():
            rows += read_checked(path, CROSS_CHECKS_SCHEMA).to_pylist()
    found = frame_of(rows, CROSS_CHECKS_SCHEMA)
    groups = found.groupby(["configuration", "repeat", "source", "device_kind"], sort=False)
    sums = groups.agg(
        checks=("energy_j", "size"), duration_s=("duration_s", "max"), energy_j=("energy_j", "sum")
    )
    recorded = groups["recorded_j"].sum(min_count=1)
    unknown = groups["recorded_j"].count() < groups.size()
    sums = sums.assign(
        energy_kwh=sums["energy_j"] / J_PER_KWH,
        recorded_kwh=(recorded / J_PER_KWH).mask(unknown),
    ).reset_index()
    sums["difference"] = ratio(sums["energy_kwh"], sums["recorded_kwh"]) - 1
    joined = runs[list(_RUN)].merge(sums, on=["configuration", "repeat"], how="inner")
    return to_frame(to_table(joined[CROSS_CHECKS.names], CROSS_CHECKS))
