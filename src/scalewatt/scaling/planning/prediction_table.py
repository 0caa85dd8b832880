"""The table `prediction`: what the scaling model says of each configuration, beside what it took."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.recordings.series import J_PER_KWH, SIMULATED
from scalewatt.results.tables.metadata import metadata, with_metadata
from scalewatt.results.tables.read_table import CONFIGURATION_KEY, read_checked
from scalewatt.results.tables.table_schema import CONFIGURATIONS, table
from scalewatt.scaling.model.cost_terms import Array
from scalewatt.scaling.model.predict import estimate
from scalewatt.scaling.planning.forecast import Forecaster

Row = dict[str, Any]

_COPIED = (
    *("campaign", "configuration", "model", "phase", "device", "gpus", "nodes"),
    *("local_batch_size", "global_batch_size", "dataset_samples", "epochs", "n_repeats"),
    *("energy_origin", "energy_scope"),
)
TIME, ENERGY, ENERGY_AT_TIME = "runtime_h", "energy_kwh", "energy_at_time_kwh"
"""Quantities: run time, energy, and energy predicted for the run time that was found."""
_FOUND = {TIME: "runtime_h", ENERGY: "energy_kwh", ENERGY_AT_TIME: "energy_kwh"}

PREDICTION = pa.schema(
    [
        *((name, CONFIGURATIONS.field(name).type) for name in _COPIED),
        ("quantity", pa.string()),
        *((f"found{end}", pa.float64()) for end in ("", "_low", "_high")),
        *((f"predicted{end}", pa.float64()) for end in ("", "_low", "_high")),
        ("error", pa.float64()),
        *((name, pa.bool_()) for name in ("in_interval", "calibrated_on")),
        *((name, pa.string()) for name in ("reason", "warnings")),
    ]
)


def prediction_table(results: Path, campaign: Campaign, forecaster: Forecaster) -> pa.Table:
    """One row per configuration with results and quantity. `results`: the campaign's folder.

    Simulated results have none: the model made them, so they are no test of it. InputError where the
    table of configurations is missing or damaged.
    """
    path = results / "tables" / "configurations.parquet"
    found = read_checked(path, CONFIGURATIONS, unique=CONFIGURATION_KEY)
    rows = [
        one
        for row in found.to_pylist()
        if row["configuration"] in campaign.configurations and row["energy_origin"] != SIMULATED
        for one in _rows(row, campaign, forecaster)
    ]
    said = {
        **{key: value for key, value in metadata(found).items() if key != "definition"},
        "figure": "prediction",
        "options": {},
        "scaling_model": forecaster.model.path,
        "sources": list(forecaster.model.sources),
    }
    return with_metadata(table(rows, PREDICTION), said)


def _rows(row: Row, campaign: Campaign, forecaster: Forecaster) -> Iterator[Row]:
    spec = run_spec(campaign, row["configuration"], 1)
    try:
        model, reason = forecaster.of_kind(spec), None
        warnings = "; ".join(forecaster.warnings(spec)) or None
    except InputError as error:
        model, reason, warnings = None, str(error), None
    runtime_h = row["runtime_h_mean"]
    known = model is not None and any(
        (point.campaign, point.configuration) == (row["campaign"], row["configuration"])
        for point in model.points
    )
    for quantity, column in _FOUND.items():
        unequal = None
        if model is not None and quantity != TIME:
            unequal = _unequal(row, model.scope)
        draws = None
        if reason is None and unequal is None:
            draws = _draws(forecaster, spec, quantity, runtime_h)
        yield {
            **{name: row[name] for name in _COPIED},
            "quantity": quantity,
            "found": row[f"{column}_mean"],
            "found_low": row[f"{column}_low"],
            "found_high": row[f"{column}_high"],
            **_beside(row[f"{column}_mean"], draws),
            "calibrated_on": known,
            "reason": reason or unequal,
            "warnings": warnings,
        }


def _unequal(row: Row, scope: str | None) -> str | None:
    if row["energy_scope"] is None or row["energy_scope"] == scope:
        return None
    return f"the model's energies are of {scope or 'no scope'}, these of {row['energy_scope']}"


def _draws(
    forecaster: Forecaster, spec: Row, quantity: str, runtime_h: float | None
) -> Array | None:
    predicted = forecaster.runs(spec)
    if quantity == TIME:
        return predicted.runtime_s[:, 0] / 3600
    if predicted.total_j is None:
        return None
    if quantity == ENERGY:
        return predicted.total_j[:, 0] / J_PER_KWH
    if runtime_h is None:
        return None
    kinds = forecaster.energy_at(spec, runtime_h * 3600)
    return np.asarray(sum(kinds.values())) / J_PER_KWH


def _beside(value: float | None, draws: Array | None) -> Row:
    names = ("predicted", "predicted_low", "predicted_high", "error", "in_interval")
    if draws is None:
        return dict.fromkeys(names)
    found = estimate(draws)
    error = None if value is None else found.median / value - 1
    inside = None if value is None else found.holds(value)
    return dict(zip(names, (found.median, found.low, found.high, error, inside), strict=True))
