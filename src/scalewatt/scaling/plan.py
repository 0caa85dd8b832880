"""Plan a campaign's time, energy and cost before it is submitted, with intervals.

The plan is two matrices, hours and kWh, with a row for each joint draw and a column for each run: sums
are sums of columns, gains are ratios and differences of columns, and their intervals are quantiles over
the draws. What cannot be predicted is a column of NaN.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, basis, campaign_path
from scalewatt.campaign.load import check_devices, load_campaign
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.columns import schema
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_text
from scalewatt.energies.node import FACTOR
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.tables.derived_quantities import ORIGINS, Facility, facility_of
from scalewatt.results.tables.frames import frame_of, records, write_frame
from scalewatt.results.text.number_format import MISSING, number
from scalewatt.scaling.model import DRAWS, Array, KindModel, kind_of_spec, pretraining_of
from scalewatt.scaling.predict import DEVIATIONS, INTERVAL, ScalingModel, check_any, model_for
from scalewatt.scheduling.job_request import usable_s, wall_time_min

Row = dict[str, Any]
PREDICTED = "predicted"
POINT, DEVICE, CAMPAIGN = "point", "device", "campaign"
"""Levels of rows: one run of a point of a series, and sums over the runs of a device or of all."""
ENDS = ("", "_low", "_high")
"""Endings of a quantity's columns: its median, and the ends of its nominal 90 % interval."""
_OF_CONFIGURATION = (
    *("model", "phase", "device", "gpus", "nodes", "local_batch_size", "global_batch_size"),
    *("dataset_samples", "epochs"),
)
PLAN = schema("plan")


def load_plan(
    cluster: Cluster, campaign: Path | None, model: Path | None
) -> tuple[Campaign, ScalingModel]:
    """Load the campaign and the scaling model of a plan, by default those that the cluster names."""
    planned = load_campaign(campaign or campaign_path(cluster), cluster)
    check_devices(planned, cluster)
    return planned, model_for(planned, cluster, model)


def make_plan(
    campaign: Campaign, cluster: Cluster, model: ScalingModel, deadline_h: float | None = None
) -> pd.DataFrame:
    """Plan a campaign on a cluster: a table of the schema PLAN, with what it rests on as `attrs`.

    `deadline_h`: the cheapest points are sought among those that meet it. InputError if nothing can be
    predicted.
    """
    if deadline_h is not None and not 0 < deadline_h < math.inf:
        raise InputError(f"--deadline-h: {deadline_h:g}; expected a number above 0")
    check_any(campaign, model)
    facility = facility_of(cluster)
    forecasts = {id_: _forecast(campaign, cluster, model, id_) for id_ in campaign.configurations}
    points = _points(campaign, forecasts, facility, deadline_h)
    rows = [
        {name: row.get(name) for name in PLAN.names}
        | {"campaign": campaign.name, "warnings": "; ".join(dict.fromkeys(row["warnings"])) or None}
        for frame in (points, _sums(forecasts, facility))
        for row in records(frame)
    ]
    notes = notes_of(campaign, cluster, model)
    if deadline_h is not None:
        notes.insert(0, f"cheapest: of the points that end in {deadline_h:g} h (95 % probability).")
    table = frame_of(rows, PLAN)
    table.attrs.update(
        campaign=campaign.name,
        scaling_model=model.name,
        sources=list(model.sources),
        currency=cluster.currency,
        notes=notes,
    )
    return table


def write_plan(plan: pd.DataFrame, stem: Path) -> None:
    """Write `stem`.parquet, .csv and .md."""
    write_frame(plan, Path(f"{stem}.parquet"), PLAN)
    write_text(Path(f"{stem}.md"), plan_text(plan) + "\n")


# --- draws ----------------------------------------------------------------------------------------


class _Forecast(NamedTuple):
    """Draws of a configuration's runs, (2, draws, runs): hours and kWh, NaN where not known."""

    row: Row
    """What all its rows state."""
    point: Array
    """Of one run."""
    runs: Array
    """Of its repeats."""


