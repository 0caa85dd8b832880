"""The table `variants`: one training done in several ways, each beside its baseline."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.results.figures.figure_schema import OPEN, RATIOS, VARIANTS
from scalewatt.results.tables.estimates import quantity_bounds
from scalewatt.results.tables.frames import frame_of
from scalewatt.results.tables.repeat_statistics import quotients
from scalewatt.results.tables.scaling import comparable
from scalewatt.results.text.markdown_latex import closing_sentences

Row = dict[str, Any]
_ENTRY = pa.schema(
    [(name, pa.string()) for name in ("series", "label", "configuration", "baseline")]
)


def variants(definition: Row, configurations: pd.DataFrame) -> pd.DataFrame:
    """Return one row per configuration that has runs, in the definition's order."""
    entries = frame_of(
        [{name: entry[name] for name in _ENTRY.names} for entry in definition["variants"]], _ENTRY
    )
    rows = entries.merge(configurations, on="configuration")
    by_id = configurations.set_index("configuration", drop=False)
    baselines = by_id.reindex(rows["baseline"]).set_axis(rows.index)
    ratios = {
        f"{name}{end}": found[part]
        for name, quantity in RATIOS.items()
        for found in [ratios_of(rows, baselines, quantity)]
        for end, part in (("", "mean"), ("_low", "low"), ("_high", "high"))
    }
    for name in OPEN:
        bounds = quantity_bounds(rows, name)
        ratios |= {f"{name}_estimate_{end}": bounds[end] for end in bounds}
    return rows.assign(**ratios)[VARIANTS.names]


def ratios_of(own: pd.DataFrame, baselines: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return ratios of two means and their 95 % interval (`quotients`).

    The interval needs repeats of both, which are independent. Null if a mean is not known, or
    where two energies are not comparable: of unequal origin or scope, or estimated. A baseline divided by
    itself is 1, without interval.
    """
    found = quotients(own, baselines, name)
    if name == "runtime_h":
        return found
    return found[comparable(own, baselines)].reindex(own.index)


# --- as Markdown ----------------------------------------------------------------------------------

_COLUMNS = (
    ("runtime_h", "Run time (s)", 3600.0),
    ("energy_kwh", "Energy (Wh)", 1000.0),
    ("energy_per_sample_j", "J per sample", 1.0),
    ("mean_gpu_power_w", "GPU power (W)", 1.0),
    ("mean_cpu_socket_power_w", "CPU socket power (W)", 1.0),
    ("throughput_samples_per_s", "Samples/s", 1.0),
    ("step_data_share", "Waiting for data (%)", 100.0),
    ("metric_last", "Metric, last", 1.0),
    ("metric_best", "Metric, best", 1.0),
)
_RATIO_HEADS = {
    "runtime_ratio": "Time ÷ baseline",
    "energy_ratio": "Energy ÷ baseline",
    "energy_per_sample_ratio": "J per sample ÷ baseline",
}
_METRICS = {"top1_error_percent": "top-1 error in %", "z500_rmse_m2_s2": "Z500 RMSE in m²/s²"}
_GOALS = {"min": "smaller", "max": "larger"}


def markdown(built: pa.Table) -> str:
    """Return the table as Markdown: one part per model and phase; mean ± half the 95 % interval."""
    rows = built.to_pylist()
    kinds = dict.fromkeys((row["model"], row["phase"]) for row in rows)
    parts = [_part([r for r in rows if (r["model"], r["phase"]) == kind]) for kind in kinds]
    said = [
        "Means over repeats ± half of the 95 % interval; ratios with theirs in square brackets."
    ]
    if any(row["energy_kwh_estimate_low"] is not None for row in rows):
        said.append("In round brackets: between what the true value of an estimate lies.")
    sentences = closing_sentences(built, *said)
    return "\n\n".join([*parts, " ".join(sentences)]) + "\n"


def _part(rows: list[Row]) -> str:
    first = rows[0]
    shown = [c for c in _COLUMNS if any(row[f"{c[0]}_mean"] is not None for row in rows)]
    heads = ["Variant", "Computed in", "Runs", *(head for _, head, _ in shown)]
    heads += _RATIO_HEADS.values()
    lines = [heads, ["---", "---", *["--:"] * (len(heads) - 2)]]
    for row in rows:
        prefix = "baseline: " if row["configuration"] == row["baseline"] else ""
        cells = [prefix + row["label"], row["precision_used"] or "–", str(row["n_repeats"])]
        cells += [_mean(row, name, factor) for name, _, factor in shown]
        cells += [_ratio(row, name) for name in _RATIO_HEADS]
        lines.append(cells)
    phase = "" if first["phase"] == "train" else f" {first['phase']}"
    title = f"**{first['model']}{phase}**"
    return "\n".join(
        [title + _metric_sentence(rows), "", *("| " + " | ".join(cells) + " |" for cells in lines)]
    )


def _metric_sentence(rows: list[Row]) -> str:
    """Return the metric's name in brackets; empty if no run has it."""
    known = dict.fromkeys((r["metric_name"], r["metric_goal"]) for r in rows if r["metric_name"])
    parts = [f"{_METRICS.get(name, name)}, {_GOALS[goal]} is better" for name, goal in known]
    return f" (metric: {'; '.join(parts)})" if parts else ""


def _mean(row: Row, name: str, factor: float) -> str:
    return _with_half(row[f"{name}_mean"], row[f"{name}_high"], factor) + _open(row, name, factor)


def _ratio(row: Row, name: str) -> str:
    if row[name] is None:
        return "–"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    interval = "" if low is None or high is None else f" [{low:.3g} to {high:.3g}]"
    return f"{row[name]:.4g}{interval}{_open(row, name, 1.0)}"


def _open(row: Row, name: str, factor: float) -> str:
    """Return the interval of an estimate, in brackets; of anything else, and of an exact ratio, nothing."""
    low, high = (row.get(f"{name}_estimate_{end}") for end in ("low", "high"))
    if low is None or high is None or low == high:
        return ""
    return f" ({low * factor:.3g} to {high * factor:.3g})"


def _with_half(mean: float | None, high: float | None, factor: float) -> str:
    if mean is None:
        return "–"
    text = f"{mean * factor:.4g}"
    return text if high is None else f"{text} ± {(high - mean) * factor:.2g}"
