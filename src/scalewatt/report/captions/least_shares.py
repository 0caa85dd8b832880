"""How small a part of an energy may be, whatever errors its estimates have."""

from __future__ import annotations

import pandas as pd

from scalewatt.figures import figure_data as data

_ENDS = ["energy_low_kwh", "energy_kwh", "energy_high_kwh"]
Ends = tuple[float, float, float]
"""The least energy that an estimate leaves open, the energy, and the largest."""


def least_shares(rows: pd.DataFrame, column: str, name: str) -> list[float | None]:
    """Return the least share of each configuration's energy in rows with `name` in `column`.

    `rows` are of table breakdown. None where the interval of an estimate is not known; configurations
    without energy are left out. No error of one part cancels another's.
    """
    totals = rows.groupby("configuration", sort=False)["energy_kwh"].transform("sum")
    used = rows[totals > 0]
    return [_least_share(own, own[column] == name) for _, own in data.groups(used, "configuration")]


def _least_share(rows: pd.DataFrame, inside: pd.Series) -> float | None:
    if rows[_ENDS].isna().any(axis=None):
        return None
    low, other_high = _sums(rows[inside])[0], _sums(rows[~inside])[2]
    return low / (low + other_high)


def _sums(rows: pd.DataFrame) -> Ends:
    low, energy, high = (float(rows[name].sum()) for name in _ENDS)
    return low, energy, high
