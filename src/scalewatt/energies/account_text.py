"""Account of a recording as text."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from scalewatt.common.untrusted_text import printable
from scalewatt.energies.node import UNUSED_GPU
from scalewatt.energies.read import ALL, Account
from scalewatt.energies.stages import STAGES, UNATTRIBUTED
from scalewatt.recordings.terms import DEVICE_KINDS, J_PER_KWH, NODE

_LABELS = {
    **{"gpu": "GPU", "cpu": "CPU", "ram": "memory"},
    **{UNUSED_GPU: "GPUs not held", NODE: "whole node"},
}
_FORMATS = {
    "kWh": "{:.6f}",
    "J": "{:.1f}",
    "W": "{:.1f}",
    "W/device": "{:.1f}",
    "s": "{:.3f}",
    "coverage": "{:.1f} %",
}
"""Of columns of numbers, by the last word of their heading."""
MOST_ROWS = 40
"""Longer tables are not printed; --json has them all."""


def account_text(account: Account) -> str:
    """Lines of text. Unknown numbers are dashes."""
    tables = {
        "device kinds": _kinds(account),
        "devices": _devices(account.devices),
        "windows": _windows(account.windows),
        "stages": _by(account, account.stages, "stage"),
        "epochs": _by(account, account.epochs, "epoch"),
    }
    flags = account.flags[["code", "sensor", "detail"]].drop_duplicates()
    words = (": ".join(filter(pd.notna, row)) for row in flags.itertuples(index=False))
    parts = [
        "\n  ".join([_title(account), *_facts(account)]),
        *(_table(frame, name) for name, frame in tables.items()),
        "\n".join(f"  {line}" for line in words),
    ]
    lines = "\n\n".join(part for part in parts if part).split("\n")
    return "\n".join(printable(line.rstrip()) for line in lines)


def _title(account: Account) -> str:
    parts = [account.path]
    parts += [f"run {account.run}"] if account.run else []
    parts += [f"round {account.round}"] if account.round else []
    parts += [f"segments: {len(account.segments)}"] if len(account.segments) > 1 else []
    return ", ".join(parts)


def _facts(account: Account) -> Iterator[str]:
    whole = account.totals.set_index("device_kind").loc[ALL]
    low, energy, high, recorded = (
        _cell("kWh", whole[f"{name}_j"] / J_PER_KWH)
        for name in ("energy_low", "energy", "energy_high", "recorded")
    )
    known = account.joules() is not None
    words = ", ".join(filter(None, (account.origin, account.scope)))
    energy = f"{energy} kWh = {whole['energy_j']:.1f} J" if known else "unknown"
    yield f"energy    {energy}" + (f" ({words})" if words else "")
    if not known and whole["recorded_j"] > 0:
        yield f"          {recorded} kWh were recorded; the flags say why that is not all"
    if low != high:
        yield f"          {low} to {high} kWh: the true value may lie anywhere between (docs/energy.md)"
    yield f"run time  {account.runtime_s:.3f} s"
    gpus = "-" if account.gpus is None else account.gpus
    invented = {host: f"{host} (the file's name)" for host in account.named_by_file}
    hosts = ", ".join(invented.get(host, host) for host in account.hosts)
    yield f"hosts     {hosts or '-'}; GPUs {gpus}"
    yield f"coverage  {_cell('coverage', account.coverage)}"
    if account.runs:
        yield f"runs      {', '.join(run['run'] for run in account.runs)} (--run NAME for another)"
    if len(account.windows):
        yield f"windows   {len(account.windows)} (--run NAME for those of one name)"


def _kinds(account: Account) -> pd.DataFrame:
    """Table of the device kinds that nodes have, with perun's own totals if there are any."""
    rows = account.totals[account.totals["device_kind"] != ALL]
    rows = rows[(rows["devices"] > 0) | rows["device_kind"].isin(DEVICE_KINDS)]
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
    order = devices["device_kind"].map({kind: i for i, kind in enumerate(_LABELS)})
    keys = ["node", "device_kind", "device_index", "sensor"]
    groups = devices.assign(device_kind=order).groupby(keys)
    joules = groups["energy_j"].sum(skipna=False)
    sums = groups[["recorded_j", "covered_s", "duration_s", "samples"]].sum()
    covered = sums["covered_s"]
    share = (covered / sums["duration_s"].mask(sums["duration_s"] == 0)).fillna(0).clip(upper=1)
    names = {"host": sums.index.get_level_values(0), "device": sums.index.get_level_values(3)}
    table = {
        **names,
        "kWh": joules / J_PER_KWH,
        "J": joules,
        "mean W": sums["recorded_j"] / covered.mask(covered == 0),
        "coverage": share,
        "samples": sums["samples"],
    }
    return pd.DataFrame(table)


def _windows(windows: pd.DataFrame) -> pd.DataFrame:
    """Table of windows; one that lies within another says so."""
    if windows.empty:
        return windows
    within = windows["counted"].map({True: "", False: " (within another)"})
    gpus = [name for name in map(str, windows) if name.startswith("gpu_")]
    return pd.DataFrame(
        {
            "window": windows["window"] + within,
            **{f"GPU {name[4:-2]} J": windows[name] for name in gpus if gpus[1:]},
            "s": windows["duration_s"],
            "J": windows["energy_j"],
        }
    )


def _by(account: Account, frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Table of the energies in scope by stage or epoch, unknown of one that is too short for its samples."""
    scope = (account.scope or "").split("+")
    rows = frame[frame["device_kind"].isin(scope) & frame[name].notna()]
    if set(rows[name]) <= {UNATTRIBUTED}:
        return rows[:0]
    # Both ends of an epoch are as uncertain as a stage's: it is longer than its stages.
    short = rows.groupby(name)["short"].transform("all") if name == "epoch" else rows["short"]
    known = rows.assign(energy_j=rows["energy_j"].mask(short.astype(bool)))
    joules = known.groupby([name, "device_kind"])["energy_j"].sum(skipna=False).unstack()
    table: pd.DataFrame = joules.loc[
        sorted(joules.index, key=STAGES.index if name == "stage" else None)
    ]
    kinds = {f"{_LABELS[kind]} J": table[kind] for kind in scope}
    return pd.DataFrame({"J": table.sum(axis="columns", skipna=False), **kinds}).reset_index()


def _table(frame: pd.DataFrame, name: str) -> str:
    """Columns of text: names to the left, numbers to the right."""
    if frame.empty or len(frame) > MOST_ROWS:
        return f"  {len(frame)} {name} (--json lists them)" if len(frame) else ""
    columns = [[str(head), *(_cell(str(head), value) for value in frame[head])] for head in frame]
    widths = [max(map(len, column)) for column in columns]
    sides = ["<" if isinstance(frame[head].iloc[0], str) else ">" for head in frame]
    line = "".join(f"  {{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return "\n".join(line.format(*row) for row in zip(*columns, strict=True))


def _cell(heading: str, value: object) -> str:
    if pd.isna(value):  # type: ignore[call-overload]
        return "-"
    unit = heading.split()[-1]
    return _FORMATS.get(unit, "{}").format(100 * value if unit == "coverage" else value)  # type: ignore[operator]
