"""Where the energy of each configuration goes: device kind by stage, with the idle baseline.

The rows of a configuration add up to its mean energy_kwh: what is out of a run's scope, or is not counted
(staging under protocol `paper`), has no row.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.campaign.run_spec import read_spec
from scalewatt.energies.stages import STAGES, UNATTRIBUTED
from scalewatt.energies.tables import BOUNDS, EnergyTotals, records
from scalewatt.recordings.terms import ALL_KINDS, J_PER_KWH
from scalewatt.results.figures.figure_schema import BREAKDOWN
from scalewatt.results.tables.derived_quantities import ratio
from scalewatt.results.tables.estimates import quantity_bounds
from scalewatt.results.tables.frames import TEXT, column_of, frame_of, to_frame, to_table
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
_OF_PART = ["configuration", "device_kind", "stage"]
_ENERGIES = {
    "energy_kwh": "energy_j",
    "energy_low_kwh": "energy_low_j",
    "energy_high_kwh": "energy_high_j",
    "idle_energy_kwh": "idle_j",
    "discarded_energy_kwh": "discarded_j",
}
"""What a part has the mean of, and of what."""


def breakdown(
    definition: dict[str, Any], configurations: pd.DataFrame, results: Path
) -> pd.DataFrame:
    """Return one row per configuration, device kind in its scope, and stage: means over its repeats.

    A configuration that several series share is under the first of them. Energies of one whose
    energy is not known are null.
    """
    idle = results / "tables" / "idle.parquet" if definition.get("idle") else None
    chosen = lines_of(definition["series"], configurations).drop_duplicates("configuration")
    repeats = counted_repeats(definition)
    files = [RunFiles(results, id_, r) for id_ in chosen["configuration"] for r in repeats[id_]]
    means = part_means(run_parts(files, idle), {id_: len(own) for id_, own in repeats.items()})
    totals = {f"total_kwh_{end}": chosen[f"energy_kwh_{end}"] for end in PARTS[1:]}
    open_ = quantity_bounds(chosen, "energy_kwh")
    totals |= {f"total_kwh_estimate_{end}": open_[end] for end in open_}
    # Of the configurations' own columns a part has its own instead.
    heads = chosen.drop(columns=list(_ENERGIES), errors="ignore")
    heads = heads.assign(figure=definition["figure"], **totals)
    found = heads.merge(means, on="configuration", how="left")
    # Repeats of unlike origin or scope have no mean.
    unlike = found["energy_unlike"].notna()
    found = found.assign(**{n: found[n].mask(unlike) for n in (*_ENERGIES, "energy_share")})
    return to_frame(to_table(found[BREAKDOWN.names], BREAKDOWN))


def counted_repeats(definition: dict[str, Any]) -> dict[str, list[int]]:
    """Return the repeats of each configuration that are not excluded."""
    out = {(one["configuration"], one["repeat"]) for one in definition.get("excluded", [])}
    repeats: dict[str, list[int]] = {}
    for configuration, repeat in definition["runs"]:
        if (configuration, repeat) not in out:
            repeats.setdefault(configuration, []).append(repeat)
    return repeats


def run_parts(files: Iterable[RunFiles], idle: Path | None) -> pd.DataFrame:
    """Return energy, idle and discarded energy in J of runs, by segment, node, device kind and stage.

    Kinds out of a run's scope have no row. All energies are null if the run's is. `short`: the
    stage was too short for its energy to be told from that of others. `idle`: the table of the
    campaign's idle probes.
    """
    rows = []
    for one in files:
        device, energy = _totals(one)
        known = energy.total_j is not None
        origins = energy.kinds["energy_origin"]
        rows += [
            {
                "configuration": one.configuration,
                "repeat": one.repeat,
                "device": device,
                **{name: row[name] for name in ("device_kind", "stage", "short")},
                **{
                    name: row[name] if known else None
                    for name in ("energy_j", *BOUNDS, "discarded_j")
                },
                "device_s": row["duration_s"] * (row["devices"] or 0) if known else None,
                "energy_origin": origins[kind],
            }
            for kind in energy.scope
            for row in records(energy.of_kind(kind))
        ]
    parts = frame_of(rows, _PART)
    return parts.assign(idle_j=idle_energies_j(idle, parts))


def _totals(one: RunFiles) -> tuple[str, EnergyTotals]:
    """Return a run's device, and its energies as far as they count."""
    spec = read_spec(one.folder / "spec.json")
    return spec.device, EnergyTotals(read_energy(one), with_staging=spec.protocol != "paper")


def part_means(parts: pd.DataFrame, repeats: dict[str, int]) -> pd.DataFrame:
    """Return the mean energies of each configuration's parts, in the order of kinds and stages.

    A stage that a run did not go through counts 0. Where it is too short, as in a segment that was soon
    killed, what it used there is `unattributed`. `repeats`: how many runs each configuration has.
    """
    short = parts["short"]
    parts = parts.assign(stage=parts["stage"].mask(short, UNATTRIBUTED), own_stage=parts["stage"])
    unknown = parts["energy_j"].isna().groupby(parts["configuration"]).any()
    recorded = parts.groupby("configuration")["repeat"].nunique()
    lacking = {id_ for id_ in recorded.index if unknown[id_] or recorded[id_] < repeats[id_]}
    groups = parts.groupby(_OF_PART, sort=False)
    found = groups.size().index.to_frame(index=False)
    count = column_of([repeats[id_] for id_ in found["configuration"]], pa.int64())
    for name, joules in _ENERGIES.items():
        total = groups[joules].sum()
        null = parts[joules].isna().groupby([parts[key] for key in _OF_PART], sort=False).any()
        mean = total.mask(null).reset_index(drop=True) / count / J_PER_KWH
        found[name] = mean.mask(found["configuration"].isin(lacking))
    total = found.groupby("configuration")["energy_kwh"].transform("sum")
    found["energy_share"] = ratio(found["energy_kwh"], total)
    names = [
        ", ".join(sorted(set(own["own_stage"][own["folded"]]), key=STAGES.index)) or pd.NA
        for _, own in parts.assign(folded=short).groupby(_OF_PART, sort=False)
    ]
    found["short_stages"] = pd.Series(names, dtype=TEXT)
    order = [found["device_kind"].map(ALL_KINDS.index), found["stage"].map(STAGES.index)]
    return found.assign(kind_place=order[0], stage_place=order[1]).sort_values(
        ["kind_place", "stage_place"], kind="stable"
    )
