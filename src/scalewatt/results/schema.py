"""The tables' columns: one place, enforced where a table is written (docs/tables.md explains them)."""

from __future__ import annotations

from collections.abc import Iterable
from string import ascii_uppercase
from typing import Any

import pyarrow as pa

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
    ("energy_origin", pa.string()),
    ("energy_scope", pa.string()),
    ("metric_name", pa.string()),
    ("metric_goal", pa.string()),
)
"""What all repeats of a configuration have in common."""

STEP_PHASES = tuple(f"step_{phase}_s" for phase in PHASES)
"""What a training step spends its time on, in the history and here."""

QUANTITIES = (
    "runtime_h",
    "gpu_hours",
    "energy_kwh",
    "gpu_energy_kwh",
    "cpu_energy_kwh",
    "ram_energy_kwh",
    "metric_last",
    "metric_best",
    "p_gpuh_kw",
    "mean_gpu_power_w",
    "mean_cpu_socket_power_w",
    "samples_per_gpuh",
    "passes_per_gpuh",
    "energy_per_sample_j",
    "energy_per_node_kwh",
    "throughput_samples_per_s",
    *STEP_PHASES,
    "step_data_share",
    "peak_memory_gib",
)
"""What is averaged over repeats."""

RUNS = pa.schema(
    [
        *IDENTITY,
        ("repeat", pa.int32()),
        ("updates", pa.int64()),
        ("samples", pa.int64()),
        ("passes", pa.int64()),
        ("runtime_s", pa.float64()),
        *((name, pa.float64()) for name in QUANTITIES),
        ("idle_energy_kwh", pa.float64()),
        ("recorded_energy_kwh", pa.float64()),
        ("discarded_energy_kwh", pa.float64()),
        ("unused_gpu_energy_kwh", pa.float64()),
        ("stage_data_energy_kwh", pa.float64()),
        ("energy_per_update_j", pa.float64()),
        ("facility_energy_kwh", pa.float64()),
        ("carbon_kg", pa.float64()),
        ("cost", pa.float64()),
        ("coverage", pa.float64()),
        ("metric_persistence", pa.float64()),
        ("metric_climatology", pa.float64()),
        ("train_loss", pa.float64()),
        ("validation_loss", pa.float64()),
        ("segments", pa.int32()),
        ("flags", pa.string()),
        ("torch_device", pa.string()),
        ("spec_sha256", pa.string()),
    ]
)

CONFIGURATIONS = pa.schema(
    [
        *IDENTITY,
        ("metric_persistence", pa.float64()),
        ("metric_climatology", pa.float64()),
        ("torch_device", pa.string()),
        ("n_repeats", pa.int32()),
        *(
            (f"{name}_{part}", pa.float64())
            for name in QUANTITIES
            for part in ("mean", "sd", "low", "high")
        ),
    ]
)

POINTS = pa.schema(
    [
        ("figure", pa.string()),
        ("panel", pa.string()),
        ("series", pa.string()),
        ("label", pa.string()),
        ("configuration", pa.string()),
        ("model", pa.string()),
        ("phase", pa.string()),
        ("device", pa.string()),
        ("device_name", pa.string()),
        ("gpus", pa.int32()),
        ("local_batch_size", pa.int32()),
        ("global_batch_size", pa.int32()),
        ("dataset_samples", pa.int64()),
        ("x_name", pa.string()),
        ("x", pa.float64()),
        ("y_name", pa.string()),
        ("y", pa.float64()),
        ("y_sd", pa.float64()),
        ("y_low", pa.float64()),
        ("y_high", pa.float64()),
        ("n_repeats", pa.int32()),
        ("energy_origin", pa.string()),
        ("energy_scope", pa.string()),
    ]
)

