"""The campaign's tables on the page: which there are, their columns, labels and units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from scalewatt.campaign.operating_points import LEVERS
from scalewatt.figures import figure_data as data
from scalewatt.report.data_quality_section import flag_labels, parsed_flags
from scalewatt.report.html_tables import Column, Part, grid
from scalewatt.report.report_inputs import Results
from scalewatt.report.report_request import Definition
from scalewatt.report.table_columns import COLUMNS, COMPARED, PREDICTED, metric_text, words_of
from scalewatt.results.figures.footnotes import SCATTER
from scalewatt.results.tables.estimates import ORIGINS
from scalewatt.results.text.markdown_latex import UNEQUAL_SCOPES

Row = dict[str, Any]


@dataclass(frozen=True)
class _Kind:
    """The presentation of a table: title, columns, order."""

    name: str
    source: str
    """The table in the campaign's folder that it shows."""
    heading: str
    says: str
    columns: tuple[str, ...]
    """Names in COLUMNS; another column of the table is shown under its own name."""
    headings: Mapping[str, str] = field(default_factory=dict)
    """Where they are not those of COLUMNS. All may have the words of `words_of` in braces."""
    texts: Mapping[str, Callable[[Row], str]] = field(default_factory=dict)
    """Likewise, what makes the text of a row."""
    title: str = ""
    """Of the download, and for screen readers; empty: the heading."""
    rows: Callable[[Results], pd.DataFrame] | None = None
    """Makes the rows that are shown; None: all of the table."""
    whole: bool = True
    """True if the download is the whole table, not what is shown."""
    folded: bool = False
    anchor: Callable[[Row], str] | None = None
    """Makes the id of a row; None: rows have none."""
    notes: Callable[[Results], str] = lambda _: ""
    """Sentences of the table's own."""


# --- rows and notes -------------------------------------------------------------------------------


def _with_open_ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the ends of the interval of energies of which a part is estimated; null of others."""
    estimated = rows["energy_origin"].isin(ORIGINS)
    return rows.assign(
        **{f"open_{end}_kwh": rows[f"energy_{end}_kwh"].where(estimated) for end in ("low", "high")}
    )


def _configurations(results: Results) -> pd.DataFrame:
    return _with_open_ends(results.rows("configurations"))


def _runs(results: Results) -> pd.DataFrame:
    runs = _with_open_ends(results.rows("runs"))
    return runs.assign(flag_labels=[flag_labels(parsed_flags(row)) for row in data.each(runs)])


def _runs_with_guesses(results: Results) -> pd.DataFrame:
    runs = results.rows("runs")
    keys = zip(runs["configuration"], runs["repeat"], strict=True)
    guessed = [results.guessed.get(key, (None, None)) for key in keys]
    columns = ["guessed", "guessed_least"]
    return runs.join(pd.DataFrame(guessed, runs.index, columns, dtype=object))


def _comparisons(results: Results) -> pd.DataFrame:
    """Return the comparisons, their quantities in words."""
    rows, words = results.rows("comparisons"), words_of(results)
    named = {name: label.format(**words) for name, label in COMPARED.items()}
    return rows.assign(quantity=[named.get(one, one) for one in rows["quantity"]])


def _levels(results: Results, *levels: str) -> pd.DataFrame:
    """Return the plan's rows of some levels: point, device, campaign."""
    plan = results.rows("plan")
    return plan[plan["level"].isin(levels)]


def _scaling(results: Results) -> pd.DataFrame:
    """Return the points of series with several n: the only one of a series tells nothing of scaling."""
    rows = results.rows("scaling")
    return rows[rows.groupby("series")["gpus"].transform("nunique") > 1]


def _sums(results: Results) -> pd.DataFrame:
    rows = _levels(results, "device", "campaign")
    return rows.assign(device=[device or "all" for device in rows["device"]])


def _scope_note(results: Results) -> str:
    """Return that totals of unequal scope are not comparable, where devices of the plan differ in scope."""
    scopes = _levels(results, "device")["energy_scope"]
    return UNEQUAL_SCOPES if scopes.nunique() > 1 else ""


def _seed_note(results: Results) -> str:
    """Return which repeats do not tell how errors scatter."""
    found = results.metadata("configurations").get("notes") or []
    return " ".join(str(note) for note in found if str(note).endswith(SCATTER))


def _model_note(results: Results) -> str:
    """Return which model made the predictions."""
    stored = results.metadata("prediction")
    sources = ", ".join(stored.get("sources") or [])
    return f"Predicted by {stored.get('scaling_model')}, calibrated on {sources}."


# --- the tables -----------------------------------------------------------------------------------

_BATCHES = ("gpus", "local_batch_size", "global_batch_size")
_ORIGIN = ("energy_origin", "energy_scope")
_COST = ("runtime_h", "gpu_hours", "energy_kwh")
_OPEN = ("open_low_kwh", "open_high_kwh")


_OPEN_NOTE = (
    "Estimated, at least and at most: where the true value lies, however many repeats there are. What "
    "else follows from an estimated energy is as uncertain; what is above idle is more so."
)
_RATIOS = {"gpu_hours_ratio": "{hours} ÷ those of n₀", "energy_ratio": "energy ÷ that of n₀"}

