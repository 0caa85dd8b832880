"""From a run's files to its row, which the energy step writes once, and from rows to the table of runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt.campaign.operating_points import LEVERS
from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object, write_table
from scalewatt.energies.node import UNUSED_GPU
from scalewatt.energies.tables import (
    ENERGY_SCHEMA,
    FLAGS_SCHEMA,
    EnergyTotals,
    flags_of_run,
    known_sum,
)
from scalewatt.recordings.terms import DEVICE_KINDS, J_PER_KWH, NODE, Flag, flag
from scalewatt.results.columns import tagged
from scalewatt.results.tables.derived_quantities import (
    Facility,
    energy_columns,
    estimate_bounds,
    ratio,
    total_in_scope,
    with_model_energies,
)
from scalewatt.results.tables.frames import (
    RUN_KEY,
    column_of,
    read_checked,
    records,
    to_frame,
    values,
)
from scalewatt.results.tables.idle import idle_energies_j
from scalewatt.results.tables.table_schema import RUNS, STEP_PHASES
from scalewatt.results.text.flag_labels import left_out
from scalewatt.run_files.inventory import run_folder
from scalewatt.training.history import HISTORY_SCHEMA

Row = dict[str, Any]
GIB = 2**30

_FROM_PROVENANCE = (
    *("spec_sha256", "device_name", "torch_device"),
    *("metric_name", "metric_persistence", "segments"),
)
_FROM_SPEC = (
    *("configuration", "repeat", "model", "phase", "device", "gpus", "nodes"),
    *("local_batch_size", "global_batch_size", "dataset_samples", "epochs", "protocol"),
    *("gpus_per_replica", "gradient_accumulation_steps"),
)
_FROM_SETTINGS = ("precision", "loader", "channels_last", "compile")
"""Null if the model has no such setting."""
_BY_KIND = {
    **{"j": "energy_j", "low_j": "energy_low_j", "high_j": "energy_high_j"},
    **{"s": "device_s", "origin": "energy_origin"},
}
"""Ends of the columns of a device kind, and the columns of `EnergyTotals.kinds` that they are."""
_OTHER_ENERGIES = ("recorded", "discarded", "unused_gpu", "stage_data", "node")
ROW = pa.schema(
    [
        *(field for field in RUNS if field.name not in ("campaign", *tagged("derived"))),
        *(
            (f"{kind}_{name}", pa.string() if name == "origin" else pa.float64())
            for kind in DEVICE_KINDS
            for name in _BY_KIND
        ),
        *((f"{name}_j", pa.float64()) for name in _OTHER_ENERGIES),
        *((name, pa.float64()) for name in ("ram_node_s", "train_s")),
        *((name, pa.string()) for name in ("seed", "seeds")),
    ]
)
"""What a run's row has: the columns of RUNS that are not derived, energies in J, and its seed.

`seeds` is what the description of a registered run says of its repeats' seeds.
"""


class RunFiles:
    """The paths of a run's files: its run folder, the tables of its energy, and its power traces."""

    def __init__(self, results: Path, configuration: str, repeat: int) -> None:
        self.results, self.configuration, self.repeat = results, configuration, repeat
        self.folder = run_folder(results, (configuration, repeat))
        self.history = self.folder / "history.parquet"
        self.energy = results / "energy" / configuration / f"{repeat}.parquet"
        self.epochs, self.devices, self.flags, self.cross_checks, self.row = (
            self.energy.with_name(f"{repeat}.{table}.parquet")
            for table in ("epochs", "devices", "flags", "cross-checks", "row")
        )
        self.traces = results / "traces" / configuration / f"{repeat}.parquet"


# --- files of many runs ---------------------------------------------------------------------------


def read_of_runs(
    runs: pd.DataFrame, name: str, schema: pa.Schema, facts: Sequence[str] = ()
) -> pd.DataFrame:
    """Read the file `name` (of RunFiles) of runs as one table, with RUN_KEY and other facts of each run."""
    tables = [read_checked(getattr(files, name), schema) for files in runs["files"]]
    rows: pd.DataFrame = pa.concat_tables([schema.empty_table(), *tables]).to_pandas()
    counts = [len(table) for table in tables]
    return rows.assign(**{key: runs[key].repeat(counts).array for key in [*RUN_KEY, *facts]})


