"""Repeats to means: sample standard deviation and a 95 % Student-t interval of the mean."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalewatt.common.errors import InputError
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

    from scalewatt.statistics import Floats


@dataclass(frozen=True)
class Summary:
    """A mean of n values; sd and interval are null for a single one."""

    n: int
    mean: float | None
    sd: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def population_sd(self) -> float | None:
        """Return the standard deviation with n in place of n − 1: what the paper printed."""
        return None if self.sd is None else self.sd * math.sqrt((self.n - 1) / self.n)


def summarise(values: Sequence[float | None]) -> Summary:
    """Return mean, sample sd (n − 1) and 95 % t interval; null if any value is missing."""
    found = [v for v in values if v is not None]
    if not found or len(found) < len(values):
        return Summary(len(values), None)
    n = len(found)
    # Rounding would give equal values a mean beside them, and so a spread.
    mean = min(max(math.fsum(found) / n, min(found)), max(found))
    if n == 1:
        return Summary(1, mean)
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in found) / (n - 1))
    half = _half_width(n) * sd
    return Summary(n, mean, sd, mean - half, mean + half)


def _half_width(n: int) -> float:
    """Return half the interval of a mean of n values, over their standard deviation."""
    from scalewatt.statistics import quantile  # numpy takes long to import

    return quantile(n - 1) / math.sqrt(n)


def summary_of(row: Mapping[str, Any], name: str) -> Summary:
    """Return a quantity of a configuration's row."""
    return Summary(row["n_repeats"], *(row[f"{name}_{part}"] for part in SUMMARY))


# --- of many configurations, as DataFrames --------------------------------------------------------


def summary_columns(name: str, summaries: Iterable[Summary], index: pd.Index) -> pd.DataFrame:
    """Return the columns `name`_mean, _sd, … of a quantity, a row for each of its summaries."""
    import pandas as pd
    import pyarrow as pa

    from scalewatt.results.tables.frames import column_of

    found = list(summaries)
    return pd.DataFrame(
        {
            f"{name}_{part}": column_of((getattr(s, part) for s in found), pa.float64(), index)
            for part in PARTS
        },
        index=index,
    )


def from_population_sd(n: pd.Series, mean: pd.Series, population_sd: pd.Series) -> pd.DataFrame:
    """Return the columns SUMMARY of n values each, by their standard deviation with n in place of n − 1."""
    import pandas as pd
    import pyarrow as pa

    from scalewatt.results.tables.frames import column_of, values

    several = n.where(n > 1)
    widths = (None if k is None else _half_width(k) for k in values(several))
    sd = population_sd.where(mean.notna()) * (several / (several - 1)) ** 0.5
    half = column_of(widths, pa.float64(), n.index) * sd
    return pd.DataFrame({"mean": mean, "sd": sd, "low": mean - half, "high": mean + half})


def moved(found: pd.DataFrame, mean: pd.Series) -> pd.DataFrame:
    """Return the same spreads (columns SUMMARY) around other means where these are known."""
    by = (mean - found["mean"]).fillna(0.0)
    mean = mean.fillna(found["mean"])
    return found.assign(mean=mean, low=found["low"] + by, high=found["high"] + by)


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

    mean = ratio(factor * top[f"{name}_mean"], bottom[f"{name}_mean"])
    apart = (top["configuration"] != bottom["configuration"]).fillna(False)
    apart |= (top["campaign"] != bottom["campaign"]).fillna(False)
    sides: dict[str, tuple[Floats, Floats]] = {}
    known = apart.to_numpy(bool)
    for side, rows in (("top", top), ("bottom", bottom)):
        value, spread, n = (
            rows[column].astype("float64").to_numpy()
            for column in (f"{name}_mean", f"{name}_sd", "n_repeats")
        )
        ready = (value > 0) & (n > 1) & np.isfinite(spread)
        value, n = np.where(ready, value, 1.0), np.where(ready, n, 2.0).astype(float)
        sides[side] = (np.where(ready, spread, 0.0) / value) ** 2 / n, np.asarray(n - 1.0, float)
        known &= ready
    halves = pd.Series(relative_halves(sides), mean.index)
    low, high = ((mean * np.exp(side * halves)).where(known) for side in (-1, 1))
    own, other = (ratio(rows[f"{name}_sd"], rows[f"{name}_mean"]) for rows in (top, bottom))
    sd = (mean.abs() * (own**2 + other**2) ** 0.5).where(low.notna())
    return pd.DataFrame({"mean": mean, "sd": sd, "low": low, "high": high})


