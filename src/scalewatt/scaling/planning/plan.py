"""Plan a campaign's time, energy and cost before it is submitted, with intervals.

The plan is two matrices, hours and kWh, with a row for each joint draw and a column for each run: sums
are sums of columns, gains are ratios and differences of columns, and their intervals are quantiles over
the draws. What cannot be predicted is a column of NaN.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, basis
from scalewatt.campaign.run_spec import RunSpec, run_spec, text_sha256
from scalewatt.common.errors import InputError
from scalewatt.energies.estimate import FACTOR
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.columns import schema
from scalewatt.results.tables.derived_quantities import Facility, facility_of
from scalewatt.results.tables.estimates import ORIGINS
from scalewatt.results.tables.frames import frame_of, records
from scalewatt.results.text.number_format import MISSING, number
from scalewatt.scaling.model.fit import KindModel, pretraining_of
from scalewatt.scaling.model.model_file import ScalingModel
from scalewatt.scaling.model.posterior import DRAWS
from scalewatt.scaling.model.predict import DEVIATIONS, INTERVAL, Predicted
from scalewatt.scaling.model.terms import Array, kind_of_spec
from scalewatt.scaling.model.validate import TIME
from scalewatt.scaling.planning.forecast import Forecaster, check_any
from scalewatt.scheduling.job_request import usable_s, wall_time_min

Row = dict[str, Any]
PREDICTED = "predicted"
POINT, RUN, DEVICE, CAMPAIGN = "point", "run", "device", "campaign"
"""Levels of rows: a point of a series, a run, and sums over the runs of a device or of all."""
ENDS = ("", "_low", "_high")
"""Endings of a quantity's columns: its median, and the ends of its nominal 90 % interval."""
GAINS = ("speedup", "extra_gpu_hours", "extra_energy_kwh")
"""What a point of a series buys and costs, compared with the next smaller n."""
_OF_CONFIGURATION = (
    *("model", "phase", "device", "gpus", "nodes", "local_batch_size", "global_batch_size"),
    *("dataset_samples", "epochs"),
)
_NO_ENERGY = "its energy is not known"
PLAN = schema("plan")


def make_plan(
    campaign: Campaign, cluster: Cluster, forecaster: Forecaster, deadline_h: float | None = None
) -> pd.DataFrame:
    """Plan a campaign on a cluster: a table of the schema PLAN, with what it rests on as `attrs`.

    `deadline_h`: the cheapest points are sought among those that keep it. InputError if nothing of it can
    be predicted.
    """
    if deadline_h is not None and not 0 < deadline_h < math.inf:
        raise InputError(f"--deadline-h: {deadline_h:g}; expected a number above 0")
    check_any(campaign, forecaster)
    forecasts = {
        id_: _forecast(campaign, cluster, forecaster, id_) for id_ in campaign.configurations
    }
    facility = facility_of(cluster)
    runs, amounts = _runs(campaign, forecasts)
    frames = [
        _points(campaign, forecasts, facility, deadline_h),
        runs.join(_intervals(amounts, facility)),
        _sums(runs, amounts, facility),
    ]
    rows = [
        {name: row.get(name) for name in PLAN.names}
        | {"campaign": campaign.name, "warnings": _joined(row["warnings"])}
        for frame in frames
        for row in records(frame)
    ]
    notes = notes_of(campaign, cluster, forecaster.model)
    if deadline_h is not None:
        notes.insert(0, f"cheapest: of the points that end in {deadline_h:g} h (95 % probability).")
    table = frame_of(rows, PLAN)
    table.attrs.update(
        campaign=campaign.name,
        scaling_model=forecaster.model.name,
        sources=list(forecaster.model.sources),
        currency=cluster.currency,
        notes=notes,
        definition_sha256=plan_sha256(campaign, cluster),
    )
    return table


# --- draws ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Forecast:
    """Forecast of a configuration's runs."""

    row: Row
    """What all its rows state."""
    point: Array
    """(2, draws, 1): hours and kWh of one run, NaN where not known."""
    runs: Array
    """(2, draws, repeats)."""


def _forecast(campaign: Campaign, cluster: Cluster, forecaster: Forecaster, id_: str) -> _Forecast:
    configuration, spec = campaign.configurations[id_], run_spec(campaign, id_, 1)
    repeats = len(campaign.repeats_of(id_))
    row = {
        "configuration": id_,
        **{name: getattr(configuration, name) for name in _OF_CONFIGURATION},
        **dict.fromkeys(("energy_origin", "energy_scope", "reason")),
        **_job(spec, cluster, forecaster),
    }
    try:
        model = forecaster.of_kind(spec)
        point, runs = (_draws(forecaster.runs(spec, count)) for count in (1, repeats))
    except InputError as error:
        unknown = np.full((2, DRAWS * DEVIATIONS, repeats), np.nan)
        return _Forecast({**row, "reason": str(error)}, unknown[..., :1], unknown)
    row["warnings"] = [*forecaster.warnings(spec), *row["warnings"]]
    if model.energy:
        row |= {"energy_origin": PREDICTED, "energy_scope": model.scope}
    else:
        row["warnings"].append(_NO_ENERGY)
    return _Forecast(row, point, runs)


