"""Tables of totals: rows with energies and a duration, without samples. Driven by `totals` of a preset.

A row is a run's or a task's (CodeCarbon), or a window's (Zeus). Its energies become counters that rise from
0 J at its begin to the energy at its end. `Options.run` names a run or a window; without it the last run
counts, or the outermost windows.

run, task    columns; the tasks of a run add up, and of its other rows the last counts
window       column; windows may lie within others
begin, end   column of the time of either; `duration` in s
sensors      `column`, or `pattern` whose group is the device's index; `kind`, `unit`, `origin`; what is
             `assumed` of it; `count` and `model`, columns of the devices whose sum it is, and the models
             of which it is `estimated`; `steady_power`, a column of the constant W behind it
mode         column that is `process` where CPU and memory energies are one process's share
expect       texts of columns: a run with other cells is refused
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError, shown
from scalewatt.recordings.block import Block, Recording, sensor_frame
from scalewatt.recordings.tables import (
    TOUCHING_S,
    UNITS,
    Options,
    Preset,
    damage_flags,
    node_of,
    read_lines,
)
from scalewatt.recordings.terms import ESTIMATED, LATEST_S, MEASURED, Flag, Floats, flag
from scalewatt.recordings.times import as_numbers, parse_times, zone_named

UNIX_S = 1e9
"""No monotonic clock counts as many seconds, and unix time does since 2001."""
DOUBTFUL = 1.5
"""A duration is wrong where a constant power needs this many times as long for its energy."""

Rules = Mapping[str, Any]


def read_totals(path: Path, preset: Preset, options: Options) -> Recording:
    """Read totals by a preset. Raises InputError if there is no row, or none of the name asked for."""
    rules, node = preset["totals"], node_of(path, options)
    lines, torn = read_lines(path)
    rows, damaged = _read_rows(lines, rules)
    sensors = _find_sensors(rows, rules)
    flags: list[Flag] = []
    choose = _choose_windows if "window" in rules else _choose_run
    counted = choose(rows, sensors, rules, options, flags).sort_values("begin_s")
    is_unix = bool(counted["begin_s"].iloc[0] >= UNIX_S)
    row = rows.loc[counted.index[-1]]
    devices = [device for s in sensors for device in _devices(row, s, counted, node, flags)]
    return Recording(
        nodes={node: [_block(node, counted, devices, is_unix)] if devices else []},
        clock_known=is_unix,
        period_s=None,
        source=str(path),
        flags=(*flags, *damage_flags(damaged, torn)),
        run=counted["window"].iloc[0] if "run" in rules else options.run,
        format=preset["name"],
    )


def _read_rows(lines: Sequence[str], rules: Rules) -> tuple[pd.DataFrame, int]:
    """Rows as texts by column in lower case, and the number of lines that do not fit."""
    header, *cells = csv.reader(lines)
    header = [name.strip().lower() for name in header]
    if "window" in rules:  # names of windows hold commas
        at = header.index(rules["window"])
        for row in cells:
            end = at + 1 + max(len(row) - len(header), 0)
            row[at:end] = [",".join(row[at:end])]
    whole = [[cell.strip() for cell in row] for row in cells if len(row) == len(header)]
    if not whole:
        raise InputError("holds no row below its heading")
    return pd.DataFrame(whole, columns=header, dtype="str"), len(cells) - len(whole)


def _find_sensors(rows: pd.DataFrame, rules: Rules) -> list[dict[str, Any]]:
    """Rules of the columns of energies with `column`, `index` and `joules`, (n,)."""
    sensors = []
    for rule in rules["sensors"]:
        pattern = rule.get("pattern", rule.get("column"))
        matches = [m for name in map(str, rows) if (m := re.fullmatch(pattern, name))]
        if not matches or len({match[0] for match in matches}) < len(matches):
            raise InputError(f"expected columns {pattern}, each once")
        for match in matches:
            index = int(match[1]) if match.groups() else 0
            joules = _numbers(rows, match[0]) * UNITS[rule["unit"]][1]
            facts = {"column": match[0], "index": index, "joules": joules.where(joules >= 0)}
            sensors.append({**rule, **facts})
    return sensors


def _numbers(rows: pd.DataFrame, column: str | None) -> pd.Series:
    """Numbers in a column, NaN where there is none."""
    texts = rows[column] if column in rows else pd.Series("", rows.index)
    return pd.Series(as_numbers(texts), rows.index)


def _named(rows: pd.DataFrame, column: str, name: str | None) -> pd.DataFrame:
    """Rows of a name in a column, or all. Raises InputError without any."""
    chosen = rows[rows[column] == (name or rows[column])]
    if chosen.empty:
        what = "run" if column != "window" else "window"
        raise InputError(f"holds no {what} {name}; allowed: {_listed(rows[column].unique())}")
    return chosen


# --- the total of a run, or of its tasks --------------------------------------------------------------


def _choose_run(
    rows: pd.DataFrame, sensors: Sequence[Rules], rules: Rules, options: Options, flags: list[Flag]
) -> pd.DataFrame:
    """Choose the total of a run, its last row's or that of all its tasks; and flag what is doubtful of it."""
    column = str(rules["run"])
    name = options.run or str(rows[column].iloc[-1])
    if others := [run for run in rows[column].unique() if run != name]:
        flags.append(flag("several", None, f"run {name} is read; others: {_listed(others)}"))
    rows = _named(rows, column, name)
    if rules["task"] not in rows or (rows[rules["task"]] == "").any():
        rows = rows.iloc[-1:]  # only tasks add up
    for expected, texts in rules["expect"].items():
        cells = rows[expected] if expected in rows else pd.Series(dtype="str")
        if len(unlike := cells[~cells.isin(texts)]):
            what = f"its energies are not the machine's: {expected} is {shown(unlike.iloc[0])}"
            raise InputError(f"{what}; expected {texts[0]}")

    length_s = _length_s(rows, sensors, rules, name, flags)
    stamps = parse_times(rows[str(rules["end"])], zone_named(options.time_zone, "time zone"))
    end_s = np.nan if stamps is None else float(np.fmax.reduce(stamps.seconds))
    flags += () if stamps is None else stamps.flags
    if np.isnan(end_s):
        flags.append(flag("time_unknown", None, f"run {name} has no time stamp"))
        end_s = length_s
    if rules["mode"] in rows and (rows[rules["mode"]] == "process").any():
        detail = "CPU and memory count for one process's share of the machine only"
        flags.append(flag("assumed", None, detail))
    used_j = {s["column"]: s["joules"][rows.index].sum(skipna=False) for s in sensors}
    used_j = {key: joules if joules > 0 else np.nan for key, joules in used_j.items()}
    total = {"window": name, "begin_s": end_s - length_s, "end_s": end_s}
    return pd.DataFrame([{**total, **used_j}], index=rows.index[-1:])


