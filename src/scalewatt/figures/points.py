"""What a figure's table holds: its rows, its metadata, and the points that can be plotted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.errors import InputError

Row = dict[str, Any]


def columns_of(figure: int | str) -> Sequence[str]:
    """The columns that the table of a figure must have."""
    from scalewatt.results import figure_schema

    if isinstance(figure, str):
        return figure_schema.VARIANTS.names
    by_number = {1: figure_schema.OVERVIEW, 5: figure_schema.POWER}
    return by_number.get(figure, figure_schema.POINTS).names


def read_figure_table(figure: int | str, path: Path) -> pa.Table:
    """Read a figure's table; InputError when it is absent, unreadable or lacks a column."""
    import pyarrow.parquet as pq

    name = figure if isinstance(figure, str) else f"figure{figure}"
    if not path.is_file():
        raise InputError(f"{name}: its table {path} does not exist")
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{name}: {path} is not a readable Parquet file") from error
    missing = [column for column in columns_of(figure) if column not in table.column_names]
    if missing:
        raise InputError(f"{name}: {path} lacks the columns {', '.join(missing)}")
    return table


def metadata(table: pa.Table) -> dict[str, Any]:
    """The table's own notes: figure, campaign, missing, notes, gpu_word (all may be absent)."""
    stored = (table.schema.metadata or {}).get(b"scalewatt")
    return json.loads(stored) if stored else {}


def gpu_word(table: pa.Table) -> str:
    """What n counts, for axis labels: `GPUs` or `processes`."""
    return str(metadata(table).get("gpu_word", "GPUs"))


def plotted(number: int, table: pa.Table) -> pa.Table:
    """The rows that are drawn as points: those that have a value (and a place on the x axis)."""
    import pyarrow.compute as pc

    if number == 1:
        return table
    if number == 5:
        return table.filter(pc.is_valid(table["power_w"]))
    return table.filter(pc.and_(pc.is_valid(table["x"]), pc.is_valid(table["y"])))


def has_value(row: Row) -> bool:
    """Whether a row of a curve table is a point."""
    return row["x"] is not None and row["y"] is not None


def series_labels(rows: Sequence[Row]) -> dict[str, str]:
    """Series to legend label in table order; a label that two series share gets their names."""
    labels: dict[str, str] = {}
    for row in rows:
        labels.setdefault(row["series"], row["label"] or row["series"])
    seen = list(labels.values())
    return {
        series: f"{label} ({series})" if seen.count(label) > 1 else label
        for series, label in labels.items()
    }
