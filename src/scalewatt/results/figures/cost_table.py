"""What a sample costs at each setting: energy, power and time of training alone, and of start-up.

The energy is that of the devices that compute: GPUs, or on a CPU the sockets. Start-up, with the choice of
kernels and compiling, evaluation and checkpoints are apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.run_spec import read_spec
from scalewatt.energies.tables import BOUNDS, EnergyTotals, known_sum, one_origin
from scalewatt.results.figures.breakdown_table import counted_repeats
from scalewatt.results.figures.figure_schema import (
    COST_IDENTITY,
    COST_OPEN,
    COST_PER_SAMPLE,
    COST_PHASES,
)
from scalewatt.results.figures.pareto_table import cheapest_and_fastest
from scalewatt.results.tables.estimates import left_open
from scalewatt.results.tables.frames import frame_of, records
from scalewatt.results.tables.repeat_statistics import summarise
from scalewatt.results.tables.run_row import RunFiles, read_energy, read_history
from scalewatt.results.tables.scaling import lines_of

Row = dict[str, Any]
TRAIN, STARTUP = "train", "startup"
MOST_SHORT = 0.05
"""Of a stage's time, in segments where it is too short to be resolved: as for each segment by itself."""


@dataclass(frozen=True)
class RunCost:
    """What one run tells of its training; energies in J, None where not known."""

    samples: float | None
    train_s: float | None
    energy: tuple[float | None, float | None, float | None]
    """Of the devices that compute, in training: the energy, and both ends of an estimate's interval."""
    device_s: float
    """Of these devices in training, summed over them."""
    total: tuple[float | None, float | None, float | None]
    """Of all device kinds in scope."""
    startup_s: float
    startup_j: float | None
    origin: str | None
    total_origin: str | None
    total_scope: str


def cost_per_sample(definition: Row, configurations: pd.DataFrame, results: Path) -> pd.DataFrame:
    """Return one row per configuration that has runs, under the first series that has it."""
    repeats = counted_repeats(definition)
    chosen = lines_of(definition["series"], configurations).drop_duplicates("configuration")
    rows = []
    for own in records(chosen):
        files = [RunFiles(results, own["configuration"], r) for r in repeats[own["configuration"]]]
        head = {name: own[name] for name in ("series", "label", *COST_IDENTITY)}
        empty = dict.fromkeys(COST_PER_SAMPLE.names)
        rows.append(empty | {"figure": definition["figure"], **head, **_costs(own, files)})
    return with_front(frame_of(rows, COST_PER_SAMPLE))


# --- one run --------------------------------------------------------------------------------------


def run_cost(files: RunFiles, kind: str) -> RunCost:
    """Return what a run's files tell; `kind` is that of the devices that compute (gpu, cpu)."""
    spec = read_spec(files.folder / "spec.json")
    energy = EnergyTotals(read_energy(files), with_staging=spec.protocol != "paper")
    history = read_history(files.folder / "history.parquet")
    own = records(energy.of_kind(kind))
    train = _of_stage(own, TRAIN)
    counted = records(energy.in_scope)
    known = energy.joules(kind) is not None
    startup = _of_stage(own, STARTUP)
    return RunCost(
        samples=known_sum(row["samples"] for row in history),
        train_s=known_sum(row["train_s"] for row in history),
        energy=_joules(train, known),
        device_s=sum(row["duration_s"] * (row["devices"] or 0) for row in train),
        total=_joules(_of_stage(counted, TRAIN), energy.total_j is not None),
        startup_s=sum(row["duration_s"] for row in startup),
        startup_j=_joules(startup, known)[0],
        origin=one_origin(row["energy_origin"] for row in train),
        total_origin=energy.origin,
        total_scope="+".join(energy.scope),
    )


def _of_stage(rows: Sequence[Row], stage: str) -> list[Row]:
    """Return the rows of a stage, without lost work: of that there are no samples."""
    return [_without_lost_work(row) for row in rows if row["stage"] == stage]


def _without_lost_work(row: Row) -> Row:
    lost_j, energy_j = row["discarded_j"] or 0.0, row["energy_j"]
    if not lost_j or not energy_j:
        return row
    kept = 1 - lost_j / energy_j
    names = ("energy_j", *BOUNDS, "duration_s")
    return row | {name: None if row[name] is None else row[name] * kept for name in names}


