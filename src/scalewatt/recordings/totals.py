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
from scalewatt.recordings import tables, terms
from scalewatt.recordings.block import Block, Recording, sensor_frame
from scalewatt.recordings.terms import Flag, flag
from scalewatt.recordings.times import as_numbers, parse_times, zone_named

UNIX_S = 1e9
"""No monotonic clock counts as many seconds, and unix time does since 2001."""
DOUBTFUL = 1.5
"""A duration is wrong where a constant power needs this many times as long for its energy."""


Sensor = dict[str, Any]
"""Row of a frame of sensors, whose `name` is its column of energies in J in the totals."""


def read_totals(path: Path, preset: tables.Preset, options: tables.Options) -> Recording:
    """Read totals of `runs` or `windows`. Raises InputError if there is none, or none of the name asked."""
    lines, torn = tables.read_lines(path)
    of_runs = preset["totals"] == "runs"
    heading, delimiter, below = tables.find_heading(lines, preset)
    rows, damaged = _read_rows(heading, below, delimiter, None if of_runs else "window_name")
    flags = tables.damage_flags(damaged, torn)
    totals, sensors = (_read_run if of_runs else _read_windows)(rows, options, flags)
    for kind in dict.fromkeys(sensor["kind"] for sensor in sensors):
        joules = totals[[sensor["name"] for sensor in sensors if sensor["kind"] == kind]]
        details = {"total_only": f"totals without samples: {_listed(totals['window'])}"}
        if len(unknown := totals["window"][joules.isna().any(axis="columns")]):
            details["unreadable"] = f"no energy above 0 J of {_listed(unknown)}"
        for code, detail in details.items():
            flags.append({**flag(code, None, detail), "kind": kind})

    # Counters that start at 0 J with each total, in order of time, and go on where one follows at once
    times: list[float] = []
    values: list[terms.Floats] = []
    columns = ["begin_s", "end_s", *(sensor["name"] for sensor in sensors)]
    for begin_s, end_s, *used_j in totals[columns].itertuples(index=False):
        if not times or begin_s > times[-1]:
            times.append(begin_s)
            values.append(np.zeros(len(sensors)))
        else:  # no rise where the one before is unknown, so that it stays so
            values[-1] = np.nan_to_num(values[-1])
        times.append(end_s)
        values.append(values[-1] + used_j)
    node, is_unix = tables.name_node(path, options), bool(times[0] >= UNIX_S)
    time_s = np.array(times) if is_unix else np.array(times) - times[0]
    counters = [{"quantity": "counter", "totals": True, **sensor} for sensor in sensors]
    block = Block(node, time_s, np.asfortranarray(values), sensor_frame(counters))
    return Recording(
        nodes={node: [block]},
        clock_known=is_unix,
        period_s=None,
        source=str(path),
        flags=tuple({**each, "node": node} if "kind" in each else each for each in flags),
        run=totals["window"].iloc[0] if of_runs else options.run,
        format=preset["name"],
    )


def _read_rows(
    heading: Sequence[str], lines: Sequence[str], delimiter: str, with_commas: str | None
) -> tuple[pd.DataFrame, int]:
    """Rows as texts by column in lower case, and the number of lines that do not fit.

    The texts of one column may hold commas that nothing quotes.
    """
    cells, header = [*csv.reader(lines, delimiter=delimiter)], [name.lower() for name in heading]
    if twice := [name for name in header if name.endswith("_energy") and header.count(name) > 1]:
        raise InputError(f"has column {shown(twice[0])} twice; expected each energy once")
    if with_commas:
        at = header.index(with_commas)
        for row in cells:
            end = at + 1 + max(len(row) - len(header), 0)
            row[at:end] = [delimiter.join(row[at:end])]
    whole = [[cell.strip() for cell in row] for row in cells if len(row) == len(header)]
    if not whole:
        raise InputError("holds no row below its heading")
    rows = pd.DataFrame(whole, columns=header, dtype="str")
    return rows.loc[:, ~rows.columns.duplicated()], len(cells) - len(whole)


