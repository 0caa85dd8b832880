"""Schemas and groups of columns of the tables of results, from `columns.csv`, and rows as tables of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from scalewatt.common.files import parse_json
from scalewatt.results.columns import schema, tagged
from scalewatt.training.history import PHASES

METADATA_KEY = b"scalewatt"
"""Key of a table's own metadata in its Parquet file."""
STEP_PHASES = tuple(f"step_{phase}_s" for phase in PHASES)
"""What a training step spends its time on, in the history and here."""
NET_ENERGY = "net_energy_kwh"
"""The energy above the idle baseline."""

QUANTITIES = tagged("quantity")
"""What is averaged over repeats."""
OF_ENERGY = tagged("energy")
"""Quantities that have the origin and scope of `energy_kwh`."""
ESTIMATE_BOUNDS = tagged("bound")
"""The interval of the energy, and of each kind's: both ends are the energy where nothing is estimated."""
SUMMARY = ("mean", "sd", "low", "high")
PARTS = (*SUMMARY, "population_sd")
"""How a configuration's row sums up a quantity of its repeats."""

RUNS = schema("runs")
CONFIGURATIONS = schema("configurations", QUANTITIES)
"""ESTIMATE_BOUNDS of a configuration are means of its repeats': errors of estimates do not average out."""
SCALING = schema("scaling")
COMPARISONS = schema("comparisons")


def table(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table of exactly `schema`; a row with other columns is an error (ValueError)."""
    rows = list(map(dict, rows))
    for row in rows:
        check_columns(row, schema)
    return pa.Table.from_pylist(rows, schema=schema)


def check_columns(names: Iterable[str], schema: pa.Schema) -> None:
    """Raise ValueError if columns are missing or not in the schema."""
    odd = sorted(set(names) ^ set(schema.names))
    if odd:
        raise ValueError(f"columns missing or not in the schema: {odd}")


def metadata(table: pa.Table) -> dict[str, Any]:
    """Return what is stored with a table (docs/tables/index.md); an empty object where nothing is."""
    stored = (table.schema.metadata or {}).get(METADATA_KEY)
    return parse_json(stored) if stored else {}


def with_metadata(table: pa.Table, added: dict[str, Any]) -> pa.Table:
    """Return the table, with `added` stored in it."""
    return table.replace_schema_metadata({METADATA_KEY: json.dumps(added).encode()})
