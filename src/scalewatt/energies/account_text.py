"""Account of a recording as text."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from scalewatt.common.untrusted_text import printable
from scalewatt.energies.node import UNUSED_GPU
from scalewatt.energies.read import ALL, Account
from scalewatt.energies.stages import STAGES, UNATTRIBUTED
from scalewatt.recordings.block import DEVICE_KINDS, J_PER_KWH, NODE

_LABELS = {
    "gpu": "GPU",
    "cpu": "CPU",
    "ram": "memory",
    UNUSED_GPU: "GPUs not held",
    NODE: "whole node",
}
_NAMES = ("kind", "host", "device", "window", "stage", "epoch")
MOST_ROWS = 40
"""Longer tables are not printed; --json has them all."""


def account_text(account: Account) -> str:
    """Lines of text. Unknown numbers are dashes."""
    parts = [
        "\n  ".join([_title(account), *_facts(account)]),
        _kinds(account),
        _table(_devices(account), "devices"),
        _table(_windows(account.windows), "windows"),
        _table(_by(account, account.stages, "stage"), "stages"),
        _table(_by(account, account.epochs, "epoch"), "epochs"),
        "\n".join(_flags(account)),
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
    energy_j, recorded_j = account.joules(), account.joules(column="recorded_j")
    energy = "unknown" if energy_j is None else f"{_kwh(energy_j)} kWh = {energy_j:.1f} J"
    origin = f"{account.origin}, " if account.origin else ""
    yield f"energy    {energy}" + (f" ({origin}{account.scope})" if account.scope else "")
    if energy_j is None and recorded_j:
        yield f"          {_kwh(recorded_j)} kWh were recorded; the flags say why that is not all"
    low, high = (_kwh(account.joules(column=f"energy_{end}_j")) for end in ("low", "high"))
    if low != high:
        yield f"          {low} to {high} kWh: the true value may lie anywhere between (docs/energy.md)"
    yield f"run time  {account.runtime_s:.3f} s"
    gpus = "-" if account.gpus is None else account.gpus
    yield f"hosts     {', '.join(account.hosts) or '-'}; GPUs {gpus}"
    yield f"coverage  {_percent(account.coverage)}"
    if account.runs:
        yield f"runs      {', '.join(run['run'] for run in account.runs)} (--run NAME for another)"
    if len(account.windows):
        yield f"windows   {len(account.windows)} (--run NAME for those of one name)"


def _kinds(account: Account) -> str:
    """Table of the device kinds that nodes have, with perun's own totals if there are any."""
    rows = account.totals[account.totals["device_kind"] != ALL]
    rows = rows[(rows["devices"] > 0) | rows["device_kind"].isin(DEVICE_KINDS)]
    columns = {
        "kind": rows["device_kind"].map(_LABELS),
        "kWh": rows["energy_j"].map(_kwh),
        "J": rows["energy_j"].map(_number),
        "mean W of a device": rows["mean_power_w"].map(_number),
    }
    if rows["perun_j"].notna().any():
        columns["perun's J"] = rows["perun_j"].map(_number)
    return _table(pd.DataFrame(columns), "kinds")


def _devices(account: Account) -> pd.DataFrame:
    """Table of devices, summed over segments and stages."""
    keys = ["node", "device_kind", "device_index", "sensor"]
    order = {kind: i for i, kind in enumerate(_LABELS)}
    rows = account.devices.assign(device_kind=account.devices["device_kind"].map(order))
    groups = rows.groupby(keys)
    joules = groups["energy_j"].sum(skipna=False)
    sums = groups[["recorded_j", "covered_s", "duration_s", "samples"]].sum()
    covered = sums["covered_s"]
    columns = {
        "kWh": joules.map(_kwh),
        "J": joules.map(_number),
        "mean W": (sums["recorded_j"] / covered.where(covered > 0)).map(_number),
        "coverage": (covered / sums["duration_s"].where(sums["duration_s"] > 0))
        .fillna(0.0)
        .clip(upper=1.0)
        .map(_percent),
        "samples": sums["samples"].map(str),
    }
    table = pd.DataFrame(columns).reset_index()
    names = {"node": "host", "sensor": "device"}
    return table.drop(columns=["device_kind", "device_index"]).rename(columns=names)


def _windows(windows: pd.DataFrame) -> pd.DataFrame:
    """Table of windows; one that lies within another says so."""
    if windows.empty:
        return windows
    within = windows["counted"].map({True: "", False: " (within another)"})
    gpus = [name for name in map(str, windows) if name.startswith("gpu_")]
    return pd.DataFrame(
        {
            "window": windows["window"] + within,
            **{f"GPU {name[4:-2]} J": windows[name].map(_number) for name in gpus if gpus[1:]},
            "s": windows["duration_s"].map("{:.3f}".format),
            "J": windows["energy_j"].map(_number),
        }
    )


def _by(account: Account, frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Table of the energies in scope by stage or epoch; unknown of those too short for their samples."""
    scope = account.scope.split("+") if account.scope else []
    rows = frame[frame["device_kind"].isin(scope) & frame[name].notna()]
    if set(rows[name]) <= {UNATTRIBUTED}:
        return rows[:0]
    # Both ends of an epoch are as uncertain as a stage's: it is longer than its stages.
    short = rows.groupby(name)["short"].transform("all") if name == "epoch" else rows["short"]
    known = rows.assign(energy_j=rows["energy_j"].mask(short.astype(bool)))
    joules = known.groupby([name, "device_kind"])["energy_j"]
    table: pd.DataFrame = joules.sum(skipna=False).unstack()
    table = table.loc[sorted(table.index, key=STAGES.index if name == "stage" else None)]
    columns = {f"{_LABELS[kind]} J": table[kind].map(_number) for kind in scope}
    total = table.sum(axis="columns", skipna=False).map(_number)
    return pd.DataFrame({"J": total, **columns}).reset_index().astype({name: str})


def _flags(account: Account) -> list[str]:
    """A line for each different flag."""
    rows = account.flags[["code", "sensor", "detail"]].drop_duplicates()
    rows = rows.assign(sensor=("" + rows["sensor"] + ": ").fillna(""))
    return [f"  {code}: {sensor}{detail}" for code, sensor, detail in rows.to_numpy()]


def _table(frame: pd.DataFrame, name: str) -> str:
    """Columns of texts: names to the left, numbers to the right."""
    if len(frame) > MOST_ROWS:
        return f"  {len(frame)} {name} (--json lists them)"
    if frame.empty:
        return ""
    columns = [[str(head), *frame[head]] for head in frame]
    widths = [max(map(len, column)) for column in columns]
    sides = ["<" if head in _NAMES else ">" for head in frame]
    line = "".join(f"  {{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return "\n".join(line.format(*row) for row in zip(*columns, strict=True))


def _number(value: float, decimals: int = 1) -> str:
    return "-" if pd.isna(value) else f"{value:.{decimals}f}"


def _kwh(joules: float | None) -> str:
    return "-" if joules is None else _number(joules / J_PER_KWH, 6)


def _percent(share: float | None) -> str:
    return "-" if share is None or pd.isna(share) else f"{100 * share:.1f} %"
