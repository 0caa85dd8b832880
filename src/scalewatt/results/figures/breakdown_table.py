"""Where the energy of each configuration goes: device kind by stage, with the idle baseline.

The rows of a configuration add up to its mean energy_kwh: what is out of a run's scope, or is not counted
(staging under protocol `paper`), has no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.run_spec import read_spec
from scalewatt.energies.stages import STAGES, UNATTRIBUTED
from scalewatt.energies.tables import BOUNDS
from scalewatt.recordings.terms import ALL_KINDS, J_PER_KWH
from scalewatt.results.figures.figure_schema import BREAKDOWN
from scalewatt.results.tables.derived_quantities import estimated_ends, ratio
from scalewatt.results.tables.frames import to_frame, to_table
from scalewatt.results.tables.idle import idle_energies_j
from scalewatt.results.tables.run_row import RunFiles, read_totals
from scalewatt.results.tables.scaling import lines_of
from scalewatt.results.tables.table_schema import PARTS

_KEYS = ["configuration", "device_kind", "stage"]
_ENERGIES = {
    **{"energy_kwh": "energy_j", "energy_low_kwh": BOUNDS[0], "energy_high_kwh": BOUNDS[1]},
    **{"idle_energy_kwh": "idle_j", "discarded_energy_kwh": "discarded_j"},
}
"""Means of a part, and what they are of."""


def breakdown(
    definition: dict[str, Any], configurations: pd.DataFrame, results: Path
) -> pd.DataFrame:
    """Build one row per configuration, device kind in its scope, and stage: means over its repeats.

    A configuration that several series share is under the first of them. Energies of one whose
    energy is not known are null.
    """
    idle = results / "tables" / "idle.parquet" if definition.get("idle") else None
    chosen = lines_of(definition["series"], configurations).drop_duplicates("configuration")
    repeats = counted_repeats(definition)
    files = [RunFiles(results, id_, r) for id_ in chosen["configuration"] for r in repeats[id_]]
    ends = estimated_ends(chosen, "energy_kwh_mean")
    totals = {f"total_kwh_estimate_{end}": ends[f"energy_{end}_kwh"] for end in ("low", "high")}
    totals |= {f"total_kwh_{end}": chosen[f"energy_kwh_{end}"] for end in PARTS[1:]}
    # A part has its own columns in place of the configuration's.
    rows = chosen.drop(columns=list(_ENERGIES), errors="ignore")
    rows = rows.assign(figure=definition["figure"], **totals)
    if files:
        parts = pd.concat([_parts_of_run(file) for file in files], ignore_index=True)
        parts = parts.assign(idle_j=idle_energies_j(idle, parts).astype("float64"))
        rows = rows.merge(_part_means(parts, repeats), on="configuration", how="left")
    rows = rows.reindex(columns=[*BREAKDOWN.names, "energy_unlike"])
    # Repeats of unlike origin or scope have no mean.
    energies = [*_ENERGIES, "energy_share"]
    rows[energies] = rows[energies].mask(rows["energy_unlike"].notna())
    return to_frame(to_table(rows, BREAKDOWN))


def counted_repeats(definition: Mapping[str, Any]) -> dict[str, list[int]]:
    """List the repeats of each configuration that are not excluded."""
    out = {(row["configuration"], row["repeat"]) for row in definition.get("excluded", [])}
    repeats: dict[str, list[int]] = {}
    for configuration, repeat in definition["runs"]:
        if (configuration, repeat) not in out:
            repeats.setdefault(configuration, []).append(repeat)
    return repeats


def _parts_of_run(files: RunFiles) -> pd.DataFrame:
    """Read energies in J of a run, by segment, node, device kind in its scope and stage.

    All energies are null if the run's is. `short`: the stage was too short for its energy to be told from
    that of others.
    """
    spec = read_spec(files.folder / "spec.json")
    energy = read_totals(files, spec.protocol)
    rows = energy.in_scope
    rows = rows.assign(
        configuration=files.configuration,
        repeat=files.repeat,
        device=spec.device,
        device_s=rows["duration_s"] * rows["devices"].astype("float64").fillna(0.0),
        energy_origin=rows["device_kind"].map(energy.kinds["energy_origin"]),
    )
    if energy.joules() is None:
        rows[["energy_j", *BOUNDS, "discarded_j", "device_s"]] = float("nan")
    return rows


def _part_means(parts: pd.DataFrame, repeats: Mapping[str, list[int]]) -> pd.DataFrame:
    """Average the energies of each configuration's parts over its repeats, in the order of kinds and stages.

    A stage that a run did not go through counts 0. Where it is too short, as in a segment that was soon
    killed, what it used is `unattributed`.
    """
    short = parts["short"]
    stages = parts["stage"]
    parts = parts.assign(short_stage=stages.where(short), stage=stages.mask(short, UNATTRIBUTED))
    groups = parts.groupby(_KEYS, sort=False)
    sums = groups[list(_ENERGIES.values())].sum(skipna=False).reset_index()
    # A mean needs the energies of all repeats.
    unknown = set(parts["configuration"][parts["energy_j"].isna()])
    recorded = parts.groupby("configuration")["repeat"].nunique()
    complete = [id_ for id_, n in recorded.items() if n == len(repeats[str(id_)])]
    ids = sums["configuration"]
    known = ids.isin(complete) & ~ids.isin(unknown)
    count = ids.map({id_: len(numbers) for id_, numbers in repeats.items()}).astype(float)
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