def _forecast(campaign: Campaign, cluster: Cluster, model: ScalingModel, id_: str) -> _Forecast:
    """Draw one run and all repeats of a configuration; NaN with the reason if it has no model."""
    spec, repeats = run_spec(campaign, id_, 1), len(campaign.repeats_of(id_))
    row = {
        "configuration": id_,
        **{name: getattr(spec, name) for name in _OF_CONFIGURATION},
        **dict.fromkeys(("energy_origin", "energy_scope", "reason")),
        **_job(spec, cluster, model),
    }
    draws = [np.full((2, DRAWS * DEVIATIONS, count), np.nan) for count in (1, repeats)]
    try:
        kind = model.find_for(spec)
    except InputError as error:
        return _Forecast({**row, "reason": str(error)}, *draws)
    row["warnings"] = [*model.warnings(spec), *row["warnings"]]
    if kind.energy:
        row |= {"energy_origin": PREDICTED, "energy_scope": kind.energy_facts[1]}
    else:
        row["warnings"].append("its energy is not known")
    for array in draws:
        predicted = model.predict_runs(spec, array.shape[-1])
        array[0] = predicted.runtime_s / 3600
        if predicted.energy_j is not None:
            array[1] = predicted.energy_j / J_PER_KWH
    return _Forecast(row, *draws)


def _job(spec: RunSpec, cluster: Cluster, model: ScalingModel) -> Row:
    """Wall time that a run's first job asks for, time that a job trains, and why no job can."""
    row: Row = {"wall_time_min": None, "usable_s": math.nan, "warnings": [], "can_run": True}
    device = cluster.devices.get(spec.device)
    if device is None or device.time_limit_min is None:
        return row
    warning_s = cluster.stop_warning_s
    try:
        wall_min = wall_time_min(spec, device, 0, warning_s, model.upper_runtime_s(spec))
        return row | {"wall_time_min": wall_min, "usable_s": usable_s(device, warning_s)}
    except InputError as error:
        return row | {"warnings": [str(error)], "can_run": False}


def _amounts(rows: pd.DataFrame, hours: Array, kwh: Array) -> dict[str, Array]:
    """Draws (draws, runs) of what runs take, by quantity."""
    gpus, nodes, usable = (rows[name].to_numpy(float) for name in ("gpus", "nodes", "usable_s"))
    return {
        "runtime_h": hours,
        "gpu_hours": hours * gpus,
        "node_hours": hours * nodes,
        "energy_kwh": kwh,
        "segments": np.maximum(1, np.ceil(hours * 3600 / usable)),
    }


def _intervals(amounts: Mapping[str, Array], facility: Facility) -> pd.DataFrame:
    """Medians and ends of the nominal 90 % intervals, a row for each column of the draws."""
    columns = {}
    for name, draws in amounts.items():
        for end, values in zip(ENDS, np.quantile(draws, [0.5, *INTERVAL], axis=0), strict=True):
            columns[f"{name}{end}"] = np.round(values) if name == "segments" else values
    # Constant factors are those of the quantiles, too.
    pue, carbon, price = (math.nan if value is None else value for value in astuple(facility))
    for end in ENDS:
        columns[f"facility_energy_kwh{end}"] = columns[f"energy_kwh{end}"] * pue
        columns[f"carbon_kg{end}"] = columns[f"facility_energy_kwh{end}"] * carbon / 1000
        columns[f"cost{end}"] = columns[f"facility_energy_kwh{end}"] * price
    return pd.DataFrame(columns)


# --- rows -----------------------------------------------------------------------------------------


def _points(
    campaign: Campaign,
    forecasts: Mapping[str, _Forecast],
    facility: Facility,
    deadline_h: float | None,
) -> pd.DataFrame:
    """A row for each point of each series: one run, and its gain over the next smaller n.

    Runs that have finished are predicted as well, so that both ends of a difference are comparable.
    """
    points = [(s.name, s.points[n]) for s in campaign.series.values() for n in sorted(s.points)]
    table = pd.DataFrame(
        {**forecasts[id_].row, "level": POINT, "series": series, "runs": campaign.repeats[id_]}
        for series, id_ in points
    )
    hours, kwh = np.concatenate([forecasts[id_].point for _, id_ in points], axis=-1)
    amounts = _amounts(table, hours, kwh)
    # The next smaller n that is known; none if a dataset grows with n: those trainings are not alike.
    by_series = table["series"]
    is_same_work = (
        table.groupby(by_series)["dataset_samples"].transform("nunique", dropna=False) == 1
    )
    known = table.index.to_series().where(is_same_work & table["reason"].isna())
    smaller = known.groupby(by_series).transform(lambda index: index.shift().ffill())
    before = smaller.fillna(0).astype(int).to_numpy()

    def at_smaller(draws: Array) -> Array:
        return np.where(smaller.notna(), draws[:, before], np.nan)

    gains = {
        "speedup": at_smaller(hours) / hours,
        "extra_gpu_hours": amounts["gpu_hours"] - at_smaller(amounts["gpu_hours"]),
        "extra_energy_kwh": kwh - at_smaller(kwh),
    }
    table = table.join(_intervals(amounts | gains, facility))
    table["smaller_gpus"] = np.where(smaller.notna(), table["gpus"].to_numpy()[before], np.nan)
    # The least energy of those that are surely in time.
    late = table["runtime_h_high"] > (deadline_h or math.inf)
    is_choice = is_same_work & table["can_run"]
    choices = table[is_choice & ~late & table["energy_kwh"].notna()]
    best = choices.groupby("series")["energy_kwh"].idxmin()
    table["cheapest"] = pd.Series(table.index.isin(best), dtype=object).where(is_choice)
    return table


