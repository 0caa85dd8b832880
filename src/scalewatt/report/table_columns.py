"""Columns of the page's tables: their headings, units, and the texts of their cells."""

from __future__ import annotations

from typing import Any

from scalewatt.report.html_tables import Column
from scalewatt.report.report_inputs import Results
from scalewatt.results.columns import metric_label
from scalewatt.results.text.number_format import MISSING, number
from scalewatt.statistics import MOST_REPEATS

Row = dict[str, Any]

COMPARED = {
    "runtime_h": "run time",
    "energy_kwh": "energy",
    "p_gpuh_kw": "energy per {hour}",
    "gpu_hours": "{hours}",
    "metric_last": "quality metric",
}
PREDICTED = {
    "runtime_h": "run time (h)",
    "energy_kwh": "energy (kWh)",
    "energy_at_time_kwh": "energy at the time found (kWh)",
}


def words_of(results: Results) -> dict[str, str]:
    """Return what headings have in braces."""
    currency = results.metadata("plan").get("currency", "")
    return {
        "hours": results.hours,
        "hour": results.hours.removesuffix("s"),
        "cost": f"cost ({currency})" if currency else "cost",
        # Without any run, the paper's.
        "metric": metric_label("fourcastnet", results.metadata("table1").get("metric_name")),
    }


def metric_text(row: Row) -> str:
    if row["metric_last"] is None:
        return MISSING
    return f"{number(row['metric_last'])} {_metric_label(row)}"


def _metric_label(row: Row) -> str:
    return metric_label(row.get("model"), row["metric_name"])


def page_of(row: Row) -> str:
    """Return the path of a run's page, relative to the report."""
    return f"figures/runs/{row['configuration']}/{row['repeat']}.svg"


def _needed(row: Row) -> str:
    needed = row["repeats_needed"]
    unknown = MISSING if row["spread"] is None else f"over {MOST_REPEATS}"
    return unknown if needed is None else number(needed)


def _learnt(row: Row) -> str:
    last, persistence = row["metric_last"], row["metric_persistence"]
    if last is not None and row["guessed"] is not None:
        share = f"{100 * last / row['guessed']:.0f} % of guessing"
        return f"better ({share})" if last < row["guessed_least"] else f"no better ({share})"
    if last is None or not persistence:
        return MISSING
    share = f"{100 * last / persistence:.0f} % of persistence"
    return f"better ({share})" if last < persistence else f"not better ({share})"


def _remarks(row: Row) -> str:
    known = "the model was calibrated on it" if row.get("calibrated_on") else None
    return "; ".join(filter(None, (known, row["warnings"], row["reason"]))) or MISSING


def _error(row: Row) -> str:
    return MISSING if row["error"] is None else f"{number(100 * row['error'], 2)} %"


COLUMNS = {
    one.name: one
    for one in (
        Column("baseline", "against"),
        Column("baseline_n_repeats", "runs of the other"),
        Column("carbon_kg", "CO₂e", "kg", optional=True),
        Column("cost", "{cost}", optional=True),
        Column("cpu_energy_kwh", "CPU energy", "kWh", optional=True),
        Column("dataset_samples", "samples of the training set"),
        Column("energy_kwh", "energy", "kWh"),
        Column("energy_kwh_estimate_high", "estimated: at most", "kWh", optional=True),
        Column("energy_kwh_estimate_low", "estimated: at least", "kWh", optional=True),
        Column("energy_origin", "origin"),
        Column("energy_per_node_kwh", "energy per node", "kWh"),
        Column("energy_per_sample_j", "J per sample"),
        Column("energy_scope", "scope"),
        Column("error", "error of the prediction", text=_error),
        Column("excluded", "excluded, because", optional=True),
        Column("extra_energy_kwh", "more energy", "kWh"),
        Column("extra_gpu_hours", "more {hours}", "h"),
        Column("facility_energy_kwh", "energy with PUE", "kWh", optional=True),
        Column("flag_labels", "quality flags"),
        Column("found", "found (95 %)"),
        Column("global_batch_size", "GBS"),
        Column("gpu_energy_kwh", "GPU energy", "kWh", optional=True),
        Column("gpu_hours", "{hours}", "h"),
        Column("gpus", "n"),
        Column("guessed", "guessing", optional=True),
        Column("in_interval", "in the nominal 90 % interval"),
        Column("label", "variant"),
        Column("learnt", "verdict", text=_learnt),
        Column("local_batch_size", "LBS"),
        Column("mean_cpu_socket_power_w", "CPU socket power (W)"),
        Column("mean_gpu_power_w", "GPU power (W)", optional=True),
        Column("metric_best", "best"),
        Column("metric_climatology", "climatology", optional=True),
        Column("metric_label", "metric", text=_metric_label),
        Column("metric_last", "metric"),
        Column("metric_persistence", "persistence", optional=True),
        Column("n_repeats", "runs"),
        Column("net_energy_kwh", "above idle", "kWh", optional=True),
        Column("node_hours", "node hours", "h"),
        Column("open_high_kwh", "estimated: at most", "kWh", optional=True),
        Column("open_low_kwh", "estimated: at least", "kWh", optional=True),
        Column("p_gpuh_kw", "energy per {hour}", "kW"),
        Column("page", "its page (target run_pages)", text=page_of, link=page_of),
        Column("precision_used", "computed in"),
        Column("predicted", "predicted (nominal 90 %)"),
        Column("ram_energy_kwh", "memory energy", "kWh", optional=True),
        Column("remarks", "remarks", text=_remarks),
        Column("repeats_needed", "repeats needed", text=_needed),
        Column("runtime_h", "run time", "h"),
        Column("segments", "segments", optional=True, interval=False),
        Column("smallest_gpus", "n₀"),
        Column("speedup", "speed-up"),
        Column("spread_source", "spread from"),
        Column(
            "step_data_share",
            "share of a step in which the GPU (on CPUs the process) waits for data",
        ),
        Column("tost_p", "p of equivalence"),
        Column("unknown_runs", "runs not predicted"),
    )
}