OVERVIEW = pa.schema(
    [
        ("figure", pa.string()),
        ("series", pa.string()),
        ("label", pa.string()),
        ("model", pa.string()),
        ("phase", pa.string()),
        ("device", pa.string()),
        ("gpus", pa.int32()),
        ("local_batch_size", pa.int32()),
        ("global_batch_size", pa.int32()),
        ("dataset_samples", pa.int64()),
        ("samples_per_gpu", pa.int64()),
        ("updates_per_epoch", pa.int64()),
        ("updates", pa.int64()),
        ("dataset_rule", pa.string()),
        ("batch_rule", pa.string()),
    ]
)

POWER = pa.schema(
    [
        ("figure", pa.string()),
        ("panel", pa.string()),
        ("label", pa.string()),
        ("configuration", pa.string()),
        ("device", pa.string()),
        ("device_name", pa.string()),
        ("gpus", pa.int32()),
        ("local_batch_size", pa.int32()),
        ("global_batch_size", pa.int32()),
        ("time_s", pa.float64()),
        ("power_w", pa.float64()),
        ("mean_power_w", pa.float64()),
        ("mean_power_all_w", pa.float64()),
        ("device_kind", pa.string()),
        ("energy_origin", pa.string()),
    ]
)

TABLE1 = pa.schema(
    [
        ("device", pa.string()),
        ("gpus", pa.int32()),
        ("local_batch_size", pa.int32()),
        ("global_batch_size", pa.int32()),
        ("energy_kwh", pa.float64()),
        ("energy_per_node_kwh", pa.float64()),
        ("runtime_h", pa.float64()),
        ("gpu_hours", pa.float64()),
        ("metric_last", pa.float64()),
        ("configuration", pa.string()),
        ("n_repeats", pa.int32()),
        ("energy_origin", pa.string()),
        ("energy_scope", pa.string()),
    ]
)


VARIANT_IDENTITY = (
    "configuration",
    "model",
    "phase",
    "device",
    "device_name",
    "torch_device",
    "gpus",
    "local_batch_size",
    "global_batch_size",
    "dataset_samples",
    "epochs",
    "protocol",
    "loader",
    "precision",
    "precision_used",
    "channels_last",
    "compile",
    "metric_name",
    "metric_goal",
    "n_repeats",
    "energy_origin",
    "energy_scope",
)
"""What a variant's row takes over from its configuration's."""

VARIANT_QUANTITIES = (
    "runtime_h",
    "energy_kwh",
    "energy_per_sample_j",
    "mean_gpu_power_w",
    "mean_cpu_socket_power_w",
    "throughput_samples_per_s",
    "step_data_share",
    "metric_last",
    "metric_best",
)

RATIOS = {
    "runtime_ratio": "runtime_h",
    "energy_ratio": "energy_kwh",
    "energy_per_sample_ratio": "energy_per_sample_j",
}
"""What is divided by the baseline's."""

VARIANTS = pa.schema(
    [
        *((name, pa.string()) for name in ("series", "label", "baseline", "group", "differs")),
        *((name, CONFIGURATIONS.field(name).type) for name in VARIANT_IDENTITY),
        *((f"{name}{part}", pa.float64()) for name in RATIOS for part in ("", "_low", "_high")),
        *(
            (f"{name}_{part}", pa.float64())
            for name in VARIANT_QUANTITIES
            for part in ("mean", "sd", "low", "high")
        ),
    ]
)


def panel_letter(index: int) -> str:
    """What column `panel` has for the panel at `index`: A … Z, AA, AB, …"""
    before, place = divmod(index, len(ascii_uppercase))
    return (panel_letter(before - 1) if before else "") + ascii_uppercase[place]


def table(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a table of exactly `schema`; a row with other columns is a mistake (ValueError)."""
    rows = list(rows)
    for row in rows:
        if set(row) != set(schema.names):
            odd = sorted(set(row) ^ set(schema.names))
            raise ValueError(f"columns missing or not in the schema: {odd}")
    return pa.Table.from_pylist(rows, schema=schema)
