"""Measurements that were set aside so that their runs are measured again: why, and their energies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.exclusions import measurement_of
from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.errors import InputError
from scalewatt.energies.tables import ENERGY_SCHEMA, EnergyTotals
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.tables.frames import RUN_KEY, read_checked
from scalewatt.run_files.inventory import RUN, json_object, set_aside_notes

_TEXTS = ("date", "reason", "measurement")


def replaced_measurements(results: Path, asked: Iterable[Mapping[str, Any]] = ()) -> pd.DataFrame:
    """List what was set aside, in the order of runs, with `energy_kwh` where it is known here.

    `results` is the campaign's own folder. `asked`: rows of the table of exclusions; one of
    `remeasure` counts where the run's present measurement is another, though what it names may lie on
    another machine.
    """
    rows = [*asked]
    for (id_, repeat), notes in set_aside_notes(results).items():
        for note in notes:
            record = json_object(note)
            texts = {name: str(record.get(name, "")) for name in _TEXTS}
            run = {"configuration": id_, "repeat": repeat}
            rows.append({**run, **texts, "energy_kwh": _energy_kwh(note.parent)})
    # A measurement that is the run's present one was published once more.
    replaced = [
        row
        for row in rows
        if measurement_of(results, row["configuration"], row["repeat"]) != row["measurement"]
    ]
    table = pd.DataFrame(replaced, columns=[*RUN_KEY, *_TEXTS, "energy_kwh"])
    table = table.drop_duplicates([*RUN_KEY, "measurement"], keep="last")
    return table.sort_values([*RUN_KEY, "date", "measurement"])


def _energy_kwh(kept: Path) -> float | None:
    """Energy of a superseded measurement, as its row of the runs table had it."""
    try:
        staged = read_spec(kept / RUN / "spec.json").protocol != "paper"
        energy: pd.DataFrame = read_checked(kept / "energy.parquet", ENERGY_SCHEMA).to_pandas()
    except InputError:
        return None
    joules = EnergyTotals(energy, staged).joules()
    return None if joules is None else joules / J_PER_KWH
