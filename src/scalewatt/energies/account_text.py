"""Account of a recording as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import pandas as pd

from scalewatt.energies.node import UNUSED_GPU
from scalewatt.energies.read import Account
from scalewatt.energies.stages import STAGES, UNATTRIBUTED
from scalewatt.energies.tables import ALL
from scalewatt.recordings.terms import DEVICE_KINDS, J_PER_KWH, NODE

_LABELS = {
    **{"gpu": "GPU", "cpu": "CPU", "ram": "memory"},
    **{UNUSED_GPU: "GPUs not held", NODE: "whole node"},
}
LEAST_INTERVAL_J = 3.6
"""Width of the last digit of kWh."""
MOST_ROWS = 40
"""Longer tables are not printed; --json has them all."""


def account_text(account: Account) -> str:
    """Print an account as lines of text, in which unknown numbers are dashes."""
    tables = {
        "device kinds": _kinds(account.totals),
        "devices": _devices(account.devices),
        "stages": _energies_by(account, account.stages, "stage"),
        "epochs": _energies_by(account, account.epochs, "epoch"),
    }
    flags = account.flags[["code", "sensor", "detail"]].drop_duplicates()
    sentences = (": ".join(filter(pd.notna, row)) for row in flags.itertuples(index=False))
    parts = [
        "\n  ".join(_facts(account)),
        *(_table(frame, name) for name, frame in tables.items()),
        "\n".join(f"  {sentence}" for sentence in sentences),
    ]
    lines = "\n\n".join(part for part in parts if part).split("\n")
    return "\n".join(line.rstrip() for line in lines)


def _facts(account: Account) -> Iterator[str]:
    """Yield what is known of the whole recording."""
    segments = f"segments: {len(account.segments)}" if len(account.segments) > 1 else ""
    run, round_ = (account.run and f"run {account.run}", account.round and f"round {account.round}")
    yield ", ".join(filter(None, (account.path, run, round_, segments)))
    whole = account.totals.set_index("device_kind").loc[ALL].to_dict()
    joules, low, high = whole["energy_j"], whole["energy_low_j"], whole["energy_high_j"]
    energy = "unknown" if pd.isna(joules) else f"{_kwh(joules)} = {joules:.1f} J"
    words = ", ".join(filter(None, (account.origin, account.scope)))
    yield f"energy    {energy}" + (f" ({words})" if words else "")
    if pd.isna(joules) and whole["recorded_j"] > 0:
        recorded = _kwh(whole["recorded_j"])
        yield f"          {recorded} were recorded; the flags say why that is not all"
    if high - low >= LEAST_INTERVAL_J:
        ends = f"{low / J_PER_KWH:.6f} to {_kwh(high)}"
        yield f"          {ends}: the true value may lie anywhere between (docs/energy.md)"
    yield f"run time  {account.runtime_s:.3f} s"
    invented = {host: f"{host} (the file's name)" for host in account.named_by_file}
    hosts = ", ".join(invented.get(host, host) for host in account.hosts)
    yield f"hosts     {hosts or '-'}; GPUs {'-' if account.gpus is None else account.gpus}"
    yield f"coverage  {'-' if account.coverage is None else f'{100 * account.coverage:.1f} %'}"


def _kwh(joules: float) -> str:
    return f"{joules / J_PER_KWH:.6f} kWh"


# --- tables ---------------------------------------------------------------------------------------


def _kinds(totals: pd.DataFrame) -> pd.DataFrame:
    """Table of the device kinds that nodes have, with perun's totals if there are any."""
    has = (totals["devices"] > 0) | totals["device_kind"].isin(DEVICE_KINDS)
    rows = totals[has & (totals["device_kind"] != ALL)]
    table = {
        "kind": rows["device_kind"].map(_LABELS),
        "kWh": rows["energy_j"] / J_PER_KWH,
        "J": rows["energy_j"],
        "mean W/device": rows["mean_power_w"],
        "perun's J": rows["perun_j"],
    }
    return pd.DataFrame(table).drop(columns=[] if rows["perun_j"].any() else "perun's J")


def _devices(devices: pd.DataFrame) -> pd.DataFrame:
    """Table of devices, summed over segments and stages."""
    kinds = pd.Categorical(devices["device_kind"], [*_LABELS])
    keys = ["node", "device_kind", "device_index", "sensor"]
    groups = devices.assign(device_kind=kinds).groupby(keys, observed=True)
    rows = groups[["recorded_j", "covered_s", "duration_s", "samples"]].sum().reset_index()
    joules = groups["energy_j"].sum(skipna=False).array
    table = {
        "host": rows["node"],
        "device": rows["sensor"],
        "kWh": joules / J_PER_KWH,
        "J": joules,
        "mean W": rows["recorded_j"] / rows["covered_s"].where(rows["covered_s"] > 0),
        "coverage": 100 * (rows["covered_s"] / rows["duration_s"]).fillna(0.0).clip(upper=1.0),
        "samples": rows["samples"],
    }
    return pd.DataFrame(table)


def _energies_by(account: Account, frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Table of the energies in scope by stage or epoch; unknown if too short for its samples."""
    scope = (account.scope or "").split("+")
    rows = frame[frame["device_kind"].isin(scope) & frame[name].notna()]
    if set(rows[name]) <= {UNATTRIBUTED}:
        return rows[:0]
    # Both ends of an epoch are as uncertain as a stage's: it is longer than its stages.
    short = rows.groupby(name)["short"].transform("all") if name == "epoch" else rows["short"]
    known = rows.assign(energy_j=rows["energy_j"].mask(short.astype(bool)))
    joules = known.groupby([name, "device_kind"])["energy_j"].sum(skipna=False).unstack()
    order = sorted(joules.index, key=STAGES.index if name == "stage" else None)
    joules = joules.loc[order, scope].rename(columns=lambda kind: f"{_LABELS[kind]} J")
    joules.insert(0, "J", joules.sum(axis="columns", skipna=False))
    return joules.reset_index()


def _table(frame: pd.DataFrame, name: str) -> str:
    """Print a frame, or how long it is."""
    if frame.empty or len(frame) > MOST_ROWS:
        return f"  {len(frame)} {name} (--json lists them)" if len(frame) else ""
    forms = {"kWh": "{:.6f}".format, "s": "{:.3f}".format, "coverage": "{:.1f} %".format}
    text = frame.to_string(index=False, na_rep="-", float_format="{:.1f}".format, formatters=forms)
    return textwrap.indent(text, "  ")
