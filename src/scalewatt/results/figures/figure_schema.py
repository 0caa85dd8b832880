"""The columns of figures' tables and of Table 1 (docs/tables.md explains them)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from string import ascii_uppercase

import pyarrow as pa

from scalewatt.campaign.operating_points import LEVERS
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
    *("configuration", "model", "phase", "device", "device_name", "gpus", "local_batch_size"),
    *("global_batch_size", "dataset_samples", "n_repeats", "energy_origin", "energy_scope"),
)
"""What the rows of a figure's table have of their configuration."""


def _texts(*names: str) -> list[pa.Field]:
    return [pa.field(name, pa.string()) for name in names]


def _numbers(*names: str) -> list[pa.Field]:
    return [pa.field(name, pa.float64()) for name in names]


def _of_configurations(names: Iterable[str]) -> list[pa.Field]:
    """Return columns as the table of configurations has them."""
    return [CONFIGURATIONS.field(name) for name in names]


_ENDS = tuple(part for part in PARTS if part != "mean")
_SIZES = ("gpus", "local_batch_size", "global_batch_size")

POINTS = pa.schema(
    [
        *_texts("figure", "panel", "series", "label"),
        *_of_configurations(COPIED[:9]),
        *_texts("x_name"),
        *_numbers("x"),
        *_texts("y_name"),
        *_numbers("y", *(f"y_{end}" for end in _ENDS), "y_estimate_low", "y_estimate_high"),
        *_of_configurations(COPIED[9:]),
    ]
)

OVERVIEW = pa.schema(
    [
        *_texts("figure", "series", "label"),
        *_of_configurations(("model", "phase", "device", *_SIZES, "dataset_samples")),
        *((name, pa.int64()) for name in ("samples_per_gpu", "updates_per_epoch", "updates")),
        *_texts("dataset_rule", "batch_rule"),
    ]
)

POWER = pa.schema(
    [
        *_texts("figure", "panel", "label"),
        *_of_configurations(("configuration", "device", "device_name", *_SIZES)),
        *_numbers("time_s", "power_w", "mean_power_w", "mean_power_all_w"),
        *_texts("device_kind", "energy_origin", "quantity"),
    ]
)

TABLE1_QUANTITIES = ("energy_kwh", "energy_per_node_kwh", "runtime_h", "gpu_hours", "metric_last")

TABLE1 = pa.schema(
    [
        *_of_configurations(("device", *_SIZES)),
        *_numbers(
            *(f"{name}{end}" for name in TABLE1_QUANTITIES for end in ("", "_sd", "_low", "_high"))
        ),
        *_of_configurations(("configuration", "n_repeats", "energy_origin", "energy_scope")),
        *_numbers("energy_low_kwh", "energy_high_kwh"),
    ]
)

VARIANT_IDENTITY = (
    *("configuration", "model", "phase", "device", "device_name", "torch_device", "gpus"),
    *("local_batch_size", "global_batch_size", "dataset_samples", "epochs", "protocol", "loader"),
    *("precision", "precision_used", "channels_last", "compile", "metric_name", "metric_goal"),
    *("n_repeats", "energy_origin", "energy_scope"),
)
"""What a variant's row takes over from its configuration's."""

VARIANT_QUANTITIES = (
    *("runtime_h", "energy_kwh", "energy_per_sample_j", "mean_gpu_power_w"),
    *("mean_cpu_socket_power_w", "throughput_samples_per_s", "step_data_share"),
    *("metric_last", "metric_best"),
)

RATIOS = {
    "runtime_ratio": "runtime_h",
    "energy_ratio": "energy_kwh",
    "energy_per_sample_ratio": "energy_per_sample_j",
}
"""What is divided by the baseline's."""


OPEN = ("energy_kwh", "energy_per_sample_j", "mean_gpu_power_w", "mean_cpu_socket_power_w")
"""What has the interval of an estimate."""

VARIANTS = pa.schema(
    [
        *_texts("series", "label", "baseline"),
        *_of_configurations(VARIANT_IDENTITY),
        *_numbers(*(f"{name}{end}" for name in RATIOS for end in ("", "_low", "_high"))),
        *_numbers(*(f"{name}_estimate_{end}" for name in OPEN for end in ("low", "high"))),
        *_numbers(*(f"{name}_{part}" for name in VARIANT_QUANTITIES for part in SUMMARY)),
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
        *_of_configurations(PREDICTION_IDENTITY),
        *_texts("quantity"),
        *_numbers(
            *(f"{name}{end}" for name in ("found", "predicted") for end in ("", "_low", "_high"))
        ),
        *_numbers("error"),
        *((name, pa.bool_()) for name in ("in_interval", "calibrated_on")),
        *_texts("reason", "warnings"),
    ]
)

