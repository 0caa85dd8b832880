"""What runs would have used idle, by the table of idle powers, and why that may not be known."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from scalewatt.results.tables.idle import IDLE
from scalewatt.results.tables.read_table import read_checked


def idle_energies_j(
    table_path: Path | str,
    device: str,
    device_seconds: Mapping[str, float],
    origins: Mapping[str, str | None],
) -> dict[str, float | None]:
    """Return the energy in J that a run's devices would have used idle, by device kind.

    `device_seconds` and `origins` give, for each device kind of the run's scope, its devices times
    their recorded seconds (GPUs: those held) and its energy's origin. None where a kind's idle power
    is not known, or of another origin than the run's, or a probe of the device was not idle.
    """
    rows = {row["device_kind"]: row for row in _rows_of(table_path, device)}
    return {
        kind: _idle_j(rows.get(kind), seconds, origins.get(kind))
        for kind, seconds in device_seconds.items()
    }


def _idle_j(row: dict[str, Any] | None, seconds: float, origin: str | None) -> float | None:
    if row is None or row["mean_per_device_w"] is None or row["energy_origin"] != origin:
        return None
    return None if _said(row, "not_idle") else row["mean_per_device_w"] * seconds


def without_baseline(table_path: Path | str, runs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Say why runs with a known energy have no idle energy, by device; `runs` are rows of that table."""
    lacking = {
        run["device"]
        for run in runs
        if run["energy_kwh"] is not None and run["idle_energy_kwh"] is None
    }
    return {device: _why(_rows_of(table_path, device)) for device in sorted(lacking)}


def _why(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "no idle probe of it has finished"
    busy = _said(rows[0], "not_idle")
    if busy:
        more = f" (and {len(busy) - 1} more)" if len(busy) > 1 else ""
        return f"its nodes were not idle: {busy[0]}{more}"
    unlike = _said(rows[0], "probes_differ")
    if unlike:
        return f"its probes found unlike nodes: {unlike[0]}"
    unknown = [row["device_kind"] for row in rows if row["mean_w"] is None]
    if unknown:
        return f"its probes do not state the power of {', '.join(unknown)}"
    return "its idle power is of another origin than the runs' energy, or of other device kinds"


def _said(row: Mapping[str, Any], code: str) -> list[str]:
    """Details of a row's flags of one code."""
    flags = json.loads(row["flags"] or "[]")
    return [one["detail"] for one in flags if one["code"] == code]


def _rows_of(table_path: Path | str, device: str) -> list[dict[str, Any]]:
    path = Path(table_path)
    if not path.exists():
        return []
    found = _read(path, path.stat().st_mtime_ns)
    return [row for row in found if row["device"] == device]


@lru_cache(maxsize=2)
def _read(path: Path, _changed_ns: int) -> list[dict[str, Any]]:
    """The table's rows, read once for all runs; they are not to be changed."""
    return read_checked(path, IDLE, unique=("device", "device_kind")).to_pylist()
