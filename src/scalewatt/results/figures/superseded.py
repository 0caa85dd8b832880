"""Measurements that were set aside so that their runs are measured again: why, and their energies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.campaign.exclusions import measurement_of
from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.errors import InputError
from scalewatt.energies.tables import EnergyTotals
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.run_files.inventory import RUN, json_object, set_aside_notes


@dataclass(frozen=True)
class Replaced:
    """One measurement that counts no more; its energy is None if it is not known here."""

    configuration: str
    repeat: int
    reason: str
    date: str
    measurement: str
    energy_kwh: float | None = None


def replaced_measurements(results: Path, asked: Iterable[Mapping[str, Any]] = ()) -> list[Replaced]:
    """Return what was set aside, in the order of runs.

    `results` is the campaign's own folder. `asked`: rows of the table of exclusions; one of
    `remeasure` counts where the run's present measurement is another, though what it names may lie on
    another machine.
    """
    found = {
        (row["configuration"], row["repeat"], row["measurement"]): _replaced(row)
        for row in asked
        if measurement_of(results, row["configuration"], row["repeat"]) != row["measurement"]
    }
    for own, notes in set_aside_notes(results).items():
        for note in notes:
            record = json_object(note)
            reason, date, measurement = (
                str(record.get(name, "")) for name in ("reason", "date", "measurement")
            )
            one = Replaced(*own, reason, date, measurement, _energy_kwh(note.parent))
            if measurement_of(results, *own) != measurement:  # else it is published once more
                found[(*own, one.measurement)] = one
    return sorted(found.values(), key=lambda one: (one.configuration, one.repeat, one.date))


def _replaced(row: Mapping[str, Any]) -> Replaced:
    names = ("configuration", "repeat", "reason", "date", "measurement")
    return Replaced(**{name: row[name] for name in names})


def _energy_kwh(kept: Path) -> float | None:
    """Return the energy of a superseded measurement, as its row of the runs table had it."""
    try:
        staged = read_spec(kept / RUN / "spec.json").protocol != "paper"
        totals = EnergyTotals(pq.read_table(kept / "energy.parquet").to_pandas(), staged)
        joules = totals.joules()
        return None if joules is None else joules / J_PER_KWH
    except (OSError, pa.ArrowException, InputError, KeyError, TypeError, ValueError):
        return None
