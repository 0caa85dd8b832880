"""The table `prediction`: what the scaling model predicts of each configuration, beside what it took."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import J_PER_KWH, SIMULATED
from scalewatt.results.figures.figure_schema import PREDICTION, PREDICTION_IDENTITY
from scalewatt.results.tables.frames import read_frame, to_frame, to_table
from scalewatt.results.tables.table_schema import CONFIGURATIONS
from scalewatt.scaling.model.cost_terms import Array
from scalewatt.scaling.model.predict import estimate
from scalewatt.scaling.planning.forecast import Forecaster

Row = dict[str, Any]

TIME, ENERGY, ENERGY_AT_TIME = "runtime_h", "energy_kwh", "energy_at_time_kwh"
"""Quantities: run time, energy, and energy predicted for the run time that was found."""
_FOUND = {TIME: "runtime_h", ENERGY: "energy_kwh", ENERGY_AT_TIME: "energy_kwh"}

_PREDICTED = PREDICTION.names[len(PREDICTION_IDENTITY) :]


def prediction_table(results: Path, campaign: Campaign, forecaster: Forecaster) -> pd.DataFrame:
    """Return one row per configuration with results and quantity, of the schema PREDICTION.

    `results`: the campaign's folder. Simulated results have no rows: the model made them, so they are
    no test of it. InputError if the table of configurations is missing or damaged.
    """
    path = results / "tables" / "configurations.parquet"
    found = read_frame(path, CONFIGURATIONS)
    asked = found["configuration"].isin(list(campaign.configurations))
    measured = found[asked & (found["energy_origin"].fillna("") != SIMULATED)]
    predicted = pd.DataFrame(
        [
            {"configuration": row.configuration, **one}
            for row in measured.itertuples()
            for one in _predictions(row, campaign, forecaster)
        ],
        columns=["configuration", *_PREDICTED],
        dtype=object,
    )
    table = measured[list(PREDICTION_IDENTITY)].merge(predicted, on="configuration")
    table = to_frame(to_table(table, PREDICTION))
    table.attrs = {
        **{key: value for key, value in found.attrs.items() if key != "definition"},
        "figure": "prediction",
        "options": {},
        "scaling_model": forecaster.model.name,
        "sources": list(forecaster.model.sources),
    }
    return table


def _predictions(row: Any, campaign: Campaign, forecaster: Forecaster) -> Iterator[Row]:
    """Yield the columns _PREDICTED of a row of configurations, by quantity."""
    spec = run_spec(campaign, row.configuration, 1)
    try:
        model, reason = forecaster.of_kind(spec), None
        warnings = "; ".join(forecaster.warnings(spec)) or None
    except InputError as error:
        model, reason, warnings = None, str(error), None
    known = model is not None and any(
        (point.campaign, point.configuration) == (row.campaign, row.configuration)
        for point in model.points
    )
    for quantity, column in _FOUND.items():
        found, low, high = (_value(row, f"{column}_{end}") for end in ("mean", "low", "high"))
        unequal = None
        if model is not None and quantity != TIME:
            unequal = _unequal(row.energy_scope, model.scope)
        draws = None
        if reason is None and unequal is None:
            draws = _draws(forecaster, spec, quantity, _value(row, "runtime_h_mean"))
        yield {
            "quantity": quantity,
            **{"found": found, "found_low": low, "found_high": high},
            **_compared(found, draws),
            "calibrated_on": known,
            "reason": reason or unequal,
            "warnings": warnings,
        }


def _value(row: Any, name: str) -> float | None:
    value = getattr(row, name)
    return None if pd.isna(value) else value


def _unequal(found: Any, scope: str | None) -> str | None:
    if pd.isna(found) or found == scope:
        return None
    return f"the model's energies are of {scope or 'no scope'}, these of {found}"


def _draws(
    forecaster: Forecaster, spec: RunSpec, quantity: str, runtime_h: float | None
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


def _compared(value: float | None, draws: Array | None) -> Row:
    names = ("predicted", "predicted_low", "predicted_high", "error", "in_interval")
    if draws is None:
        return dict.fromkeys(names)
    found = estimate(draws)
    error = None if value is None else found.median / value - 1
    inside = None if value is None else found.holds(value)
    return dict(zip(names, (found.median, found.low, found.high, error, inside), strict=True))
