"""Where the energy of each configuration goes: device kind by stage, with the idle baseline.

The rows of a configuration add up to its mean energy_kwh: what is out of a run's scope, or is not
counted (staging under protocol `paper`), has no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.campaign.run_spec import read_spec
from scalewatt.energy.accounting.totals import EnergyTotals, known_sum
from scalewatt.energy.integration.stage_intervals import STAGES, UNATTRIBUTED
from scalewatt.recordings.series import DEVICE_KINDS, J_PER_KWH
from scalewatt.results.figures.figure_schema import COPIED
from scalewatt.results.tables.idle_baseline import idle_energies_j
from scalewatt.results.tables.run_row import RunFiles, read_energy
from scalewatt.results.tables.table_schema import CONFIGURATIONS, PARTS, table

Row = dict[str, Any]
Part = tuple[str, str]
"""A device kind and a stage."""

ENDS = tuple(part for part in PARTS if part != "mean")
"""What is told of the spread of a configuration's total."""

BREAKDOWN = pa.schema(
    [
        *((name, pa.string()) for name in ("figure", "series", "label")),
        *((name, CONFIGURATIONS.field(name).type) for name in COPIED),
        *((name, pa.string()) for name in ("device_kind", "stage", "short_stages")),
        *(
            (name, pa.float64())
            for name in ("energy_kwh", "energy_share", "idle_energy_kwh", "discarded_energy_kwh")
        ),
        *((f"total_kwh_{end}", pa.float64()) for end in ENDS),
    ]
)


def breakdown(definition: dict[str, Any], configurations: list[Row], results: Path) -> pa.Table:
    """One row per configuration, device kind in its scope, and stage: means over its repeats.

    A configuration that several series share is under the first of them. Energies of one whose
    energy is not known are null.
    """
    idle = results / "tables" / "idle.parquet" if definition.get("idle") else None
    rows: list[Row] = []
    for series, own, repeats in chosen_runs(definition, configurations):
        head = {"figure": definition["figure"], "series": series["name"], "label": series["label"]}
        head |= {name: own[name] for name in COPIED}
        head |= {f"total_kwh_{end}": own[f"energy_kwh_{end}"] for end in ENDS}
        files = [RunFiles(results, own["configuration"], repeat) for repeat in repeats]
        rows += [head | part for part in _parts([run_parts(one, idle) for one in files])]
    return table(rows, BREAKDOWN)


def chosen_runs(
    definition: dict[str, Any], configurations: Iterable[Row]
) -> Iterator[tuple[Row, Row, list[int]]]:
    """Each configuration once: its first series, its row, and its repeats that count."""
    by_id = {row["configuration"]: row for row in configurations}
    out = {(one["configuration"], one["repeat"]) for one in definition.get("excluded", [])}
    repeats: dict[str, list[int]] = {}
    for configuration, repeat in definition["runs"]:
        if (configuration, repeat) not in out:
            repeats.setdefault(configuration, []).append(repeat)
    for series in definition["series"]:
        for point in series["points"]:
            own = by_id.pop(point["configuration"], None)
            if own is not None:
                yield series, own, repeats[own["configuration"]]


def run_parts(files: RunFiles, idle: Path | None) -> dict[Part, Row]:
    """Energy, idle and discarded energy in J of one run, by device kind and stage.

    Kinds out of the run's scope have none. All energies are null where the run's is. `is_short`: the
    stage was too short for its energy to be told from that of others. `idle`: the table of the
    campaign's idle probes.
    """
    spec = read_spec(files.folder / "spec.json")
    energy = EnergyTotals(read_energy(files), with_staging=spec.protocol != "paper")
    known = energy.total_j is not None
    grouped: dict[Part, list[Row]] = {}
    for kind in energy.scope:
        for row in energy.of_kind(kind):
            grouped.setdefault((kind, row["stage"]), []).append(row)
    return {
        part: {
            "energy_j": known_sum(r["energy_j"] for r in rows) if known else None,
            "discarded_j": known_sum(r["discarded_j"] for r in rows) if known else None,
            "idle_j": _idle_j(energy, part[0], rows, spec.device, idle) if known else None,
            "is_short": any(row["short"] for row in rows),
        }
        for part, rows in grouped.items()
    }


def _idle_j(
    energy: EnergyTotals, kind: str, rows: Iterable[Row], device: str, idle: Path | None
) -> float | None:
    """What the devices of a kind would have used idle over the time of `rows`."""
    if idle is None:
        return None
    seconds = sum(r["duration_s"] * (r["devices"] or 0) for r in rows)
    return idle_energies_j(idle, device, {kind: seconds}, {kind: energy.origin_of(kind)})[kind]


def _parts(runs: Sequence[dict[Part, Row]]) -> list[Row]:
    """The rows of one configuration, in the order of kinds and stages; one of nulls without any.

    What is too short in one of the runs is `unattributed` in all.
    """
    short = {part for run in runs for part, own in run.items() if own["is_short"]}
    runs = [_folded(run, short) for run in runs]
    parts = {part for run in runs for part in run}
    order = sorted(parts, key=lambda part: (DEVICE_KINDS.index(part[0]), STAGES.index(part[1])))
    known = all(run and all(p["energy_j"] is not None for p in run.values()) for run in runs)
    found = [_mean_row(part, [run.get(part, _NONE) for run in runs], known) for part in order]
    total = known_sum(row["energy_kwh"] for row in found)
    for row in found:
        row["energy_share"] = row["energy_kwh"] / total if total else None
        own = [stage for kind, stage in short if kind == row["device_kind"]]
        inside = own if row["stage"] == UNATTRIBUTED else []
        row["short_stages"] = ", ".join(sorted(inside, key=STAGES.index)) or None
    return found or [
        dict.fromkeys(("device_kind", "stage", "short_stages", "energy_share", *_MEANS))
    ]


def _folded(run: dict[Part, Row], short: set[Part]) -> dict[Part, Row]:
    """The parts of a run with those in `short` in one of their kind that is `unattributed`."""
    found: dict[Part, Row] = {}
    for (kind, stage), own in run.items():
        part = (kind, UNATTRIBUTED if (kind, stage) in short else stage)
        before = found.get(part)
        if before is None:
            found[part] = own
        else:
            found[part] = {name: known_sum((before[name], own[name])) for name in _NONE}
    return found


_MEANS = {
    "energy_kwh": "energy_j",
    "idle_energy_kwh": "idle_j",
    "discarded_energy_kwh": "discarded_j",
}


def _mean_row(part: Part, runs: Sequence[Row], known: bool) -> Row:
    means = {name: _mean_kwh(runs, of) if known else None for name, of in _MEANS.items()}
    return {"device_kind": part[0], "stage": part[1], **means}


_NONE = {"energy_j": 0.0, "discarded_j": 0.0, "idle_j": 0.0}
"""Of a stage that other repeats have, and this one did not go through."""


def _mean_kwh(runs: Sequence[Row], name: str) -> float | None:
    total = known_sum(run[name] for run in runs)
    return None if total is None else total / len(runs) / J_PER_KWH
