"""The campaign's tables on the page: which there are, their columns, labels and units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from scalewatt.figures.figure_data import each
from scalewatt.figures.footnote_text import metric_label
from scalewatt.report import plan_section as plan
from scalewatt.report.data_quality_section import flag_labels, parsed_flags
from scalewatt.report.html_tables import Column, Grid, grid, said, stored, summed_up
from scalewatt.report.report_inputs import Results
from scalewatt.report.report_request import Definition
from scalewatt.results.tables.comparisons import MOST_REPEATS
from scalewatt.results.text.number_format import MISSING, number

Row = dict[str, Any]


def hours_word(gpu_word: str) -> str:
    """Return the name of GPU hours where n counts `gpu_word`."""
    return "process hours" if gpu_word == "processes" else "GPU hours"


def _batches() -> tuple[Column, ...]:
    return (
        stored("gpus", "n"),
        stored("local_batch_size", "LBS"),
        stored("global_batch_size", "GBS"),
    )


def runs_grid(results: Results, hours: str) -> Grid:
    """Return all runs, excluded ones too."""
    columns = (
        stored("configuration", "configuration"),
        stored("repeat", "repeat"),
        *_batches(),
        stored("dataset_samples", "samples of the training set"),
        stored("updates", "updates"),
        stored("runtime_h", "run time", "h"),
        stored("gpu_hours", hours, "h"),
        stored("energy_kwh", "energy", "kWh"),
        stored("net_energy_kwh", "above idle", "kWh", optional=True),
        stored("energy_origin", "origin"),
        stored("energy_scope", "scope"),
        stored("coverage", "coverage"),
        said("metric", _metric, "metric_last"),
        stored("segments", "segments"),
        stored("excluded", "excluded, because", optional=True),
        stored("flag_labels", "quality flags"),
        said("its page (target run_pages)", _page),
    )
    runs = results.rows("runs")
    runs = runs.assign(flag_labels=[flag_labels(parsed_flags(row)) for row in each(runs)])
    return grid("runs", "Runs", runs, columns, results.tables.get("runs"))


def _page(row: Row) -> str:
    """Return the path of a run's page, relative to the report."""
    return f"figures/runs/{row['configuration']}/{row['repeat']}.pdf"


def _metric(row: Row) -> str:
    if row["metric_last"] is None:
        return MISSING
    return f"{number(row['metric_last'])} {metric_label(row.get('model'), row['metric_name'])}"


def configurations_grid(results: Results, hours: str) -> Grid:
    """Return means over the runs that count."""
    columns = (
        stored("configuration", "configuration"),
        *_batches(),
        stored("n_repeats", "runs"),
        summed_up("runtime_h", "run time", "h"),
        summed_up("gpu_hours", hours, "h"),
        summed_up("energy_kwh", "energy", "kWh"),
        summed_up("net_energy_kwh", "above idle", "kWh", optional=True),
        summed_up("p_gpuh_kw", "energy per " + hours.removesuffix("s"), "kW"),
        summed_up("energy_per_sample_j", "J per sample"),
        said("quality metric", _metric_label),
        summed_up("metric_last", "its value"),
        stored("energy_origin", "origin"),
        stored("energy_scope", "scope"),
    )
    name, rows = "configurations", results.rows("configurations")
    return grid(name, "Configurations", rows, columns, results.tables.get(name))


def _metric_label(row: Row) -> str:
    return metric_label(row.get("model"), row["metric_name"])


def scaling_grid(results: Results, hours: str) -> Grid:
    """Return each series' points relative to its smallest n."""
    columns = (
        stored("series", "series"),
        *_batches(),
        stored("n_repeats", "runs"),
        stored("smallest_gpus", "n₀"),
        *(
            Column(name, heading, interval=name)
            for name, heading in (
                ("speedup", "speed-up"),
                ("efficiency", "efficiency"),
                ("gpu_hours_ratio", f"{hours} ÷ those of n₀"),
                ("energy_ratio", "energy ÷ that of n₀"),
            )
        ),
        stored("energy_origin", "origin"),
        stored("energy_scope", "scope"),
    )
    return grid("scaling", "Scaling", results.rows("scaling"), columns, results.tables["scaling"])


_QUANTITIES = {
    "runtime_h": "run time",
    "energy_kwh": "energy",
    "p_gpuh_kw": "energy per GPU hour",
    "gpu_hours": "GPU hours",
    "metric_last": "quality metric",
}


