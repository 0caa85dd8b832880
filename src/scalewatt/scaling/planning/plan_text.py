"""Format a plan as text: tables of at most 100 columns for a terminal, and Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

import pandas as pd

from scalewatt.results.tables.frames import records
from scalewatt.results.text.number_format import MISSING
from scalewatt.scaling.planning.plan import CAMPAIGN, DEVICE, POINT, Row
from scalewatt.scaling.planning.plan_numbers import short, with_interval
from scalewatt.scaling.planning.plan_table import Plan
from scalewatt.scaling.planning.recommend import BY_GPU_HOURS, DEADLINE, Recommendation

WIDTH = 100
_COLUMNS = {
    "n": "gpus",
    "LBS": "local_batch_size",
    "hours": "runtime_h",
    "GPUh": "gpu_hours",
    "kWh": "energy_kwh",
    "jobs": "segments",
    "faster": "speedup",
    "+GPUh": "extra_gpu_hours",
    "+kWh": "extra_energy_kwh",
    "kWh/h": "extra_kwh_per_hour_saved",
}
_INTERVALS = ("hours", "kWh")
"""Columns that have their intervals beside them on a terminal."""
_SUMS = {
    "runs": "runs",
    "finished": "finished_runs",
    "GPUh": "gpu_hours",
    "kWh": "energy_kwh",
    "kWh of GPUs": "gpu_energy_kwh",
    "kWh of CPUs": "cpu_energy_kwh",
    "kWh of memory": "ram_energy_kwh",
    "kWh with PUE": "facility_energy_kwh",
    "kg CO2e": "carbon_kg",
    "cost": "cost",
    "jobs": "segments",
}
_HEAD = (
    "One run of each point, with nominal 90 % intervals. faster, +GPUh, +kWh and kWh/h (kWh for each hour "
    "saved) are beside the next smaller n of the series."
)


def plan_text(plan: Plan) -> str:
    """Return the plan for a terminal."""
    blocks = [_wrapped(f"{plan.table.attrs['campaign']}: {_HEAD}")]
    for _, own in plan.of_level(POINT).groupby("series", sort=False):
        rows = records(own)
        table = pd.DataFrame([_terminal_row(row) for row in rows])
        blocks.append(f"{_title(rows[0])}\n{table.to_string(index=False)}")
    blocks.append(_sum_table(plan).to_string())
    return "\n\n".join([*blocks, *map(_wrapped, _sentences(plan))])


def plan_markdown(plan: Plan) -> str:
    """Return the plan as Markdown."""
    points = [
        {"series": row["series"]} | {head: _with_interval(row, of) for head, of in _COLUMNS.items()}
        for row in records(plan.of_level(POINT))
    ]
    paragraphs = [
        f"# Plan of {plan.table.attrs['campaign']}",
        _HEAD,
        _markdown_table(pd.DataFrame(points).set_index("series")),
        "## In sum",
        _markdown_table(_sum_table(plan)),
        *_sentences(plan),
    ]
    return "\n\n".join(paragraphs) + "\n"


def _sentences(plan: Plan) -> list[str]:
    return [
        *step_sentences(plan),
        *recommended_sentences(plan),
        *plan.notes,
        *_warnings(_sums(plan)),
        *point_sentences(plan.of_level(POINT)),
    ]


def _terminal_row(row: Row) -> dict[str, str]:
    found = {}
    for head, name in _COLUMNS.items():
        found[head] = short(row[name])
        if head in _INTERVALS:
            low, high = row[f"{name}_low"], row[f"{name}_high"]
            found[f"{head} 90 %"] = MISSING if low is None else f"{short(low)}–{short(high)}"
    return found


def _sum_table(plan: Plan) -> pd.DataFrame:
    """Return sums, a row each, by device and in all; without those that are not known."""
    sums = {
        _sum_name(row): {head: _with_interval(row, name) for head, name in _SUMS.items()}
        for row in _sums(plan)
    }
    table = pd.DataFrame(sums).rename({"cost": f"cost, {plan.table.attrs['currency']}"})
    return table[(table != MISSING).any(axis=1)]


def _markdown_table(table: pd.DataFrame) -> str:
    lines = [
        [str(table.index.name or ""), *map(str, table.columns)],
        ["---"] + ["--:"] * len(table.columns),
    ]
    lines += [[str(label), *cells] for label, *cells in table.itertuples()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def step_sentences(plan: Plan) -> list[str]:
    """Return one sentence for each series that has the two chosen n."""
    return [_step(row) for row in records(plan.steps)]


def _step(row: Row) -> str:
    head = f"{row['series']}: from {row['smaller_gpus']} to {row['gpus']} GPUs"
    if row["reason"]:
        return f"{head}: not known ({row['reason']})."
    energy = _with_interval(row, "extra_energy_kwh", "kWh")
    hour = _with_interval(row, "extra_kwh_per_hour_saved", "kWh")
    return (
        f"{head}: {_with_interval(row, 'smaller_runtime_h', 'h')} become "
        f"{_with_interval(row, 'runtime_h', 'h')}, {_with_interval(row, 'speedup')} times as fast; "
        f"more: {_with_interval(row, 'extra_gpu_hours', 'GPUh')}, {energy}; for each hour saved {hour}."
    )


def recommended_sentences(plan: Plan) -> list[str]:
    """Return one sentence for each series and limit."""
    return [_recommended(one) for one in plan.recommended]


def _recommended(one: Recommendation) -> str:
    limit = (
        f"within {one.value:g} h, the cheapest n"
        if one.limit == DEADLINE
        else f"within {one.value:g} kWh, the fastest n"
    )
    if one.gpus_with_median is None:
        return f"{one.series}: {limit}: none ({one.reason})."
    sure = f"{one.gpus_with_95_percent or 'none'} with 95 % probability"
    by = " (by GPU hours: no energy is known)" if one.least == BY_GPU_HOURS else ""
    return f"{one.series}: {limit}{by}: {sure}, {one.gpus_with_median} by the median."


def point_sentences(points: pd.DataFrame) -> list[str]:
    """Return warnings and reasons of points, each once, with the points that it is of."""
    named = points.assign(
        name=points["series"] + " n = " + points["gpus"].astype("string[pyarrow]")
    )
    found = named.melt("name", ["warnings", "reason"], ignore_index=False).dropna()
    groups = found.sort_index(kind="stable").groupby("value", sort=False)["name"]
    return [f"{_named(list(names))}: {sentence}." for sentence, names in groups]


def _named(names: Sequence[str]) -> str:
    few = list(dict.fromkeys(names))
    return ", ".join(few) if len(few) < 5 else f"{', '.join(few[:3])} and {len(few) - 3} more"


def _title(first: Row) -> str:
    model = first["model"] if first["phase"] == "train" else f"{first['model']} {first['phase']}"
    return f"{first['series']} ({model} on {first['device']}, runs of each: {first['runs']})"


def _with_interval(row: Row, name: str, unit: str = "") -> str:
    value, low, high = row[name], row.get(f"{name}_low"), row.get(f"{name}_high")
    return with_interval(value, low, high, unit)


def _sums(plan: Plan) -> list[Row]:
    """Return the sums of the devices, where there are several, and of the campaign."""
    devices = records(plan.of_level(DEVICE))
    return [*(devices if len(devices) > 1 else []), *records(plan.of_level(CAMPAIGN))]


def _sum_name(row: Row) -> str:
    return row["device"] if row["level"] == DEVICE else "all"


def _warnings(rows: Iterable[Row]) -> list[str]:
    return [f"{_sum_name(row)}: {row['warnings']}." for row in rows if row["warnings"]]


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