def _sums(forecasts: Mapping[str, _Forecast], facility: Facility) -> pd.DataFrame:
    """A row for each device and one for the campaign: sums over the runs that are known."""
    runs = pd.DataFrame(f.row for f in forecasts.values() for _ in range(f.runs.shape[-1]))
    hours, kwh = np.concatenate([forecast.runs for forecast in forecasts.values()], axis=-1)
    amounts = _amounts(runs, hours, kwh)
    del amounts["runtime_h"]
    rows: list[Row] = []
    sums: dict[str, list[Array]] = {name: [] for name in amounts}
    for device in [*runs["device"].unique(), None]:
        chosen = (runs["device"] == (device or runs["device"])).to_numpy()
        rows.append(
            {
                **{"level": DEVICE if device else CAMPAIGN, "device": device},
                "unknown_runs": int(np.isnan(hours[0, chosen]).sum()),
                **_facts_of_sum(runs[chosen]),
            }
        )
        for name, draws in amounts.items():
            known = chosen & ~np.isnan((kwh if name == "energy_kwh" else hours)[0])
            summed = draws[:, known].sum(axis=1) if known.any() else np.full(len(draws), np.nan)
            sums[name].append(summed)
    drawn = {name: np.column_stack(columns) for name, columns in sums.items()}
    return pd.DataFrame(rows).join(_intervals(drawn, facility))


def _facts_of_sum(runs: pd.DataFrame) -> Row:
    """What a row of sums states of its runs besides amounts."""
    origins, scopes = (
        ", ".join(sorted(runs[name].dropna().unique())) or None
        for name in ("energy_origin", "energy_scope")
    )
    counts = runs["warnings"].explode().value_counts(sort=False)
    warnings = [f"{text} (runs: {count})" for text, count in counts.items()]
    if ", " in (scopes or ""):
        warnings.append(f"over unequal scopes of energy: {scopes}")
    return {
        **{"runs": len(runs), "warnings": warnings},
        **{"energy_origin": origins, "energy_scope": scopes},
    }


# --- what it rests on -----------------------------------------------------------------------------


def notes_of(campaign: Campaign, cluster: Cluster, model: ScalingModel) -> list[str]:
    """What a plan's numbers rest on, and what is not in them."""
    asked = {kind_of_spec(run_spec(campaign, id_, 1)) for id_ in campaign.configurations}
    asked |= {before for kind in asked if (before := pretraining_of(kind))}
    kinds = [kind for kind in model.kinds if kind.kind in asked]
    origins = {kind.kind.name: kind.energy_facts[0] for kind in kinds if kind.energy}
    energies = ", ".join(sorted({*map(str, origins.values())})) or "none"
    notes = [
        *(f"{sentence}." for sentence in campaign.left_out),
        f"Predicted by the scaling model {model.name}, calibrated on {', '.join(model.sources)} (energies: "
        f"{energies}): medians and nominal 90 % intervals, which no real run has confirmed. Waiting "
        "in a queue and preparing data are not in it.",
        "Mean errors of run times of points that were left out of the calibration: "
        f"{'; '.join(map(_errors, kinds)) or 'not known'}.",
    ]
    if estimated := [name for name, origin in origins.items() if origin in ORIGINS]:
        notes.append(
            f"Energies of {', '.join(estimated)} rest on estimates: the true ones lie within × or ÷ "
            f"{FACTOR:g}, which the intervals leave out (docs/guide/energy.md)."
        )
    notes += basis(cluster, [])  # what rated powers would estimate has no part in a prediction
    if campaign.idle_probe is not None:
        notes.append("The campaign's idle probes are not in it.")
    return notes


def _errors(model: KindModel) -> str:
    times = [row for row in model.scores if row["quantity"] == "time"]
    errors = ", ".join(f"{row['mean_error']:.1%} ({row['scheme']})" for row in times)
    return f"{model.kind.name} {errors or 'not known'}"