def read_energies(runs: pd.DataFrame, name: str, schema: pa.Schema) -> pd.DataFrame:
    """Read tables of energies of runs, with facts of each run, without what its protocol does not count.

    `in_scope` is True for the device kinds of the run's energy, `of_first` for the first of them.
    """
    facts = ("device", "nodes", "protocol", "energy_scope", "energy_kwh")
    rows = read_of_runs(runs, name, schema, facts)
    rows = rows[(rows["protocol"] != "paper") | (rows["stage"] != "stage_data")]
    # Without what follows the device kinds, as in `node (AC)`.
    scopes = [(scope or "").split(" ")[0].split("+") for scope in values(rows["energy_scope"])]
    kinds = list(zip(rows["device_kind"], scopes, strict=True))
    # Of type bool without rows, too: they are masks.
    return rows.assign(
        in_scope=np.array([kind in scope for kind, scope in kinds], dtype=bool),
        of_first=np.array([kind == scope[0] for kind, scope in kinds], dtype=bool),
    )


# --- rows -----------------------------------------------------------------------------------------


def write_row(files: RunFiles) -> None:
    """Write a run's row from its files; InputError if they are damaged or belong to another spec."""
    write_table(pa.Table.from_pylist([run_record(files)], ROW), files.row)


def read_runs(
    results: Path,
    runs: Iterable[Sequence[Any]],
    campaign: str,
    facility: Facility | None = None,
    idle: Path | None = None,
    excluded: Mapping[tuple[str, int], str] | None = None,
) -> pd.DataFrame:
    """Make the table RUNS of runs (configuration and repeat) from their rows, with all derived quantities.

    `idle`: the table of the campaign's idle probes, if it has them. `excluded`: why the user left runs out;
    a run that did not run as its spec says is left out, too. Columns `seed`, `seeds` and `files` (RunFiles)
    are added.
    """
    files = [RunFiles(results, *run) for run in runs]
    tables = [read_checked(run.row, ROW) for run in files]
    rows = to_frame(pa.concat_tables(tables or [ROW.empty_table()]))
    rows["files"] = pd.Series(files, dtype=object)
    names = zip(rows["configuration"], rows["repeat"], strict=True)
    by_user = column_of(map((excluded or {}).get, names), pa.string())
    name = column_of([campaign] * len(rows), pa.string())
    rows = rows.assign(campaign=name, excluded=by_user.fillna(rows["excluded"]))
    return derive_quantities(rows, facility or Facility(), idle)


def derive_quantities(runs: pd.DataFrame, facility: Facility, idle: Path | None) -> pd.DataFrame:
    """Add the derived columns of RUNS to rows of runs."""
    joules = {kind: runs[f"{kind}_j"] for kind in DEVICE_KINDS}
    scopes = "+" + runs["energy_scope"].fillna("") + "+"
    in_scope = {kind: scopes.str.contains(f"+{kind}+", regex=False) for kind in DEVICE_KINDS}
    by_node = runs["energy_scope"].fillna("").str.startswith(NODE)
    total_j = total_in_scope(joules, in_scope).where(~by_node, runs["node_j"])

    # The idle baseline of each kind, and what was used above it.
    idle_j = {}
    for kind in DEVICE_KINDS:
        named = {"energy_origin": runs[f"{kind}_origin"], "device_s": runs[f"{kind}_s"]}
        kind_j = idle_energies_j(idle, runs.assign(device_kind=kind, **named))
        idle_j[kind] = kind_j.where(in_scope[kind] & total_j.notna())
    net_j = {kind: joules[kind] - idle_j[kind] for kind in DEVICE_KINDS}

    # Work, and what follows from energy and work.
    hours = runs["runtime_s"] / 3600
    gpu_hours = runs["gpus"] * hours
    work = runs.rename(columns={"cpu_s": "socket_s", "ram_node_s": "node_s"})
    replicas = runs["gpus"] // runs["gpus_per_replica"]
    passes = runs["updates"] * replicas * runs["gradient_accumulation_steps"]
    step_s = runs[list(STEP_PHASES)].sum(axis=1, skipna=False)
    derived = {
        "passes": passes,
        "runtime_h": hours,
        "gpu_hours": gpu_hours,
        "samples_per_gpuh": ratio(runs["samples"], gpu_hours),
        "passes_per_gpuh": ratio(passes, gpu_hours),
        "throughput_samples_per_s": ratio(runs["samples"], runs["train_s"]),
        "step_data_share": ratio(runs["step_data_s"], step_s),
        **energy_columns(joules, total_j, work.assign(gpu_hours=gpu_hours), facility),
        **estimate_bounds(runs, in_scope, total_j, by_node),
        "idle_energy_kwh": total_in_scope(idle_j, in_scope) / J_PER_KWH,
        "net_energy_kwh": total_in_scope(net_j, in_scope) / J_PER_KWH,
        **{f"{name}_energy_kwh": runs[f"{name}_j"] / J_PER_KWH for name in _OTHER_ENERGIES},
    }
    return with_model_energies(runs.assign(**derived))[[*RUNS.names, "seed", "seeds", "files"]]


