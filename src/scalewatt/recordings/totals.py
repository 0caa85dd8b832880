"""Totals: rows with energies and a duration, without samples: CodeCarbon's runs and tasks, Zeus's windows.

The energies become counters that rise from 0 J at the begin of a total to its energy at the end.
`Options.run` names a run or a window; without it the last run counts, or the outermost windows.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError, shown
from scalewatt.recordings.block import Block, Recording, sensor_frame
from scalewatt.recordings.tables import (
    TOUCHING_S,
    Options,
    Preset,
    damage_flags,
    node_of,
    read_lines,
)
from scalewatt.recordings.terms import (
    ESTIMATED,
    J_PER_KWH,
    LATEST_S,
    MEASURED,
    Flag,
    Floats,
    flag,
)
from scalewatt.recordings.times import as_numbers, parse_times, zone_named

UNIX_S = 1e9
"""No monotonic clock counts as many seconds, and unix time does since 2001."""
DOUBTFUL = 1.5
"""A duration is wrong where a constant power needs this many times as long for its energy."""

Devices = list[dict[str, Any]]
"""Sensors of a block, each with the `column` of the totals that it has a `share` of."""


def read_totals(path: Path, preset: Preset, options: Options) -> Recording:
    """Read totals of `runs` or `windows`. Raises InputError if there is none, or none of the name asked."""
    lines, torn = read_lines(path)
    of_runs = preset["totals"] == "runs"
    rows, damaged = _read_rows(lines, None if of_runs else "window_name")
    flags = damage_flags(damaged, torn)
    totals, devices = (_read_run if of_runs else _read_windows)(rows, options, flags)
    node, is_unix = node_of(path, options), bool(totals["begin_s"].iloc[0] >= UNIX_S)
    return Recording(
        nodes={node: [_block(node, totals, devices, is_unix)] if devices else []},
        clock_known=is_unix,
        period_s=None,
        source=str(path),
        flags=tuple(f if f["device"] is None else {**f, "node": node} for f in flags),
        run=totals["window"].iloc[0] if of_runs else options.run,
        format=preset["name"],
    )


def _read_rows(lines: Sequence[str], with_commas: str | None) -> tuple[pd.DataFrame, int]:
    """Rows as texts by column in lower case, and the number of lines that do not fit.

    The texts of one column may hold commas that nothing quotes.
    """
    header, *cells = csv.reader(lines)
    header = [name.strip().lower() for name in header]
    for name in header:
        if name.endswith("_energy") and header.count(name) > 1:
            raise InputError(f"has column {shown(name)} twice; expected each energy once")
    if with_commas:
        at = header.index(with_commas)
        for row in cells:
            end = at + 1 + max(len(row) - len(header), 0)
            row[at:end] = [",".join(row[at:end])]
    whole = [[cell.strip() for cell in row] for row in cells if len(row) == len(header)]
    if not whole:
        raise InputError("holds no row below its heading")
    rows = pd.DataFrame(whole, columns=header, dtype="str")
    return rows.loc[:, ~rows.columns.duplicated()], len(cells) - len(whole)


def _numbers(rows: pd.DataFrame, column: str) -> pd.Series:
    """Numbers in a column, NaN where there is none."""
    texts = rows[column] if column in rows else pd.Series("", rows.index)
    return pd.Series(as_numbers(texts), rows.index)


def _named(rows: pd.DataFrame, column: str, name: str | None) -> pd.DataFrame:
    """Rows of a name in a column, or all. Raises InputError without any."""
    chosen = rows[rows[column] == (name or rows[column])]
    if chosen.empty:
        what = column.partition("_")[0]
        raise InputError(f"holds no {what} {name}; allowed: {_listed(rows[column].unique())}")
    return chosen


# --- CodeCarbon: the total of a run, or of its tasks --------------------------------------------------


def _read_run(
    rows: pd.DataFrame, options: Options, flags: list[Flag]
) -> tuple[pd.DataFrame, Devices]:
    """Total of a run, its last row's or that of all its tasks, and its devices; flags what is doubtful."""
    name = options.run or str(rows["run_id"].iloc[-1])
    if others := [run for run in rows["run_id"].unique() if run != name]:
        flags.append(flag("several", None, f"run {name} is read; others: {_listed(others)}"))
    rows = _named(rows, "run_id", name)
    if "task_name" not in rows or (rows["task_name"] == "").any():
        rows = rows.iloc[-1:]  # only tasks add up
    if "pue" in rows and len(unlike := rows["pue"][~rows["pue"].isin(["1", "1.0", ""])]):
        what = f"its energies are not the machine's: pue is {shown(unlike.iloc[0])}"
        raise InputError(f"{what}; expected 1")
    if "tracking_mode" in rows and (rows["tracking_mode"] == "process").any():
        detail = "CPU and memory count for one process's share of the machine only"
        flags.append(flag("assumed", None, detail))

    # Its time, and its energies in J
    kinds = {k: J_PER_KWH * _numbers(rows, f"{k}_energy") for k in ("cpu", "gpu", "ram")}
    length_s = _length_s(rows, kinds["ram"], name, flags)
    stamps = parse_times(rows["timestamp"], zone_named(options.time_zone, "time zone"))
    end_s = np.nan if stamps is None else float(np.fmax.reduce(stamps.seconds))
    flags += () if stamps is None else stamps.flags
    if np.isnan(end_s):
        flags.append(flag("time_unknown", None, f"run {name} has no time stamp"))
        end_s = length_s
    # A task of unknown energy makes that of the run unknown.
    used = {k: each.where(each >= 0).sum(skipna=False) for k, each in kinds.items()}
    joules = {f"{k}_energy": used_j if used_j > 0 else np.nan for k, used_j in used.items()}
    total = {"window": name, "begin_s": end_s - length_s, "end_s": end_s, **joules}
    totals = pd.DataFrame([total])

    # Its devices
    devices = _devices("cpu", "cpu_energy", totals, flags, origin=ESTIMATED)
    detail = "by RAPL, load or TDP, the file does not say; taken as estimated"
    flags.append({**flag("assumed", "cpu_energy", detail), "kind": "cpu"})
    stated, count = _gpu_counts(rows.iloc[-1])
    if stated or totals["gpu_energy"].notna().all():
        is_apple = "apple" in str(rows.iloc[-1].get("gpu_model")).lower()
        origin = ESTIMATED if is_apple else MEASURED
        devices += _devices("gpu", "gpu_energy", totals, flags, origin=origin, count=count)
        if stated > 1:
            how = "each is given the same part" if count > 1 else "taken for one device"
            detail = f"a sum of several devices: {how}"
            flags.append({**flag("assumed", devices[1]["name"], detail), "kind": "gpu"})
    return totals, devices + _devices("ram", "ram_energy", totals, flags, origin=ESTIMATED)


