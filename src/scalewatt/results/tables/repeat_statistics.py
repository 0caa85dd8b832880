"""Repeats to means: sample standard deviation and a 95 % Student-t interval of the mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalewatt.results.columns import SEVERAL
from scalewatt.results.tables.table_schema import (
    CONFIGURATIONS,
    ESTIMATE_BOUNDS,
    OF_ENERGY,
    PARTS,
    QUANTITIES,
    SUMMARY,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Summary:
    """A mean of n values; sd and interval are null for a single one."""

    n: int
    mean: float | None
    sd: float | None = None
    low: float | None = None
    high: float | None = None


def summarise(values: Sequence[float | None]) -> Summary:
    """Return mean, sample sd (n − 1) and 95 % t interval; null if any value is missing."""
    found = [v for v in values if v is not None]
    if not found or len(found) < len(values):
        return Summary(len(values), None)
    n = len(found)
    # Rounding would give equal values another mean than themselves, and so a spread.
    mean = min(max(math.fsum(found) / n, min(found)), max(found))
    if n == 1:
        return Summary(1, mean)
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in found) / (n - 1))
    half = half_width(n) * sd
    return Summary(n, mean, sd, mean - half, mean + half)


def half_width(n: int) -> float:
    """Return half the interval of a mean of n values, over their standard deviation."""
    from scalewatt.statistics import quantile  # numpy takes long to import

    return quantile(n - 1) / math.sqrt(n) if n > 1 else math.nan


def summary_of(row: Mapping[str, Any], name: str) -> Summary:
    """Return a quantity of a configuration's row."""
    return Summary(row["n_repeats"], *(row[f"{name}_{part}"] for part in SUMMARY))


# --- of many configurations, as DataFrames --------------------------------------------------------


