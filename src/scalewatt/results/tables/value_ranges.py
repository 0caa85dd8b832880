"""What the values of a metric can be, by its name."""

from __future__ import annotations

import math
import re

from scalewatt.common.errors import InputError

_SHARES = ("accuracy", "hits", "precision", "rate", "recall")
_TOP = re.compile(r"top\d+")
_DISTANCES = {"rmse", "mse", "mae", "error"}
_ROUNDING = 1e-9


def metric_range(name: str) -> tuple[float, float]:
    """Return the least and largest value that a metric of this name can have; infinite where unknown."""
    words = name.lower().split("_")
    if "percent" in words and any(word in _SHARES or _TOP.fullmatch(word) for word in words):
        return 0.0, 100.0
    if "log" not in words and not _DISTANCES.isdisjoint(words):
        return 0.0, math.inf
    return -math.inf, math.inf


def check_metric(where: str, value: float | None, metric: str) -> None:
    """Raise InputError, which begins with `where`, for a metric out of the range of its name."""
    low, high = metric_range(metric)
    if value is not None and not low - _ROUNDING <= value <= high + _ROUNDING:
        expected = f"{low:g} to {high:g}" if high < math.inf else f"{low:g} or more"
        raise InputError(
            f"{where} is {value:g}, but {metric} is {expected}; expected: a metric in that range"
        )
