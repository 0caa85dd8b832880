"""The columns of all tables that are written, by `columns.csv`: a row for each column of a table.

`tags` mark columns of `runs`: a `quantity` is averaged over repeats, an `energy` quantity has the origin and
scope of `energy_kwh`, a `bound` is one of an energy's interval, and `derived` columns follow from what the
files of a run have. Rows of `axes` say how figures show a quantity.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa

from scalewatt.common.files import csv_rows

METADATA_KEY = b"scalewatt"
"""Key of a table's metadata in its Parquet file."""
QUANTITY = "<quantity>"
"""Stands in a name for each quantity that a table sums up."""


@cache
def _tables() -> dict[str, dict[str, SimpleNamespace]]:
    """Columns of all tables by name: the file is read once, as modules make their schemas at import."""
    tables: dict[str, dict[str, SimpleNamespace]] = {}
    for row in csv_rows(Path(__file__).with_name("columns.csv")).values():
        tables.setdefault(row["table"], {})[row["name"]] = SimpleNamespace(**row)
    return tables


def columns(table: str) -> dict[str, SimpleNamespace]:
    """Rows of the file of a table's columns by their names, in the table's order: `unit`, `label`, …"""
    return _tables().get(table, {})


def schema(table: str, quantities: Iterable[str] = ()) -> pa.Schema:
    """Arrow schema of a table, with the columns of each of `quantities` at its end."""
    rows = columns(table).values()
    types = {row.name: pa.type_for_alias(row.type) for row in rows}
    summed = [name for name in types if QUANTITY in name]
    fields = [(name, types[name]) for name in types if name not in summed]
    fields += [(s.replace(QUANTITY, quantity), types[s]) for quantity in quantities for s in summed]
    return pa.schema(fields)