def _draws(predicted: Predicted) -> Array:
    """(2, draws, runs): hours and kWh."""
    joules = predicted.energy_j
    unknown = np.full_like(predicted.runtime_s, np.nan)
    kwh = unknown if joules is None else joules / J_PER_KWH
    return np.stack([predicted.runtime_s / 3600, kwh])


def _job(spec: RunSpec, cluster: Cluster, forecaster: Forecaster) -> Row:
    """Wall time that a run's first job asks for, time that a job trains, and why no job can."""
    row: Row = {"wall_time_min": None, "usable_s": math.nan, "warnings": []}
    device = cluster.devices.get(spec.device)
    if device is None or device.time_limit_min is None:
        return row
    warning_s = cluster.stop_warning_s
    try:
        wall_min = wall_time_min(spec, device, 0, warning_s, forecaster.upper_runtime_s(spec))
        return row | {"wall_time_min": wall_min, "usable_s": usable_s(device, warning_s)}
    except InputError as error:
        return row | {"warnings": [str(error)]}


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
    table = pd.DataFrame(columns)
    # Constant factors, so those of the quantiles too.
    pue, carbon, price = (math.nan if value is None else value for value in astuple(facility))
    for end in ENDS:
        of_facility = table[f"energy_kwh{end}"] * pue
        table[f"facility_energy_kwh{end}"] = of_facility
        table[f"carbon_kg{end}"] = of_facility * carbon / 1000
        table[f"cost{end}"] = of_facility * price
    return table


# --- rows -----------------------------------------------------------------------------------------


def _points(
    campaign: Campaign,
    forecasts: Mapping[str, _Forecast],
    facility: Facility,
    deadline_h: float | None,
) -> pd.DataFrame:
    """A row for each point of each series: one run, and its gain over the next smaller n.

    All of it is predicted, also where runs have finished: so both ends of a difference are comparable.
    """
    rows: list[Row] = []
    for series in campaign.series.values():
        ids = [series.points[gpus] for gpus in sorted(series.points)]
        # A dataset that grows with n makes points of different trainings.
        is_same_work = len({campaign.configurations[id_].dataset_samples for id_ in ids}) == 1
        smaller = -1
        for id_ in ids:
            row = {**forecasts[id_].row, "level": POINT, "series": series.name}
            row |= {"runs": campaign.repeats[id_], "is_same_work": is_same_work, "smaller": smaller}
            if is_same_work and row["reason"] is None:
                smaller = len(rows)
            rows.append(row)
    table = pd.DataFrame(rows)
    hours, kwh = np.concatenate([forecasts[id_].point for id_ in table["configuration"]], axis=-1)
    amounts = _amounts(table, hours, kwh)
    table = table.join(_intervals(amounts | _gains(table, amounts), facility))
    table["smaller_gpus"] = table["gpus"].to_numpy()[table["smaller"]]
    table["smaller_gpus"] = table["smaller_gpus"].where(table["smaller"] >= 0)
    late = table["runtime_h_high"] > (deadline_h or math.inf)
    choices = table[table["is_same_work"] & ~late & table["energy_kwh"].notna()]
    best = choices.groupby("series")["energy_kwh"].idxmin()
    cheapest = pd.Series(table.index.isin(best), dtype=object)
    return table.assign(cheapest=cheapest.where(table["is_same_work"]))


def _gains(rows: pd.DataFrame, amounts: Mapping[str, Array]) -> dict[str, Array]:
    """Draws of what each point buys and costs, compared with the next smaller n; NaN without one."""
    smaller = rows["smaller"].to_numpy()

    def there(draws: Array) -> Array:
        return np.where(smaller >= 0, draws[:, smaller], np.nan)

    hours, gpu_hours, kwh = (amounts[n] for n in ("runtime_h", "gpu_hours", "energy_kwh"))
    differences = [there(hours) / hours, gpu_hours - there(gpu_hours), kwh - there(kwh)]
    return dict(zip(GAINS, differences, strict=True))


def _runs(
    campaign: Campaign, forecasts: Mapping[str, _Forecast]
) -> tuple[pd.DataFrame, dict[str, Array]]:
    """A row for each run, and draws of what it takes."""
    rows = [
        {**forecast.row, "level": RUN, "repeat": repeat, "runs": 1}
        for id_, forecast in forecasts.items()
        for repeat in campaign.repeats_of(id_)
    ]
    hours, kwh = np.concatenate([forecast.runs for forecast in forecasts.values()], axis=-1)
    table = pd.DataFrame(rows).assign(unknown_runs=np.isnan(hours[0]).astype(int))
    return table, _amounts(table, hours, kwh)