def statistics_of(runs: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Statistics of columns over the runs of each configuration, one row per configuration and quantity.

    Columns n, known and PARTS; a mean is null if one of its values is, a spread of a single run too.
    """
    import numpy as np
    import pandas as pd

    tidy = runs[["configuration"]].join(runs[list(names)].astype("float64"))
    tidy = tidy.melt("configuration", var_name="quantity")
    groups = tidy.groupby(["configuration", "quantity"], sort=False)["value"]
    found = pd.DataFrame(
        groups.agg(n="size", known="count", mean="mean", sd="std", least="min", most="max")
    )
    # Rounding would give equal values another mean than themselves, and so a spread.
    alike = found["least"] == found["most"]
    found["mean"] = found["mean"].where(~alike, found["least"])
    found["sd"] = found["sd"].where(~alike | found["sd"].isna(), 0.0)
    half = found["n"].map(half_width) * found["sd"]
    found["low"], found["high"] = found["mean"] - half, found["mean"] + half
    found["population_sd"] = found["sd"] * np.sqrt((found["n"] - 1) / found["n"])
    parts = list(PARTS)
    found[parts] = found[parts].where(found["known"] == found["n"])
    return found


def configurations_of(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per configuration from the table of runs; runs that are excluded do not count.

    Energies of repeats that differ in origin or scope have no mean, and neither is named (see
    `unlike_energies`); of repeats on different kinds of devices nothing has.
    """
    import pandas as pd

    from scalewatt.results.tables.frames import to_frame, to_table

    counted = runs[runs["excluded"].isna()]
    if counted.empty:
        return to_frame(CONFIGURATIONS.empty_table())
    unlike = unlike_energies(counted)
    known = counted.groupby("configuration", sort=False)[["energy_kwh", "metric_last"]].count()
    several = counted.groupby("configuration", sort=False)["torch_device"].nunique() > 1
    elsewhere = counted["configuration"].map(several)
    masked = {
        **dict.fromkeys(QUANTITIES, elsewhere),
        **dict.fromkeys(
            [*OF_ENERGY, *ESTIMATE_BOUNDS, "energy_origin", "energy_scope"],
            elsewhere | counted["configuration"].isin(unlike),
        ),
    }
    counted = counted.assign(**{name: counted[name].mask(rows) for name, rows in masked.items()})
    # A run whose energy is unknown may have no origin and scope.
    by_energy = counted.sort_values("energy_kwh", key=lambda e: e.isna(), kind="stable")
    first = by_energy.drop_duplicates("configuration").set_index("configuration").loc[known.index]
    for name in ("device_name", "precision_used", "torch_device"):
        differs = counted.groupby("configuration")[name].nunique(dropna=False) > 1
        first[name] = first[name].mask(differs.reindex(first.index), SEVERAL)
    statistics = statistics_of(counted, [*QUANTITIES, *ESTIMATE_BOUNDS])
    columns = {part: statistics[part].unstack("quantity") for part in PARTS}
    parts = [
        columns[part].reindex(columns=list(QUANTITIES)).add_suffix(f"_{part}") for part in PARTS
    ]
    bounds = columns["mean"].reindex(columns=list(ESTIMATE_BOUNDS))
    wide = pd.concat([bounds, *parts], axis=1)
    first = first.drop(columns=[*QUANTITIES, *ESTIMATE_BOUNDS]).assign(
        n_repeats=statistics["n"].groupby("configuration").first(),
        n_energies=known["energy_kwh"],
        n_metrics=known["metric_last"],
        energy_unlike=pd.Series(unlike, first.index, dtype=object),
    )
    found = first.join(wide).reset_index().reindex(columns=CONFIGURATIONS.names)
    return to_frame(to_table(found, CONFIGURATIONS))


def unlike_energies(runs: pd.DataFrame) -> dict[str, str]:
    """Return the configurations whose energies have no mean, and in what their repeats differ.

    A sensor that one node lacks makes a repeat's energy `mixed` next to `measured` ones. Neither excluded
    runs count, nor energies that are not known.
    """
    known = runs[runs["excluded"].isna() & runs["energy_kwh"].notna()]
    found: dict[str, list[str]] = {}
    for name in ("energy_origin", "energy_scope", "torch_device"):
        for key, column in known.groupby("configuration", sort=False)[name]:
            if column.nunique() > 1:
                texts = ", ".join(map(str, column.unique()))
                words = f"repeats differ in {name.removeprefix('energy_')} ({texts})"
                found.setdefault(str(key), []).append(words)
    return {key: "; ".join(words) for key, words in found.items()}


# --- quotients ------------------------------------------------------------------------------------


def inverse(found: pd.DataFrame, top: pd.Series) -> pd.DataFrame:
    """Return top / value (columns SUMMARY), with sd and interval by first-order propagation."""
    mean = top / found["mean"]
    sd, half = (
        (mean * part / found["mean"]).abs() for part in (found["sd"], found["high"] - found["mean"])
    )
    return found.assign(mean=mean, sd=sd, low=mean - half, high=mean + half)


def quotients(
    top: pd.DataFrame, bottom: pd.DataFrame, name: str, factor: pd.Series | float = 1.0
) -> pd.DataFrame:
    """Return factor · top / bottom of a quantity, its sd to first order, its interval by `relative_halves`.

    `top` and `bottom` are rows of configurations with the same index; the columns of the result are
    SUMMARY. The spread needs repeats of both, which are independent; a configuration divided by
    itself has none. Null if a mean is, or the divisor is 0.
    """
    import numpy as np
    import pandas as pd

    from scalewatt.results.tables.derived_quantities import ratio
    from scalewatt.statistics import relative_halves

    sides = {"top": top, "bottom": bottom}
    mean = ratio(factor * top[f"{name}_mean"], bottom[f"{name}_mean"])
    apart = (top["configuration"] != bottom["configuration"]).fillna(False)
    apart |= (top["campaign"] != bottom["campaign"]).fillna(False)
    relative = {
        side: ratio(rows[f"{name}_sd"], rows[f"{name}_mean"]).astype("float64").to_numpy()
        for side, rows in sides.items()
    }
    known = apart.to_numpy(bool)
    for side, rows in sides.items():
        known &= np.isfinite(relative[side]) & (rows[f"{name}_mean"] > 0).fillna(False).to_numpy(
            bool
        )
    errors = {}
    for side, rows in sides.items():
        n = np.where(known, rows["n_repeats"].astype("float64"), 2.0)
        errors[side] = np.where(known, relative[side], 0.0) ** 2 / n, n - 1.0
    halves = pd.Series(relative_halves(errors), mean.index)
    low, high = ((mean * np.exp(sign * halves)).where(known) for sign in (-1, 1))
    sd = mean.abs() * np.sqrt(relative["top"] ** 2 + relative["bottom"] ** 2)
    return pd.DataFrame({"mean": mean, "sd": sd.where(low.notna()), "low": low, "high": high})