def comparisons_grid(results: Results, hours: str) -> Grid:
    """Return the comparison of the same training on two devices."""

    def quantity(row: Row) -> str:
        words = str(_QUANTITIES.get(row["quantity"], row["quantity"]))
        return words.replace("GPU hours", hours).replace("GPU hour", hours.removesuffix("s"))

    columns = (
        stored("configuration", "configuration"),
        stored("baseline", "against"),
        said("quantity", quantity),
        stored("energy_scope", "scope"),
        stored("n_repeats", "runs"),
        stored("baseline_n_repeats", "runs of the other"),
        Column("ratio", "ratio", interval="ratio"),
        stored("margin", "margin"),
        stored("tost_p", "p of equivalence"),
        stored("verdict", "verdict"),
        said("repeats needed", _needed, "repeats_needed"),
        stored("spread_source", "spread from"),
    )
    name = "comparisons"
    return grid(name, "Comparisons", results.rows(name), columns, results.tables[name])


def _needed(row: Row) -> str:
    needed = row["repeats_needed"]
    unknown = MISSING if row["spread"] is None else f"over {MOST_REPEATS}"
    return unknown if needed is None else number(needed)


def table1_grid(results: Results, hours: str) -> Grid:
    """Return Table 1, with half intervals where there are repeats."""
    table = results.tables["table1"]
    # Without any run, the paper's.
    label = metric_label("fourcastnet", results.metadata("table1").get("metric_name"))
    columns = (
        stored("device", "device"),
        *_batches(),
        Column("energy_kwh", "energy", "kWh", "energy_kwh"),
        Column("energy_per_node_kwh", "energy per node", "kWh", "energy_per_node_kwh"),
        Column("runtime_h", "run time", "h", "runtime_h"),
        Column("gpu_hours", hours, "h", "gpu_hours"),
        Column("metric_last", label, interval="metric_last"),
        stored("n_repeats", "runs"),
        stored("energy_origin", "origin"),
        stored("energy_scope", "scope"),
    )
    return grid("table1", "Table 1", results.rows("table1"), columns, table)


def variants_grid(results: Results, _hours: str) -> Grid:
    """Return each variant with its ratios to the baseline."""
    columns = (
        stored("model", "model"),
        stored("differs", "variant"),
        stored("precision_used", "computed in"),
        stored("n_repeats", "runs"),
        summed_up("runtime_h", "run time", "h"),
        summed_up("energy_kwh", "energy", "kWh"),
        summed_up("energy_per_sample_j", "J per sample"),
        summed_up("mean_gpu_power_w", "GPU power (W)", optional=True),
        summed_up("mean_cpu_socket_power_w", "CPU socket power (W)"),
        summed_up("step_data_share", "share of a step waiting for data"),
        summed_up("metric_last", "metric"),
        Column("runtime_ratio", "time ÷ baseline", interval="runtime_ratio"),
        Column("energy_ratio", "energy ÷ baseline", interval="energy_ratio"),
    )
    name = "variants"
    return grid(name, "Variants", results.rows(name), columns, results.tables[name])


def metrics_grid(results: Results, _hours: str) -> Grid:
    """Return the metric of every run with persistence and climatology, or guessing, where these apply."""
    columns = (
        stored("configuration", "configuration"),
        stored("repeat", "repeat"),
        said("metric", _metric_label),
        stored("metric_last", "last"),
        stored("metric_best", "best"),
        stored("metric_persistence", "persistence", optional=True),
        stored("metric_climatology", "climatology", optional=True),
        stored("guessed", "guessing", optional=True),
        said("verdict", _verdict),
    )
    runs = results.rows("runs")
    keys = zip(runs["configuration"], runs["repeat"], strict=True)
    guessed = [results.guessed.get(key, (None, None)) for key in keys]
    guesses = pd.DataFrame(guessed, runs.index, ["guessed", "guessed_least"], dtype=object)
    return grid("metrics", "Metric of every run", runs.join(guesses), columns)


def _verdict(row: Row) -> str:
    last, persistence = row["metric_last"], row["metric_persistence"]
    if last is not None and row["guessed"] is not None:
        share = f"{100 * last / row['guessed']:.0f} % of guessing"
        return f"better ({share})" if last < row["guessed_least"] else f"no better ({share})"
    if last is None or not persistence:
        return MISSING
    share = f"{100 * last / persistence:.0f} % of persistence"
    return f"better ({share})" if last < persistence else f"not better ({share})"


