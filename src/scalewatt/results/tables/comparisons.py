"""The table `comparisons`: the same training on two devices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.campaign.operating_points import LEVERS
from scalewatt.results.tables.frames import column_of, frame_of, records
from scalewatt.results.tables.ratios import DEVICE, ratios
from scalewatt.results.tables.table_schema import COMPARISONS

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
    rows = [
        first[ratio["configuration_b"]]
        | {_NAMES.get(name, name): value for name, value in ratio.items()}
        | {"energy_origin": ratio["origin_b"] if ratio["scope_b"] else None}
        for ratio in ratios(counted, DEVICE)
    ]
    return frame_of(rows, COMPARISONS)
