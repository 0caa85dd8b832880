"""The table `prediction`: what the scaling model predicts of each configuration, next to what it took."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import J_PER_KWH, SIMULATED
from scalewatt.results.figures.figure_schema import PREDICTION, PREDICTION_IDENTITY
from scalewatt.results.tables.frames import frame_of, read_frame, records
from scalewatt.results.tables.table_schema import CONFIGURATIONS
from scalewatt.scaling.model.predict import estimate
from scalewatt.scaling.model.terms import Array
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
    empty = dict.fromkeys(PREDICTION.names)
    rows = [
        {**empty, **{name: row[name] for name in PREDICTION_IDENTITY}, **more}
        for row in records(measured)
        for more in _predictions(row, campaign, forecaster)
    ]
    table = frame_of(rows, PREDICTION)
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
    draws: dict[str, Array | None] = dict.fromkeys((TIME, ENERGY, ENERGY_AT_TIME))
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
        draws[TIME] = predicted.runtime_s / 3600
        if row["energy_scope"] not in (None, model.scope):
            scope = model.scope or "no scope"
            unequal = f"the model's energies are of {scope}, these of {row['energy_scope']}"
        elif predicted.energy_j is not None:
            draws[ENERGY] = predicted.energy_j / J_PER_KWH
            hours = row["runtime_h_mean"]
            at_time = None if hours is None else forecaster.energy_at(spec, hours * 3600)
            draws[ENERGY_AT_TIME] = None if at_time is None else at_time / J_PER_KWH
    for quantity, of_quantity in draws.items():
        column = TIME if quantity == TIME else ENERGY
        found, low, high = (row[f"{column}_{end}"] for end in ("mean", "low", "high"))
        result = {"quantity": quantity, "found": found, "found_low": low, "found_high": high}
        if quantity != TIME and unequal:
            result["reason"] = unequal
        if of_quantity is not None:
            median, low, high = astuple(interval := estimate(of_quantity[:, 0]))
            result |= {"predicted": median, "predicted_low": low, "predicted_high": high}
            if found is not None:
                result |= {"error": median / found - 1, "in_interval": interval.holds(found)}
        yield {**common, **result}