def configurations_of(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per configuration from the table of runs; runs that are excluded do not count.

    Energies of repeats that differ in origin or scope have no mean, and neither is named (see
    `unlike_energies`). InputError if repeats ran on different kinds of devices.
    """
    import pandas as pd
    import pyarrow as pa

    from scalewatt.results.tables.frames import column_of, values

    counted = runs[runs["excluded"].isna()]
    unlike = unlike_energies(counted)
    without_mean = counted["configuration"].isin(unlike)
    of_energy = [*OF_ENERGY, *ESTIMATE_BOUNDS, "energy_origin", "energy_scope"]
    counted = counted.assign(**{name: counted[name].mask(without_mean) for name in of_energy})
    # A run whose energy is unknown may have no origin and scope.
    by_energy = counted.sort_values("energy_kwh", key=lambda e: e.isna(), kind="stable")
    first = by_energy.drop_duplicates("configuration").set_index("configuration", drop=False)
    _check_devices(counted, first)
    groups = counted.groupby("configuration", sort=False)
    first = first.loc[list(groups.groups)]
    first["energy_unlike"] = column_of(map(unlike.get, first.index), pa.string(), first.index)
    for name in ("device_name", "precision_used"):
        several = groups[name].nunique(dropna=False) > 1
        first.loc[several[several].index, name] = "several"
    first["n_repeats"] = column_of(groups.size(), pa.int32(), first.index)
    for count, name in (("n_energies", "energy_kwh"), ("n_metrics", "metric_last")):
        # Before those of unlike origin were left out.
        known = runs.loc[counted.index, name].notna().groupby(counted["configuration"]).sum()
        first[count] = column_of(known.loc[first.index], pa.int32(), first.index)
    repeats = {name: [values(own) for _, own in groups[name]] for name in QUANTITIES}
    columns = [
        summary_columns(name, map(summarise, found), first.index) for name, found in repeats.items()
    ]
    for name in ESTIMATE_BOUNDS:
        means = (summarise(values(own)).mean for _, own in groups[name])
        first[name] = column_of(means, pa.float64(), first.index)
    found = pd.concat([first.drop(columns=list(QUANTITIES)), *columns], axis=1)
    return found[CONFIGURATIONS.names].reset_index(drop=True)


def unlike_energies(runs: pd.DataFrame) -> dict[str, str]:
    """Return the configurations whose energies have no mean, and in what their repeats differ.

    A sensor that one node lacks makes a repeat's energy `mixed` beside `measured` ones. Neither excluded
    runs count, nor energies that are not known.
    """
    known = runs[runs["excluded"].isna() & runs["energy_kwh"].notna()]
    found: dict[str, str] = {}
    for name in ("energy_origin", "energy_scope"):
        for key, own in known.groupby("configuration", sort=False)[name]:
            texts, configuration = own.unique(), str(key)
            if len(texts) < 2:
                continue
            words = (
                f"repeats differ in {name.removeprefix('energy_')} ({', '.join(map(str, texts))})"
            )
            found[configuration] = "; ".join(filter(None, (found.get(configuration), words)))
    return found


def _check_devices(runs: pd.DataFrame, first: pd.DataFrame) -> None:
    from scalewatt.results.tables.frames import equal

    usual = first.loc[runs["configuration"]].set_axis(runs.index)
    unlike = ~equal(runs["torch_device"], usual["torch_device"])
    if unlike.any():
        run, other = runs[unlike].iloc[0], usual[unlike].iloc[0]
        raise InputError(
            f"{run['configuration']}: repeats {other['repeat']} and {run['repeat']} differ in "
            f"torch_device ({other['torch_device']}, {run['torch_device']}); leave one out by "
            "`scalewatt exclude`"
        )
