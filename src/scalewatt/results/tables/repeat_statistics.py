"""Repeats to means: sample standard deviation and a 95 % Student-t interval of the mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.results.tables.table_schema import (
    CONFIGURATIONS,
    IDENTITY,
    PARTS,
    QUANTITIES,
    SUMMARY,
)

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """Mean of n values; sd and interval are null for a single one."""

    n: int
    mean: float | None
    sd: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def population_sd(self) -> float | None:
        """Standard deviation with n in place of n − 1: what the paper printed."""
        return None if self.sd is None else self.sd * math.sqrt((self.n - 1) / self.n)

    def times(self, factor: float) -> Summary:
        """The same of each value times a positive factor."""
        parts = (self.mean, self.sd, self.low, self.high)
        return Summary(self.n, *(None if part is None else factor * part for part in parts))

    def around(self, mean: float) -> Summary:
        """The same spread around another mean, which is known more exactly."""
        if self.mean is None or self.low is None or self.high is None:
            return Summary(self.n, mean)
        moved = mean - self.mean
        return Summary(self.n, mean, self.sd, self.low + moved, self.high + moved)

    def under(self, top: float) -> Summary:
        """top / value, with sd and interval by first-order propagation."""
        if not self.mean:
            return Summary(self.n, None)
        value, own = top / self.mean, _relative(self)
        if own is None:
            return Summary(self.n, value)
        sd, half = (abs(value * part) for part in own)
        return Summary(self.n, value, sd, value - half, value + half)


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
    return _around(n, mean, math.sqrt(math.fsum((v - mean) ** 2 for v in found) / (n - 1)))


def from_population_sd(n: int, mean: float | None, population_sd: float | None) -> Summary:
    """Summary of n values whose standard deviation is known with n in place of n − 1."""
    if mean is None or population_sd is None or n < 2:
        return Summary(n, mean)
    return _around(n, mean, population_sd * math.sqrt(n / (n - 1)))


def _around(n: int, mean: float, sd: float) -> Summary:
    from scipy.special import stdtrit  # the t quantile; scipy.stats takes a second to import

    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * sd / math.sqrt(n)
    return Summary(n, mean, sd, mean - half, mean + half)


def summary_of(row: Mapping[str, Any], name: str) -> Summary:
    """A quantity of a configuration's row."""
    return Summary(row["n_repeats"], *(row[f"{name}_{part}"] for part in SUMMARY))


def quotient(top: Summary, bottom: Summary, itself: bool = False, factor: float = 1.0) -> Summary:
    """factor · top / bottom with sd and interval by first-order propagation.

    They need repeats of both, which are independent. A quantity divided by `itself` has none; null
    where a mean is, or the divisor is 0.
    """
    if top.mean is None or not bottom.mean:
        return Summary(top.n, None)
    value = factor * top.mean / bottom.mean
    own, other = _relative(top), _relative(bottom)
    if itself or own is None or other is None:
        return Summary(top.n, value)
    sd, half = (abs(value) * math.hypot(*both) for both in zip(own, other, strict=True))
    return Summary(top.n, value, sd, value - half, value + half)


def _relative(one: Summary) -> tuple[float, float] | None:
    """Standard deviation and half the interval, over the mean."""
    if not one.mean or one.sd is None or one.high is None:
        return None
    return one.sd / one.mean, (one.high - one.mean) / one.mean


def configuration_rows(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per configuration from the runs' rows; runs that are excluded do not count.

    InputError where repeats differ in what they should share, such as the energy's origin.
    """
    grouped: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        if run["excluded"] is None:
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
        row |= {f"{name}_{part}": getattr(s, part) for part in PARTS}
    assert set(row) == set(CONFIGURATIONS.names)
    return row
