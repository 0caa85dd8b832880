"""The columns of figures' tables and of Table 1 (docs/tables.md explains them)."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_uppercase

from scalewatt.campaign.operating_points import LEVERS
from scalewatt.results.columns import schema


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
TABLE1_QUANTITIES = ("energy_kwh", "energy_per_node_kwh", "runtime_h", "gpu_hours", "metric_last")
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
PREDICTION_IDENTITY = (
    *("campaign", "configuration", "model", "phase", "device", "gpus", "nodes"),
    *("local_batch_size", "global_batch_size", "dataset_samples", "epochs", "n_repeats"),
    *("energy_origin", "energy_scope"),
)
"""What a row of table prediction takes over from its configuration's."""
COST_IDENTITY = (
    *("configuration", "model", "phase", "device", "device_name", "torch_device", "gpus"),
    *("local_batch_size", "dataset_samples", "epochs", "protocol", "loader"),
    *("precision", "precision_used", "channels_last", "compile", *LEVERS, "n_repeats"),
)
"""What a row of table cost_per_sample takes over from its configuration's."""
COST_OPEN = ("energy_per_sample_j", "power_w", "total_per_sample_j")
"""What has the interval of an estimate."""
COST_PHASES = ("data", "copy", "forward", "backward", "optimizer")

OVERVIEW = schema("figure1")
POINTS = schema("figure-points")
POWER = schema("figure5")
TABLE1 = schema("table1")
VARIANTS = schema("variants", VARIANT_QUANTITIES)
PREDICTION = schema("prediction")
BREAKDOWN = schema("breakdown")
LEARNING = schema("learning")
PARETO = schema("pareto")
COST_PER_SAMPLE = schema("cost_per_sample")
OPERATING_POINTS = schema("operating_points")

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