# --- which tables the page has --------------------------------------------------------------------


@dataclass(frozen=True)
class TablePart:
    """One table on the page, or the reason why it is not there."""

    name: str
    """Its place on the page."""
    source: str
    """The table in the campaign's folder that it shows."""
    heading: str
    says: str
    grid: Grid | None
    folded: bool = False


@dataclass(frozen=True)
class _Kind:
    """How a table is shown."""

    name: str
    source: str
    heading: str
    says: str
    make: Callable[[Results, str], Grid]
    folded: bool = False
    notes: Callable[[Results], str] = lambda _: ""
    """Sentences of the table's own."""


_KINDS = (
    _Kind(
        "plan-sums",
        "plan",
        "Plan in sum",
        "The whole campaign as the scaling model predicts it before anything is submitted: medians "
        "with the 90 % intervals of the sums.",
        plan.sums_grid,
        notes=plan.sums_notes,
    ),
    _Kind(
        "plan",
        "plan",
        "Plan by point",
        "One run of each point, as predicted, with 90 % intervals; beside the next smaller n of "
        "its series: how many times as fast, and what that costs.",
        plan.points_grid,
        folded=True,
        notes=plan.plan_notes,
    ),
    _Kind("table1", "table1", "Table 1", "", table1_grid),
    _Kind(
        "scaling",
        "scaling",
        "Scaling",
        "Each point of a series beside its smallest n that has runs (n₀), with half the width of "
        "the 95 % interval.",
        scaling_grid,
    ),
    _Kind(
        "comparisons",
        "comparisons",
        "Devices compared",
        "The same training on two devices. Equivalent: two one-sided t tests place the ratio "
        "within the margin.",
        comparisons_grid,
    ),
    _Kind(
        "variants-table",
        "variants",
        "Variants",
        "One training done in several ways; each departs from its baseline in what is named.",
        variants_grid,
    ),
    _Kind(
        "configurations",
        "configurations",
        "Configurations",
        "Means over the runs of a configuration, with half the width of the 95 % t interval; a "
        "single run has no interval.",
        configurations_grid,
    ),
    _Kind("runs", "runs", "Runs", "Every run, excluded ones too.", runs_grid),
    _Kind(
        "prediction-table",
        "prediction",
        "Predicted and measured",
        "Each configuration as the scaling model predicts it, and as it was found.",
        plan.prediction_grid,
        folded=True,
        notes=plan.prediction_notes,
    ),
    _Kind(
        "metrics",
        "runs",
        "Did the networks learn?",
        "The metric of every run. Persistence is the forecast that nothing changes, climatology "
        "that of the mean; guessing is the error of one class for all images, and no better than that "
        "is an error within two of its standard deviations over the validation images. Where they "
        "have no meaning there is a dash.",
        metrics_grid,
        folded=True,
    ),
)
_OF_THE_CAMPAIGN = ("table1", "variants")
"""What a campaign need not have."""
_OF_THE_MODEL = ("plan", "prediction")
"""What is there only where a scaling model knows the campaign."""


def table_parts(results: Results, definition: Definition, hours: str) -> list[TablePart]:
    """Return the tables that the campaign has; `hours`: the name of GPU hours."""
    return [
        _part(kind, results, hours)
        for kind in _KINDS
        if _is_shown(kind.source, results, definition)
    ]


def _is_shown(source: str, results: Results, definition: Definition) -> bool:
    if source in _OF_THE_MODEL:
        return source in results.tables
    return source not in _OF_THE_CAMPAIGN or source in definition.figures


def _part(kind: _Kind, results: Results, hours: str) -> TablePart:
    def part(says: str, grid: Grid | None) -> TablePart:
        return TablePart(kind.name, kind.source, kind.heading, says, grid, kind.folded)

    if kind.source not in results.tables:
        return part(f"The table (tables/{kind.source}.parquet) has not been made.", None)
    made = kind.make(results, hours)
    if not made.rows and kind.source == "comparisons":
        return part("No training was done on two devices, so none are compared.", None)
    return part(" ".join(filter(None, [kind.says, kind.notes(results)])), made)