_KINDS = (
    _Kind(
        "plan-sums",
        "plan",
        "Plan in sum",
        "The whole campaign as the scaling model predicts it before anything is submitted: medians "
        "with the nominal 90 % intervals of the sums.",
        (
            *("device", "runs", "unknown_runs", "gpu_hours", "node_hours", "energy_kwh"),
            *("facility_energy_kwh", "carbon_kg", "cost", "energy_origin", "segments", "remarks"),
        ),
        headings={"energy_origin": "origin of the energy", "segments": "jobs"},
        rows=_sums,
        whole=False,
        notes=_scope_note,
    ),
    _Kind(
        "plan",
        "plan",
        "Plan by point",
        "One run of each point, as predicted, with nominal 90 % intervals; beside the next smaller n of "
        "its series: how many times as fast, and what that costs.",
        (
            *("series", "device", "gpus", "local_batch_size", "runs", *_COST, "segments"),
            *("speedup", "extra_gpu_hours", "extra_energy_kwh", "remarks"),
        ),
        headings={"segments": "jobs", "speedup": "times as fast"},
        title="Plan of one run of each point",
        rows=lambda results: _levels(results, "point"),
        folded=True,
        notes=lambda results: " ".join(results.metadata("plan").get("notes") or []),
    ),
    _Kind(
        "table1",
        "table1",
        "Table 1",
        "",
        (
            *("device", *_BATCHES, "energy_kwh", "energy_per_node_kwh", "runtime_h", "gpu_hours"),
            *("metric_last", "n_repeats", *_ORIGIN, *_OPEN),
        ),
        headings={"metric_last": "{metric}"},
        rows=lambda results: _with_open_ends(results.rows("table1")),
    ),
    _Kind(
        "scaling",
        "scaling",
        "Scaling",
        "Each point of a series beside its smallest n that has runs (n₀), with half the width of "
        "the 95 % interval.",
        (
            *("series", *_BATCHES, "n_repeats", "smallest_gpus", "speedup", "efficiency"),
            *(*_RATIOS, *_ORIGIN),
        ),
        headings=_RATIOS,
        rows=_scaling,
    ),
    _Kind(
        "comparisons",
        "comparisons",
        "Devices compared",
        "The same training on two devices. Lower, higher: the whole 95 % interval of the ratio is on one "
        "side of 1. Equivalent: it is within 1/1.05 and 1.05.",
        (
            *("configuration", "baseline", "quantity", "energy_scope", "n_repeats"),
            *("baseline_n_repeats", "ratio", "verdict", "equivalent", "tost_p"),
            *("reason", "repeats_needed", "spread_source"),
        ),
        title="Comparisons",
        rows=_comparisons,
        notes=_seed_note,
    ),
    _Kind(
        "cost-table",
        "cost_per_sample",
        "Cost per sample",
        "Training alone, with half the width of the 95 % interval: energy and power of the devices that "
        "compute, start-up apart.",
        (
            *("label", "local_batch_size", "precision_used", "channels_last", "compile", "loader"),
            *("n_repeats", "throughput_samples_per_s", "energy_per_sample_j"),
            *("energy_per_sample_j_estimate_low", "energy_per_sample_j_estimate_high"),
            *("total_per_sample_j", "total_scope", "power_w", "startup_energy_j", "pareto_optimal"),
            *("energy_origin", "energy_scope"),
        ),
        headings={
            "label": "series",
            "throughput_samples_per_s": "samples/s",
            "energy_per_sample_j_estimate_low": "estimated: at least (J)",
            "energy_per_sample_j_estimate_high": "estimated: at most (J)",
            "total_per_sample_j": "all devices: J per sample",
            "total_scope": "all devices",
            "power_w": "power (W)",
            "startup_energy_j": "start-up (J)",
            "pareto_optimal": "Pareto-optimal",
            "channels_last": "channels last",
        },
    ),
    _Kind(
        "operating-points-table",
        "operating_points",
        "Clocks and power limits",
        "Whole runs, with half the width of the 95 % interval: time and energy per sample, or of trainings "
        "to a target per training; both beside the fastest point of the same line.",
        (
            *("label", "gpus", "local_batch_size", *LEVERS, "n_repeats", "time_s", "energy_j"),
            *("energy_j_estimate_low", "energy_j_estimate_high", "time_ratio", "energy_ratio"),
            *("pareto_optimal", "energy_origin", "energy_scope"),
        ),
        headings={
            "label": "series",
            "gpu_clock_mhz": "GPU clock (MHz)",
            "gpu_power_limit_w": "GPU power limit (W)",
            "cpu_clock_mhz": "CPU clock (MHz)",
            "time_s": "time (s)",
            "energy_j": "energy (J)",
            "energy_j_estimate_low": "estimated: at least (J)",
            "energy_j_estimate_high": "estimated: at most (J)",
            "time_ratio": "time ÷ fastest",
            "energy_ratio": "energy ÷ fastest",
            "pareto_optimal": "Pareto-optimal",
        },
    ),
    _Kind(
        "variants-table",
        "variants",
        "Variants",
        "One training done in several ways; each departs from its baseline in what is named.",
        (
            *("model", "label", "precision_used", "n_repeats", "runtime_h", "energy_kwh"),
            *("energy_kwh_estimate_low", "energy_kwh_estimate_high", "energy_per_sample_j"),
            *("mean_gpu_power_w", "mean_cpu_socket_power_w", "step_data_share", "metric_last"),
            *("runtime_ratio", "energy_ratio"),
        ),
        headings={"runtime_ratio": "time ÷ baseline", "energy_ratio": "energy ÷ baseline"},
    ),
    _Kind(
        "configurations",
        "configurations",
        "Configurations",
        "Means over the runs of a configuration, with half the width of the 95 % t interval; a "
        "single run has no interval.",
        (
            *("configuration", *_BATCHES, "n_repeats", *_COST, *_OPEN, "net_energy_kwh"),
            *("p_gpuh_kw", "energy_per_sample_j", "metric_label", "metric_last", *_ORIGIN),
        ),
        rows=_configurations,
        anchor=lambda row: f"configuration-{row['configuration']}",
        headings={"metric_label": "quality metric", "metric_last": "its value"},
        notes=_seed_note,
    ),
    _Kind(
        "runs",
        "runs",
        "Runs",
        "Every run, excluded ones too.",
        (
            *("configuration", "repeat", *_BATCHES, "dataset_samples", "updates", *_COST, *_OPEN),
            *("net_energy_kwh", *_ORIGIN, "coverage", "metric_last", "segments", "excluded"),
            *("flag_labels", "page"),
        ),
        texts={"metric_last": metric_text},
        rows=_runs,
        anchor=lambda row: f"run-{row['configuration']}-{row['repeat']}",
    ),
    _Kind(
        "prediction-table",
        "prediction",
        "Predicted and measured",
        "Each configuration as the scaling model predicts it, and as it was found.",
        (
            *("configuration", "quantity", "n_repeats", "predicted", "found", "error"),
            *("in_interval", "remarks"),
        ),
        texts={"quantity": lambda row: PREDICTED[row["quantity"]]},
        title="Predicted and found",
        folded=True,
        notes=_model_note,
    ),
    _Kind(
        "metrics",
        "runs",
        "Did the networks learn?",
        "The metric of every run. Persistence is the forecast that nothing changes, climatology "
        "that of the mean; guessing is the error of one class for all images, and no better than that "
        "is an error within two of its standard deviations over the validation images. Where they "
        "have no meaning there is a dash.",
        (
            *("configuration", "repeat", "metric_label", "metric_last", "metric_best"),
            *("metric_persistence", "metric_climatology", "guessed", "learnt"),
        ),
        headings={"metric_last": "last"},
        title="Metric of every run",
        rows=_runs_with_guesses,
        whole=False,
        folded=True,
    ),
)

