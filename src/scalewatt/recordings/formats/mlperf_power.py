"""Power logs of MLPerf Training: a node's readings, or what its switches are estimated to draw.

`node_<i>.txt`: `power_reading` in W about every 2 s between `power_measurement_start` and `_stop`. What
a reading stands for is not said: it is taken as the power at its time. `sw_<i>.txt`:
`interconnect_power_est`, one constant in W, whose time is no time of the run. Format:
github.com/mlcommons/training_policies (power) and files of training_results_v4.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.recordings.formats.format import TORN_END, Format, Head, Options, node_of
from scalewatt.recordings.formats.mlperf_log import MARK, LogLine, MlperfLog, read_mlperf_log
from scalewatt.recordings.series import (
    ESTIMATED,
    NETWORK,
    NODE,
    Flag,
    Floats,
    Recording,
    SensorSeries,
    by_node,
    finite_number,
    flag,
)

READING, ESTIMATE = "power_reading", "interconnect_power_est"
START, STOP = "power_measurement_start", "power_measurement_stop"
CONSTANT_ESTIMATE = "constant_estimate"
"""Flag of a series of one value, an estimate for the whole run."""


def read_mlperf_power(path: Path, options: Options) -> Recording:
    """Read one power log: kind `node`, or kind `network` of a single sample a switch, an estimate.

    Raises InputError if it holds neither readings nor an estimate.
    """
    log = read_mlperf_log(path)
    readings, estimates = log.of(READING), log.of(ESTIMATE)
    problems = _damage(log, path)
    if readings:
        problems += _stamps(log, readings, path)
        series = [_node_series(node_of(path, options), readings, log.first(START))]
    elif estimates:
        # Of a switch that is estimated again, as by each rank, the first estimate counts.
        switches = {_switch(line): line for line in reversed(estimates)}
        series = [
            _network_series(node_of(path, options), switches[switch], place)
            for place, switch in enumerate(sorted(switches))
        ]
    else:
        raise InputError(f"{path}: holds no {READING} and no {ESTIMATE}")
    return Recording(
        nodes=by_node(series),
        t0_known=True,
        sampling_period_s=None,
        source=str(path),
        problems=tuple(problems),
    )


def _node_series(node: str, readings: Sequence[LogLine], start: LogLine | None) -> SensorSeries:
    time_s = np.array([line.time_s for line in readings])
    watts = np.array([_watts(line) for line in readings])
    return SensorSeries(
        node=node,
        sensor="power_reading",
        device_kind=NODE,
        device_index=0,
        quantity="power",
        time_s=time_s,
        values=watts,
        log_mean_w=_log_mean_w(time_s, watts, start.time_s if start else float(time_s[0])),
    )


def _log_mean_w(time_s: Floats, watts: Floats, start_s: float) -> float | None:
    """Return a log's mean power as MLCommons' summariser takes it: each reading since the one before.

    The first since `start_s`, the stamp of the measurement's start. Rule: mlperf_logging's
    result_summarizer.
    """
    steps = np.diff(time_s, prepend=start_s)
    length = float(steps.sum())
    return float(np.dot(watts, steps)) / length if length > 0 else None


def _switch(estimate: LogLine) -> str:
    return str(estimate.metadata.get("switch_id") or "all switches")


def _network_series(node: str, estimate: LogLine, index: int) -> SensorSeries:
    sensor = ESTIMATE if index == 0 else f"{ESTIMATE}:{index}"
    detail = (
        f"{_switch(estimate)}: one constant, an estimate for the whole run; when it was made is not of this "
        "run"
    )
    return SensorSeries(
        node=node,
        sensor=sensor,
        device_kind=NETWORK,
        device_index=index,
        quantity="power",
        time_s=np.array([estimate.time_s]),
        values=np.array([_watts(estimate)]),
        origin=ESTIMATED,
        log_mean_w=_watts(estimate),
        flags=(flag(CONSTANT_ESTIMATE, sensor, detail),),
    )


def _watts(line: LogLine) -> float:
    value = finite_number(line.value)
    return float("nan") if value is None else value


def _damage(log: MlperfLog, path: Path) -> list[Flag]:
    found = []
    if log.damaged:
        detail = f"{path.name}: {log.damaged} lines hold no event and are left out"
        found.append(flag("damaged_lines", None, detail))
    if log.torn:
        found.append(flag(TORN_END, None, f"{path.name}: ends within a line, which is left out"))
    return found


def _stamps(log: MlperfLog, readings: Sequence[LogLine], path: Path) -> list[Flag]:
    """Flag a stop stamp that lies before the readings' end: the readings alone say how long the log is."""
    stop, start = log.first(STOP), log.first(START)
    last = max(line.time_s for line in readings)
    if stop is None or start is None or stop.time_s >= last:
        return []
    detail = (
        f"{path.name}: {STOP} is {last - stop.time_s:.1f} s before the last reading; the readings' "
        "own times are used"
    )
    return [flag("stop_stamp_wrong", None, detail)]


def _recognises(head: Head) -> bool:
    keys = (READING, ESTIMATE, START)
    return any(MARK in line and any(f'"{key}"' in line for key in keys) for line in head.lines[:50])


FORMAT = Format("mlperf-power", _recognises, read_mlperf_power)
