"""What runs would have used idle, by the table of idle powers, and why that may not be known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.results.tables.frames import frame_of
from scalewatt.results.tables.idle import IDLE
from scalewatt.results.tables.read_table import read_checked
from scalewatt.results.text.flag_labels import details_of

_POWER = pa.schema(
    [
        *((name, pa.string()) for name in ("device", "device_kind", "energy_origin")),
        ("mean_per_device_w", pa.float64()),
    ]
)


def idle_energies_j(table_path: Path | str | None, parts: pd.DataFrame) -> pd.Series:
    """Return the energy in J that devices would have used idle, for each row of `parts`.

    Columns of `parts`: device, device_kind, energy_origin, and device_s, the devices (GPUs: those
    held) times their recorded seconds. Null without a table, where a kind's idle power is not known
    or of another origin, and where a probe of the device was not idle.
    """
    rows = [] if table_path is None else _rows_of(table_path)
    idle = frame_of(
        [{name: row[name] for name in _POWER.names} for row in rows if _is_idle(row)], _POWER
    )
    found = parts.merge(idle, on=_POWER.names[:3], how="left").set_axis(parts.index)
    return found["mean_per_device_w"] * found["device_s"]


def _is_idle(row: Mapping[str, Any]) -> bool:
    return row["energy_origin"] is not None and not details_of(row, "not_idle")


def without_baseline(table_path: Path | str, runs: pd.DataFrame) -> dict[str, str]:
    """Return why runs with a known energy have no idle energy, by device; `runs` is the table RUNS."""
    lacking = runs[runs["energy_kwh"].notna() & runs["idle_energy_kwh"].isna()]["device"]
    rows = _rows_of(table_path)
    return {
        device: _why([row for row in rows if row["device"] == device])
        for device in sorted(set(lacking))
    }


def _why(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "no idle probe of it has finished"
    busy = details_of(rows[0], "not_idle")
    if busy:
        more = f" (and {len(busy) - 1} more)" if len(busy) > 1 else ""
        return f"its nodes were not idle: {busy[0]}{more}"
    unlike = details_of(rows[0], "probes_differ")
    if unlike:
        return f"its probes found unlike nodes: {unlike[0]}"
    unknown = [row["device_kind"] for row in rows if row["mean_w"] is None]
    if unknown:
        return f"its probes do not state the power of {', '.join(unknown)}"
    return "its idle power is of another origin than the runs' energy, or of other device kinds"


def _rows_of(table_path: Path | str) -> list[dict[str, Any]]:
    path = Path(table_path)
    return _read(path, path.stat().st_mtime_ns) if path.exists() else []


@lru_cache(maxsize=2)
def _read(path: Path, _changed_ns: int) -> list[dict[str, Any]]:
    """Return the table's rows, read once for all runs; they are not to be changed."""
    return read_checked(path, IDLE, unique=("device", "device_kind")).to_pylist()