def _length_s(rows: pd.DataFrame, ram_j: pd.Series, name: str, flags: list[Flag]) -> float:
    """Duration of rows in s, as stated or as the memory's energy needs at its constant power."""
    stated_s, power_w = _numbers(rows, "duration"), _numbers(rows, "ram_power")
    if not 0 < stated_s.sum(skipna=False) < LATEST_S:
        raise InputError(f"duration {rows['duration'].iloc[-1]} of {name}; expected s above 0")
    needed_s = ram_j.where(ram_j >= 0) / power_w.where(power_w > 0)
    is_wrong = needed_s > DOUBTFUL * stated_s
    length_s = float(stated_s.mask(is_wrong, needed_s).sum())
    if is_wrong.any():
        what = f"the duration {stated_s.sum():.0f} s of {name} contradicts its energies"
        detail = f"{what} at their powers; {length_s:.0f} s are taken"
        flags.append(flag("time_assumed", None, detail))
    return length_s


def _gpu_counts(row: pd.Series) -> tuple[float, int]:
    """Stated number of GPUs, and the number to divide their sum by.

    That is 1 where the model contradicts ("8 x A100"), as not all GPUs may be in the sum.
    """
    stated = np.nan_to_num(as_numbers(pd.Series([row.get("gpu_count", "")]))[0])
    named = re.match(r"(\d+) x ", row.get("gpu_model", ""))
    is_clear = 1 <= stated <= 1024 and (named is None or int(named[1]) == stated)
    return stated, int(stated) if is_clear else 1


# --- Zeus: windows ------------------------------------------------------------------------------------


