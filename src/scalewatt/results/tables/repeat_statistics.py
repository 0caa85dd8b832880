"""Repeats to means: sample standard deviation and a 95 % Student-t interval of the mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
import pandas as pd

from scalewatt.results.columns import SEVERAL
from scalewatt.results.tables.derived_quantities import ratio
from scalewatt.results.tables.frames import to_frame, to_table
from scalewatt.results.tables.table_schema import (
    CONFIGURATIONS,
    ESTIMATE_BOUNDS,
    OF_ENERGY,
    QUANTITIES,
    SUMMARY,
)
from scalewatt.statistics import quantile, relative_halves


def summarise(values: Sequence[float | None]) -> dict[str, float | None]:
    """Compute SUMMARY of values: all of it null if one is missing, the spread that of a single one."""
    known = [value for value in values if value is not None]
    summary: dict[str, float | None] = dict.fromkeys(SUMMARY)
    if known and len(known) == len(values):
        summary["mean"] = mean = statistics.mean(known)
        if len(known) > 1:
            sd = statistics.stdev(known)
            half = half_width(len(known)) * sd
            summary |= {"sd": sd, "low": mean - half, "high": mean + half}
    return summary


def half_width(n: int) -> float:
    """Half the interval of a mean of n values, over their standard deviation."""
    return float(quantile(n - 1)) / math.sqrt(n) if n > 1 else math.nan


# --- of many configurations, as DataFrames --------------------------------------------------------


def wide_statistics(runs: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Means and spreads of columns over the runs of each configuration, as columns `<name>_<part>` (PARTS).

    A mean is null if one of its values is, and so is the spread of a single run.
    """
    groups = runs[list(names)].astype("float64").groupby(runs["configuration"], sort=False)
    n, least = groups.size(), groups.min()
    # Rounding would give equal values another mean than themselves, and so a spread.
    alike = least == groups.max()
    mean, sd = groups.mean(), groups.std()
    mean, sd = mean.where(~alike, least), sd.where(~alike | sd.isna(), 0.0)
    half = sd.mul(n.map(half_width), axis=0)
    parts = {
        **{"mean": mean, "sd": sd, "low": mean - half, "high": mean + half},
        "population_sd": sd.mul(np.sqrt((n - 1) / n), axis=0),
    }
    known = groups.count().eq(n, axis=0)
    return pd.concat([table.where(known).add_suffix(f"_{p}") for p, table in parts.items()], axis=1)


def configurations_of(runs: pd.DataFrame) -> pd.DataFrame:
    """Make one row per configuration from the table of runs; runs that are excluded do not count.

    Energies of repeats that differ in origin or scope have no mean, and neither is named (see
    `unlike_energies`). Repeats on different kinds of devices have no mean of anything.
    """
    counted = runs[runs["excluded"].isna()]
    if counted.empty:
        return to_frame(CONFIGURATIONS.empty_table())
    unlike = unlike_energies(counted)
    groups = counted.groupby("configuration", sort=False)
    known = groups[["energy_kwh", "metric_last"]].count()
    elsewhere = counted["configuration"].map(groups["torch_device"].nunique() > 1)
    no_energy = elsewhere | counted["configuration"].isin(unlike)
    energies = [*OF_ENERGY, *ESTIMATE_BOUNDS, "energy_origin", "energy_scope"]
    masked = dict.fromkeys(QUANTITIES, elsewhere) | dict.fromkeys(energies, no_energy)
    counted = counted.assign(**{name: counted[name].mask(rows) for name, rows in masked.items()})
    # A run whose energy is unknown may have no origin and scope.
    by_energy = counted.sort_values("energy_kwh", key=lambda e: e.isna(), kind="stable")
    first = by_energy.drop_duplicates("configuration").set_index("configuration", drop=False)
    first = first.loc[known.index]
    names = ["device_name", "precision_used", "torch_device"]
    first[names] = first[names].mask(groups[names].nunique(dropna=False) > 1, SEVERAL)
    wide = wide_statistics(counted, [*ESTIMATE_BOUNDS, *QUANTITIES])
    wide = wide.rename(columns={f"{name}_mean": name for name in ESTIMATE_BOUNDS})
    first = first.drop(columns=[*QUANTITIES, *ESTIMATE_BOUNDS]).assign(
        n_repeats=groups.size(),
        n_energies=known["energy_kwh"],
        n_metrics=known["metric_last"],
        energy_unlike=pd.Series(unlike, first.index, dtype=object),
    )
    return to_frame(to_table(first.join(wide), CONFIGURATIONS))


def unlike_energies(runs: pd.DataFrame) -> dict[str, str]:
    """Name in what repeats differ, of configurations whose energies have no mean for that reason.

    A sensor that one node lacks makes a repeat's energy `mixed` next to `measured` ones. Neither excluded
    runs count, nor energies that are not known.
    """
    known = runs[runs["excluded"].isna() & runs["energy_kwh"].notna()]
    differences: dict[str, list[str]] = {}
    for name in ("energy_origin", "energy_scope", "torch_device"):
        for key, column in known.groupby("configuration", sort=False)[name]:
            if column.nunique() > 1:
                texts = ", ".join(map(str, column.unique()))
                words = f"repeats differ in {name.removeprefix('energy_')} ({texts})"
                differences.setdefault(str(key), []).append(words)
    return {key: "; ".join(words) for key, words in differences.items()}


# --- quotients ------------------------------------------------------------------------------------


def inverse(bottom: pd.DataFrame, top: pd.Series) -> pd.DataFrame:
    """Divide `top` by a quantity (columns SUMMARY), with sd and interval by first-order propagation."""
    mean = top / bottom["mean"]
    half = bottom["high"] - bottom["mean"]
    sd, half = ((mean * part / bottom["mean"]).abs() for part in (bottom["sd"], half))
    return bottom.assign(mean=mean, sd=sd, low=mean - half, high=mean + half)


def quotients(
    top: pd.DataFrame, bottom: pd.DataFrame, name: str, factor: pd.Series | float = 1.0
) -> pd.DataFrame:
    """Compute factor · top / bottom of a quantity, its sd to first order, its interval by `relative_halves`.

    `top` and `bottom` are rows of configurations with the same index; the columns of the result are
    SUMMARY. The spread needs repeats of both, which are independent; a configuration divided by
    itself has none. Null if a mean is, or the divisor is 0.
    """
    mean = ratio(factor * top[f"{name}_mean"], bottom[f"{name}_mean"])
    known = (top["configuration"] != bottom["configuration"]).fillna(False)
    known |= (top["campaign"] != bottom["campaign"]).fillna(False)
    squares = {}
    for side, rows in {"top": top, "bottom": bottom}.items():
        spread = ratio(rows[f"{name}_sd"], rows[f"{name}_mean"]).astype("float64").to_numpy()
        known &= np.isfinite(spread) & (rows[f"{name}_mean"] > 0).fillna(False)
        squares[side] = spread**2, rows["n_repeats"].astype("float64")
    where = known.to_numpy(bool)
    parts = {}
    for side, (square, count) in squares.items():
        n = np.where(where, count, 2.0)
        parts[side] = np.where(where, square, 0.0) / n, n - 1.0
    halves = relative_halves(parts)
    low, high = ((mean * np.exp(sign * halves)).where(where) for sign in (-1, 1))
    sd = mean.abs() * np.sqrt(squares["top"][0] + squares["bottom"][0])
    return pd.DataFrame({"mean": mean, "sd": sd.where(low.notna()), "low": low, "high": high})
