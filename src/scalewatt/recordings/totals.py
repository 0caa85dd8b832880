"""Tables of totals: rows with energies and a duration, without samples. Driven by `totals` of a preset.

A row is a run's or a task's (CodeCarbon), or a window's (Zeus). Its energies become counters that rise from
0 J at its begin to the energy at its end. `Options.run` names a run, a task, a row's number or a window;
without it the last run counts, or the outermost windows.

run, task    columns; the tasks of a run add up, and of its other rows the last counts
window       column; windows may lie within others
begin, end   column of the time of either; `duration` in s
sensors      `column`, or `pattern` whose group is the device's index; `kind`, `unit`, `origin`, `model`;
             `count` of the devices whose sum it is; `steady_power`, a column of the constant W behind it
sum          column of the energy of all sensors, to compare
overhead     column of a factor that all energies hold (PUE)
process      column and cell of rows whose CPU and memory energies are one process's share
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.recordings.block import Block, Recording, sensor_frame
from scalewatt.recordings.tables import UNITS, Options, Preset, damage_flags, node_of, read_lines
from scalewatt.recordings.terms import ESTIMATED, LATEST_S, Flag, Floats, flag
from scalewatt.recordings.times import zoned_times

UNIX_S = 1e9
"""No monotonic clock counts as many seconds, and unix time does since 2001."""
TOUCHING_S = 1e-3
"""Windows that overlap by less follow each other."""
DOUBTFUL = 1.5
"""A duration is wrong where a constant power needs this many times as long for its energy."""
UNEQUAL = 0.01
"""Share of a row's stated sum by which its energies may differ from it."""

MOST_DEVICES = 1024

_Row = Mapping[str, str]
_Sensor = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Total:
    """Energies of k sensors in J, (k,), NaN where unknown, from begin to end in s."""

    name: str
    begin_s: float
    end_s: float
    energies_j: Floats
    counted: bool = True
    row: Mapping[str, str] = field(default_factory=dict)
    """The last row that it is of."""


def read_totals(path: Path, preset: Preset, options: Options) -> Recording:
    """Read totals by a preset. Raises InputError if there is no row, or none of the name asked for."""
    rules = preset["totals"]
    lines, torn = read_lines(path)
    rows, sensors, damaged = _rows(path, lines, rules)
    choose = _windows if "window" in rules else _run
    totals, flags = choose(path, rows, sensors, rules, options)
    counted = sorted((t for t in totals if t.counted), key=lambda total: total.begin_s)
    is_unix = counted[0].begin_s >= UNIX_S
    node = node_of(path, options)
    devices, about = _devices(counted[-1].row, sensors, counted, node)
    return Recording(
        nodes={node: [_block(node, counted, devices, is_unix)] if devices else []},
        clock_known=is_unix,
        period_s=None,
        source=str(path),
        flags=(*flags, *about, *damage_flags(path, damaged, torn)),
        run=counted[0].name if "run" in rules else options.run,
        format=preset["name"],
        windows=tuple(_window(t, sensors, is_unix) for t in totals) if "window" in rules else (),
    )


def _rows(
    path: Path, lines: Sequence[str], rules: Mapping[str, Any]
) -> tuple[list[dict[str, str]], list[dict[str, Any]], int]:
    """Rows by column, the columns of energies as sensors, and the number of lines that do not fit."""
    try:
        header, *cells = csv.reader(lines)
    except csv.Error as error:
        raise InputError(f"{path}: cannot be read as CSV ({error})") from error
    header = [name.strip().lower() for name in header]
    loose = header.index(rules["window"]) if "window" in rules else len(header)
    rows, damaged = [], 0
    for row in cells:
        surplus = len(row) - len(header)
        if surplus > 0 and "window" in rules:  # names of windows hold commas
            row[loose : loose + surplus + 1] = [",".join(row[loose : loose + surplus + 1])]
        if len(row) == len(header):
            rows.append(dict(zip(header, map(str.strip, row), strict=True)))
        else:
            damaged += 1
    sensors = []
    for rule in rules["sensors"]:
        pattern = rule.get("pattern", rule.get("column"))
        matches = [match for name in header if (match := re.fullmatch(pattern, name))]
        numbers = [int(match[1]) if match.groups() else 0 for match in matches]
        if not matches or len(set(numbers)) < len(numbers):
            raise InputError(f"{path}: expected columns {pattern}, each once")
        for match, index in zip(matches, numbers, strict=True):
            sensors.append({"origin": "measured", **rule, "column": match[0], "index": index})
    if not rows:
        raise InputError(f"{path}: holds no row below its heading")
    return rows, sensors, damaged