def plan_definition(campaign: Campaign, cluster: Cluster) -> dict[str, Any]:
    """All of a campaign and a cluster that a plan depends on, as JSON-ready values."""
    return {
        "left_out": campaign.left_out,
        "specs": {id_: run_spec(campaign, id_, 1).sha256 for id_ in campaign.configurations},
        "repeats": dict(campaign.repeats),
        "series": {name: list(series.points.values()) for name, series in campaign.series.items()},
        "idle_probe": campaign.idle_probe is not None,
        "facility": [cluster.pue, cluster.carbon_intensity, cluster.price],
        "stop_warning_s": cluster.stop_warning_s,
        "devices": {name: device.time_limit_min for name, device in cluster.devices.items()},
    }


# --- text -----------------------------------------------------------------------------------------

WIDTH = 100
_POINT_HEADINGS = {
    **{"n": "gpus", "LBS": "local_batch_size", "hours": "runtime_h", "GPUh": "gpu_hours"},
    **{"kWh": "energy_kwh", "jobs": "segments", "faster": "speedup"},
    **{"+GPUh": "extra_gpu_hours", "+kWh": "extra_energy_kwh"},
}
_SUM_HEADINGS = {
    **{"runs": "runs", "unknown": "unknown_runs"},
    **{"GPUh": "gpu_hours", "node hours": "node_hours", "kWh": "energy_kwh"},
    **{"kWh with PUE": "facility_energy_kwh", "kg CO2e": "carbon_kg", "cost": "cost"},
    "jobs": "segments",
}
_WITHOUT_INTERVAL = ("GPUh", "jobs", "faster", "+GPUh", "+kWh")
"""Columns of points that are printed without their intervals."""


def select_levels(plan: pd.DataFrame, *levels: str) -> pd.DataFrame:
    """Rows of some levels."""
    return plan[plan["level"].isin(levels)]


def plan_json(plan: pd.DataFrame) -> Row:
    """The plan as `scalewatt plan --json` prints it."""
    points, sums = select_levels(plan, POINT), select_levels(plan, DEVICE, CAMPAIGN)
    attributes = {str(name): value for name, value in plan.attrs.items()}
    return {**attributes, "points": records(points), "sums": records(sums)}


def plan_text(plan: pd.DataFrame) -> str:
    """The plan for people, as Markdown: its totals, a table for each series, and what it rests on."""
    points, sums = select_levels(plan, POINT), select_levels(plan, DEVICE, CAMPAIGN)
    totals = _cells(sums, _SUM_HEADINGS).set_axis(sums["device"].fillna("all"), axis=0)
    totals = totals.rename(columns={"cost": f"cost, {plan.attrs['currency']}"})
    totals = totals.loc[:, (totals != MISSING).any()].T.reset_index(names="sum of")
    tables = {f"Plan of {plan.attrs['campaign']}": totals}
    for series, rows in points.groupby("series", sort=False):
        first = rows.iloc[0]
        training = f"{first['model']} {first['phase']} on {first['device']}"
        cells = _cells(rows, _POINT_HEADINGS, _WITHOUT_INTERVAL)
        cells["cheapest"] = ["*" if is_best else "" for is_best in rows["cheapest"].fillna(False)]
        tables[f"{series} ({training}, runs of each: {first['runs']})"] = cells
    texts = points[["reason", "warnings"]].stack().value_counts(sort=False)
    sentences = [
        "One run of each point; faster, +GPUh, +kWh: than the next smaller n; cheapest: the least energy.",
        *plan.attrs["notes"],
        *(f"Sum of all: {words}." for words in select_levels(plan, CAMPAIGN)["warnings"].dropna()),
        *(f"{words} (points: {count})." for words, count in texts.items()),
    ]
    blocks = [
        f"## {title}\n\n{textwrap.indent(table.to_string(index=False), '    ')}"
        for title, table in tables.items()
    ]
    return "\n\n".join([*blocks, *(textwrap.fill(sentence, WIDTH) for sentence in sentences)])


def _cells(
    rows: pd.DataFrame, headings: Mapping[str, str], without_interval: tuple[str, ...] = ()
) -> pd.DataFrame:
    """Quantities as text, by their headings: the median, and the interval if it is not one value."""

    def cell(row: Row, heading: str) -> str:
        value, low, high = (number(row.get(f"{headings[heading]}{end}"), 3) for end in ENDS)
        return value if low == high or heading in without_interval else f"{value} ({low}–{high})"

    return pd.DataFrame({name: [cell(row, name) for row in records(rows)] for name in headings})
