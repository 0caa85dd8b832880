"""The tables' columns: one place, enforced where a table is written (docs/tables.md explains them)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from scalewatt.campaign.operating_points import LEVERS
from scalewatt.common.files import parse_json
from scalewatt.recordings.terms import DEVICE_KINDS
from scalewatt.training.history import PHASES

IDENTITY = (
    ("campaign", pa.string()),
    ("configuration", pa.string()),
    ("model", pa.string()),
    ("phase", pa.string()),
    ("device", pa.string()),
    ("device_name", pa.string()),
    ("gpus", pa.int32()),
    ("nodes", pa.int32()),
    ("gpus_per_replica", pa.int32()),
    ("gradient_accumulation_steps", pa.int32()),
    ("local_batch_size", pa.int32()),
    ("global_batch_size", pa.int32()),
    ("dataset_samples", pa.int64()),
    ("epochs", pa.int32()),
    ("protocol", pa.string()),
    ("precision", pa.string()),
    ("precision_used", pa.string()),
    ("loader", pa.string()),
    ("channels_last", pa.bool_()),
    ("compile", pa.bool_()),
    *((lever, pa.float64()) for lever in LEVERS),
    ("energy_origin", pa.string()),
    ("energy_scope", pa.string()),
    ("metric_name", pa.string()),
    ("metric_goal", pa.string()),
)
"""What all repeats of a configuration have in common."""

METADATA_KEY = b"scalewatt"
"""Key of a table's own metadata in its Parquet file."""

STEP_PHASES = tuple(f"step_{phase}_s" for phase in PHASES)
"""What a training step spends its time on, in the history and here."""

ENERGY_QUANTITIES = (
    "energy_kwh",
    *(f"{kind}_energy_kwh" for kind in DEVICE_KINDS),
    *(f"{kind}_energy_share" for kind in DEVICE_KINDS),
    "p_gpuh_kw",
    "mean_gpu_power_w",
    "mean_cpu_socket_power_w",
    "mean_ram_power_w",
    "energy_per_sample_j",
    "energy_per_update_j",
    "energy_per_node_kwh",
    "energy_per_model_kwh",
    "facility_energy_kwh",
    "carbon_kg",
    "cost",
)
"""What follows from energy."""

ESTIMATE_BOUNDS = tuple(
    f"{kind}energy_{end}_kwh"
    for kind in ("", *(f"{kind}_" for kind in DEVICE_KINDS))
    for end in ("low", "high")
)
"""The interval of the energy, and of each kind's: both ends are the energy where nothing is estimated."""

NET_ENERGY = "net_energy_kwh"
"""The energy above the idle baseline."""

OVER_TIME = "carbon_over_time_kg"
"""What a run emitted by a file of carbon intensity; beside the constant's `carbon_kg`."""

QUANTITIES = (
    "runtime_h",
    "gpu_hours",
    "metric_last",
    "metric_best",
    "samples_per_gpuh",
    "passes_per_gpuh",
    "throughput_samples_per_s",
    *ENERGY_QUANTITIES,
    OVER_TIME,
    "node_energy_kwh",
    "idle_energy_kwh",
    NET_ENERGY,
    *STEP_PHASES,
    "step_data_share",
    "peak_memory_gib",
)
"""What is averaged over repeats."""

OF_ENERGY = (
    *ENERGY_QUANTITIES,
    OVER_TIME,
    "idle_energy_kwh",
    NET_ENERGY,
)
"""Those that have the origin and scope of `energy_kwh`."""

SUMMARY = ("mean", "sd", "low", "high")
PARTS = (*SUMMARY, "population_sd")
"""How a configuration's row sums up a quantity of its repeats."""


