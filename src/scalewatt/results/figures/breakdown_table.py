"""Where the energy of each configuration goes: device kind by stage, with the idle baseline.

The rows of a configuration add up to its mean energy_kwh: what is out of a run's scope, or is not counted
(staging under protocol `paper`), has no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.campaign.run_spec import read_spec
from scalewatt.energies.stages import STAGES, UNATTRIBUTED
from scalewatt.energies.tables import BOUNDS, EnergyTotals
from scalewatt.recordings.terms import ALL_KINDS, J_PER_KWH
from scalewatt.results.figures.figure_schema import BREAKDOWN
from scalewatt.results.tables.derived_quantities import ratio
from scalewatt.results.tables.estimates import estimated_ends
from scalewatt.results.tables.frames import FLOAT, to_frame, to_table
from scalewatt.results.tables.idle import idle_energies_j
from scalewatt.results.tables.run_row import RunFiles, read_energy
from scalewatt.results.tables.scaling import lines_of
from scalewatt.results.tables.table_schema import PARTS

_PART = pa.schema(
    [
        *((name, pa.string()) for name in ("configuration", "device", "device_kind", "stage")),
        ("repeat", pa.int32()),
        *((name, pa.float64()) for name in ("energy_j", *BOUNDS, "discarded_j", "device_s")),
        ("energy_origin", pa.string()),
        ("short", pa.bool_()),
    ]
)
_KEYS = ["configuration", "device_kind", "stage"]
_ENERGIES = {
    "energy_kwh": "energy_j",
    "energy_low_kwh": "energy_low_j",
    "energy_high_kwh": "energy_high_j",
    "idle_energy_kwh": "idle_j",
    "discarded_energy_kwh": "discarded_j",
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
    means = _part_means(_run_parts(files, idle), repeats)
    ends = estimated_ends(chosen, "energy_kwh_mean")
    totals = {f"total_kwh_estimate_{end}": ends[f"energy_{end}_kwh"] for end in ("low", "high")}
    totals |= {f"total_kwh_{end}": chosen[f"energy_kwh_{end}"] for end in PARTS[1:]}
    # A part has its own columns in place of the configuration's.
    heads = chosen.drop(columns=list(_ENERGIES), errors="ignore")
    heads = heads.assign(figure=definition["figure"], **totals)
    rows = heads.merge(means, on="configuration", how="left")
    # Repeats of unlike origin or scope have no mean.
    energies = [*_ENERGIES, "energy_share"]
    rows[energies] = rows[energies].mask(rows["energy_unlike"].notna())
    return to_frame(to_table(rows[BREAKDOWN.names], BREAKDOWN))


def counted_repeats(definition: Mapping[str, Any]) -> dict[str, list[int]]:
    """List the repeats of each configuration that are not excluded."""
    out = {(row["configuration"], row["repeat"]) for row in definition.get("excluded", [])}
    repeats: dict[str, list[int]] = {}
    for configuration, repeat in definition["runs"]:
        if (configuration, repeat) not in out:
            repeats.setdefault(configuration, []).append(repeat)
    return repeats


def _run_parts(files: Iterable[RunFiles], idle: Path | None) -> pd.DataFrame:
    """Read energy, idle and discarded energy in J of runs, by segment, node, device kind and stage.

    Kinds out of a run's scope have no row. All energies are null if the run's is. `short`: the
    stage was too short for its energy to be told from that of others. `idle`: the table of the
    campaign's idle probes.
    """
    tables = [_PART.empty_table(), *map(_parts_of_run, files)]
    parts = to_frame(pa.concat_tables(tables))
    return parts.assign(idle_j=idle_energies_j(idle, parts))


def _parts_of_run(files: RunFiles) -> pa.Table:
    spec = read_spec(files.folder / "spec.json")
    energy = EnergyTotals(read_energy(files), with_staging=spec.protocol != "paper")
    rows = energy.in_scope
    rows = rows.assign(
        configuration=files.configuration,
        repeat=files.repeat,
        device=spec.device,
        device_s=rows["duration_s"] * rows["devices"].astype("float64").fillna(0.0),
        energy_origin=rows["device_kind"].map(energy.kinds["energy_origin"]),
    )
    if energy.joules() is None:
        rows[["energy_j", *BOUNDS, "discarded_j", "device_s"]] = None
    return pa.Table.from_pandas(rows[_PART.names], _PART, preserve_index=False)


def _part_means(parts: pd.DataFrame, repeats: Mapping[str, list[int]]) -> pd.DataFrame:
    """Average the energies of each configuration's parts over its repeats, in the order of kinds and stages.

    A stage that a run did not go through counts 0. Where it is too short, as in a segment that was soon
    killed, what it used is `unattributed`.
    """
    short = parts["short"]
    parts = parts.assign(
        short_stage=parts["stage"].where(short), stage=parts["stage"].mask(short, UNATTRIBUTED)
    )
    groups = parts.groupby(_KEYS, sort=False)
    sums = groups[list(_ENERGIES.values())].sum(skipna=False).reset_index()
    unknown = set(parts["configuration"][parts["energy_j"].isna()])
    recorded = parts.groupby("configuration")["repeat"].nunique()
    complete = [
        id_ for id_, n in recorded.items() if n == len(repeats[str(id_)]) and id_ not in unknown
    ]
    ids = sums["configuration"]
    count = ids.map({id_: len(numbers) for id_, numbers in repeats.items()}).astype(FLOAT)
    means = sums[_KEYS].assign(
        **{
            name: (sums[joules] / count / J_PER_KWH).where(ids.isin(complete))
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