# --- the tables on the page -----------------------------------------------------------------------

_OF_THE_CAMPAIGN = ("table1", "variants", "cost_per_sample", "operating_points")
"""What a campaign need not have."""
_OF_THE_MODEL = ("plan", "prediction")
"""What is there only where a scaling model knows the campaign."""


def table_parts(results: Results, definition: Definition) -> list[Part]:
    """Return the tables that the campaign has."""
    return [_part(kind, results) for kind in _KINDS if _is_shown(kind.source, results, definition)]


def _is_shown(source: str, results: Results, definition: Definition) -> bool:
    if source in _OF_THE_MODEL:
        return source in results.tables
    return source not in _OF_THE_CAMPAIGN or source in definition.figures


def _part(kind: _Kind, results: Results) -> Part:
    part = Part(kind.heading, "", name=kind.name, folded=kind.folded)
    table = results.tables.get(kind.source)
    if table is None:
        says = f"The table (tables/{kind.source}.parquet) has not been made."
        return replace(part, says=says)
    if table.empty and kind.source == "comparisons":
        says = "No training was done on two devices, so none are compared."
        return replace(part, says=says)
    if kind.source == "scaling" and _scaling(results).empty:
        return replace(part, says="No series has a second n, so nothing is said of scaling.")
    columns = [_column(kind, name, words_of(results)) for name in kind.columns]
    rows = kind.rows(results) if kind.rows else results.rows(kind.source)
    title = kind.title or kind.heading
    whole = table if kind.whole else None
    made = grid(kind.name, title, rows, columns, whole, kind.anchor)
    open_ = _OPEN_NOTE if any(column.startswith("estimated") for column in made.headings) else ""
    says = " ".join(filter(None, [kind.says, kind.notes(results), open_]))
    return replace(part, says=says, grid=made)


def _column(kind: _Kind, name: str, words: Mapping[str, str]) -> Column:
    column = COLUMNS.get(name) or Column(name, name)
    heading = kind.headings.get(name, column.heading).format(**words)
    return replace(column, heading=heading, text=kind.texts.get(name, column.text))