def _numbers(rows: pd.DataFrame, column: str) -> pd.Series:
    """Numbers in a column, NaN where there is none."""
    return pd.Series(as_numbers(rows.get(column, pd.Series("", rows.index))), rows.index)


def _named(rows: pd.DataFrame, column: str, name: str | None) -> pd.DataFrame:
    """Rows of a name in a column, or all. Raises InputError without any."""
    chosen = rows[rows[column] == (name or rows[column])]
    if chosen.empty:
        what = column.partition("_")[0]
        raise InputError(f"holds no {what} {name}; allowed: {_listed(rows[column].unique())}")
    return chosen


def _listed(names: Iterable[str]) -> str:
    """First ten names, and the number of the others."""
    texts = [name[:60] for name in names]
    more = f", and {len(texts) - 10} more" if len(texts) > 10 else ""
    return ", ".join(texts[:10]) + more


# --- CodeCarbon: the total of a run, or of its tasks --------------------------------------------------


def _read_run(
    rows: pd.DataFrame, options: tables.Options, flags: list[Flag]
) -> tuple[pd.DataFrame, list[Sensor]]:
    """Total of a run, its last row's or that of all its tasks, and its sensors; flags what is doubtful."""
    name = options.run or str(rows["run_id"].iloc[-1])
    if others := [run for run in rows["run_id"].unique() if run != name]:
        flags.append(flag("assumed", None, f"run {name} is read; others: {_listed(others)}"))
    rows = _named(rows, "run_id", name)
    if "task_name" not in rows or (rows["task_name"] == "").any():
        rows = rows.iloc[-1:]  # only tasks add up
    if "pue" in rows and len(unlike := rows["pue"][~rows["pue"].isin(["1", "1.0", ""])]):
        what = f"its energies are not the machine's: pue is {shown(unlike.iloc[0])}"
        raise InputError(f"{what}; expected 1")
    if "tracking_mode" in rows and (rows["tracking_mode"] == "process").any():
        detail = "CPU and memory count for one process's share of the machine only"
        flags.append(flag("assumed", None, detail))

    # A task of unknown energy makes that of the run unknown
    energies = ["cpu_energy", "gpu_energy", "ram_energy"]
    each_j = pd.DataFrame({name: terms.J_PER_KWH * _numbers(rows, name) for name in energies})
    each_j = each_j.where(each_j >= 0)
    sums_j = each_j.sum(skipna=False)
    joules = sums_j.where(sums_j > 0).to_dict()

    # Its duration: as stated, or as the memory's energy needs at its constant power
    stated_s, power_w = _numbers(rows, "duration"), _numbers(rows, "ram_power")
    if not 0 < stated_s.sum(skipna=False) < terms.LATEST_S:
        raise InputError(f"duration {rows['duration'].iloc[-1]} of {name}; expected s above 0")
    needed_s = each_j["ram_energy"] / power_w.where(power_w > 0)
    is_wrong = needed_s > DOUBTFUL * stated_s
    length_s = float(stated_s.mask(is_wrong, needed_s).sum())
    if is_wrong.any():
        what = f"the duration {stated_s.sum():.0f} s of {name} contradicts its energies"
        detail = f"{what} at their powers; {length_s:.0f} s are taken"
        flags.append(flag("time_assumed", None, detail))
    stamps = parse_times(rows["timestamp"], zone_named(options.time_zone, "time zone"))
    flags += stamps.flags
    if np.isnan(end_s := float(np.fmax.reduce(stamps.seconds))):
        flags.append(flag("time_assumed", None, f"run {name} has no time stamp"))
        end_s = length_s

    # Its GPUs share their sum, unless their model ("8 x A100") says that not all may be in it
    last, count = rows.iloc[-1], float(np.nan_to_num(_numbers(rows, "gpu_count").iloc[-1]))
    model = str(last.get("gpu_model", ""))
    named = re.match(r"(\d+) x ", model)
    is_clear = 1 < count <= 1024 and (named is None or int(named[1]) == count)
    gpus = [f"gpu_energy:{i}" for i in range(int(count))] if is_clear else ["gpu_energy"]
    joules |= dict.fromkeys(gpus, joules["gpu_energy"] / len(gpus))
    has_gpus = bool(count) or not np.isnan(joules["gpu_energy"])
    origin = terms.ESTIMATED if "apple" in model.lower() else terms.MEASURED
    cpu, ram = (
        {"name": f"{kind}_energy", "kind": kind, "origin": terms.ESTIMATED}
        for kind in ("cpu", "ram")
    )
    detail = "by RAPL, load or TDP, the file does not say; taken as estimated"
    flags.append({**flag("assumed", None, detail), "kind": "cpu"})
    if count > 1:
        how = "each is given the same part" if len(gpus) > 1 else "taken for one device"
        detail = f"a sum of several devices: {how}"
        flags.append({**flag("assumed", None, detail), "kind": "gpu"})
    total = {"window": name, "begin_s": end_s - length_s, "end_s": end_s, **joules}
    gpu = {"kind": "gpu", "origin": origin}
    sensors = [{**gpu, "name": column, "index": i} for i, column in enumerate(gpus)]
    return pd.DataFrame([total]), [cpu, *sensors * has_gpus, ram]


