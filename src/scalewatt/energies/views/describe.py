"""The energy in any recording: a perun file, a journal, or the folder of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.energies.accounting.energy_schema import BOUNDS, Accounts
from scalewatt.energies.accounting.node_energy import UNUSED_GPU
from scalewatt.energies.accounting.totals import (
    EnergyTotals,
    flags_of_run,
    flags_of_stages,
    known_sum,
)
from scalewatt.energies.stages import STAGES
from scalewatt.energies.views.any_recording import AccountsOfPath, Powers, accounts_of
from scalewatt.recordings.series import ALL_KINDS, J_PER_KWH, NODE, Flag, flag
from scalewatt.recordings.tables import NO_OPTIONS, Options


def only_of_stages(row: Mapping[str, Any]) -> bool:
    """True of a row of FLAGS_SCHEMA that matters with stages only: when a node was recorded, or no events."""
    of_clock = row["code"] in ("time_assumed", "time_unknown") and row["node"] is not None
    return of_clock or row["code"] == "no_events"


def describe(
    path: Path | str,
    run_id: str | None = None,
    round_id: str | None = None,
    stages: Path | None = None,
    gpus_per_node: int | None = None,
    powers: Powers | None = None,
    options: Options = NO_OPTIONS,
) -> dict[str, Any]:
    """Return the energy of one recording by device kind, device and stage, ready for JSON.

    Absent is None. A total is None if one of its parts is recorded but may not be stated; what
    was recorded of it stands in `recorded_energy_kwh`. `runtime_s` is the longest of the hosts,
    summed over segments, `coverage` the smallest of a kind. `stages`: a file of stage events;
    `gpus_per_node`: how many GPUs each node must have recorded. Of a run folder all segments count,
    with the run's own stages. What was not measured is estimated from the rated powers that the run was
    made with, or those that `powers` gives of its spec's device. `options` say what another tool's file
    does not say of itself; a folder of such files is one run. Raises InputError.
    """
    return description(accounts_of(path, run_id, round_id, stages, gpus_per_node, powers, options))


def description(found: AccountsOfPath) -> dict[str, Any]:
    """Return `describe`'s result of what was accounted for."""
    return {**found.which, **_result(found.accounts, found.with_stages), **found.more}


_NOTHING = {"recorded_j": 0.0, "covered_s": 0.0, "duration_s": 0.0, "samples": 0}