def _number(row: _Row, column: str | None) -> float:
    """Finite number in a column of a row; NaN without one."""
    try:
        value = float(row.get(column or "", "").replace("_", "?"))
    except ValueError:
        return np.nan
    return value if np.isfinite(value) else np.nan


def _energies(rows: Sequence[_Row], sensors: Sequence[_Sensor]) -> Floats:
    """Sums of rows' energies in J, (k,); NaN for those not above 0."""
    values = [[_number(row, s["column"]) * UNITS[s["unit"]][1] for s in sensors] for row in rows]
    sums = np.sum(values, axis=0)
    return np.where(sums > 0, sums, np.nan)


def _run(
    path: Path,
    rows: Sequence[_Row],
    sensors: Sequence[_Sensor],
    rules: Mapping[str, Any],
    options: Options,
) -> tuple[list[Total], list[Flag]]:
    """Choose the total of a run, its last row's or that of all its tasks; and tell what is doubtful of it."""
    name, own, details = _rows_of_run(path, rows, rules, options.run)
    seconds, flags = zoned_times(path.name, [row[rules["end"]] for row in own], options.time_zone)
    stated_s = [_number(row, rules["duration"]) for row in own]
    if not 0 < sum(stated_s) < LATEST_S:
        cell = own[-1][rules["duration"]] or "empty"
        raise InputError(f"{path}: duration {cell} of {name}; expected s above 0")
    overhead = max([1.0, *(_number(row, rules["overhead"]) for row in own)])
    by_power_s = [_duration_by_power(row, sensors) / overhead for row in own]
    is_wrong = [by > DOUBTFUL * s for by, s in zip(by_power_s, stated_s, strict=True)]
    length_s = float(np.where(is_wrong, by_power_s, stated_s).sum())
    if any(is_wrong):
        details["time_assumed"] = (
            f"the duration {sum(stated_s):.0f} s of {name} contradicts its energies at their powers; "
            f"{length_s:.0f} s are taken"
        )
    end_s = float(np.max(seconds[np.isfinite(seconds)], initial=-np.inf))
    if not np.isfinite(end_s):
        details["time_unknown"] = f"run {name} has no time stamp; when it ran is unknown"
        end_s = length_s
    energies_j = _energies(own, sensors)
    stated_j = sum(_number(row, rules["sum"]) for row in own) * UNITS[sensors[0]["unit"]][1]
    if abs(np.nansum(energies_j) - stated_j) > UNEQUAL * stated_j:
        details["disagrees"] = (
            f"energies of {np.nansum(energies_j):g} J in all, and it states {stated_j:g} J"
        )
    flags += [flag(code, None, f"{path.name}: {detail}") for code, detail in details.items()]
    if overhead > 1:
        detail = f"{path.name}: energies are divided by the PUE of {overhead:g} that they hold"
        flags.append(flag("assumed", None, detail))
    if any(row.get(column) == cell for row in own for column, cell in rules["process"].items()):
        detail = f"{path.name}: CPU and memory count for one process's share of the machine only"
        flags.append(flag("assumed", None, detail))
    total = Total(name, end_s - length_s, end_s, energies_j / overhead, row=own[-1])
    return [total], flags