def _joules(rows: Sequence[Row], known: bool) -> tuple[float | None, float | None, float | None]:
    """Return energy and interval of a stage; None if the whole is not known, or much of it is short."""
    short_s = sum(row["duration_s"] for row in rows if row["short"])
    if not known or short_s > MOST_SHORT * sum(row["duration_s"] for row in rows):
        return None, None, None
    ends = [known_sum(row[name] for row in rows) for name in ("energy_j", *BOUNDS)]
    return ends[0], ends[1], ends[2]


# --- one configuration ----------------------------------------------------------------------------


def _costs(own: Row, files: Sequence[RunFiles]) -> Row:
    kind = "gpu" if own["torch_device"] == "cuda" else "cpu"
    runs = [run_cost(one, kind) for one in files]
    found: Row = {"energy_scope": kind}
    origins = {run.origin for run in runs if run.energy[0] is not None}
    total_origins = {run.total_origin for run in runs if run.total[0] is not None}
    scopes = {run.total_scope for run in runs}
    found["energy_origin"] = _only(origins)
    found["total_origin"], found["total_scope"] = _only(total_origins), _only(scopes)
    # Repeats of unlike origin or scope have no mean.
    unknown = (None, None, None)
    if len(origins) > 1:
        runs = [replace(run, energy=unknown, startup_j=None) for run in runs]
    if len(total_origins) > 1 or len(scopes) > 1:
        runs = [replace(run, total=unknown) for run in runs]
    quantities = {
        "energy_per_sample_j": [_each(run.energy, run.samples) for run in runs],
        "power_w": [_each(run.energy, run.device_s) for run in runs],
        "total_per_sample_j": [_each(run.total, run.samples) for run in runs],
    }
    rates = "throughput_samples_per_s"
    found |= {f"{rates}_{end}": own[f"{rates}_{end}"] for end in ("mean", "low", "high")}
    for name, costs in quantities.items():
        summary = summarise([value for value, _, _ in costs])
        found |= {f"{name}_{end}": getattr(summary, end) for end in ("mean", "low", "high")}
        found |= _estimate(name, costs)
    found["train_s"] = summarise([run.train_s for run in runs]).mean
    found["startup_s"] = summarise([run.startup_s for run in runs]).mean
    found["startup_energy_j"] = summarise([run.startup_j for run in runs]).mean
    return found | _phases(own, found["energy_per_sample_j_mean"])


def _only(texts: Iterable[str | None]) -> str | None:
    """Return the text that all have in common; None where they differ."""
    texts = set(texts)
    return next(iter(texts)) if len(texts) == 1 else None


def _each(
    ends: tuple[float | None, float | None, float | None], count: float | None
) -> tuple[float | None, float | None, float | None]:
    value, low, high = (None if end is None or not count else end / count for end in ends)
    return value, low, high


def _estimate(name: str, values: Sequence[tuple[float | None, float | None, float | None]]) -> Row:
    """Return the interval of what is estimated, mean of the repeats': they share its error."""
    if name not in COST_OPEN:
        return {}
    energy, low, high = (summarise([value[at] for value in values]).mean for at in range(3))
    if not energy or low is None or high is None or left_open(energy, low, high) == (1.0, 1.0):
        low = high = None
    return {f"{name}_estimate_low": low, f"{name}_estimate_high": high}


def _phases(own: Row, per_sample_j: float | None) -> Row:
    """Return the phases of an update in s, and of a sample in J, as if the power were the same in all."""
    times = {phase: own[f"step_{phase}_s_mean"] for phase in COST_PHASES}
    whole = known_sum(times.values())
    energies = {
        phase: None if not whole or per_sample_j is None else per_sample_j * time_s / whole
        for phase, time_s in times.items()
    }
    return {
        **{f"step_{phase}_s": time_s for phase, time_s in times.items()},
        **{f"{phase}_per_sample_j": energy_j for phase, energy_j in energies.items()},
    }


# --- one beside the others ------------------------------------------------------------------------


def with_front(rows: pd.DataFrame) -> pd.DataFrame:
    """Say which points are Pareto-optimal: no comparable one is as fast and takes as little energy."""
    slowness = -rows["throughput_samples_per_s_mean"]
    return rows.assign(
        pareto_optimal=cheapest_and_fastest(rows, "energy_per_sample_j_mean", slowness)
    )
