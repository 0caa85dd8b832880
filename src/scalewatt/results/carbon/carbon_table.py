"""A run's table of the carbon intensity that it met: its columns, and what the run emitted by it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from scalewatt.energies.tables import EnergyTotals, records
from scalewatt.recordings.terms import J_PER_KWH, Flag, flag
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
    ]
)
"""One row for each of the run's energy table."""


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

    InputError if it is damaged.
    """
    table = read_checked(carbon_path(energy), CARBON)
    means = {
        tuple(row[name] for name in PLACE): row["carbon_g_per_kwh"] for row in table.to_pylist()
    }
    grams = 0.0
    for row in records(totals.in_scope):
        if not row["energy_j"]:
            continue
        mean = means.get(tuple(row[name] for name in PLACE))
        if mean is None:
            facts = metadata(table)
            cover = " to ".join(stamp(facts[name]) for name in ("begin_s", "end_s"))
            detail = (
                f"{facts['file']}, {cover}: energy was used outside of it, or it is not known when"
            )
            return Emitted(flags=(flag("carbon_unknown", None, detail),))
        grams += row["energy_j"] / J_PER_KWH * mean
    return Emitted(grams if totals.total_j is not None else None)