def _length_s(
    rows: pd.DataFrame, sensors: Sequence[Rules], rules: Rules, name: str, flags: list[Flag]
) -> float:
    """Duration of rows in s, as stated or as the energy of a constant power needs."""
    stated_s = _numbers(rows, rules["duration"])
    if not 0 < stated_s.sum(skipna=False) < LATEST_S:
        cell = str(rows[rules["duration"]].iloc[-1]) or "empty"
        raise InputError(f"duration {cell} of {name}; expected s above 0")
    needed_s = pd.Series(np.nan, rows.index)
    for sensor in sensors:
        power_w = _numbers(rows, sensor.get("steady_power"))
        needed_s = needed_s.fillna(sensor["joules"][rows.index] / power_w.where(power_w > 0))
    is_wrong = needed_s > DOUBTFUL * stated_s
    length_s = float(stated_s.mask(is_wrong, needed_s).sum())
    if is_wrong.any():
        what = f"the duration {stated_s.sum():.0f} s of {name} contradicts its energies"
        detail = f"{what} at their powers; {length_s:.0f} s are taken"
        flags.append(flag("time_assumed", None, detail))
    return length_s


# --- windows ------------------------------------------------------------------------------------------


def _choose_windows(
    rows: pd.DataFrame, sensors: Sequence[Rules], rules: Rules, options: Options, flags: list[Flag]
) -> pd.DataFrame:
    """Totals of windows, of a name if one is asked for, that are the outermost."""
    begin_s = _numbers(rows, rules["begin"])
    end_s = begin_s + _numbers(rows, rules["duration"])
    joules = {s["column"]: s["joules"].where(s["joules"] > 0) for s in sensors}
    totals = pd.DataFrame(
        {**joules, "window": rows[rules["window"]], "begin_s": begin_s, "end_s": end_s}
    )
    totals = totals[(begin_s >= 0) & (begin_s < end_s) & (end_s < LATEST_S)]
    if left_out := len(rows) - len(totals):
        detail = f"{left_out} windows without a time or a length are left out"
        flags.append(flag("damaged", None, detail))
    if totals.empty:
        raise InputError("holds no window with a begin and a length")
    totals = _named(totals, "window", options.run)
    # A line is written as its window ends, so the ends of one program's monotonic clock never go back.
    if (totals["end_s"].where(totals["end_s"] < UNIX_S).dropna().diff() < -TOUCHING_S).any():
        what = "its clock goes back from window to window"
        raise InputError(f"{what}; expected a file for each program, in order of time")
    is_outer = _outermost(totals)
    if len(inner := totals["window"][~is_outer]):
        detail = f"{len(inner)} windows lie within others and are left out: {_listed(inner)}"
        flags.append(flag("total_only", None, detail))
    return totals[is_outer]


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
    row: pd.Series, sensor: Rules, totals: pd.DataFrame, node: str, flags: list[Flag]
) -> list[dict[str, Any]]:
    """Devices of a sensor, each with its share of the energy; flags what is doubtful of them."""
    stated, count = _counts(row, sensor)
    unknown = totals["window"][totals[str(sensor["column"])].isna()]
    if not stated and len(unknown):  # a machine without GPUs
        return []
    details = [("total_only", f"totals without samples: {_listed(totals['window'])}")]
    if len(unknown):
        details.append(("unreadable", f"no energy above 0 J of {_listed(unknown)}"))
    if "assumed" in sensor:
        details.append(("assumed", sensor["assumed"]))
    if stated > 1:
        how = "each is given the same part" if count > 1 else "taken for one device"
        details.append(("assumed", f"a sum of several devices: {how}"))
    column, kind = sensor["column"], sensor["kind"]
    names = [column] if count == 1 else [f"{column}:{i}" for i in range(count)]
    flags += [{**flag(code, names[0], text), "kind": kind, "node": node} for code, text in details]
    is_estimated = re.fullmatch(sensor.get("estimated", "(?!)"), row.get(sensor.get("model"), ""))
    origin = ESTIMATED if is_estimated else sensor.get("origin", MEASURED)
    common = {"kind": kind, "origin": origin, "column": sensor["column"], "share": 1 / count}
    return [{**common, "name": n, "index": sensor["index"] + i} for i, n in enumerate(names)]


def _counts(row: pd.Series, sensor: Rules) -> tuple[float, int]:
    """Stated number of devices in a sum, and the number to divide it by.

    That is 1 where the model contradicts ("8 x A100"), as not all devices may be in the sum.
    """
    if "count" not in sensor:
        return 1, 1
    stated = np.nan_to_num(as_numbers(pd.Series([row.get(sensor["count"], "")]))[0])
    named = re.match(r"(\d+) x ", row.get(sensor["model"], ""))
    is_clear = 1 <= stated <= 1024 and (named is None or int(named[1]) == stated)
    return stated, int(stated) if is_clear else 1


def _block(
    node: str, totals: pd.DataFrame, devices: Sequence[Mapping[str, Any]], is_unix: bool
) -> Block:
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
