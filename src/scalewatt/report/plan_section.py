"""The plan on the page: what the scaling model says of the campaign, and how right it was."""

from __future__ import annotations

from typing import Any

from scalewatt.report.html_tables import Column, Grid, grid, said, stored
from scalewatt.report.report_inputs import Results
from scalewatt.results.text.markdown_latex import UNEQUAL_SCOPES
from scalewatt.results.text.number_format import MISSING, number

Row = dict[str, Any]
_SUM_LEVELS = ("device", "campaign")
_QUANTITIES = {
    "runtime_h": "run time (h)",
    "energy_kwh": "energy (kWh)",
    "energy_at_time_kwh": "energy at the time found (kWh)",
}


def points_grid(results: Results, hours: str) -> Grid:
    """Return one run of each point of each series, and its gain over the next smaller n."""
    plan = results.rows("plan")
    rows = plan[plan["level"] == "point"]
    columns = (
        stored("series", "series"),
        stored("device", "device"),
        stored("gpus", "n"),
        stored("local_batch_size", "LBS"),
        stored("runs", "runs"),
        _interval("runtime_h", "run time", "h"),
        _interval("gpu_hours", hours, "h"),
        _interval("energy_kwh", "energy", "kWh"),
        stored("segments", "jobs", optional=True),
        _interval("speedup", "times as fast"),
        _interval("extra_gpu_hours", f"more {hours}", "h"),
        _interval("extra_energy_kwh", "more energy", "kWh"),
        _interval("extra_kwh_per_hour_saved", "kWh for each hour saved"),
        said("remarks", _remarks),
    )
    return grid("plan", "Plan of one run of each point", rows, columns, results.tables["plan"])


def sums_grid(results: Results, hours: str) -> Grid:
    """Return the sums over each device, and over the campaign."""
    plan = results.rows("plan")
    rows = plan[plan["level"].isin(_SUM_LEVELS)]
    currency = results.metadata("plan").get("currency", "")
    columns = (
        said("device", lambda row: str(row["device"] or "all")),
        stored("runs", "runs"),
        stored("unknown_runs", "runs not predicted"),
        _interval("gpu_hours", hours, "h"),
        _interval("energy_kwh", "energy", "kWh"),
        _interval("gpu_energy_kwh", "GPU energy", "kWh", optional=True),
        _interval("cpu_energy_kwh", "CPU energy", "kWh", optional=True),
        _interval("ram_energy_kwh", "memory energy", "kWh", optional=True),
        _interval("facility_energy_kwh", "energy with PUE", "kWh", optional=True),
        _interval("carbon_kg", "CO₂e", "kg", optional=True),
        _interval("cost", f"cost ({currency})" if currency else "cost", optional=True),
        stored("energy_origin", "origin of the energy"),
        stored("segments", "jobs", optional=True),
        said("remarks", _remarks),
    )
    return grid("plan-sums", "Plan in sum", rows, columns)


def prediction_grid(results: Results, _hours: str) -> Grid:
    """Return what was predicted and what was found."""
    columns = (
        stored("configuration", "configuration"),
        said("quantity", lambda row: _QUANTITIES[row["quantity"]]),
        stored("n_repeats", "runs"),
        _interval("predicted", "predicted (90 %)"),
        _interval("found", "found (95 %)"),
        said("error of the prediction", _error, "error"),
        stored("in_interval", "in the 90 % interval"),
        said("remarks", _prediction_remarks),
    )
    rows = results.rows("prediction")
    table = results.tables["prediction"]
    return grid("prediction-table", "Predicted and found", rows, columns, table)


def plan_notes(results: Results) -> str:
    """Return the assumptions of the plan."""
    return " ".join(results.metadata("plan").get("notes") or [])


def sums_notes(results: Results) -> str:
    """Return that totals of unequal scope are not comparable, where devices differ in scope."""
    plan = results.rows("plan")
    scopes = plan.loc[plan["level"] == _SUM_LEVELS[0], "energy_scope"]
    return UNEQUAL_SCOPES if scopes.nunique() > 1 else ""


def prediction_notes(results: Results) -> str:
    """Return which model made the predictions."""
    said_ = results.metadata("prediction")
    sources = ", ".join(said_.get("sources") or [])
    return f"Predicted by {said_.get('scaling_model')}, calibrated on {sources}."


def _interval(name: str, heading: str, unit: str = "", optional: bool = False) -> Column:
    return Column(name, heading, unit, interval=name, optional=optional)


def _remarks(row: Row) -> str:
    return "; ".join(filter(None, (row["warnings"], row["reason"]))) or MISSING


def _prediction_remarks(row: Row) -> str:
    known = "the model was calibrated on it" if row["calibrated_on"] else None
    return "; ".join(filter(None, (known, row["warnings"], row["reason"]))) or MISSING


def _error(row: Row) -> str:
    return MISSING if row["error"] is None else f"{number(100 * row['error'], 2)} %"
