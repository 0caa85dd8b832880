"""CodeCarbon's `emissions.csv`: the energies of runs in kWh, a row each, without samples.

A row is written when a run ends, or in between by `flush` (then several rows have one run_id, each with
the sums since the begin). `timestamp` is its end, local time without a zone, in whole seconds;
`duration` in s. `cpu_energy`, `gpu_energy` and `ram_energy` hold the factor `pue` (power usage
effectiveness, from 2.2 on). Where they come from, the file does not say: of NVIDIA's and AMD's GPUs
the driver's counter; of CPUs RAPL or powermetrics where it may be read, else a share of the TDP; of
memory always a rule by its size; on Apple's chips powermetrics, which estimates. Source:
docs.codecarbon.io (methodology, output), PyPI codecarbon 2.2 to 3.3: emissions_tracker.py,
core/resource_tracker.py.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import printable
from scalewatt.recordings.formats.format import (
    TOTAL_ONLY,
    UNKNOWN_TOTAL,
    Format,
    Head,
    Options,
    listed,
    node_of,
    number,
    total_series,
)
from scalewatt.recordings.formats.text_columns import read_lines, unix_times
from scalewatt.recordings.series import (
    DEVICE_KINDS,
    ESTIMATED,
    J_PER_KWH,
    LATEST_S,
    MEASURED,
    Flag,
    Recording,
    SensorSeries,
    by_node,
    flag,
)

_NEEDED = ("timestamp", "duration", "energy_consumed")
_ENERGIES = {kind: f"{kind}_energy" for kind in DEVICE_KINDS}
MOST_GPUS = 1024

CPU_ORIGIN_UNKNOWN = "assumed"
"""Flag of a CPU's energy that may be measured or estimated: it is taken as estimated."""
GPUS_IN_SUM = "assumed"
"""Flag of GPUs whose energy is known in sum only: each is given the same part."""
PUE_REMOVED = "assumed"
"""Flag of energies that held the data centre's overhead, which was taken out."""
NO_TIME = "time_unknown"
"""Flag of a run without a time stamp."""
ONE_PROCESS = "assumed"
"""Flag of energies of CPU and memory that are one process's share of the machine's."""
TOTAL_DIFFERS = "disagrees"
"""Flag of a row whose energies do not add up to the sum that it states."""


@dataclass(frozen=True)
class _Row:
    """One row by the names of its columns."""

    name: str
    """Its task or run, else its number among the rows, from 1."""
    place: int
    fields: dict[str, str]

    def value(self, name: str) -> float:
        return number(self.fields.get(name, ""))


def read_codecarbon(path: Path, options: Options) -> Recording:
    """Read one run's totals: that of `options.run` (a run_id, a task, or a row's number), else the last.

    Of several rows of one run the last one counts. Raises InputError if there is no such run, if its
    duration is not above 0 s, or if the file has no energies by kind.
    """
    text = read_lines(path)
    header, *lines = _cells(path, text.lines)
    if not set(_ENERGIES.values()) <= set(header):
        wanted = ", ".join(_ENERGIES.values())
        raise InputError(
            f"{path}: holds energies in sum only; expected {wanted} (CodeCarbon 2 or 3)"
        )
    rows, damaged = _rows(header, lines)
    row = _chosen(path, rows, options.run)
    duration_s = row.value("duration")
    if not 0 < duration_s < LATEST_S:
        said = printable(row.fields["duration"][:40])
        raise InputError(f"{path}: duration {said or 'empty'} of {row.name}; expected s above 0")
    end_s, about_time = _end(path, row, options)
    begin_s = end_s - duration_s if end_s is not None else 0.0
    span = np.array([begin_s, begin_s + duration_s])
    pue = row.value("pue")
    factor = pue if pue > 1 else 1.0
    node = node_of(path, options)
    series: list[SensorSeries] = []
    for kind in DEVICE_KINDS:
        joules = row.value(_ENERGIES[kind]) * J_PER_KWH / factor
        series += _of_kind(node, kind, row, span, joules if joules > 0 else float("nan"))
    return Recording(
        nodes=by_node(series),
        t0_known=end_s is not None,
        sampling_period_s=None,
        source=str(path),
        problems=(
            *text.damage(damaged),
            *_others(path, rows, row),
            *_about(path, row, factor),
            *about_time,
        ),
        run_id=row.name,
    )


def _cells(path: Path, lines: Sequence[str]) -> list[list[str]]:
    try:
        return [[field.strip() for field in row] for row in csv.reader(lines)]
    except csv.Error as error:
        raise InputError(f"{path}: is no CSV file ({error})") from error


