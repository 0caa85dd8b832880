"""A run's table of the carbon intensity that it met: its columns, and what the run emitted by it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.energies.accounting.totals import EnergyTotals
from scalewatt.recordings.series import J_PER_KWH, Flag, flag
from scalewatt.results.carbon.file_checks import stamp
from scalewatt.results.tables.read_table import read_checked
from scalewatt.results.tables.table_schema import metadata

PLACE = ("segment", "node", "device_kind", "stage")
CARBON = pa.schema(
    [
        ("configuration", pa.string()),
        ("repeat", pa.int32()),
        ("segment", pa.int32()),
        *((name, pa.string()) for name in PLACE[1:]),
        ("carbon_g_per_kwh", pa.float64()),
        ("uncovered_s", pa.float64()),
        ("weighted_by", pa.string()),
    ]
)
"""One row for each of the run's energy table. `weighted_by`: `power`, or `time` where no power over time is
known; null where not even the time is."""
BY_POWER, BY_TIME = "power", "time"


@dataclass(frozen=True)
class Emitted:
    """What a run emitted by a file of carbon intensity, without the overhead of the site."""

    grams: float | None = None
    """CO2e in g; null if the energy is, or a part of it lies outside of the file's cover."""
    flags: tuple[Flag, ...] = ()


def carbon_path(energy: Path) -> Path:
    """Return where the table lies: beside the run's energy table, <repeat>.carbon.parquet."""
    return energy.with_suffix(".carbon.parquet")


def emitted(energy: Path, totals: EnergyTotals) -> Emitted:
    """Return what a run emitted, by the table beside its energy table, whose sums are `totals`.

    InputError if it is damaged or belongs to another energy table.
    """
    path = carbon_path(energy)
    table = read_checked(path, CARBON)
    told = metadata(table)
    means = {tuple(row[name] for name in PLACE): row for row in table.to_pylist()}
    grams, unknown = 0.0, []
    counted = [row for row in totals.rows if row["device_kind"] in totals.scope]
    for row in counted:
        mean = means.get(tuple(row[name] for name in PLACE), {})
        if row["energy_j"] and mean.get("carbon_g_per_kwh") is None:
            unknown.append(mean)
        elif row["energy_j"]:
            grams += row["energy_j"] / J_PER_KWH * mean["carbon_g_per_kwh"]
    if unknown:
        return Emitted(flags=(_unknown(told, unknown),))
    return Emitted(grams if totals.total_j is not None else None)


def _unknown(told: dict[str, Any], rows: list[dict[str, Any]]) -> Flag:
    """Return the flag of a run whose emission over time is not known, from the rows that lack it."""
    cover = ""
    if {"begin_s", "end_s"} <= set(told):
        cover = f", {stamp(told['begin_s'])} to {stamp(told['end_s'])}"
    file = told.get("file", "the file of carbon intensity")
    longest = max((row.get("uncovered_s") or 0.0 for row in rows), default=0.0)
    outside = f"up to {longest:.0f} s of a stage lie outside of the cover of {file}{cover}"
    timeless = f"it is not known when energy was used, so not what {file} says of it"
    return flag("carbon_unknown", None, outside if longest > 0 else timeless)
