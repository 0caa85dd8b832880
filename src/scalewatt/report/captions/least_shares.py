"""How small a part of an energy may be, whatever errors its estimates have."""

from __future__ import annotations

from itertools import product

import pandas as pd

from scalewatt.figures import figure_data as data
from scalewatt.results.tables.estimates import extreme_errors

_ENDS = ["energy_low_kwh", "energy_kwh", "energy_high_kwh"]
Ends = tuple[float, float, float]
"""The least energy that an estimate leaves open, the energy, and the largest."""


def least_shares(rows: pd.DataFrame, column: str, name: str) -> list[float | None]:
    """Return the least share of each configuration's energy in rows with `name` in `column`.

    `rows` are of table breakdown. None where the interval of an estimate is not known; configurations
    without energy are left out. What errors of CPUs at two loads share is that of `extreme_errors`; between
    device kinds, and of anything else, nothing cancels.
    """
    totals = rows.groupby("configuration", sort=False)["energy_kwh"].transform("sum")
    used = rows[totals > 0]
    return [_least_share(own, own[column] == name) for _, own in data.groups(used, "configuration")]


def _least_share(rows: pd.DataFrame, inside: pd.Series) -> float | None:
    if rows[_ENDS].isna().any(axis=None):
        return None
    choices = []
    for kind, own in data.groups(rows, "device_kind"):
        chosen = inside[own.index]
        choices.append(_worst(_sums(own[chosen]), _sums(own[~chosen]), shared=kind == "cpu"))
    return min(
        sum(a for a, _ in chosen) / sum(a + b for a, b in chosen) for chosen in product(*choices)
    )


def _sums(rows: pd.DataFrame) -> Ends:
    low, energy, high = (float(rows[name].sum()) for name in _ENDS)
    return low, energy, high


def _worst(one: Ends, other: Ends, shared: bool) -> list[tuple[float, float]]:
    """Return the pairs of true energies, of `one` and `other`, among which the first's share is least."""
    pairs = extreme_errors(_relative(one), _relative(other), shared)
    return [(one[1] * error, other[1] * others) for (error, others), _ in pairs]


def _relative(ends: Ends) -> tuple[float, float]:
    low, energy, high = ends
    return (low / energy, high / energy) if energy > 0 else (1.0, 1.0)
