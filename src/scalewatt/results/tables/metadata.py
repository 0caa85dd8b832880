"""What a table says of itself, in the metadata of its Parquet file (docs/tables.md)."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

METADATA_KEY = b"scalewatt"


def metadata(table: pa.Table) -> dict[str, Any]:
    """What is stored with the table; an empty object where nothing is."""
    stored = (table.schema.metadata or {}).get(METADATA_KEY)
    return json.loads(stored) if stored else {}


def with_metadata(table: pa.Table, said: dict[str, Any]) -> pa.Table:
    """The table, with `said` stored in it."""
    return table.replace_schema_metadata({METADATA_KEY: json.dumps(said).encode()})
