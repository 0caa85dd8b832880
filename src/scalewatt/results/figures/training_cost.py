"""What a sample costs in training alone: energy and power of the devices that compute.

These are the GPUs, or on a CPU the sockets. Start-up, with the choice of kernels and compiling, evaluation
and checkpoints are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.run_spec import read_spec
from scalewatt.energies.tables import known_sum, one_origin
from scalewatt.results.columns import SEVERAL
from scalewatt.results.figures.breakdown_table import counted_repeats
from scalewatt.results.tables.frames import FLOAT, TEXT
from scalewatt.results.tables.repeat_statistics import wide_statistics
from scalewatt.results.tables.run_row import RunFiles, read_history, read_totals
from scalewatt.training.history import PHASES

Row = dict[str, Any]
MOST_SHORT = 0.05
"""Share of training's time in segments that are too short to be resolved, up to which its energy counts."""
PHASE_COSTS = tuple(f"{phase}_j" for phase in PHASES)
QUANTITIES = {"train_energy_per_sample_j": "samples", "train_power_w": "device_s"}
"""Means over repeats, and what their energy is divided by."""
_COLUMNS = {
    **dict.fromkeys(("configuration", "kind", "origin"), "object"),
    **dict.fromkeys(("samples", "energy_j", "device_s"), "float64"),
}


def training_costs(lines: pd.DataFrame, definition: Row, results: Path) -> pd.DataFrame:
    """Add means of QUANTITIES over repeats, their origin and scope, and the energy of a sample by phase."""
    repeats = counted_repeats(definition)
    rows = [
        {"configuration": id_, **run_cost(RunFiles(results, id_, repeat), device)}
        for id_, device in zip(lines["configuration"], lines["torch_device"], strict=True)
        for repeat in repeats.get(id_, [])
        if device != SEVERAL  # such repeats have no mean
    ]
    runs = pd.DataFrame(rows, columns=list(_COLUMNS)).astype(_COLUMNS)
    # Repeats of unlike origin have no mean either.
    origins = runs["origin"].where(runs["energy_j"].notna()).groupby(runs["configuration"])
    origin = origins.first().where(origins.nunique() == 1)
    energy_j = runs["energy_j"].where(runs["configuration"].map(origin).notna())
    costs = {name: energy_j / runs[count] for name, count in QUANTITIES.items()}
    means = wide_statistics(runs.assign(**costs), list(QUANTITIES))
    ids = lines["configuration"]
    columns = {name: ids.map(means[name].to_dict()).astype(FLOAT) for name in means}
    scope = runs.groupby("configuration")["kind"].first()
    for name, by_id in {"energy_origin": origin, "energy_scope": scope}.items():
        columns[name] = ids.map(by_id.dropna().to_dict()).astype(TEXT)
    # The energy of a sample by the time of each phase of an update, as if the power were the same.
    times = lines[[f"step_{phase}_s_mean" for phase in PHASES]].astype("float64")
    shares = times.div(times.sum(axis=1, skipna=False), axis=0).set_axis(PHASE_COSTS, axis=1)
    joules = columns["train_energy_per_sample_j_mean"].astype("float64")
    return lines.assign(**columns, **dict(shares.mul(joules, axis=0).items()))  # type: ignore[arg-type]


def run_cost(files: RunFiles, torch_device: str) -> Row:
    """Samples, energy in J and device seconds of a run's training; null if not known.

    Work that was lost trained on no sample that counts, so neither its energy nor its time does.
    """
    kind = "gpu" if torch_device == "cuda" else "cpu"
    energy = read_totals(files, read_spec(files.folder / "spec.json").protocol)
    rows = energy.rows
    rows = rows[(rows["device_kind"] == kind) & (rows["stage"] == "train")]
    kept = 1 - (rows["discarded_j"] / rows["energy_j"].where(rows["energy_j"] > 0)).fillna(0.0)
    seconds = rows["duration_s"] * kept
    resolved = seconds[rows["short"]].sum() <= MOST_SHORT * seconds.sum()
    known = resolved and energy.joules(kind) is not None
    history = read_history(files.folder / "history.parquet")
    return {
        "kind": kind,
        "samples": known_sum(row["samples"] for row in history),
        "energy_j": known_sum(rows["energy_j"] * kept) if known else None,
        "device_s": (seconds * rows["devices"].astype("float64").fillna(0.0)).sum(),
        "origin": one_origin(rows["energy_origin"]),
    }
