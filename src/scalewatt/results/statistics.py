"""Repeats to means: sample standard deviation and a 95 % Student-t interval of the mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scalewatt.errors import InputError
from scalewatt.results.schema import CONFIGURATIONS, IDENTITY, QUANTITIES

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """Mean of n values; sd and interval are null for a single one."""

    n: int
    mean: float | None
    sd: float | None = None
    low: float | None = None
    high: float | None = None


def summarise(values: Sequence[float | None]) -> Summary:
    """Mean, sample sd (n − 1) and 95 % t interval; null if any value is missing."""
    found = [v for v in values if v is not None]
    if not found or len(found) < len(values):
        return Summary(len(values), None)
    n = len(found)
    # Rounding would give equal values a mean beside them, and so a spread.
    mean = min(max(math.fsum(found) / n, min(found)), max(found))
    if n == 1:
        return Summary(1, mean)
    from scipy.special import stdtrit  # the t quantile; scipy.stats takes a second to import

    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in found) / (n - 1))
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * sd / math.sqrt(n)
    return Summary(n, mean, sd, mean - half, mean + half)


def configuration_rows(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per configuration from the runs' rows.

    InputError where repeats differ in what they should share, such as the energy's origin.
    """
    grouped: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        grouped.setdefault(run["configuration"], []).append(run)
    return [_configuration_row(group) for group in grouped.values()]


def _configuration_row(runs: list[dict[str, Any]]) -> dict[str, Any]:
    # A run whose energy is unknown says nothing of origin and scope, and disagrees with nobody.
    first = next((run for run in runs if run["energy_kwh"] is not None), runs[0])
    row = {name: first[name] for name, _ in IDENTITY}
    for run in runs:
        known = run["energy_kwh"] is not None and first["energy_kwh"] is not None
        names = ("energy_origin", "energy_scope", "torch_device") if known else ("torch_device",)
        for name in names:
            if run[name] != first[name]:
                raise InputError(
                    f"{first['configuration']}: repeats {first['repeat']} and {run['repeat']} differ in "
                    f"{name} ({first[name]}, {run[name]}); they cannot be averaged"
                )
        for name in ("device_name", "precision_used"):
            if run[name] != first[name]:
                row[name] = "several"
    row |= {
        "metric_persistence": first["metric_persistence"],
        "metric_climatology": first["metric_climatology"],
        "torch_device": first["torch_device"],
        "n_repeats": len(runs),
    }
    for name in QUANTITIES:
        s = summarise([run[name] for run in runs])
        row |= {
            f"{name}_mean": s.mean,
            f"{name}_sd": s.sd,
            f"{name}_low": s.low,
            f"{name}_high": s.high,
        }
    assert set(row) == set(CONFIGURATIONS.names)
    return row