RUNS = pa.schema(
    [
        *IDENTITY,
        ("repeat", pa.int32()),
        ("epochs_done", pa.int32()),
        ("updates", pa.int64()),
        ("samples", pa.int64()),
        ("passes", pa.int64()),
        ("runtime_s", pa.float64()),
        *((name, pa.float64()) for name in QUANTITIES),
        *((name, pa.float64()) for name in ESTIMATE_BOUNDS),
        ("recorded_energy_kwh", pa.float64()),
        ("discarded_energy_kwh", pa.float64()),
        ("unused_gpu_energy_kwh", pa.float64()),
        ("stage_data_energy_kwh", pa.float64()),
        ("coverage", pa.float64()),
        ("metric_persistence", pa.float64()),
        ("metric_climatology", pa.float64()),
        ("train_loss", pa.float64()),
        ("validation_loss", pa.float64()),
        ("segments", pa.int32()),
        ("flags", pa.string()),
        ("torch_device", pa.string()),
        ("initial_weights", pa.string()),
        ("spec_sha256", pa.string()),
        ("excluded", pa.string()),
    ]
)

CONFIGURATIONS = pa.schema(
    [
        *IDENTITY,
        ("metric_persistence", pa.float64()),
        ("metric_climatology", pa.float64()),
        ("torch_device", pa.string()),
        ("n_repeats", pa.int32()),
        ("n_energies", pa.int32()),
        ("n_metrics", pa.int32()),
        ("energy_unlike", pa.string()),
        *((name, pa.float64()) for name in ESTIMATE_BOUNDS),
        *((f"{name}_{part}", pa.float64()) for name in QUANTITIES for part in PARTS),
    ]
)
"""ESTIMATE_BOUNDS of a configuration are means of its repeats': errors of estimates do not average out."""

SCALING = pa.schema(
    [
        *(
            (name, type_)
            for name, type_ in IDENTITY
            if name in ("campaign", "configuration", "model", "phase", "device", "device_name")
        ),
        ("series", pa.string()),
        ("label", pa.string()),
        *(
            (name, pa.int32())
            for name in ("gpus", "nodes", "local_batch_size", "global_batch_size")
        ),
        ("dataset_samples", pa.int64()),
        ("n_repeats", pa.int32()),
        ("smallest_gpus", pa.int32()),
        ("smallest_n_repeats", pa.int32()),
        *(
            (f"{name}{part}", pa.float64())
            for name in ("speedup", "efficiency", "gpu_hours_ratio", "energy_ratio")
            for part in ("", "_sd", "_low", "_high")
        ),
        ("energy_origin", pa.string()),
        ("energy_scope", pa.string()),
    ]
)

COMPARISONS = pa.schema(
    [
        *((name, pa.string()) for name in ("campaign", "model", "phase")),
        *((name, pa.int32()) for name in ("gpus", "local_batch_size", "global_batch_size")),
        ("dataset_samples", pa.int64()),
        ("epochs", pa.int32()),
        *((name, pa.string()) for name in ("device", "configuration")),
        *((name, pa.string()) for name in ("baseline_device", "baseline")),
        ("quantity", pa.string()),
        ("energy_scope", pa.string()),
        ("energy_origin", pa.string()),
        ("n_repeats", pa.int32()),
        ("baseline_n_repeats", pa.int32()),
        *(
            (name, pa.float64())
            for name in (
                *("ratio", "ratio_low", "ratio_high"),
                *("margin", "tost_p"),
            )
        ),
        ("verdict", pa.string()),
        ("repeats_needed", pa.int32()),
        ("spread", pa.float64()),
        ("spread_freedom", pa.int32()),
        ("spread_source", pa.string()),
    ]
)


def table(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table of exactly `schema`; a row with other columns is an error (ValueError)."""
    rows = list(map(dict, rows))
    for row in rows:
        check_columns(row, schema)
    return pa.Table.from_pylist(rows, schema=schema)


def check_columns(found: Iterable[str], schema: pa.Schema) -> None:
    """Raise ValueError if columns are missing or not in the schema."""
    odd = sorted(set(found) ^ set(schema.names))
    if odd:
        raise ValueError(f"columns missing or not in the schema: {odd}")


def metadata(table: pa.Table) -> dict[str, Any]:
    """Return what is stored with a table (docs/tables.md); an empty object where nothing is."""
    stored = (table.schema.metadata or {}).get(METADATA_KEY)
    return parse_json(stored) if stored else {}


def with_metadata(table: pa.Table, added: dict[str, Any]) -> pa.Table:
    """Return the table, with `added` stored in it."""
    return table.replace_schema_metadata({METADATA_KEY: json.dumps(added).encode()})
