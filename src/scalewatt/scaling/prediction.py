"""The table `prediction`: what the scaling model predicts of each configuration, next to what it took."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import J_PER_KWH, SIMULATED
from scalewatt.results.figures.figure_schema import PREDICTION, PREDICTION_IDENTITY
from scalewatt.results.tables.frames import frame_of, read_frame, records, write_frame
from scalewatt.results.tables.table_schema import CONFIGURATIONS
from scalewatt.scaling.predict import ScalingModel, estimate, model_for

Row = dict[str, Any]

TIME, ENERGY, ENERGY_AT_TIME = "runtime_h", "energy_kwh", "energy_at_time_kwh"
"""Quantities: run time, energy, and energy predicted for the measured run time."""


def write_prediction(results: Path, campaign: Path, cluster: Cluster, out: Path) -> None:
    """Write the table and its CSV; `results`: the campaign's folder. InputError if the cluster simulates."""
    if cluster.simulates:
        raise InputError(
            f"the cluster '{cluster.name}': mode simulate: its runs are made by the scaling model, so "
            "they are no test of it; allowed: a cluster that trains"
        )
    compared = load_campaign(campaign, cluster)
    write_frame(prediction_table(results, compared, model_for(compared, cluster)), out, PREDICTION)


def prediction_table(results: Path, campaign: Campaign, model: ScalingModel) -> pd.DataFrame:
    """A row for each configuration with results and each quantity, of the schema PREDICTION.

    Simulated results are left out: the model made them. InputError if the table of configurations is
    missing or damaged.
    """
    configurations = read_frame(results / "tables" / "configurations.parquet", CONFIGURATIONS)
    is_planned = configurations["configuration"].isin(list(campaign.configurations))
    is_simulated = configurations["energy_origin"].fillna("") == SIMULATED
    empty = dict.fromkeys(PREDICTION.names)
    rows = [
        {**empty, **{name: row[name] for name in PREDICTION_IDENTITY}, **predicted}
        for row in records(configurations[is_planned & ~is_simulated])
        for predicted in _predictions(row, campaign, model)
    ]
    table = frame_of(rows, PREDICTION)
    table.attrs = {
        **{key: value for key, value in configurations.attrs.items() if key != "definition"},
        **{"figure": "prediction", "options": {}},
        **{"scaling_model": model.name, "sources": list(model.sources)},
    }
    return table


def _predictions(row: Row, campaign: Campaign, model: ScalingModel) -> Iterator[Row]:
    """Compare a row of configurations with its prediction, by quantity."""
    spec = run_spec(campaign, row["configuration"], 1)
    draws: Row = dict.fromkeys((TIME, ENERGY, ENERGY_AT_TIME))
    common: Row = {"calibrated_on": False}
    of_energy: Row = {}
    try:
        kind, predicted = model.find_for(spec), model.predict_runs(spec)
    except InputError as error:
        common["reason"] = str(error)
    else:
        known = {(point.campaign, point.configuration) for point in kind.points}
        common["calibrated_on"] = (row["campaign"], row["configuration"]) in known
        common["warnings"] = "; ".join(model.warnings(spec)) or None
        draws[TIME] = predicted.runtime_s / 3600
        scope, hours = kind.energy_facts[1], row["runtime_h_mean"]
        if row["energy_scope"] not in (None, scope):
            words = f"{scope or 'no scope'}, these of {row['energy_scope']}"
            of_energy["reason"] = f"the model's energies are of {words}"
        elif predicted.energy_j is not None:
            draws[ENERGY] = predicted.energy_j / J_PER_KWH
            at_time = None if hours is None else model.predict_energy(spec, hours * 3600)
            draws[ENERGY_AT_TIME] = None if at_time is None else at_time / J_PER_KWH
    for quantity, drawn in draws.items():
        is_time = quantity == TIME
        measured = [row[f"{TIME if is_time else ENERGY}_{end}"] for end in ("mean", "low", "high")]
        result = {**common, **({} if is_time else of_energy), "quantity": quantity}
        result |= dict(zip(("found", "found_low", "found_high"), measured, strict=True))
        if drawn is not None:
            median, low, high = interval = estimate(drawn[:, 0])
            result |= {"predicted": median, "predicted_low": low, "predicted_high": high}
            if (mean := measured[0]) is not None:
                result |= {"error": median / mean - 1, "in_interval": interval.holds(mean)}
        yield result
