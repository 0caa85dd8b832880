"""The table `comparisons`: the same training on two devices, and how many repeats a verdict would need.

The repeats are counted from the spread of one run: that of these runs, else of other trainings of the same
model and phase, else the published one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt import statistics
from scalewatt.campaign.operating_points import LEVERS
from scalewatt.results.tables.frames import column_of, frame_of, records
from scalewatt.results.tables.published_spread import Spread, published_spread
from scalewatt.results.tables.ratios import DEVICE, MARGIN, NO_INTERVAL, NOT_APART, ratios
from scalewatt.results.tables.table_schema import COMPARISONS

Row = dict[str, Any]
_SAME = (
    *("campaign", "model", "phase", "gpus", "local_batch_size", "global_batch_size"),
    *("dataset_samples", "epochs", "protocol", "precision", "loader", "channels_last", "compile"),
    *LEVERS,
)
_NAMES = {
    **{"configuration_b": "configuration", "configuration_a": "baseline"},
    **{"device_b": "device", "device_a": "baseline_device"},
    **{"n_repeats_b": "n_repeats", "n_repeats_a": "baseline_n_repeats"},
    "scope_b": "energy_scope",
}
"""Columns of the ratios, and their names in the table: B is the device, A its baseline."""


def same_training(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Key that rows of runs or configurations share where they are one training on any device.

    Settings without a column count as well: the configuration's id names what departs from the campaign's.
    """
    device = rf"-{re.escape(row['device'])}-(?=n\d{{3}})"
    return (*(row[name] for name in _SAME), re.sub(device, "-", row["configuration"], count=1))


def comparisons_of(runs: pd.DataFrame, no_energy: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Make one row per pair of devices with the same training, and quantity; excluded runs do not count.

    `no_energy`: why the energy of a configuration is not known.
    """
    counted = runs[runs["excluded"].isna()]
    trainings = [str(same_training(row)) for row in records(counted)]
    why = map((no_energy or {}).get, counted["configuration"])
    counted = counted.assign(
        training=column_of(trainings, pa.string(), counted.index),
        no_energy=column_of(why, pa.string(), counted.index),
    )
    first = {row["configuration"]: row for row in records(counted.drop_duplicates("configuration"))}
    rows = []
    for ratio in ratios(counted, DEVICE):
        device = first[ratio["configuration_b"]]
        spread, source = _spread(ratio, device, counted)
        row = device | {_NAMES.get(name, name): value for name, value in ratio.items()}
        row |= {
            "energy_origin": ratio["origin_b"] if ratio["scope_b"] else None,
            "repeats_needed": _needed(ratio, spread),
            "spread": spread.relative if spread else None,
            "spread_freedom": spread.freedom if spread else None,
            "spread_source": source,
        }
        rows.append(row)
    return frame_of(rows, COMPARISONS)


def _needed(ratio: Row, spread: Spread | None) -> int | None:
    """Count the repeats for a verdict; at least one more than those that gave none."""
    if spread is None or ratio["ratio"] is None:
        return None
    count = repeats_needed(spread.relative, MARGIN, ratio["ratio"])
    undecided = ratio["verdict"] in (NOT_APART, NO_INTERVAL) and not ratio["equivalent"]
    present = min(ratio["n_repeats_a"], ratio["n_repeats_b"])
    return max(count, present + 1) if count and undecided else count


def repeats_needed(spread: float, margin: float, ratio: float = 1.0) -> int | None:
    """Count the repeats of each device that give a verdict with a probability of 80 %.

    `ratio` is taken for the true one, and `spread` for the true relative standard deviation of a single run.
    The verdict is `equivalent`, or a difference from 1: fewer repeats tell this than that a ratio is beyond
    the margin, which is what contradicts a claim of equivalence. None for more than MOST_REPEATS.
    """
    apart, room = math.log(ratio), math.log1p(margin)

    def chance(n: int) -> float:
        error = spread * math.sqrt(2 / n)
        freedom = 2 * n * (n - 1) / (n + 1)  # what Welch's test finds where spreads are equal
        inside, _ = statistics.chances(apart, -room, room, error, freedom)
        _, different = statistics.chances(apart, 0.0, 0.0, error, freedom)
        # For each standard error both together are all estimates, or they exclude each other.
        return float(np.minimum(inside + different, 1.0).mean())

    return statistics.first_with_power(chance)


def _spread(ratio: Row, device: Row, runs: pd.DataFrame) -> tuple[Spread | None, str | None]:
    """Relative standard deviation of one run, and its source; None where there is none."""
    name = ratio["quantity"]
    alike = runs[(runs["model"] == device["model"]) & (runs["phase"] == device["phase"])]
    if ratio["scope_b"]:
        alike = alike[(alike["energy_origin"] == ratio["origin_b"]).fillna(False)]
    if spread := _pooled([ratio["values_a"], ratio["values_b"]]):
        return spread, "these runs"
    if spread := _pooled(column.tolist() for _, column in alike.groupby("configuration")[name]):
        return spread, "the campaign's repeats"
    published = published_spread(device["model"], name)
    return published, None if published is None else "published repeats"


def _pooled(groups: Iterable[Sequence[float]]) -> Spread | None:
    """Spread that repeats of several trainings share; None without repeats, or if all are equal."""
    several = [
        np.log(group)
        for group in groups
        if len(group) > 1 and all(not pd.isna(value) and value > 0 for value in group)
    ]
    squares = math.fsum((len(logs) - 1) * np.var(logs, ddof=1) for logs in several if np.ptp(logs))
    freedom = sum(len(logs) - 1 for logs in several)
    return Spread(math.sqrt(squares / freedom), freedom) if squares else None