# --- Zeus: windows ------------------------------------------------------------------------------------


def _read_windows(
    rows: pd.DataFrame, options: tables.Options, flags: list[Flag]
) -> tuple[pd.DataFrame, list[Sensor]]:
    """Totals of windows, of a name if one is asked for, that are the outermost, and the GPUs' sensors.

    Raises InputError for windows that overlap without nesting: how their energy divides is not known.
    """
    columns = [name for name in map(str, rows) if re.fullmatch(r"gpu\d{1,4}_energy", name)]
    if not columns:
        raise InputError("expected columns gpu0_energy, …")
    totals = pd.DataFrame({column: _numbers(rows, column) for column in columns})
    totals = totals.where(totals > 0)
    totals["window_name"], totals["begin_s"] = rows["window_name"], _numbers(rows, "start_time")
    totals["end_s"] = totals["begin_s"] + _numbers(rows, "elapsed_time")
    begin_s, end_s = totals["begin_s"], totals["end_s"]
    totals = totals[(begin_s >= 0) & (begin_s < end_s) & (end_s < terms.LATEST_S)]
    if left_out := len(rows) - len(totals):
        detail = f"{left_out} windows without a time or a length are left out"
        flags.append(flag("damaged", None, detail))
    if totals.empty:
        raise InputError("holds no window with a begin and a length")
    totals = _named(totals, "window_name", options.run).rename(columns={"window_name": "window"})
    # A line is written as its window ends, so the ends of one program's monotonic clock never go back
    steps_s = totals["end_s"].where(totals["end_s"] < UNIX_S).dropna().diff()
    if (steps_s < -tables.TOUCHING_S).any():
        what = "its clock goes back from window to window"
        raise InputError(f"{what}; expected a file for each program, in order of time")

    outer, until_s = list[int](), -np.inf
    ordered = totals.sort_values(["begin_s", "end_s"], ascending=[True, False])
    for at, begin_s, end_s in ordered[["begin_s", "end_s"]].itertuples():
        if begin_s >= until_s - tables.TOUCHING_S and end_s > until_s:
            outer.append(at)
            until_s = end_s
        elif end_s > until_s + tables.TOUCHING_S:
            crossing = totals.loc[at, "window"][:60]
            raise InputError(f"its window {crossing} crosses another; name one with --run")
    if len(inner := totals["window"].drop(outer)):
        detail = f"{len(inner)} windows lie within others and are left out: {_listed(inner)}"
        flags.append(flag("total_only", None, detail))
    return totals.loc[outer], [{"name": c, "kind": "gpu", "index": int(c[3:-7])} for c in columns]
