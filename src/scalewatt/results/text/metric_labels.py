"""Quality metrics in words."""

from __future__ import annotations

METRIC_LABELS = {
    "top1_error_percent": "Top-1 error (%)",
    "z500_rmse_m2_s2": "Z500 RMSE (m²/s²)",
}
METRIC_OF_MODEL = {"resnet50": "top1_error_percent", "fourcastnet": "z500_rmse_m2_s2"}
SEVERAL = "several"
"""Stands for the metric of runs that have different ones."""


def metric_label(model: str | None, metric_name: str | None = None) -> str:
    """Return a quality metric with its unit, by its name or, if unknown, by the model."""
    name = metric_name or METRIC_OF_MODEL.get(model or "", SEVERAL)
    if name == SEVERAL:
        return "Metric after the last epoch"
    if name in METRIC_LABELS:
        return METRIC_LABELS[name]
    words = name.removesuffix("_percent").replace("_", " ")
    return words[:1].upper() + words[1:] + (" (%)" if name.endswith("_percent") else "")
