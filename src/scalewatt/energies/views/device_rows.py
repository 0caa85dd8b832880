"""The accounts of one recording as one table: by stage, node, device kind and device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from scalewatt.energies.accounting.energy_schema import BOUNDS
from scalewatt.energies.accounting.totals import EnergyTotals
from scalewatt.energies.views.any_recording import AccountsOfPath
from scalewatt.energies.views.describe import only_of_stages

DEVICE_ROWS_SCHEMA = pa.schema(
    [
        ("segment", pa.int32()),
        ("stage", pa.string()),
        ("node", pa.string()),
        ("device_kind", pa.string()),
        ("device_index", pa.int32()),
        ("sensor", pa.string()),
        ("uuid", pa.string()),
        ("duration_s", pa.float64()),
        ("covered_s", pa.float64()),
        ("samples", pa.int64()),
        *((name, pa.float64()) for name in ("energy_j", *BOUNDS)),
        ("recorded_j", pa.float64()),
        ("mean_power_w", pa.float64()),
        ("energy_origin", pa.string()),
        ("in_scope", pa.bool_()),
        ("short", pa.bool_()),
        ("copy_of", pa.string()),
        ("flag_codes", pa.string()),
    ]
)
"""One row per segment, stage, node, device kind and device. A kind in scope that a node has nothing of
has one row for each stage, without device and energy. `in_scope`: it is part of the recording's energy."""

Row = Mapping[str, Any]
_PLACE = ("segment", "node", "device_kind", "stage")


def device_rows(found: AccountsOfPath) -> pa.Table:
    """Return a table of DEVICE_ROWS_SCHEMA: sums of its rows in scope are the recording's energy."""
    accounts = found.accounts
    scope = EnergyTotals(accounts.energy, with_staging=True).scope
    kinds = {_place(row): row for row in accounts.energy.to_pylist()}
    devices = accounts.devices.to_pylist()
    flags = [
        row
        for row in accounts.flags.to_pylist()
        if row["code"] != "absent" and (found.with_stages or not only_of_stages(row))
    ]
    of_place = Counter(_place(row) for row in devices)
    alone = [
        row for place, row in kinds.items() if not of_place[place] and row["device_kind"] in scope
    ]
    rows = []
    for row in [*devices, *alone]:
        kind = kinds.get(_place(row), {})
        rows.append(
            {
                **{name: row.get(name) for name in DEVICE_ROWS_SCHEMA.names},
                "in_scope": row["device_kind"] in scope,
                "short": bool(kind.get("short")),
                "flag_codes": _codes(row, flags),
            }
        )
    return pa.Table.from_pylist(rows, DEVICE_ROWS_SCHEMA)


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in _PLACE)


def _codes(row: Row, flags: Sequence[Row]) -> str:
    """Return the codes of the flags that concern a row, each once, with commas between."""
    names = (*_PLACE, "sensor")
    found = (
        one["code"]
        for one in flags
        if all(one[name] is None or one[name] == row.get(name, one[name]) for name in names)
    )
    return ", ".join(dict.fromkeys(found))
