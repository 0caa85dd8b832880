"""One run: from its files to its row of runs.parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.campaign.operating_points import LEVERS
from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object
from scalewatt.energies.node import UNUSED_GPU
from scalewatt.energies.tables import (
    ENERGY_SCHEMA,
    FLAGS_SCHEMA,
    EnergyTotals,
    flags_of_run,
    known_sum,
)
from scalewatt.recordings.terms import DEVICE_KINDS, J_PER_KWH, NODE, Flag, flag
from scalewatt.results.carbon import emitted
from scalewatt.results.columns import tagged
from scalewatt.results.tables.derived_quantities import (
    Facility,
    Work,
    energy_columns,
    ratio,
    times,
    total_in_scope,
    with_model_energies,
)
from scalewatt.results.tables.estimates import estimate_bounds
from scalewatt.results.tables.frames import column_of, frame_of, records
from scalewatt.results.tables.idle import idle_energies_j
from scalewatt.results.tables.read_table import read_checked
from scalewatt.results.tables.script_flags import script_flags
from scalewatt.results.tables.table_schema import (
    NET_ENERGY,
    OVER_TIME,
    RUNS,
    STEP_PHASES,
)
from scalewatt.results.text.flag_labels import left_out
from scalewatt.training.history import HISTORY_SCHEMA

GIB = 2**30


@dataclass(frozen=True)
class RunFiles:
    """The paths of a run's files."""

    results: Path
    configuration: str
    repeat: int

    @property
    def folder(self) -> Path:
        """Return the run folder."""
        return self.results / "runs" / self.configuration / str(self.repeat)

    @property
    def energy(self) -> Path:
        """Return its energy table."""
        return self.results / "energy" / self.configuration / f"{self.repeat}.parquet"

    @property
    def epochs(self) -> Path:
        """Return the table of its energy by epoch."""
        return self.energy.with_name(f"{self.repeat}.epochs.parquet")

    @property
    def devices(self) -> Path:
        """Return the table of its energy by device."""
        return self.energy.with_name(f"{self.repeat}.devices.parquet")

    @property
    def flags(self) -> Path:
        """Return the table of its quality flags."""
        return self.energy.with_name(f"{self.repeat}.flags.parquet")

    @property
    def traces(self) -> Path:
        """Return the table of its power traces."""
        return self.results / "traces" / self.configuration / f"{self.repeat}.parquet"


def run_row(
    files: RunFiles,
    campaign: str,
    facility: Facility,
    idle: Path | None = None,
    excluded: str | None = None,
) -> dict[str, Any]:
    """Return the row of RUNS of a single run; arguments and errors as of `run_record` and `runs_of`.

    `energy_per_model_kwh` of a run that began from another's weights is null.
    """
    return records(runs_of([run_record(files, campaign, excluded)], facility, idle))[0]


def runs_of(
    records: Iterable[dict[str, Any]], facility: Facility, idle: Path | None = None
) -> pd.DataFrame:
    """Return the table RUNS of runs' records, with all derived quantities.

    `idle`: the table of the campaign's idle probes, where it has them.
    """
    runs = frame_of(records, _RECORD)
    joules = {kind: runs[f"{kind}_j"] for kind in DEVICE_KINDS}
    scopes = "+" + runs["energy_scope"].fillna("") + "+"
    in_scope = {kind: scopes.str.contains(f"+{kind}+", regex=False) for kind in DEVICE_KINDS}
    of_nodes = runs["energy_scope"].fillna("") == NODE
    total_j = total_in_scope(joules, in_scope).where(~of_nodes, runs["node_j"])
    idle_j = {
        kind: _idle_j(runs, kind, idle).where(in_scope[kind] & total_j.notna())
        for kind in DEVICE_KINDS
    }
    net_j = {kind: joules[kind] - idle_j[kind] for kind in DEVICE_KINDS}
    hours = runs["runtime_s"] / 3600
    gpu_hours = runs["gpus"] * hours
    done = ("nodes", "samples", "updates", "gpu_s", "cpu_s", "ram_node_s")
    work = Work(gpu_hours, *(runs[name] for name in done))
    replicas = runs["gpus"] // runs["gpus_per_replica"]
    passes = runs["updates"] * replicas * runs["gradient_accumulation_steps"]
    derived = {
        "passes": passes,
        "runtime_h": hours,
        "gpu_hours": gpu_hours,
        "samples_per_gpuh": ratio(runs["samples"], gpu_hours),
        "passes_per_gpuh": ratio(passes, gpu_hours),
        "throughput_samples_per_s": ratio(runs["samples"], runs["train_s"]),
        "step_data_share": ratio(runs["step_data_s"], reduce(add, (runs[s] for s in STEP_PHASES))),
        **energy_columns(joules, total_j, work, facility),
        OVER_TIME: times(runs["over_time_g"], facility.pue) / 1000,
        **estimate_bounds(runs, in_scope, total_j, of_nodes),
        "idle_energy_kwh": total_in_scope(idle_j, in_scope) / J_PER_KWH,
        NET_ENERGY: total_in_scope(net_j, in_scope) / J_PER_KWH,
        **{f"{name}_energy_kwh": runs[f"{name}_j"] / J_PER_KWH for name in _OTHER_ENERGIES},
    }
    return with_model_energies(runs.assign(**derived))[RUNS.names]


