"""What is said of the energy of a recording, as one flat object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.energies.read import ALL, Account, Reading, read_account

J_PER_KWH = 3.6e6
_ENERGIES = {"energy_j": "energy", "energy_low_j": "energy_low", "energy_high_j": "energy_high"}


def describe(
    path: Path | str, run_id: str | None = None, options: Any = None, **asked: Any
) -> dict[str, Any]:
    """Account for a recording, and say what `said` says; `options` has what a file does not say of itself."""
    own = {n: getattr(options, n) for n in ("node", "time_zone", "columns") if options is not None}
    return said(read_account(path, Reading(run=run_id, **own, **asked)))


def said(account: Account) -> dict[str, Any]:
    """Facts, `[<kind>_]energy[_low|_high]_{j,kwh}`, and lists of flags, devices, stages and epochs."""
    found = account.to_dict()
    totals = {row["device_kind"]: row for row in found.pop("totals")}
    for kind in ("gpu", "cpu", "ram", "node", "unused_gpu", ALL):
        prefix = "" if kind == ALL else f"{kind}_"
        for column, name in {**_ENERGIES, "recorded_j": "recorded_energy"}.items():
            joules = totals.get(kind, {}).get(column)
            found[f"{prefix}{name}_j"] = joules
            found[f"{prefix}{name}_kwh"] = None if joules is None else joules / J_PER_KWH
    flags = account.flags[["code", "sensor", "detail"]].drop_duplicates()
    flags = flags.astype(object).where(flags.notna(), None).rename(columns={"sensor": "device"})
    parts = {name: _by(account, name) for name in ("stage", "epoch")}
    return {
        **found,
        **{f"{name}s": rows for name, rows in parts.items()},
        "energy_scope": account.scope,
        "flags": flags.to_dict("records"),
        "devices": _devices(account.devices),
    }


def _devices(devices: pd.DataFrame) -> list[dict[str, Any]]:
    keys = ["node", "device_kind", "device_index", "sensor"]
    sums = devices.groupby(keys)[["energy_j", "recorded_j"]].sum(skipna=False).reset_index()
    order = sums["device_kind"].map({"gpu": 0, "cpu": 1, "ram": 2}).fillna(3)
    sums = sums.assign(order=order).sort_values(["node", "order", "device_index"])
    sums = sums.astype(object).where(sums.notna(), None).rename(columns={"sensor": "device"})
    return sums.to_dict("records")


def _by(account: Account, name: str) -> list[dict[str, Any]]:
    """Energies of stages or epochs, and by kind as `<kind>_energy_j`; null of those that are too short."""
    rows = getattr(account, f"{name}s")
    scope = (account.scope or "").split("+")
    rows = rows[rows[name].notna() & rows["device_kind"].isin(scope)]
    all_short = rows.groupby(name)["short"].transform("all" if name == "epoch" else "any")
    rows = rows.assign(energy_j=rows["energy_j"].mask(all_short.astype(bool)))
    sums = rows.groupby([name, "device_kind"])["energy_j"].sum(skipna=False).unstack()
    sums = (
        sums.add_suffix("_energy_j").assign(energy_j=sums.sum(axis=1, skipna=False)).reset_index()
    )
    return sums.astype(object).where(sums.notna(), None).to_dict("records")