def _sums(runs: pd.DataFrame, amounts: Mapping[str, Array], facility: Facility) -> pd.DataFrame:
    """A row for each device and one for the campaign: sums over the runs that are known."""
    known = {name: ~np.isnan(amounts["runtime_h"][0]) for name in amounts}
    known["energy_kwh"] = ~np.isnan(amounts["energy_kwh"][0])
    rows: list[Row] = []
    sums: dict[str, list[Array]] = {name: [] for name in amounts if name != "runtime_h"}
    devices = runs["device"].unique()
    for level, device in [*((DEVICE, device) for device in devices), (CAMPAIGN, None)]:
        chosen = (runs["device"] == (device or runs["device"])).to_numpy()
        of_device = runs[chosen]
        warned = of_device["warnings"].explode().value_counts(sort=False)
        scopes = _several(of_device["energy_scope"])
        unlike = [f"over unequal scopes of energy: {scopes}"] if ", " in (scopes or "") else []
        rows.append(
            {
                **{"level": level, "device": device},
                **of_device[["runs", "unknown_runs"]].sum(),
                "energy_origin": _several(of_device["energy_origin"]),
                "energy_scope": scopes,
                "warnings": [
                    *(f"{text} (runs: {count})" for text, count in warned.items()),
                    *unlike,
                ],
            }
        )
        for name, columns in sums.items():
            columns.append(_sum(amounts[name][:, chosen & known[name]]))
    drawn = {name: np.column_stack(columns) for name, columns in sums.items()}
    return pd.DataFrame(rows).join(_intervals(drawn, facility))


def _sum(draws: Array) -> Array:
    """Sum over the runs within each draw; NaN without any run."""
    return draws.sum(axis=1) if draws.shape[1] else np.full(len(draws), np.nan)


def _several(values: pd.Series[Any]) -> str | None:
    """The values that runs have, each once."""
    return ", ".join(sorted(values.dropna().unique())) or None


def _joined(sentences: Iterable[str]) -> str | None:
    return "; ".join(dict.fromkeys(sentences)) or None


# --- what it rests on -----------------------------------------------------------------------------


def notes_of(campaign: Campaign, cluster: Cluster, model: ScalingModel) -> list[str]:
    """What a plan's numbers rest on, and what is not in them."""
    asked = {kind_of_spec(run_spec(campaign, id_, 1)) for id_ in campaign.configurations}
    asked |= {before for kind in asked if (before := pretraining_of(kind))}
    of_campaign = [kind for kind in model.kinds if kind.kind in asked]
    kinds = [kind for kind in of_campaign if kind.origin]
    origins = ", ".join(sorted({str(kind.origin) for kind in kinds}))
    notes = [
        *(f"{sentence}." for sentence in campaign.left_out),
        f"Predicted by the scaling model {model.name}, calibrated on {', '.join(model.sources)} (energies: "
        f"{origins or 'none'}): medians and nominal 90 % intervals, which no real run has confirmed. Waiting "
        "in a queue and preparing data are not in it.",
        "Mean errors of run times of points that were left out of the calibration: "
        f"{'; '.join(map(_errors, of_campaign)) or 'not known'}.",
    ]
    estimated = [kind.kind.name for kind in kinds if kind.origin in ORIGINS]
    if estimated:
        notes.append(
            f"Energies of {', '.join(estimated)} rest on estimates: the true ones lie within × or ÷ "
            f"{FACTOR:g}, which the intervals leave out (docs/energy.md)."
        )
    # What rated powers would estimate has no part in a prediction.
    notes += basis(cluster, [])
    if campaign.idle_probe is not None:
        notes.append("The campaign's idle probes are not in it.")
    return notes


def _errors(model: KindModel) -> str:
    times = [score for score in model.scores if score.quantity == TIME]
    errors = ", ".join(f"{score.mean_error:.1%} ({score.scheme})" for score in times)
    return f"{model.kind.name} {errors or 'not known'}"


def plan_definition(campaign: Campaign, cluster: Cluster) -> dict[str, Any]:
    """All of a campaign and a cluster that a plan depends on, as JSON-ready values."""
    left_out = {"left_out": campaign.left_out} if campaign.left_out else {}
    return {
        **left_out,
        "specs": {id_: run_spec(campaign, id_, 1).sha256 for id_ in campaign.configurations},
        "repeats": dict(campaign.repeats),
        "series": {name: list(series.points.values()) for name, series in campaign.series.items()},
        "idle_probe": campaign.idle_probe is not None,
        "facility": [cluster.pue, cluster.carbon_intensity, cluster.price],
        "stop_warning_s": cluster.stop_warning_s,
        "devices": {name: device.time_limit_min for name, device in cluster.devices.items()},
    }


