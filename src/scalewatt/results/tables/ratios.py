"""Ratios of what two devices, or two campaigns, have in common: B over A, with interval and verdict.

A ratio is that of geometric means over repeats, with Welch's 95 % t interval of the mean logarithms. It is
`lower` or `higher` where the whole interval is on one side of 1, and `equivalent` where the interval lies
within the margin: two one-sided t tests at 2.5 % each (Schuirmann 1987). What cannot be compared has no
ratio and a reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from scalewatt import statistics
from scalewatt.campaign.campaign_types import VARIED
from scalewatt.campaign.registered_campaign import TARGET_PROTOCOL
from scalewatt.recordings.terms import DEVICE_KINDS, ESTIMATED, MEASURED, SIMULATED
from scalewatt.results.columns import metric_label
from scalewatt.results.tables.derived_quantities import ORIGINS, is_measured
from scalewatt.results.tables.frames import values
from scalewatt.results.tables.repeat_statistics import summarise
from scalewatt.statistics import joined, log_mean_of

Row = dict[str, Any]
Pair = Mapping[str, pd.DataFrame]
"""Runs of both sides, by device or campaign."""

LOWER, HIGHER, NOT_APART = "lower", "higher", "not_apart"
NO_INTERVAL, NOT_COMPARED = "no_interval", "not_compared"
MARGIN = 0.05
"""Two means are equivalent where their ratio is within 1/(1 + MARGIN) … 1 + MARGIN."""
DEVICE, CAMPAIGN = "device", "campaign"
"""What ratios are taken between."""
_GPU_ENERGY, _METRIC = "gpu_energy_kwh", "metric_last"
QUANTITIES = {
    DEVICE: ("runtime_h", "gpu_hours", _METRIC, "energy_kwh", "p_gpuh_kw"),
    CAMPAIGN: (
        *("runtime_h", "throughput_samples_per_s", "energy_kwh", _GPU_ENERGY),
        *("energy_per_sample_j", "p_gpuh_kw", _METRIC),
    ),
}
"""Columns of RUNS that are compared."""
_ENERGIES = ("energy_kwh", _GPU_ENERGY, "energy_per_sample_j", "p_gpuh_kw")
_TOTALS = ("runtime_h", "gpu_hours", "energy_kwh", _GPU_ENERGY, _METRIC)
"""What grows with the work of the whole training."""


def ratios(runs: pd.DataFrame, by: str) -> list[Row]:
    """Ratios of each quantity between each two values of the column `by` with the same `training`.

    `runs` are rows of RUNS that count, with the columns `training` and `no_energy` (why the energy of the
    configuration is not known) and, where these are known, `simulated` and `seed`. Energies of two campaigns
    are compared where they are of the same device kinds, those of two devices over the kinds that both have.
    """
    rows = []
    for training, group in runs.groupby("training", sort=False):
        sides = {str(side): side_runs for side, side_runs in group.groupby(by)}
        for a, b in combinations(sides, 2):
            pair = {a: sides[a], b: sides[b]}
            if by == DEVICE:
                pair = _over_common_kinds(pair)
            compared = (_row(name, pair, by) for name in QUANTITIES[by])
            rows += [{"training": training, **row} for row in compared if row]
    return rows


def _over_common_kinds(pair: Pair) -> dict[str, pd.DataFrame]:
    """Both sides with energies over the device kinds that both have, where their scopes differ."""
    scopes = {scope for rows in pair.values() for scope in rows["energy_scope"].dropna()}
    kinds = [kind for kind in DEVICE_KINDS if all(kind in scope.split("+") for scope in scopes)]
    if len(scopes) < 2 or not kinds:
        return dict(pair)
    common = {}
    for side, rows in pair.items():
        energy = rows[[f"{kind}_energy_kwh" for kind in kinds]].sum(axis=1, skipna=False)
        scope = rows["energy_scope"].where(rows["energy_scope"].isna(), "+".join(kinds))
        power = energy / rows["gpu_hours"]
        common[side] = rows.assign(energy_kwh=energy, p_gpuh_kw=power, energy_scope=scope)
    return common


def _row(name: str, pair: Pair, by: str) -> Row | None:
    """Row of one quantity; None where neither side has it, or the GPUs' energy is no part of both."""
    sides = [_side(name, rows) for rows in pair.values()]
    if not any(side["values"] for side in sides):
        return None
    if name == _GPU_ENERGY and not _adds_gpus(pair):
        return None
    row: Row = dict.fromkeys(("ratio", "ratio_low", "ratio_high", "tost_p", "reason"))
    row |= {"quantity": name, "equivalent": False}
    for end, side in zip("ab", sides, strict=True):
        row |= {f"{key}_{end}": value for key, value in side.items()}
    if reason := _obstacle(name, pair, sides, by):
        return row | {"verdict": NOT_COMPARED, "reason": reason}
    ratio = ratio_of(row["values_a"], row["values_b"], tuple(pair))
    if (
        name == _METRIC
        and ratio["verdict"] != NO_INTERVAL
        and any(map(_shares_seed, pair.values()))
    ):
        # Repeats of one seed do not tell what another would give.
        is_known = all(rows["seed"].notna().all() for rows in pair.values())
        reason = f"repeats {'share one' if is_known else 'may share a'} seed"
        return row | {"ratio": ratio["ratio"], "verdict": NO_INTERVAL, "reason": reason}
    return row | ratio