def _rows(header: Sequence[str], lines: Iterable[Sequence[str]]) -> tuple[list[_Row], int]:
    """Return the rows, and how many lines are none."""
    found, damaged = [], 0
    for place, line in enumerate(lines, start=1):
        if len(line) != len(header):
            damaged += 1
            continue
        fields = dict(zip(header, line, strict=True))
        name = fields.get("task_name") or fields.get("run_id") or str(place)
        found.append(_Row(printable(name), place, fields))
    return found, damaged


def _chosen(path: Path, rows: Sequence[_Row], run: str | None) -> _Row:
    if not rows:
        raise InputError(f"{path}: holds no run; expected rows below its header")
    if run is None:
        return rows[-1]
    found = [row for row in rows if row.name == run]
    found = found or [row for row in rows if str(row.place) == run]
    if not found:
        raise InputError(f"{path}: holds no run {printable(run)}; allowed: {_names(rows)}")
    return found[-1]


def _end(path: Path, row: _Row, options: Options) -> tuple[float | None, list[Flag]]:
    """Return the unix time of a row's stamp, None without one, and what is to be known of it."""
    times = unix_times(pd.Series([row.fields["timestamp"]], dtype=str), options, path)
    if times is None or not np.isfinite(times[0][0]):
        detail = f"{path.name}: run {row.name} has no time stamp; when it ran is unknown"
        return None, [flag(NO_TIME, None, detail)]
    return float(times[0][0]), times[1]


def _names(rows: Iterable[_Row]) -> str:
    return listed(dict.fromkeys(row.name for row in rows))


def _others(path: Path, rows: Sequence[_Row], chosen: _Row) -> list[Flag]:
    others = [row for row in rows if row.name != chosen.name]
    if not others:
        return []
    detail = f"{path.name}: run {chosen.name} is read; others: {_names(others)}"
    return [flag("several", None, detail)]


def _of_kind(
    node: str, kind: str, row: _Row, span: np.ndarray, joules: float
) -> list[SensorSeries]:
    """Return the totals of a kind's devices; none of GPUs where there are none."""
    devices = _gpus(row, joules) if kind == "gpu" else 1
    sensor = _ENERGIES[kind]
    flags = [flag(TOTAL_ONLY, sensor, f"{sensor}: one total of the run, without samples")]
    if np.isnan(joules):
        said = printable(row.fields[sensor][:40]) or "empty"
        flags.append(flag(UNKNOWN_TOTAL, sensor, f"{sensor}: {said}, where energy was used"))
    if kind == "cpu" and not _is_apple(row, "cpu_model"):
        detail = "RAPL, load or TDP: the file does not say which; taken as estimated"
        flags.append(flag(CPU_ORIGIN_UNKNOWN, sensor, detail))
    if devices > 1:
        detail = f"the energy of {devices} GPUs is known in sum only: each is given the same part"
        flags.append(flag(GPUS_IN_SUM, sensor, detail))
    return [
        total_series(
            SensorSeries(
                node=node,
                sensor=sensor if devices == 1 else f"{sensor}:{index}",
                device_kind=kind,
                device_index=index,
                quantity="counter",
                time_s=span,
                values=np.array([0.0, joules / devices]),
                origin=_origin(kind, row),
                flags=() if index else tuple(flags),
            )
        )
        for index in range(devices)
    ]


def _gpus(row: _Row, joules: float) -> int:
    count = row.value("gpu_count")
    if 1 <= count <= MOST_GPUS:
        return int(count)
    return 1 if joules > 0 else 0


def _origin(kind: str, row: _Row) -> str:
    is_driver = kind == "gpu" and not _is_apple(row, "gpu_model")
    return MEASURED if is_driver else ESTIMATED


def _is_apple(row: _Row, column: str) -> bool:
    """Return True of Apple's chips, whose energies are powermetrics' estimates."""
    return "apple" in row.fields.get(column, "").lower()


def _about(path: Path, row: _Row, factor: float) -> list[Flag]:
    found = []
    if factor > 1:
        detail = f"{path.name}: energies are divided by the PUE of {factor:g} that they hold"
        found.append(flag(PUE_REMOVED, None, detail))
    if row.fields.get("tracking_mode", "machine") == "process":
        detail = f"{path.name}: CPU and memory count for one process's share of the machine only"
        found.append(flag(ONE_PROCESS, None, detail))
    parts = [row.value(name) for name in _ENERGIES.values()]
    stated, total = row.value("energy_consumed"), sum(p for p in parts if p > 0)
    if stated > 0 and abs(total - stated) > 0.01 * stated:
        detail = f"{path.name}: its energies add up to {total:g} kWh, and it states {stated:g} kWh"
        found.append(flag(TOTAL_DIFFERS, None, detail))
    return found


def _recognises(head: Head) -> bool:
    if not head.lines:
        return False
    header = [name.strip() for name in head.lines[0].split(",")]
    return set(_NEEDED) <= set(header) and "emissions" in header


FORMAT = Format("codecarbon", _recognises, read_codecarbon, holds_runs=True)