def _rows_of_run(
    path: Path, rows: Sequence[_Row], rules: Mapping[str, Any], asked: str | None
) -> tuple[str, list[_Row], dict[str, str]]:
    """Choose the rows of a run, a task or a number; with what to flag about the others."""
    runs = [row.get(rules["run"]) or str(number) for number, row in enumerate(rows, start=1)]
    tasks = [row.get(rules["task"], "") for row in rows]
    name = asked or runs[-1]
    keys = (runs, tasks, [str(i + 1) for i in range(len(rows))])
    chosen = next((at for key in keys if (at := [i for i, k in enumerate(key) if k == name])), [])
    if not chosen:
        names = _listed(task or run for run, task in zip(runs, tasks, strict=True))
        raise InputError(f"{path}: holds no run {name}; allowed: {names}")
    last = chosen[-1]
    if runs[last] != name or not all(tasks[i] for i in chosen):
        chosen = [last]
    others = dict.fromkeys(run for run in runs if run != runs[last])
    details = {"several": f"run {name} is read; others: {_listed(others)}"} if others else {}
    return name, [rows[i] for i in chosen], details


def _duration_by_power(row: _Row, sensors: Sequence[_Sensor]) -> float:
    """Seconds that a constant power needs for its energy; NaN where no column states one."""
    steady = next((s for s in sensors if s.get("steady_power") in row), None)
    power_w = _number(row, steady["steady_power"]) if steady else 0.0
    return _energies([row], [steady])[0] / power_w if steady and power_w > 0 else np.nan


def _windows(
    path: Path,
    rows: Sequence[_Row],
    sensors: Sequence[_Sensor],
    rules: Mapping[str, Any],
    options: Options,
) -> tuple[list[Total], list[Flag]]:
    """Totals of windows, of a name if one is asked for; the outermost are counted."""
    totals, details = [], {}
    for row in rows:
        begin_s, length_s = _number(row, rules["begin"]), _number(row, rules["duration"])
        end_s = begin_s + length_s
        # Of the largest times two are the same.
        if begin_s >= 0 and length_s > 0 and begin_s < end_s < LATEST_S:
            totals.append(Total(row[rules["window"]], begin_s, end_s, _energies([row], sensors)))
    if len(totals) < len(rows):
        left_out = len(rows) - len(totals)
        details["damaged"] = f"{left_out} windows without a time or a length are left out"
    names = dict.fromkeys(total.name for total in totals)
    totals = [total for total in totals if options.run in (None, total.name)]
    if options.run is not None and names and not totals:
        raise InputError(f"{path}: holds no window {options.run}; allowed: {_listed(names)}")
    if not totals:
        raise InputError(f"{path}: holds no window with a begin and a length")
    # A line is written as its window ends, so the ends of one program's monotonic clock never go back.
    ends = np.array([total.end_s for total in totals if total.end_s < UNIX_S])
    if np.any(np.diff(ends) < -TOUCHING_S):
        raise InputError(
            f"{path}: its clock goes back from window to window: those of several programs; expected "
            "one file for each"
        )
    try:
        totals = outermost(totals)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    flags = [flag(code, None, f"{path.name}: {text}") for code, text in details.items()]
    if inner := [total.name for total in totals if not total.counted]:
        what = f"{len(inner)} windows lie within others and are left out: {_listed(inner)}"
        flags.append(flag("total_only", None, f"{path.name}: {what}"))
    return totals, flags


def outermost(totals: Sequence[Total]) -> list[Total]:
    """Mark the windows that follow each other in time as counted, the longest where some nest.

    Raises InputError for windows that overlap without nesting: how their energy divides is not known.
    """
    counted: dict[int, bool] = {}
    last: Total | None = None
    for total in sorted(totals, key=lambda t: (t.begin_s, -t.end_s)):
        counted[id(total)] = last is None or total.begin_s >= last.end_s - TOUCHING_S
        if last and total.end_s <= last.end_s + TOUCHING_S * (not counted[id(total)]):
            counted[id(total)] = False
        elif last and not counted[id(total)]:
            names = f"{last.name[:60]} and {total.name[:60]}"
            raise InputError(f"its windows {names} cross; name one with --run")
        else:
            last = total
    return [replace(total, counted=counted[id(total)]) for total in totals]