def _read_windows(
    rows: pd.DataFrame, options: Options, flags: list[Flag]
) -> tuple[pd.DataFrame, Devices]:
    """Totals of windows, of a name if one is asked for, that are the outermost, and the GPUs."""
    columns = [name for name in map(str, rows) if re.fullmatch(r"gpu\d{1,4}_energy", name)]
    if not columns:
        raise InputError("expected columns gpu0_energy, …")
    begin_s = _numbers(rows, "start_time")
    end_s = begin_s + _numbers(rows, "elapsed_time")
    joules = {column: _numbers(rows, column) for column in columns}
    joules = {column: each.where(each > 0) for column, each in joules.items()}
    times = {"window_name": rows["window_name"], "begin_s": begin_s, "end_s": end_s}
    totals = pd.DataFrame({**joules, **times})
    totals = totals[(begin_s >= 0) & (begin_s < end_s) & (end_s < LATEST_S)]
    if left_out := len(rows) - len(totals):
        detail = f"{left_out} windows without a time or a length are left out"
        flags.append(flag("damaged", None, detail))
    if totals.empty:
        raise InputError("holds no window with a begin and a length")
    totals = _named(totals, "window_name", options.run).rename(columns={"window_name": "window"})
    # A line is written as its window ends, so the ends of one program's monotonic clock never go back.
    if (totals["end_s"].where(totals["end_s"] < UNIX_S).dropna().diff() < -TOUCHING_S).any():
        what = "its clock goes back from window to window"
        raise InputError(f"{what}; expected a file for each program, in order of time")
    is_outer = _outermost(totals)
    if len(inner := totals["window"][~is_outer]):
        detail = f"{len(inner)} windows lie within others and are left out: {_listed(inner)}"
        flags.append(flag("total_only", None, detail))
    totals = totals[is_outer].sort_values("begin_s")
    gpus = (_devices("gpu", c, totals, flags, index=int(c[3:-7])) for c in columns)
    return totals, [gpu for each in gpus for gpu in each]


def _outermost(windows: pd.DataFrame) -> pd.Series:
    """Mark the windows that follow each other in time, the longest where some nest.

    Raises InputError for windows that overlap without nesting: how their energy divides is not known.
    """
    ordered = windows.sort_values(["begin_s", "end_s"], ascending=[True, False])
    before_s = ordered["end_s"].cummax().shift(fill_value=-np.inf)
    is_after = ordered["begin_s"] >= before_s - TOUCHING_S
    is_longer = ordered["end_s"] > before_s + TOUCHING_S * ~is_after
    if (crossing := is_longer & ~is_after).any():
        second = ordered[crossing].iloc[0]
        raise InputError(f"its window {second['window'][:60]} crosses another; name one with --run")
    return (is_after & is_longer).reindex(windows.index)


# --- devices and their counters -----------------------------------------------------------------------


def _devices(
    kind: str,
    column: str,
    totals: pd.DataFrame,
    flags: list[Flag],
    index: int = 0,
    count: int = 1,
    origin: str = MEASURED,
) -> Devices:
    """Devices that share a column of energies; flags that it has no samples, and totals that are unknown."""
    names = [column] if count == 1 else [f"{column}:{i}" for i in range(count)]
    details = {"total_only": f"totals without samples: {_listed(totals['window'])}"}
    if len(unknown := totals["window"][totals[column].isna()]):
        details["unreadable"] = f"no energy above 0 J of {_listed(unknown)}"
    flags += [{**flag(code, names[0], text), "kind": kind} for code, text in details.items()]
    common = {"kind": kind, "origin": origin, "column": column, "share": 1 / count}
    return [{**common, "name": name, "index": index + i} for i, name in enumerate(names)]


def _block(node: str, totals: pd.DataFrame, devices: Devices, is_unix: bool) -> Block:
    """Counters that start at 0 J with each total, in order of time, and go on where one follows at once."""
    joules = totals[[device["column"] for device in devices]].to_numpy()
    joules = joules * [device["share"] for device in devices]
    times: list[float] = []
    values: list[Floats] = []
    for begin_s, end_s, used_j in zip(totals["begin_s"], totals["end_s"], joules, strict=True):
        if not times or begin_s > times[-1]:
            times.append(begin_s)
            values.append(np.zeros(len(devices)))
        else:  # no rise where the one before is unknown, so that it stays so
            values[-1] = np.nan_to_num(values[-1])
        times.append(end_s)
        values.append(values[-1] + used_j)
    time_s = np.array(times) if is_unix else np.array(times) - times[0]
    rows = [{**device, "quantity": "counter", "totals": True} for device in devices]
    return Block(node, time_s, np.asfortranarray(values), sensor_frame(rows))


def _listed(names: Iterable[str], most: int = 10) -> str:
    """First names, and the number of the others."""
    texts = list(names)
    more = f", and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(text[:60] for text in texts[:most]) + more
