"""The table `variants`: one training done in several ways, each with its ratios to its baseline."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.results.columns import metric_label
from scalewatt.results.figures.figure_schema import RATIOS, VARIANTS
from scalewatt.results.tables.frames import frame_of, to_frame
from scalewatt.results.tables.repeat_statistics import quotients
from scalewatt.results.tables.scaling import comparable
from scalewatt.results.text.markdown_latex import closing_sentences

_ENTRY = pa.schema(
    [(name, pa.string()) for name in ("series", "label", "configuration", "baseline")]
)


def variants(definition: dict[str, Any], configurations: pd.DataFrame) -> pd.DataFrame:
    """Build one row per configuration that has runs, in the definition's order."""
    entries = frame_of(
        [{name: entry[name] for name in _ENTRY.names} for entry in definition["variants"]], _ENTRY
    )
    rows = entries.merge(configurations, on="configuration")
    by_id = configurations.set_index("configuration", drop=False)
    baselines = by_id.reindex(rows["baseline"]).set_axis(rows.index)
    for name, quantity in RATIOS.items():
        ratios = ratios_of(rows, baselines, quantity)
        ends = {name: "mean", f"{name}_low": "low", f"{name}_high": "high"}
        rows = rows.assign(**{column: ratios[part] for column, part in ends.items()})
    return rows[VARIANTS.names]


def ratios_of(rows: pd.DataFrame, baselines: pd.DataFrame, name: str) -> pd.DataFrame:
    """Divide two means, with the 95 % interval of the ratio (`quotients`).

    The interval needs repeats of both, which are independent. Null if a mean is not known, or
    where two energies are not comparable: of unequal origin or scope, or estimated. A baseline divided by
    itself is 1, without interval.
    """
    ratios = quotients(rows, baselines, name)
    if name == "runtime_h":
        return ratios
    return ratios[comparable(rows, baselines)].reindex(rows.index)


# --- as Markdown ----------------------------------------------------------------------------------

_HEADS = {
    "runtime_h": ("Run time (s)", 3600.0),
    "energy_kwh": ("Energy (Wh)", 1000.0),
    "energy_per_sample_j": ("J per sample", 1.0),
    "mean_gpu_power_w": ("GPU power (W)", 1.0),
    "mean_cpu_socket_power_w": ("CPU socket power (W)", 1.0),
    "throughput_samples_per_s": ("Samples/s", 1.0),
    "step_data_share": ("Waiting for data (%)", 100.0),
    "metric_last": ("Metric, last", 1.0),
    "metric_best": ("Metric, best", 1.0),
}
"""Head and factor of each quantity."""
_RATIO_HEADS = {
    "runtime_ratio": "Time ÷ baseline",
    "energy_ratio": "Energy ÷ baseline",
    "energy_per_sample_ratio": "J per sample ÷ baseline",
}
_GOALS = {"min": "smaller", "max": "larger"}


def markdown(table: pa.Table) -> str:
    """Write the table as Markdown: one part per model and phase; mean ± half the 95 % interval."""
    parts = [_part(rows) for _, rows in to_frame(table).groupby(["model", "phase"], sort=False)]
    meaning = (
        "Means over repeats ± half of the 95 % interval; ratios with theirs in square brackets."
    )
    return "\n\n".join([*parts, " ".join(closing_sentences(table, meaning))]) + "\n"


def _part(rows: pd.DataFrame) -> str:
    is_baseline = rows["configuration"] == rows["baseline"]
    cells: dict[str, list[str]] = {
        "Variant": rows["label"].where(~is_baseline, "baseline: " + rows["label"]).to_list(),
        "Computed in": rows["precision_used"].fillna("–").to_list(),
        "Runs": rows["n_repeats"].astype(str).to_list(),
    }
    for name, (head, factor) in _HEADS.items():
        if rows[f"{name}_mean"].notna().any():
            means, highs = rows[f"{name}_mean"] * factor, rows[f"{name}_high"] * factor
            cells[head] = list(map(_with_half, means, highs))
    for name, head in _RATIO_HEADS.items():
        cells[head] = list(map(_ratio, rows[name], rows[f"{name}_low"], rows[f"{name}_high"]))
    model, phase = rows[["model", "phase"]].iloc[0]
    title = f"**{model}{'' if phase == 'train' else f' {phase}'}**{_metric_words(rows)}"
    lines = [list(cells), ["---", "---", *["--:"] * (len(cells) - 2)]]
    lines += map(list, zip(*cells.values(), strict=True))
    return "\n".join([title, "", *("| " + " | ".join(line) + " |" for line in lines)])


def _metric_words(rows: pd.DataFrame) -> str:
    """Name the metric and its goal in brackets; nothing if no run has it."""
    known = rows[["metric_name", "metric_goal"]].dropna().drop_duplicates()
    words = [
        f"{metric_label(None, name)}, {_GOALS[goal]} is better"
        for name, goal in zip(known["metric_name"], known["metric_goal"], strict=True)
    ]
    return f" (metric: {'; '.join(words)})" if words else ""


def _with_half(mean: Any, high: Any) -> str:
    if pd.isna(mean):
        return "–"
    return f"{mean:.4g}" if pd.isna(high) else f"{mean:.4g} ± {high - mean:.2g}"


def _ratio(ratio: Any, low: Any, high: Any) -> str:
    if pd.isna(ratio):
        return "–"
    interval = "" if pd.isna(low) or pd.isna(high) else f" [{low:.3g} to {high:.3g}]"
    return f"{ratio:.4g}{interval}"
