"""What a sample costs in training alone: energy and power of the devices that compute.

These are the GPUs, or on a CPU the sockets. Start-up, with the choice of kernels and compiling, evaluation
and checkpoints are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.campaign.run_spec import read_spec
from scalewatt.energies.tables import EnergyTotals, known_sum, one_origin
from scalewatt.results.columns import SEVERAL
from scalewatt.results.figures.breakdown_table import counted_repeats
from scalewatt.results.tables.frames import column_of, records
from scalewatt.results.tables.repeat_statistics import statistics_of
from scalewatt.results.tables.run_row import RunFiles, read_energy, read_history
from scalewatt.results.tables.table_schema import PARTS

Row = dict[str, Any]
MOST_SHORT = 0.05
"""Share of training's time in segments that are too short to be resolved, up to which its energy counts."""
PHASES = ("data", "copy", "forward", "backward", "optimizer")
PHASE_COSTS = tuple(f"{phase}_j" for phase in PHASES)
QUANTITIES = {"train_energy_per_sample_j": "samples", "train_power_w": "device_s"}
"""Means over repeats, and what their energy is divided by."""


def training_costs(lines: pd.DataFrame, definition: Row, results: Path) -> pd.DataFrame:
    """Add means of QUANTITIES over repeats, their origin and scope, and the energy of a sample by phase."""
    repeats = counted_repeats(definition)
    runs = pd.DataFrame(
        [
            {"configuration": id_, **run_cost(RunFiles(results, id_, repeat), device)}
            for id_, device in zip(lines["configuration"], lines["torch_device"], strict=True)
            for repeat in repeats.get(id_, [])
            if device != SEVERAL  # such repeats have no mean
        ],
        columns=["configuration", "kind", "samples", "energy_j", "device_s", "origin"],
    ).astype({name: "float64" for name in ("samples", "energy_j", "device_s")})
    kind = runs.groupby("configuration")["kind"].first()
    origins = runs[runs["energy_j"].notna()].groupby("configuration")["origin"]
    origin = origins.first().where(origins.nunique() == 1)
    # Repeats of unlike origin have no mean.
    energy_j = runs["energy_j"].where(runs["configuration"].map(origin).notna())
    costs = {name: energy_j / runs[count] for name, count in QUANTITIES.items()}
    statistics = statistics_of(runs.assign(**costs), list(QUANTITIES))
    wide = {
        part: statistics[part].unstack("quantity").reindex(columns=list(QUANTITIES))
        for part in PARTS
    }
    means = {f"{name}_{part}": wide[part][name] for name in QUANTITIES for part in PARTS}
    ids = lines["configuration"]
    known = {name: _column(ids, column, pa.float64()) for name, column in means.items()}
    texts = {
        "energy_origin": _column(ids, origin, pa.string()),
        "energy_scope": _column(ids, kind, pa.string()),
    }
    return _with_phases(lines.assign(**known, **texts))


def _column(ids: pd.Series, by_id: pd.Series, type_: pa.DataType) -> pd.Series:
    found = by_id.astype(object).to_dict()
    values = (found.get(id_) for id_ in ids)
    return column_of((None if pd.isna(value) else value for value in values), type_, ids.index)


def run_cost(files: RunFiles, torch_device: str) -> Row:
    """Samples, energy in J and device seconds of a run's training; null if not known."""
    kind = "gpu" if torch_device == "cuda" else "cpu"
    spec = read_spec(files.folder / "spec.json")
    energy = EnergyTotals(read_energy(files), with_staging=spec.protocol != "paper")
    rows = [
        _without_lost_work(row)
        for row in records(energy.rows[energy.rows["device_kind"] == kind])
        if row["stage"] == "train"
    ]
    history = read_history(files.folder / "history.parquet")
    return {
        "kind": kind,
        "samples": known_sum(row["samples"] for row in history),
        "energy_j": _joules(rows) if energy.joules(kind) is not None else None,
        "device_s": sum(row["duration_s"] * (row["devices"] or 0) for row in rows),
        "origin": one_origin(row["energy_origin"] for row in rows),
    }


def _without_lost_work(row: Row) -> Row:
    """A row without the share of work that was lost, which trained on no sample that counts."""
    lost_j, energy_j = row["discarded_j"] or 0.0, row["energy_j"]
    if not lost_j or not energy_j:
        return row
    kept = 1 - lost_j / energy_j
    return row | {name: row[name] * kept for name in ("energy_j", "duration_s")}


def _joules(rows: Sequence[Row]) -> float | None:
    short_s = sum(row["duration_s"] for row in rows if row["short"])
    if short_s > MOST_SHORT * sum(row["duration_s"] for row in rows):
        return None
    return known_sum(row["energy_j"] for row in rows)


def _with_phases(lines: pd.DataFrame) -> pd.DataFrame:
    """Add the energy of a sample by the time of each phase of an update, as if the power were the same."""
    times = lines[[f"step_{phase}_s_mean" for phase in PHASES]].astype("float64")
    shares = times.div(times.sum(axis=1, skipna=False), axis=0)
    costs = shares.mul(lines["train_energy_per_sample_j_mean"].astype("float64"), axis=0)
    return lines.assign(**dict(zip(PHASE_COSTS, (costs[name] for name in costs), strict=True)))
