"""The table `prediction`: what the scaling model predicts of each configuration, next to what it took."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import J_PER_KWH, SIMULATED
from scalewatt.results.figures.figure_schema import PREDICTION, PREDICTION_IDENTITY
from scalewatt.results.tables.frames import read_frame, records, to_frame, to_table
from scalewatt.results.tables.table_schema import CONFIGURATIONS
from scalewatt.scaling.model.predict import estimate
from scalewatt.scaling.planning.forecast import Forecaster

Row = dict[str, Any]

TIME, ENERGY, ENERGY_AT_TIME = "runtime_h", "energy_kwh", "energy_at_time_kwh"
"""Quantities: run time, energy, and energy predicted for the run time that was measured."""


def prediction_table(results: Path, campaign: Campaign, forecaster: Forecaster) -> pd.DataFrame:
    """A row for each configuration with results and each quantity, of the schema PREDICTION.

    `results`: the campaign's folder. Simulated results have no rows: the model made them, so they are
    no test of it. InputError if the table of configurations is missing or damaged.
    """
    found = read_frame(results / "tables" / "configurations.parquet", CONFIGURATIONS)
    of_campaign = found["configuration"].isin(list(campaign.configurations))
    measured = found[of_campaign & (found["energy_origin"].fillna("") != SIMULATED)]
    rows = [
        {
            **dict.fromkeys(PREDICTION.names),
            **{name: row[name] for name in PREDICTION_IDENTITY},
            **more,
        }
        for row in records(measured)
        for more in _predictions(row, campaign, forecaster)
    ]
    table = to_frame(
        to_table(pd.DataFrame(rows, columns=PREDICTION.names, dtype=object), PREDICTION)
    )
    table.attrs = {
        **{key: value for key, value in found.attrs.items() if key != "definition"},
        "figure": "prediction",
        "options": {},
        "scaling_model": forecaster.model.name,
        "sources": list(forecaster.model.sources),
    }
    return table


def _predictions(row: Row, campaign: Campaign, forecaster: Forecaster) -> Iterator[Row]:
    """What a row of configurations is compared with, by quantity."""
    spec = run_spec(campaign, row["configuration"], 1)
    draws: dict[str, Any] = dict.fromkeys((TIME, ENERGY, ENERGY_AT_TIME))
    common: Row = {"calibrated_on": False}
    unequal = None
    try:
        model, predicted = forecaster.of_kind(spec), forecaster.runs(spec)
    except InputError as error:
        common["reason"] = str(error)
    else:
        known = {(point.campaign, point.configuration) for point in model.points}
        common["calibrated_on"] = (row["campaign"], row["configuration"]) in known
        common["warnings"] = "; ".join(forecaster.warnings(spec)) or None
        draws[TIME] = predicted.runtime_s[:, 0] / 3600
        if row["energy_scope"] not in (None, model.scope):
            scope = model.scope or "no scope"
            unequal = f"the model's energies are of {scope}, these of {row['energy_scope']}"
        elif predicted.energy_j is not None:
            draws[ENERGY] = predicted.energy_j[:, 0] / J_PER_KWH
            hours = row["runtime_h_mean"]
            at_time = None if hours is None else forecaster.energy_at(spec, hours * 3600)
            draws[ENERGY_AT_TIME] = None if at_time is None else at_time[:, 0] / J_PER_KWH
    for quantity, of_quantity in draws.items():
        column = TIME if quantity == TIME else ENERGY
        found, low, high = (row[f"{column}_{end}"] for end in ("mean", "low", "high"))
        compared = {"quantity": quantity, "found": found, "found_low": low, "found_high": high}
        if quantity != TIME and unequal:
            compared["reason"] = unequal
        yield {**common, **compared, **_compared(found, of_quantity)}


def _compared(value: float | None, draws: Any) -> Row:
    if draws is None:
        return {}
    found = estimate(draws)
    row: Row = {
        "predicted": found.median,
        "predicted_low": found.low,
        "predicted_high": found.high,
    }
    if value is not None:
        row |= {"error": found.median / value - 1, "in_interval": found.holds(value)}
    return row
