"""The columns of figures' tables and of Table 1 (docs/tables.md explains them)."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_uppercase

import pyarrow as pa

from scalewatt.results.tables.table_schema import CONFIGURATIONS, PARTS, SUMMARY


@dataclass(frozen=True)
class Panel:
    """One panel of a curve figure: its letter, and the quantities on its axes."""

    letter: str
    y_name: str
    x_name: str = "gpus"


_SPEEDUPS = (
    Panel("A", "speedup"),
    Panel("B", "metric_last"),
    Panel("C", "energy_kwh"),
    Panel("D", "energy_kwh", "gpu_hours"),
)
_RATES = (
    Panel("A", "p_gpuh_kw"),
    Panel("B", "mean_gpu_power_w"),
    Panel("C", "mean_cpu_socket_power_w"),
    Panel("D", "samples_per_gpuh"),
    Panel("E", "passes_per_gpuh"),
)
PANELS: dict[str, tuple[Panel, ...]] = {
    "figure2": _SPEEDUPS,
    "figure3": (
        Panel("A", "runtime_h"),
        Panel("B", "metric_last"),
        Panel("C", "energy_kwh"),
        Panel("D", "energy_kwh", "gpu_hours"),
        # The quantity of B and C, against samples: they stand under them.
        Panel("B2", "metric_last", "dataset_samples"),
        Panel("C2", "energy_kwh", "dataset_samples"),
    ),
    "figure4": _SPEEDUPS,
    "figure6": _RATES,
    "figure7": _RATES,
}
"""The panels of the curve figures, in the order in which they are drawn."""

COPIED = (
    "configuration",
    "model",
    "phase",
    "device",
    "device_name",
    "gpus",
    "local_batch_size",
    "global_batch_size",
    "dataset_samples",
    "n_repeats",
    "energy_origin",
    "energy_scope",
)
"""What the rows of a figure's table have of their configuration."""

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
        ("y_population_sd", pa.float64()),
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
        ("quantity", pa.string()),
    ]
)

TABLE1_QUANTITIES = (
    "energy_kwh",
    "energy_per_node_kwh",
    "runtime_h",
    "gpu_hours",
    "metric_last",
)

TABLE1 = pa.schema(
    [
        ("device", pa.string()),
        ("gpus", pa.int32()),
        ("local_batch_size", pa.int32()),
        ("global_batch_size", pa.int32()),
        *(
            (f"{name}{part}", pa.float64())
            for name in TABLE1_QUANTITIES
            for part in ("", "_sd", "_low", "_high")
        ),
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
        *((f"{name}_{part}", pa.float64()) for name in VARIANT_QUANTITIES for part in SUMMARY),
    ]
)

PREDICTION_IDENTITY = (
    *("campaign", "configuration", "model", "phase", "device", "gpus", "nodes"),
    *("local_batch_size", "global_batch_size", "dataset_samples", "epochs", "n_repeats"),
    *("energy_origin", "energy_scope"),
)
"""What a row of table prediction takes over from its configuration's."""

PREDICTION = pa.schema(
    [
        *((name, CONFIGURATIONS.field(name).type) for name in PREDICTION_IDENTITY),
        ("quantity", pa.string()),
        *((f"found{end}", pa.float64()) for end in ("", "_low", "_high")),
        *((f"predicted{end}", pa.float64()) for end in ("", "_low", "_high")),
        ("error", pa.float64()),
        *((name, pa.bool_()) for name in ("in_interval", "calibrated_on")),
        *((name, pa.string()) for name in ("reason", "warnings")),
    ]
)


_ENDS = tuple(part for part in PARTS if part != "mean")

BREAKDOWN = pa.schema(
    [
        *((name, pa.string()) for name in ("figure", "series", "label")),
        *((name, CONFIGURATIONS.field(name).type) for name in COPIED),
        *((name, pa.string()) for name in ("device_kind", "stage", "short_stages")),
        *(
            (name, pa.float64())
            for name in ("energy_kwh", "energy_share", "idle_energy_kwh", "discarded_energy_kwh")
        ),
        *((f"total_kwh_{end}", pa.float64()) for end in _ENDS),
    ]
)

LEARNING = pa.schema(
    [
        *((name, pa.string()) for name in ("figure", "series", "label")),
        *((name, CONFIGURATIONS.field(name).type) for name in COPIED),
        *((name, pa.string()) for name in ("metric_name", "metric_goal")),
        *((name, pa.int32()) for name in ("repeat", "epoch")),
        *((name, pa.float64()) for name in ("metric", "energy_kwh", "time_h")),
    ]
)

PARETO = pa.schema(
    [
        *((name, pa.string()) for name in ("figure", "panel", "series", "label")),
        *((name, CONFIGURATIONS.field(name).type) for name in COPIED),
        *((name, pa.string()) for name in ("metric_name", "metric_goal")),
        *(
            column
            for axis in ("x", "y")
            for column in (
                (f"{axis}_name", pa.string()),
                (axis, pa.float64()),
                *((f"{axis}_{end}", pa.float64()) for end in _ENDS),
            )
        ),
        ("non_dominated", pa.bool_()),
    ]
)

SCHEMAS = {
    "figure1": OVERVIEW,
    **dict.fromkeys(PANELS, POINTS),
    "figure5": POWER,
    "table1": TABLE1,
    "variants": VARIANTS,
    "breakdown": BREAKDOWN,
    "learning": LEARNING,
    "pareto": PARETO,
}
"""The columns of each figure's table."""


def panel_letter(index: int) -> str:
    """What column `panel` has for the panel at `index`: A … Z, AA, AB, …"""
    before, place = divmod(index, len(ascii_uppercase))
    return (panel_letter(before - 1) if before else "") + ascii_uppercase[place]