def plan_sha256(campaign: Campaign, cluster: Cluster) -> str:
    """SHA-256 of the plan's definition; another definition makes another plan."""
    return text_sha256(json.dumps(plan_definition(campaign, cluster), sort_keys=True))


# --- text -----------------------------------------------------------------------------------------

WIDTH = 100
_HEADINGS = {
    **{"n": "gpus", "LBS": "local_batch_size", "hours": "runtime_h", "GPUh": "gpu_hours"},
    **{"kWh": "energy_kwh", "jobs": "segments", "faster": "speedup"},
    **{"+GPUh": "extra_gpu_hours", "+kWh": "extra_energy_kwh", "cheapest": "cheapest"},
}
_OF_SUMS = {
    **{"runs": "runs", "unknown": "unknown_runs"},
    **{"GPUh": "gpu_hours", "node hours": "node_hours", "kWh": "energy_kwh"},
    **{"kWh with PUE": "facility_energy_kwh", "kg CO2e": "carbon_kg", "cost": "cost"},
    "jobs": "segments",
}


def of_level(plan: pd.DataFrame, *levels: str) -> pd.DataFrame:
    """Rows of some levels."""
    return plan[plan["level"].isin(levels)]


def plan_json(plan: pd.DataFrame) -> Row:
    """The plan as `scalewatt plan --json` prints it."""
    levels = {"points": (POINT,), "runs": (RUN,), "sums": (DEVICE, CAMPAIGN)}
    rows = {name: records(of_level(plan, *which)) for name, which in levels.items()}
    return {**{str(name): value for name, value in plan.attrs.items()}, **rows}


def plan_text(plan: pd.DataFrame) -> str:
    """The plan for a terminal."""
    return _text(plan, lambda words: words, lambda table: table.to_string(index=False))


def plan_markdown(plan: pd.DataFrame) -> str:
    """The plan as Markdown."""
    return _text(plan, lambda words: f"## {words}\n", _markdown_table) + "\n"


def _text(
    plan: pd.DataFrame, heading: Callable[[str], str], text_of: Callable[[pd.DataFrame], str]
) -> str:
    """The plan's totals, then a table for each series, then what it rests on."""
    points, sums = of_level(plan, POINT), of_level(plan, DEVICE, CAMPAIGN)
    totals = _table(sums, _OF_SUMS, intervals=tuple(_OF_SUMS.values()))
    totals.index = pd.Index(sums["device"].fillna("all"))
    totals = totals.rename(columns={"cost": f"cost, {plan.attrs['currency']}"})
    totals = totals.loc[:, (totals != MISSING).any()].T.reset_index(names="sum of")
    tables = [(f"Plan of {plan.attrs['campaign']}", totals)]
    for series, rows in points.groupby("series", sort=False):
        first = rows.iloc[0]
        title = f"{series} ({first['model']} {first['phase']} on {first['device']}, runs of each: "
        table = _table(rows, _HEADINGS, intervals=("runtime_h", "energy_kwh"))
        tables.append((f"{title}{first['runs']})", table))
    texts = plan.loc[points.index, ["reason", "warnings"]].stack().value_counts(sort=False)
    sentences = [
        "One run of each point; faster, +GPUh, +kWh: than the next smaller n; cheapest: the least energy.",
        *plan.attrs["notes"],
        *(f"Sum of all: {words}." for words in of_level(plan, CAMPAIGN)["warnings"].dropna()),
        *(f"{words} (points: {count})." for words, count in texts.items()),
    ]
    blocks = [f"{heading(title)}\n{text_of(table)}" for title, table in tables]
    return "\n\n".join([*blocks, *(textwrap.fill(sentence, WIDTH) for sentence in sentences)])


def _table(
    rows: pd.DataFrame, headings: Mapping[str, str], intervals: Sequence[str]
) -> pd.DataFrame:
    """Columns as text, those in `intervals` with the ends of their intervals."""
    return pd.DataFrame(
        {
            head: [_cell(row, name, name in intervals) for row in records(rows)]
            for head, name in headings.items()
        }
    )


def _cell(row: Row, name: str, with_interval: bool) -> str:
    if name == "cheapest":
        return "*" if row[name] else ""
    value, low, high = (number(row.get(f"{name}{end}"), 3) for end in ENDS)
    return value if low == high or not with_interval else f"{value} ({low}–{high})"


def _markdown_table(table: pd.DataFrame) -> str:
    lines = [table.columns.to_list(), ["---:"] * len(table.columns)]
    lines += table.to_numpy().tolist()
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
