"""Where the energy of each configuration goes: device kind by stage, with the idle baseline.

The rows of a configuration add up to its mean energy_kwh: what is out of a run's scope, or is not counted
(staging under protocol `paper`), has no row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.energies.stages import STAGES, UNATTRIBUTED
from scalewatt.energies.tables import BOUNDS, ENERGY_SCHEMA
from scalewatt.recordings.terms import ALL_KINDS, J_PER_KWH
from scalewatt.results.figures.figure_schema import BREAKDOWN
from scalewatt.results.tables.derived_quantities import estimated_ends, ratio
from scalewatt.results.tables.frames import RUN_KEY, to_frame, to_table
from scalewatt.results.tables.idle import idle_energies_j
from scalewatt.results.tables.run_row import read_energies
from scalewatt.results.tables.scaling import lines_of
from scalewatt.results.tables.table_schema import PARTS

_KEYS = ["configuration", "device_kind", "stage"]
_ENERGIES = {
    **{"energy_kwh": "energy_j", "energy_low_kwh": BOUNDS[0], "energy_high_kwh": BOUNDS[1]},
    **{"idle_energy_kwh": "idle_j", "discarded_energy_kwh": "discarded_j"},
}
"""Means of a part, and what they are of."""


def breakdown(
    definition: dict[str, Any], configurations: pd.DataFrame, runs: pd.DataFrame, idle: Path | None
) -> pd.DataFrame:
    """Build one row per configuration, device kind in its scope, and stage: means over its repeats.

    `runs` are those that count, `idle` is the path of the table of idle probes. A configuration that several
    series share is under the first of them. Energies of one whose energy is not known are null.
    """
    chosen = lines_of(definition["series"], configurations).drop_duplicates("configuration")
    ends = estimated_ends(chosen, "energy_kwh_mean")
    totals = {f"total_kwh_estimate_{end}": ends[f"energy_{end}_kwh"] for end in ("low", "high")}
    totals |= {f"total_kwh_{end}": chosen[f"energy_kwh_{end}"] for end in PARTS[1:]}
    # A part has its own columns in place of the configuration's.
    rows = chosen.drop(columns=list(_ENERGIES), errors="ignore")
    rows = rows.assign(figure=definition["figure"], **totals)
    parts = _parts(runs[runs["configuration"].isin(chosen["configuration"])])
    parts = parts.assign(idle_j=idle_energies_j(idle, parts).astype("float64"))
    means = _part_means(parts, runs.groupby("configuration").size())
    rows = rows.merge(means, on="configuration", how="left")
    rows = rows.reindex(columns=[*BREAKDOWN.names, "energy_unlike"])
    # Repeats of unlike origin or scope have no mean.
    energies = [*_ENERGIES, "energy_share"]
    rows[energies] = rows[energies].mask(rows["energy_unlike"].notna())
    return to_frame(to_table(rows, BREAKDOWN))


def _parts(runs: pd.DataFrame) -> pd.DataFrame:
    """Read energies in J of runs, by segment, node, device kind in their scope and stage.

    All energies are null if the run's is. `short`: the stage was too short for its energy to be told from
    that of others.
    """
    rows = read_energies(runs, "energy", ENERGY_SCHEMA)
    rows = rows[rows["in_scope"]]
    origins = rows.groupby([*RUN_KEY, "device_kind"])["energy_origin"]
    several = origins.transform("nunique") > 1
    rows = rows.assign(
        device_s=rows["duration_s"] * rows["devices"].fillna(0),
        energy_origin=origins.transform("first").mask(several, "mixed"),
    )
    joules = ["energy_j", *BOUNDS, "discarded_j", "device_s"]
    rows[joules] = rows[joules].mask(rows["energy_kwh"].isna())
    return rows


def _part_means(parts: pd.DataFrame, repeats: pd.Series) -> pd.DataFrame:
    """Average the energies of each configuration's parts over its repeats, in the order of kinds and stages.

    `repeats` is the number of each configuration's. A stage that a run did not go through counts 0. Where it
    is too short, as in a segment that was soon killed, what it used is `unattributed`.
    """
    short = parts["short"]
    stages = parts["stage"]
    parts = parts.assign(short_stage=stages.where(short), stage=stages.mask(short, UNATTRIBUTED))
    groups = parts.groupby(_KEYS, sort=False)
    sums = groups[list(_ENERGIES.values())].sum(skipna=False).reset_index()
    # A mean needs the energies of all repeats.
    with_energy = parts.dropna(subset="energy_j").groupby("configuration")["repeat"].nunique()
    count = sums["configuration"].map(repeats).astype("float64")
    known = sums["configuration"].map(with_energy) == count
    means = sums[_KEYS].assign(
        **{
            name: (sums[joules] / count / J_PER_KWH).where(known)
            for name, joules in _ENERGIES.items()
        },
        short_stages=groups["short_stage"].agg(_listed).to_numpy(),
    )
    total = means.groupby("configuration")["energy_kwh"].transform("sum")
    means["energy_share"] = ratio(means["energy_kwh"], total)
    order = [*ALL_KINDS, *STAGES]
    return means.sort_values(
        ["device_kind", "stage"], key=lambda names: names.map(order.index), kind="stable"
    )


def _listed(stages: pd.Series) -> str | None:
    return ", ".join(sorted(stages.dropna().unique(), key=STAGES.index)) or None