def _idle_j(runs: pd.DataFrame, kind: str, idle: Path | None) -> pd.Series:
    parts = pd.DataFrame(
        {
            "device": runs["device"],
            "device_kind": column_of([kind] * len(runs), pa.string(), runs.index),
            "energy_origin": runs[f"{kind}_origin"],
            "device_s": runs[f"{kind}_s"],
        }
    )
    return idle_energies_j(idle, parts)


def run_record(
    files: RunFiles, campaign: str, excluded: str | None = None, over_time: bool = False
) -> dict[str, Any]:
    """Return what a run's files say of it: a record of which `runs_of` makes its row.

    `excluded`: why the run is left out of everything else; so is one that did not run as its spec says,
    such as without the clock it asked for. `over_time`: with its carbon over time. InputError if its files
    belong to another spec, or one of its numbers is out of range.
    """
    spec = read_spec(files.folder / "spec.json")
    provenance = read_json_object(files.folder / "provenance.json", *_FROM_PROVENANCE)
    if provenance["spec_sha256"] != spec.sha256:
        raise InputError(
            f"{files.folder}: spec.json is not the spec that provenance.json names: one of them was "
            "changed; restore it (of an import: import it again), or train the run again"
        )
    history = read_history(files.folder / "history.parquet")
    energy = EnergyTotals(read_energy(files), with_staging=spec.protocol != "paper")
    grams, carbon_flags = emitted(files.energy, energy) if over_time else (None, [])
    metrics = [row["metric"] for row in history]
    goal = "max" if provenance.get("metric_goal") == "max" else "min"
    start = spec.initial_weights
    flags = [
        *flags_of_run(read_checked(files.flags, FLAGS_SCHEMA).to_pandas()),
        *shared_gpus(spec, provenance),
        *script_flags(spec, provenance, history),
        *_simulation_flags(provenance),
        *carbon_flags,
    ]
    identity = {
        "campaign": campaign,
        **{key: getattr(spec, key) for key in _FROM_SPEC},
        **{key: spec.settings.get(key) for key in _FROM_SETTINGS},
        **{lever: (spec.operating_point or {}).get(lever) for lever in LEVERS},
        "gpus_per_replica": spec.gpus_per_replica,
        "gradient_accumulation_steps": spec.gradient_accumulation_steps,
        "precision_used": provenance.get("precision_used"),
        "device_name": provenance["device_name"],
        "torch_device": provenance["torch_device"],
        "metric_name": provenance["metric_name"],
        "metric_goal": goal,
        "metric_persistence": provenance["metric_persistence"],
        "metric_climatology": provenance.get("metric_climatology"),
        "segments": len(provenance["segments"]),
        "flags": json.dumps(flags),
        "initial_weights": f"{start.configuration}/{start.repeat}" if start else None,
        "spec_sha256": provenance["spec_sha256"],
        "excluded": excluded or left_out(flags),
    }
    energies = _energies(energy)
    work = {
        **{key: _known_total(row[key] for row in history) for key in ("updates", "samples")},
        "epochs_done": _epochs_done(provenance, history),
        "metric_last": metrics[-1],
        "metric_best": _best(metrics, goal),
        "train_loss": history[-1]["train_loss"],
        "validation_loss": history[-1]["validation_loss"],
        **_step_columns(history),
    }
    return {**identity, **work, **energies, "over_time_g": grams}


def read_energy(files: RunFiles) -> pd.DataFrame:
    """Read a run's energy table. InputError if it is damaged, or lacks the tables beside it."""
    if files.energy.is_file() and not files.flags.is_file():
        raise InputError(
            f"{files.energy}: has no {files.flags.name} beside it; delete it, and run the target again"
        )
    energy: pd.DataFrame = read_checked(files.energy, ENERGY_SCHEMA).to_pandas()
    return energy


