"""Format a plan as text: a table of at most 100 columns for a terminal, and Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from scalewatt.results.tables.frames import records
from scalewatt.results.text.number_format import MISSING, count
from scalewatt.scaling.planning.plan import CAMPAIGN, DEVICE, POINT, Row
from scalewatt.scaling.planning.plan_numbers import short, with_interval
from scalewatt.scaling.planning.plan_table import Plan
from scalewatt.scaling.planning.recommend import BY_GPU_HOURS, DEADLINE, Recommendation

WIDTH = 100


@dataclass(frozen=True)
class _Column:
    head: str
    width: int
    of: str
    interval: bool = False


_COLUMNS = (
    _Column("n", 5, "gpus"),
    _Column("LBS", 6, "local_batch_size"),
    _Column("hours", 8, "runtime_h"),
    _Column("nominal 90 %", 14, "runtime_h", interval=True),
    _Column("GPUh", 8, "gpu_hours"),
    _Column("kWh", 8, "energy_kwh"),
    _Column("nominal 90 %", 14, "energy_kwh", interval=True),
    _Column("jobs", 6, "segments"),
    _Column("faster", 8, "speedup"),
    _Column("+GPUh", 8, "extra_gpu_hours"),
    _Column("+kWh", 8, "extra_energy_kwh"),
    _Column("kWh/h", 7, "extra_kwh_per_hour_saved"),
)
_SUM_COLUMNS = (
    ("hours of all GPUs", "gpu_hours", "GPUh"),
    ("energy", "energy_kwh", "kWh"),
    ("energy of GPUs", "gpu_energy_kwh", "kWh"),
    ("energy of CPUs", "cpu_energy_kwh", "kWh"),
    ("energy of memory", "ram_energy_kwh", "kWh"),
    ("energy with PUE", "facility_energy_kwh", "kWh"),
    ("CO2e", "carbon_kg", "kg"),
    ("cost", "cost", ""),
    ("jobs", "segments", ""),
)


def plan_text(plan: Plan) -> str:
    """Return the plan for a terminal."""
    points = plan.of_level(POINT)
    blocks = [
        _wrapped(
            f"{plan.table.attrs['campaign']}: one run of each point; beside the next smaller n: times as "
            "fast, more GPU hours, more energy, and kWh for each hour saved"
        )
    ]
    for _, own in points.groupby("series", sort=False):
        rows = records(own)
        lines = [[c.head for c in _COLUMNS], *([_cell(row, c) for c in _COLUMNS] for row in rows)]
        table = [
            "".join(f"{t:>{c.width}}" for t, c in zip(line, _COLUMNS, strict=True))
            for line in lines
        ]
        blocks.append("\n".join([_title(rows[0]), *table]))
    blocks.append("\n".join(_sum_lines(plan)))
    if len(plan.steps):
        blocks.append("\n".join(_wrapped(one, "  ") for one in step_sentences(plan)))
    if plan.recommended:
        blocks.append("\n".join(_wrapped(one, "  ") for one in recommended_sentences(plan)))
    blocks.append("\n".join(_wrapped(one) for one in [*plan.notes, *point_sentences(points)]))
    return "\n\n".join(blocks)


def plan_markdown(plan: Plan) -> str:
    """Return the plan as Markdown."""
    points = plan.of_level(POINT)
    heads = ["series", *(c.head for c in _COLUMNS if not c.interval)]
    rules = ["---", *("--:" for c in _COLUMNS if not c.interval)]
    lines = [heads, rules]
    for row in records(points):
        cells = [_with_interval(row, c.of) for c in _COLUMNS if not c.interval]
        lines.append([row["series"], *cells])
    table = ["| " + " | ".join(cells) + " |" for cells in lines]
    sums = ["| | runs | " + " | ".join(words for words, _, _ in _SUM_COLUMNS) + " |"]
    sums.append("| --- |" + " --: |" * (len(_SUM_COLUMNS) + 1))
    for row in _sums(plan):
        cells = [
            _with_interval(row, name, _unit(plan, name, unit)) for _, name, unit in _SUM_COLUMNS
        ]
        sums.append("| " + " | ".join([_sum_name(row), str(row["runs"]), *cells]) + " |")
    sentences = [
        *step_sentences(plan),
        *recommended_sentences(plan),
        *plan.notes,
        *_warnings(_sums(plan)),
        *point_sentences(points),
    ]
    paragraphs = [
        f"# Plan of {plan.table.attrs['campaign']}",
        "One run of each point, with nominal 90 % intervals. `faster`, `+GPUh`, `+kWh` and `kWh/h` (kWh for "
        "each hour saved) are beside the next smaller n of the series.",
        "\n".join(table),
        "## In sum",
        "\n".join(sums),
        *sentences,
    ]
    return "\n\n".join(paragraphs) + "\n"


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
    return f"{first['series']} ({model} on {first['device']}, {count(first['runs'], 'run')} each)"


def _cell(row: Row, column: _Column) -> str:
    if not column.interval:
        return short(row[column.of])
    low, high = row[f"{column.of}_low"], row[f"{column.of}_high"]
    return MISSING if low is None else f"{short(low)}–{short(high)}"


def _with_interval(row: Row, name: str, unit: str = "") -> str:
    value, low, high = row[name], row.get(f"{name}_low"), row.get(f"{name}_high")
    return with_interval(value, low, high, unit)


def _sums(plan: Plan) -> list[Row]:
    """Return the sums of the devices, where there are several, and of the campaign."""
    devices = records(plan.of_level(DEVICE))
    return [*(devices if len(devices) > 1 else []), *records(plan.of_level(CAMPAIGN))]


def _sum_name(row: Row) -> str:
    return row["device"] if row["level"] == DEVICE else "all"


def _sum_lines(plan: Plan) -> list[str]:
    lines = []
    for row in _sums(plan):
        finished = f", {row['finished_runs']} finished" if row["finished_runs"] else ""
        lines.append(f"{_sum_name(row)} ({count(row['runs'], 'run')}{finished})")
        parts = [
            f"{words} {_with_interval(row, name, _unit(plan, name, unit))}"
            for words, name, unit in _SUM_COLUMNS
            if row[name] is not None
        ]
        lines.append(_wrapped("; ".join(parts) or MISSING, "  "))
        lines += [_wrapped(one, "  ") for one in _warnings([row])]
    return lines


def _unit(plan: Plan, name: str, unit: str) -> str:
    return str(plan.table.attrs["currency"]) if name == "cost" else unit


def _warnings(rows: Iterable[Row]) -> list[str]:
    return [f"{_sum_name(row)}: {row['warnings']}." for row in rows if row["warnings"]]


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