def _side(name: str, rows: pd.DataFrame) -> Row:
    """One side of a ratio: its values, none where one is not known or repeats' energies are unlike."""
    is_energy = name in _ENERGIES
    known = rows[rows["energy_kwh"].notna()] if is_energy else rows[:0]
    unlike = len(known[["energy_origin", "energy_scope"]].drop_duplicates()) > 1
    numbers = values(rows[name]) if rows[name].notna().all() and not unlike else []
    scope = _first(rows["energy_scope"]) if is_energy else None
    origin = _first(rows["energy_origin"]) if is_energy else MEASURED
    if name == _GPU_ENERGY and numbers:
        measured = is_measured(rows, _GPU_ENERGY, "gpu_energy_low_kwh")
        origin = MEASURED if measured.all() else ESTIMATED
    if "simulated" in rows and rows["simulated"].any():
        origin = SIMULATED
    return {
        "configuration": rows["configuration"].iloc[0],
        "device": rows["device"].iloc[0],
        "origin": origin,
        "scope": "gpu" if name == _GPU_ENERGY else scope,
        "n_repeats": len(rows),
        "mean": summarise(numbers)["mean"],
        "values": numbers,
    }


def _first(column: pd.Series) -> Any:
    """First known value of a column, or None."""
    return next(iter(column.dropna()), None)


def _adds_gpus(pair: Pair) -> bool:
    """Return True if the GPUs' energy is a part of both energies, and not all of either."""
    scopes = [_first(rows["energy_scope"]) or "" for rows in pair.values()]
    return all("gpu" in scope.split("+") for scope in scopes) and set(scopes) != {"gpu"}


def _shares_seed(rows: pd.DataFrame) -> bool:
    """Tell whether repeats have one seed, or may have; a registered run's description may say it."""
    if "seeds" in rows and (rows["seeds"] == VARIED).fillna(False).all():
        return False
    return "seed" in rows and rows["seed"].nunique(dropna=False) < min(2, len(rows))


# --- what hinders a ratio, and the ratio ----------------------------------------------------------


def _obstacle(name: str, pair: Pair, sides: Sequence[Row], by: str) -> str:
    """Say why a quantity is not compared; empty if it is.

    Measured and simulated energies of two campaigns are: the comparison names both origins.
    """
    is_energy = name in _ENERGIES
    a, b = pair
    first, second = sides
    for word, side in zip(pair, sides, strict=True):
        if not side["values"]:
            why = _first(pair[word]["no_energy"]) if is_energy else None
            return f"not known of {word}{f' ({why})' if why else ''}"
    if first["scope"] != second["scope"]:
        return f"{a} is the energy of {first['scope']}, {b} of {second['scope']}"
    if is_energy and {first["origin"], second["origin"]} & set(ORIGINS):
        return ESTIMATED
    if is_energy and by == DEVICE and first["origin"] != second["origin"]:
        return f"{a}'s is {first['origin']}, {b}'s {second['origin']}"
    if name in _TOTALS and (work := _unlike_work(*pair.values())):
        return work
    metrics = [metric_label(None, _first(rows["metric_name"])) for rows in pair.values()]
    if name == _METRIC and metrics[0] != metrics[1]:
        return f"{a}'s is {metrics[0]}, {b}'s {metrics[1]}"
    words = (word for word, side in zip(pair, sides, strict=True) if min(side["values"]) <= 0)
    return next((f"{word} has a value that is not above 0" for word in words), "")


def _unlike_work(a: pd.DataFrame, b: pd.DataFrame) -> str:
    """Say in what the work of two trainings differs; empty if in nothing."""
    targets = [_first(rows["protocol"]) == TARGET_PROTOCOL for rows in (a, b)]
    if any(targets):
        return "" if all(targets) else "one trains to a target, the other for its epochs"
    words = {"epochs": "epochs", "dataset_samples": "samples an epoch"}
    counts = {name: [values(rows[name])[0] for rows in (a, b)] for name in words}
    parts = [f"{x} and {y} {words[name]}" for name, (x, y) in counts.items() if x != y]
    return f"unlike work: {', '.join(parts)}" if parts else ""


def ratio_of(a: Sequence[float], b: Sequence[float], names: tuple[str, ...] = ("A", "B")) -> Row:
    """Ratio B/A of positive values over repeats, with its interval and verdict."""
    top, bottom = log_mean_of(b, "b"), log_mean_of(a, "a")
    ratio = math.exp(float(np.mean(np.log(b)) - np.mean(np.log(a))))
    if top is None or bottom is None:
        singles = [name for name, side in zip(names, (a, b), strict=True) if len(side) == 1]
        whose = "each" if len(singles) == 2 else singles[0]
        return {"ratio": ratio, "verdict": NO_INTERVAL, "reason": f"a single run of {whose}"}
    difference = joined([top, bottom]).contrast([1, -1])
    parts = difference.values, difference.errors, difference.freedom, difference.halves
    log, error, freedom, half = (float(part[0]) for part in parts)
    if not error:
        reason = "repeats do not differ at all"
        return {"ratio": ratio, "verdict": NO_INTERVAL, "reason": reason}
    p = statistics.below(abs(log), math.log1p(MARGIN), error, freedom)
    low, high = math.exp(log - half), math.exp(log + half)
    return {
        "ratio": math.exp(log),
        "ratio_low": low,
        "ratio_high": high,
        "tost_p": p,
        "verdict": HIGHER if low > 1 else LOWER if high < 1 else NOT_APART,
        "equivalent": p < statistics.LEVEL,
    }