def run_record(files: RunFiles) -> Row:
    """Read a run's files into its row (ROW); InputError if they belong to another spec."""
    spec = read_spec(files.folder / "spec.json")
    provenance = read_json_object(files.folder / "provenance.json", *_FROM_PROVENANCE)
    if provenance["spec_sha256"] != spec.sha256:
        raise InputError(
            f"{files.folder}: spec.json is not the spec that provenance.json names: one of them was "
            "changed; restore it (of an import: import it again), or train the run again"
        )
    history: list[Row] = read_checked(files.history, HISTORY_SCHEMA).to_pylist()
    flags = [
        *flags_of_run(read_checked(files.flags, FLAGS_SCHEMA).to_pandas()),
        *shared_gpus(spec, provenance),
        *script_flags(spec, provenance, history),
        *simulation_flags(provenance),
    ]
    start = spec.initial_weights
    energy: pd.DataFrame = read_checked(files.energy, ENERGY_SCHEMA).to_pandas()
    return {
        **{key: getattr(spec, key) for key in _FROM_SPEC},
        **{key: spec.settings.get(key) for key in _FROM_SETTINGS},
        **{lever: (spec.operating_point or {}).get(lever) for lever in LEVERS},
        **{key: provenance[key] for key in _FROM_PROVENANCE},
        "precision_used": provenance.get("precision_used"),
        "metric_goal": "max" if provenance.get("metric_goal") == "max" else "min",
        "metric_climatology": provenance.get("metric_climatology"),
        "segments": len(provenance["segments"]),
        "flags": json.dumps(flags),
        "initial_weights": f"{start.configuration}/{start.repeat}" if start else None,
        "excluded": left_out(flags),
        "seed": None if spec.seed is None else str(spec.seed),
        "seeds": provenance.get("seeds"),
        **_work(provenance, history),
        **_energies(EnergyTotals(energy, with_staging=spec.protocol != "paper")),
    }


def read_provenances(
    runs: Iterable[Mapping[str, Any]], results: Path
) -> dict[tuple[str, int], Row]:
    """Read the provenance of each of these rows' runs that has one, by configuration and repeat."""
    keys = [(run["configuration"], run["repeat"]) for run in runs]
    paths = {key: RunFiles(results, *key).folder / "provenance.json" for key in keys}
    return {key: read_json_object(path) for key, path in paths.items() if path.is_file()}


# --- parts of a record ----------------------------------------------------------------------------


def _work(provenance: Row, history: list[Row]) -> Row:
    """Work, metrics and times of a run, from its history."""
    last, reports = history[-1], provenance.get("reports")
    columns = {name: [row[name] for row in history] for name in ("updates", "samples", "train_s")}
    metrics = [row["metric"] for row in history if row["metric"] is not None]
    best = max if provenance.get("metric_goal") == "max" else min
    peaks = [row["peak_memory_bytes"] for row in history if row["peak_memory_bytes"]]
    return {
        # Null if the value of one epoch is.
        **{name: None if None in each else sum(each) for name, each in columns.items()},
        "epochs_done": int(last["epoch"]) + 1 if reports is None else reports["epochs"],
        "metric_last": last["metric"],
        "metric_best": best(metrics, default=None),
        "train_loss": last["train_loss"],
        "validation_loss": last["validation_loss"],
        **{name: mean_over_updates(history, name) for name in STEP_PHASES},
        "peak_memory_gib": max(peaks) / GIB if peaks else None,
    }


def mean_over_updates(history: list[Row], name: str) -> float | None:
    """Mean per update over the epochs that have a value, weighted by their updates."""
    known = [row for row in history if row[name] is not None]
    updates = sum(row["updates"] for row in known)
    return sum(row[name] * row["updates"] for row in known) / updates if updates else None