def _window(total: Total, sensors: Sequence[_Sensor], is_unix: bool) -> dict[str, Any]:
    """The window as `Recording.windows` has it."""
    known = [None if np.isnan(joules) else float(joules) for joules in total.energies_j]
    return {
        "window": total.name,
        "start_s": total.begin_s if is_unix else None,
        "duration_s": total.end_s - total.begin_s,
        "energy_j": None if None in known else float(total.energies_j.sum()),
        "gpus_j": {str(s["index"]): joules for s, joules in zip(sensors, known, strict=True)},
        "counted": total.counted,
    }


def _devices(
    row: _Row, sensors: Sequence[_Sensor], totals: Sequence[Total], node: str
) -> tuple[list[_Sensor], list[Flag]]:
    """The devices of each sensor with their share of its energy, and flags about each sensor."""
    devices: list[_Sensor] = []
    flags: list[Flag] = []
    for at, sensor in enumerate(sensors):
        stated, count = _count(row, sensor)
        unknown = [total.name for total in totals if np.isnan(total.energies_j[at])]
        if not stated >= 1 and unknown:  # a machine without GPUs
            continue
        is_apple = "apple" in row.get(sensor.get("model", ""), "").lower()  # estimated
        column, kind = sensor["column"], sensor["kind"]
        details = [("total_only", f"totals without samples: {_listed(t.name for t in totals)}")]
        if unknown:
            details.append(("unreadable", f"no energy above 0 J of {_listed(unknown)}"))
        if kind == "cpu" and "model" in sensor and not is_apple:
            details.append(
                ("assumed", "by RAPL, load or TDP, the file does not say; taken as estimated")
            )
        if stated > 1:
            how = "each is given the same part" if count > 1 else "taken for one device"
            details.append(("assumed", f"a sum of several devices: {how}"))
        names = [column] if count == 1 else [f"{column}:{i}" for i in range(count)]
        about = {"kind": kind, "node": node}
        flags += [{**flag(c, names[0], f"{node}: {text}"), **about} for c, text in details]
        common = {"kind": kind, "origin": ESTIMATED if is_apple else sensor["origin"]}
        devices += [
            {**common, "name": name, "index": sensor["index"] + i, "at": at, "share": 1 / count}
            for i, name in enumerate(names)
        ]
    return devices, flags


def _count(row: _Row, sensor: _Sensor) -> tuple[float, int]:
    """The stated number of devices in a sum, and by how many it is divided.

    Not by a number that the model contradicts ("8 x A100"): not all devices may be in the sum.
    """
    if "count" not in sensor:
        return 1.0, 1
    stated = _number(row, sensor["count"])
    named = re.match(r"(\d+) x ", row.get(sensor["model"], ""))
    is_clear = 1 <= stated <= MOST_DEVICES and (named is None or int(named[1]) == stated)
    return stated, int(stated) if is_clear else 1


def _block(node: str, totals: Sequence[Total], devices: Sequence[_Sensor], is_unix: bool) -> Block:
    """Counters that start at 0 J with each total, in order of time, and go on where one follows at once."""
    times: list[float] = []
    values: list[Floats] = []
    for total in totals:
        if not times or total.begin_s > times[-1]:
            times.append(total.begin_s)
            values.append(np.zeros(total.energies_j.size))
        else:  # no rise where the one before is unknown, so that it stays so
            values[-1] = np.nan_to_num(values[-1])
        times.append(total.end_s)
        values.append(values[-1] + total.energies_j)
    columns = [device["at"] for device in devices]
    matrix = np.array(values)[:, columns] * [device["share"] for device in devices]
    time_s = np.array(times) if is_unix else np.array(times) - times[0]
    rows = [{**device, "quantity": "counter", "totals": True} for device in devices]
    return Block(node, time_s, np.asfortranarray(matrix), sensor_frame(rows))


def _listed(names: Iterable[str], most: int = 10) -> str:
    """The first names, and the number of the others."""
    texts = list(names)
    more = f", and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(text[:60] for text in texts[:most]) + more