def read_provenances(
    runs: Iterable[dict[str, Any]], results: Path
) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the provenance of each of these rows' runs that has one, by configuration and repeat.

    InputError if one is damaged.
    """
    keys = [(run["configuration"], run["repeat"]) for run in runs]
    paths = {key: RunFiles(results, *key).folder / "provenance.json" for key in keys}
    return {key: read_json_object(path) for key, path in paths.items() if path.is_file()}


_FROM_PROVENANCE = (
    *("spec_sha256", "device_name", "torch_device"),
    *("metric_name", "metric_persistence", "segments"),
)
_FROM_SPEC = (
    *("configuration", "repeat", "model", "phase", "device", "gpus", "nodes"),
    *("local_batch_size", "global_batch_size", "dataset_samples", "epochs", "protocol"),
)
_FROM_SETTINGS = ("precision", "loader", "channels_last", "compile")
"""Null if the model has no such setting."""


def read_history(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a history."""
    rows: list[dict[str, Any]] = read_checked(path, HISTORY_SCHEMA).to_pylist()
    return rows


def _epochs_done(provenance: dict[str, Any], history: list[dict[str, Any]]) -> int | None:
    reports = provenance.get("reports")
    return int(history[-1]["epoch"]) + 1 if reports is None else reports["epochs"]


def _known_total(values: Iterable[float | None]) -> float | None:
    """Return the sum; None if one value is."""
    found = list(values)
    return None if None in found else sum(v for v in found if v is not None)


def _best(metrics: list[float | None], goal: str) -> float | None:
    """Return the smallest metric, or where the goal is `max` the largest."""
    known = [m for m in metrics if m is not None]
    return (max if goal == "max" else min)(known, default=None)


def _step_columns(history: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a training step took, from the history."""
    peaks = [row["peak_memory_bytes"] for row in history if row.get("peak_memory_bytes")]
    return {
        **{name: _mean_over_updates(history, name) for name in STEP_PHASES},
        "train_s": _known_total(row["train_s"] for row in history),
        "peak_memory_gib": max(peaks) / GIB if peaks else None,
    }


def _mean_over_updates(history: list[dict[str, Any]], name: str) -> float | None:
    """Return the mean per update over the epochs that have a value, weighted by their updates."""
    known = [row for row in history if row.get(name) is not None]
    updates = sum(row["updates"] for row in known)
    return sum(row[name] * row["updates"] for row in known) / updates if updates else None


def shared_gpus(spec: RunSpec, provenance: dict[str, Any]) -> list[Flag]:
    """Return a flag where several ranks shared a GPU: n then counts processes."""
    held = [len(gpus) for gpus in (provenance.get("gpus") or {}).values() if gpus is not None]
    if not held or min(held) >= spec.ranks_per_node:
        return []
    detail = f"{spec.ranks_per_node} ranks a node on {min(held)} GPUs"
    return [flag("gpus_shared", None, detail)]


def _simulation_flags(provenance: dict[str, Any]) -> list[Flag]:
    """Return what the scaling model did not know of a simulated run, by its provenance."""
    simulated = provenance.get("simulated") or {}
    assumed = [flag("cost_assumed", None, simulated["assumed"])] if simulated.get("assumed") else []
    return [*assumed, *(flag("extrapolated", None, one) for one in simulated.get("warnings") or [])]


def _energies(energy: EnergyTotals) -> dict[str, Any]:
    """Return the energies of a run in J by device kind, its scope, and how long it was recorded."""
    scope = energy.scope
    staged = energy.staging.loc[energy.staging["device_kind"].isin(scope), "energy_j"]
    kinds = energy.kinds.reindex(DEVICE_KINDS).fillna({"device_s": 0.0})
    columns = {
        **{"j": "energy_j", "low_j": "energy_low_j", "high_j": "energy_high_j"},
        **{"s": "device_s", "origin": "energy_origin"},
    }
    return {
        **{
            f"{kind}_{name}": values[column]
            for kind, values in zip(DEVICE_KINDS, records(kinds), strict=True)
            for name, column in columns.items()
        },
        "runtime_s": energy.runtime_s,
        "ram_node_s": energy.joules("ram", "node_s"),
        "recorded_j": energy.joules(column="recorded_j"),
        "discarded_j": energy.joules(column="discarded_j"),
        "unused_gpu_j": energy.joules(UNUSED_GPU),
        "node_j": energy.joules(NODE),
        "stage_data_j": known_sum(staged),
        "energy_origin": energy.origin,
        "energy_scope": "+".join(scope) or None,
        "coverage": energy.coverage,
    }


_OTHER_ENERGIES = ("recorded", "discarded", "unused_gpu", "stage_data", "node")
_RECORD = pa.schema(
    [
        *(field for field in RUNS if field.name not in tagged("derived")),
        *(
            (f"{kind}_{end}", pa.float64())
            for kind in DEVICE_KINDS
            for end in ("j", "low_j", "high_j", "s")
        ),
        *((f"{kind}_origin", pa.string()) for kind in DEVICE_KINDS),
        *((f"{name}_j", pa.float64()) for name in _OTHER_ENERGIES),
        *((name, pa.float64()) for name in ("ram_node_s", "train_s", "over_time_g")),
    ]
)
"""What is read of a run: the columns of RUNS that are not derived, and energies in J."""