def _energies(energy: EnergyTotals) -> Row:
    """Energies of a run in J by device kind, its scope, and how long it was recorded."""
    staged = energy.staging.loc[energy.staging["device_kind"].isin(energy.scope), "energy_j"]
    kinds = records(energy.kinds.reindex(DEVICE_KINDS).fillna({"device_s": 0.0}))
    return {
        **{
            f"{kind}_{name}": row[column]
            for kind, row in zip(DEVICE_KINDS, kinds, strict=True)
            for name, column in _BY_KIND.items()
        },
        "runtime_s": energy.runtime_s,
        "ram_node_s": energy.joules("ram", "node_s"),
        "recorded_j": energy.joules(column="recorded_j"),
        "discarded_j": energy.joules(column="discarded_j"),
        "unused_gpu_j": energy.joules(UNUSED_GPU),
        "node_j": energy.joules(NODE),
        "stage_data_j": known_sum(staged),
        "energy_origin": energy.origin,
        "energy_scope": energy.scope_name,
        "coverage": energy.coverage,
    }


# --- flags beside those of the energy --------------------------------------------------------------


def shared_gpus(spec: RunSpec, provenance: Mapping[str, Any]) -> list[Flag]:
    """Flag that several ranks shared a GPU: n then counts processes."""
    held = [len(gpus) for gpus in (provenance.get("gpus") or {}).values() if gpus is not None]
    if not held or min(held) >= spec.ranks_per_node:
        return []
    detail = f"{spec.ranks_per_node} ranks a node on {min(held)} GPUs"
    return [flag("gpus_shared", None, detail)]


def simulation_flags(provenance: Mapping[str, Any]) -> list[Flag]:
    """Flags on what the scaling model did not know of a simulated run, by its provenance."""
    simulated = provenance.get("simulated") or {}
    assumed = [flag("extrapolated", None, simulated["assumed"])] if simulated.get("assumed") else []
    return assumed + [flag("extrapolated", None, text) for text in simulated.get("warnings") or []]


def script_flags(
    spec: RunSpec, provenance: Mapping[str, Any], history: list[Row]
) -> Iterator[Flag]:
    """Flag what a script's reports say of a run beside its numbers; nothing of other runs."""
    reports = provenance.get("reports")
    if reports is None:
        return
    if contradictions := "; ".join(_contradictions(spec, reports["epochs"], history)):
        yield flag("contradicts_spec", None, contradictions)
    if spec.gpus > 1 and reports["joined"] is False:
        apart = "torch.distributed was not initialised: each may have trained alone"
        yield flag(
            "contradicts_spec", None, f"when the script of {spec.gpus} ranks reported, {apart}"
        )
    if spec.gpus > 1 and reports["joined"] is None:
        unknown = f"whether its {spec.gpus} ranks trained together is not known"
        yield flag("unconfirmed", None, unknown)
    if reports.get("ended"):
        ranks = ", ".join(map(str, reports["ended"]))
        detail = "ran on after the others and were ended; energy until then counts"
        yield flag("rank_ended", None, f"ranks {ranks} {detail}")
    if reports["declared"]:
        names = " and ".join(reports["declared"])
        yield flag("declared", None, f"{names} as declared, not reported")
    for name, epochs in reports["not_finite"].items():
        if epochs:
            since = {row["epoch"] for row in history if row["epoch"] >= min(epochs)} <= set(epochs)
            first = f"in {len(epochs)} epochs, first in" if not since else "since"
            detail = f"{name.replace('_', ' ')} not finite {first} epoch {min(epochs)}"
            yield flag("not_finite", None, detail)


def _contradictions(spec: RunSpec, done: int | None, history: list[Row]) -> Iterator[str]:
    """Yield where reports differ from the spec by more than how an epoch's last batch is filled."""
    if done is None:
        return
    if done != spec.epochs:
        yield f"{done} of {spec.epochs} epochs were reported"
    expected = {
        "samples": (spec.dataset_samples, spec.global_batch_size),
        "updates": (spec.updates_per_epoch, 1),
    }
    for name, (per_epoch, tolerance) in expected.items():
        counts = [row[name] for row in history if row[name] is not None]
        if per_epoch is not None and counts:
            total, declared = sum(counts), per_epoch * len(counts)
            if abs(total - declared) > tolerance * len(counts):
                yield f"{total} {name} were reported where {declared} were declared"