def _devices(devices: pa.Table) -> list[dict[str, Any]]:
    """Return a row for each device, with its energy as far as it may be stated."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in devices.to_pylist():
        one = found.setdefault(
            (row["node"], row["device_kind"], row["sensor"]), {**row, **_NOTHING, "known": True}
        )
        one["known"] &= row["energy_j"] is not None
        for name in _NOTHING:
            one[name] += row[name]
    order = (*ALL_KINDS, UNUSED_GPU)
    return [
        {
            **{name: one[name] for name in ("node", "device_kind", "device_index")},
            **{"device": one["sensor"], "uuid": one["uuid"]},
            **{"recorded_j": one["recorded_j"], "samples": one["samples"]},
            "energy_j": (energy := one["recorded_j"] if one["known"] else None),
            "energy_kwh": _kwh(energy),
            "mean_power_w": _ratio(one["recorded_j"], one["covered_s"]),
            "coverage": min(_ratio(one["covered_s"], one["duration_s"]) or 0.0, 1.0),
        }
        for one in sorted(
            found.values(),
            key=lambda r: (r["node"], order.index(r["device_kind"]), r["device_index"]),
        )
    ]


def _result(accounts: Accounts, with_stages: bool) -> dict[str, Any]:
    totals = EnergyTotals(accounts.energy, with_staging=True)
    scope = totals.scope
    joules = {kind: totals.joules(kind) for kind in (*ALL_KINDS, UNUSED_GPU)}
    energies = {"": totals.total_j, **{f"{kind}_": joules[kind] for kind in joules}}
    bounds = {"": totals.total_bounds_j, **{f"{kind}_": totals.bounds_j(kind) for kind in joules}}
    recorded = known_sum(totals.recorded_j(kind) for kind in scope)
    return {
        **{f"{prefix}energy_kwh": _kwh(energy) for prefix, energy in energies.items()},
        **{f"{prefix}energy_j": energy for prefix, energy in energies.items()},
        **{
            f"{prefix}energy_{end}_kwh": _kwh(energy)
            for prefix, ends in bounds.items()
            for end, energy in zip(("low", "high"), ends, strict=True)
        },
        "recorded_energy_kwh": _kwh(recorded),
        "discarded_energy_kwh": _kwh(known_sum(totals.discarded_j(kind) for kind in scope)),
        **{
            f"{kind}_mean_power_w": _ratio(joules[kind], totals.device_seconds(kind))
            for kind in ALL_KINDS
        },
        "energy_scope": "+".join(scope) or None,
        "runtime_s": totals.runtime_s,
        "hosts": totals.hosts,
        # A node's meter counts its GPUs and does not say how many there are.
        "gpus": None if scope == [NODE] else totals.devices("gpu"),
        "origin": totals.origin,
        "coverage": totals.coverage,
        "flags": _flags(totals, accounts.flags, with_stages),
        "devices": _devices(accounts.devices),
        "stages": _stages(totals) if with_stages else [],
        "epochs": _epochs(accounts.epochs, scope) if with_stages else [],
    }


def _flags(totals: EnergyTotals, found: pa.Table, with_stages: bool) -> list[Flag]:
    """Return all flags but those that say no more than the scope does."""
    if not with_stages:
        shown = [not only_of_stages(row) for row in found.to_pylist()]
        found = found.filter(pa.array(shown, pa.bool_()))
    flags = [one for one in flags_of_run(found) if one["code"] != "absent"]
    flags += flags_of_stages(found) if with_stages else []
    if not totals.scope:
        detail = (
            "no sensor of power or energy was recorded, and nothing is estimated without rated powers "
            "(of a run folder: --cluster FILE)"
        )
        flags.append(flag("not_recorded", None, detail))
    return flags


def _stages(totals: EnergyTotals) -> list[dict[str, Any]]:
    """Return the energies of each stage; what lies outside of all is `unattributed`.

    Those of a stage that was too short, in the flag's words, are null.
    """
    found = []
    for stage in STAGES:
        rows = [row for row in totals.rows if row["stage"] == stage]
        if rows:
            found.append({"stage": stage, **_parts(rows, totals.scope)})
    return found


def _epochs(epochs: pa.Table, scope: Sequence[str]) -> list[dict[str, Any]]:
    """Return the energies of each epoch; those of one whose stages are all too short are null."""
    rows = [row for row in epochs.to_pylist() if row["device_kind"] in scope]
    found = []
    for epoch in sorted({row["epoch"] for row in rows if row["epoch"] is not None}):
        own = [row for row in rows if row["epoch"] == epoch]
        # Each of its ends is as uncertain as a stage's: it is longer than its stages.
        short = all(row["short"] for row in own)
        found.append({"epoch": epoch, **_parts(own, scope, short)})
    return found


def _parts(
    rows: Sequence[dict[str, Any]], kinds: Iterable[str], unknown: bool | None = None
) -> dict[str, float | None]:
    """Return the energy of rows, its interval, and the energy of each kind; null where `unknown`.

    That is by default where a row is `short`.
    """
    sums = {
        name: {
            kind: known_sum(
                None if (row["short"] if unknown is None else unknown) else row[name]
                for row in rows
                if row["device_kind"] == kind
            )
            for kind in kinds
        }
        for name in ("energy_j", *BOUNDS)
    }
    named = {f"{kind}_energy_j": energy for kind, energy in sums["energy_j"].items()}
    return {**{name: known_sum(found.values()) for name, found in sums.items()}, **named}


def _kwh(energy_j: float | None) -> float | None:
    return None if energy_j is None else energy_j / J_PER_KWH


def _ratio(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top is not None and bottom else None
