"""What the values of a column can be, by its name."""

from __future__ import annotations

import math
import re

_SHARES = ("accuracy", "hits", "precision", "rate", "recall")
_TOP = re.compile(r"top\d+")
_DISTANCES = {"rmse", "mse", "mae", "error"}
ROUNDING = 1e-9
_MOST = {"kwh": 1e12, "j": 3.6e18, "kw": 1e9, "w": 1e12, "share": 1.0, "coverage": 1.0}
"""By a column's last word, more than anything here can be: in energy, a PWh."""
_DURATIONS = {
    "runtime_s",
    "duration_s",
    "unrecorded_s",
    "covered_s",
    "node_s",
    "runtime_h",
    "gpu_hours",
}
_SUMMARY = re.compile(r"_(mean|sd|high|low|population_sd)$")


def value_range(name: str) -> tuple[float, float]:
    """Return the least and largest value of a column, by its name; infinite where unknown.

    Differences, what is net of the idle power, and the lower end of an interval may be below 0; the
    upper end of a share's interval may be above 1.
    """
    plain = _SUMMARY.sub("", name)
    unit = plain.rpartition("_")[2]
    if plain in _DURATIONS:
        low, high = 0.0, math.inf
    elif unit in _MOST:
        low, high = 0.0, _MOST[unit] * (1 + ROUNDING)
    else:
        return -math.inf, math.inf
    if unit == "share" and name.endswith("_high"):
        high = math.inf
    if name.startswith(("net_", "extra_", "low_")) or name.endswith("_low"):
        return -math.inf, math.inf if unit == "share" else high
    return low - ROUNDING, high


def metric_range(name: str) -> tuple[float, float]:
    """Return the least and largest value that a metric of this name can have; infinite where unknown."""
    words = name.lower().split("_")
    if "percent" in words and any(word in _SHARES or _TOP.fullmatch(word) for word in words):
        return 0.0, 100.0
    if "log" not in words and not _DISTANCES.isdisjoint(words):
        return 0.0, math.inf
    return -math.inf, math.inf
