"""The columns of all tables, from `columns.csv`: schemas, labels with units, and the pages of the tables.

A row of the file is a column of a table. `tags` mark columns of `runs`: a `quantity` is averaged over
repeats, an `energy` quantity has the origin and scope of `energy_kwh`, a `bound` is one of an energy's
interval, and `derived` columns follow from what the files of a run have. Rows of `axes` say how figures show
a quantity.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

RUNS_TABLE, METRICS = "runs", "metrics"
QUANTITY = "<quantity>"
"""Stands in a name for each quantity that a table sums up."""
SEVERAL = "several"
"""Stands for the metric, or the device, of runs that have different ones."""
METRIC_OF_MODEL = {"resnet50": "top1_error_percent", "fourcastnet": "z500_rmse_m2_s2"}


class Column(NamedTuple):
    """A column of a table, as `columns.csv` has it."""

    table: str
    name: str
    type: str
    unit: str
    label: str
    tags: str
    meaning: str
    null: str


@cache
def _tables() -> dict[str, dict[str, Column]]:
    """Columns of all tables by name: the file is read once, as modules make their schemas at import."""
    tables: dict[str, dict[str, Column]] = {}
    with Path(__file__).with_name("columns.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            tables.setdefault(row["table"], {})[row["name"]] = Column(**row)
    return tables


def columns(table: str) -> dict[str, Column]:
    """Map the names of a table's columns to their rows of the file, in the table's order."""
    return _tables().get(table, {})


def schema(table: str, quantities: Iterable[str] = ()) -> pa.Schema:
    """Arrow schema of a table, with the columns of each of `quantities` at its end."""
    rows = columns(table).values()
    summed = [row for row in rows if QUANTITY in row.name]
    fields = [(row.name, pa.type_for_alias(row.type)) for row in rows if row not in summed]
    fields += [
        (row.name.replace(QUANTITY, quantity), pa.type_for_alias(row.type))
        for quantity in quantities
        for row in summed
    ]
    return pa.schema(fields)


def tagged(tag: str) -> tuple[str, ...]:
    """List the columns of `runs` with a tag."""
    return tuple(row.name for row in columns(RUNS_TABLE).values() if tag in row.tags.split())


def label(name: str, gpu_word: str = "GPUs") -> str:
    """Label of a column of `runs`, without its unit; `gpu_word` is what n counts: GPUs or processes."""
    row = columns(RUNS_TABLE).get(name)
    return in_words(row.label, gpu_word) if row and row.label else name


def singular(gpu_word: str) -> str:
    """Singular of what n counts: `GPU` of `GPUs`, `process`, `rank`."""
    return gpu_word.removesuffix("es" if gpu_word.endswith("sses") else "s")


def in_words(label: str, gpu_word: str) -> str:
    """Fill a label with what n counts, and begin it with a capital."""
    text = label.format(gpu=singular(gpu_word), gpus=gpu_word)
    return text[:1].upper() + text[1:]


def unit(name: str) -> str:
    """Unit of a column of `runs`; empty without one."""
    row = columns(RUNS_TABLE).get(name)
    return row.unit if row else ""


def with_unit_of(name: str, gpu_word: str = "GPUs") -> str:
    """Label of a column of `runs` with its unit in brackets: the head of a table's column."""
    return f"{label(name, gpu_word)} ({unit(name)})" if unit(name) else label(name, gpu_word)


def metric_label(model: str | None, metric_name: str | None = None) -> str:
    """Label of a quality metric with its unit, by its name or, if that is not known, by the model."""
    name = metric_name or METRIC_OF_MODEL.get(model or "", SEVERAL)
    if name == SEVERAL:
        return label("metric_last")
    if known := columns(METRICS).get(name):
        return f"{known.label} ({known.unit})"
    words = name.removesuffix("_percent").replace("_", " ")
    return words[:1].upper() + words[1:] + (" (%)" if name.endswith("_percent") else "")