BREAKDOWN = pa.schema(
    [
        *_texts("figure", "series", "label"),
        *_of_configurations(COPIED),
        *_texts("device_kind", "stage", "short_stages"),
        *_numbers("energy_kwh", "energy_share", "idle_energy_kwh", "discarded_energy_kwh"),
        *_numbers(*(f"total_kwh_{end}" for end in _ENDS)),
        *_numbers("total_kwh_estimate_low", "total_kwh_estimate_high"),
        *_numbers("energy_low_kwh", "energy_high_kwh"),
    ]
)

LEARNING = pa.schema(
    [
        *_texts("figure", "series", "label"),
        *_of_configurations(COPIED),
        *_texts("metric_name", "metric_goal"),
        *((name, pa.int32()) for name in ("repeat", "epoch")),
        *_numbers("metric", "energy_kwh", "time_h"),
        *_numbers("energy_kwh_estimate_low", "energy_kwh_estimate_high"),
    ]
)

PARETO = pa.schema(
    [
        *_texts("figure", "panel", "series", "label"),
        *_of_configurations(COPIED),
        *_texts("metric_name", "metric_goal"),
        *(
            column
            for axis in ("x", "y")
            for column in (
                *_texts(f"{axis}_name"),
                *_numbers(axis, *(f"{axis}_{end}" for end in _ENDS)),
            )
        ),
        *_numbers("x_estimate_low", "x_estimate_high"),
        ("non_dominated", pa.bool_()),
    ]
)

COST_IDENTITY = (
    *("configuration", "model", "phase", "device", "device_name", "torch_device", "gpus"),
    *("local_batch_size", "dataset_samples", "epochs", "protocol", "loader"),
    *("precision", "precision_used", "channels_last", "compile", *LEVERS, "n_repeats"),
)
"""What a row of table cost_per_sample takes over from its configuration's."""
COST_QUANTITIES = (
    "throughput_samples_per_s",
    "energy_per_sample_j",
    "power_w",
    "total_per_sample_j",
)
COST_OPEN = ("energy_per_sample_j", "power_w", "total_per_sample_j")
"""What has the interval of an estimate."""
COST_PHASES = ("data", "copy", "forward", "backward", "optimizer")

COST_PER_SAMPLE = pa.schema(
    [
        *_texts("figure", "series", "label"),
        *_of_configurations(COST_IDENTITY),
        *_texts("energy_origin", "energy_scope", "total_origin", "total_scope"),
        *_numbers(
            *(f"{name}_{end}" for name in COST_QUANTITIES for end in ("mean", "low", "high"))
        ),
        *_numbers(*(f"{name}_estimate_{end}" for name in COST_OPEN for end in ("low", "high"))),
        *_numbers("train_s", "startup_s", "startup_energy_j"),
        *_numbers(*(f"step_{phase}_s" for phase in COST_PHASES)),
        *_numbers(*(f"{phase}_per_sample_j" for phase in COST_PHASES)),
        ("pareto_optimal", pa.bool_()),
    ]
)

OPERATING_IDENTITY = (
    *("configuration", "model", "phase", "device", "device_name", "torch_device", "gpus", "nodes"),
    *("local_batch_size", "global_batch_size", "dataset_samples", "epochs", "protocol"),
    *("precision", *LEVERS, "n_repeats", "energy_origin", "energy_scope"),
)
"""What a row of table operating_points takes over from its configuration's."""


OPERATING_POINTS = pa.schema(
    [
        *_texts("figure", "series", "label", "line", "basis"),
        *_of_configurations(OPERATING_IDENTITY),
        *_numbers(*(f"{name}_{part}" for name in ("time_s", "energy_j") for part in SUMMARY)),
        *_numbers("energy_j_estimate_low", "energy_j_estimate_high", "energy_delay", "cost"),
        *_numbers(
            *(
                f"{name}{end}"
                for name in ("time_ratio", "energy_ratio")
                for end in ("", "_low", "_high")
            )
        ),
        ("pareto_optimal", pa.bool_()),
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
    "cost_per_sample": COST_PER_SAMPLE,
    "operating_points": OPERATING_POINTS,
    "prediction": PREDICTION,
}
"""The columns of each figure's table."""


def panel_letter(index: int) -> str:
    """Return column `panel` for the panel at `index`: A … Z, AA, AB, …"""
    before, place = divmod(index, len(ascii_uppercase))
    return (panel_letter(before - 1) if before else "") + ascii_uppercase[place]
