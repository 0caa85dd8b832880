"""Metrics of NVIDIA's DCGM exporter, as its text, or as Prometheus gives them.

    DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-…",modelName="…",Hostname="n1"} 61.23 1717144753123

Read are files of one or many scrapes of the exporter or of Prometheus' /federate, and the JSON of its
/api/v1/query_range and /query. A scrape's lines have their times (ms), or else a line before the scrape
has one alone, as `date +%s.%N` prints it. Of a GPU that is divided (MIG) each part repeats the whole
board's power and energy: one of them counts. Formats: prometheus.io/docs/instrumenting/exposition_formats
and /docs/prometheus/latest/querying/api; metrics: github.com/NVIDIA/dcgm-exporter, etc/*.csv.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import parse_json
from scalewatt.recordings.formats.dcgm import ENERGY, INSTANT, LOAD, POWER, without_blanks
from scalewatt.recordings.formats.format import Format, Head, Options, node_of
from scalewatt.recordings.formats.text_columns import (
    MOST_DEVICES,
    TextFile,
    as_numbers,
    lines_of,
    read_text,
    unix_times,
    with_values,
)
from scalewatt.recordings.series import (
    Flag,
    Recording,
    SensorSeries,
    by_node,
    finite_number,
    flag,
    gpu_quantity,
)
from scalewatt.recordings.text_times import unread, within

METRICS = {
    "DCGM_FI_DEV_POWER_USAGE": POWER,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ENERGY,
    "DCGM_FI_DEV_POWER_USAGE_INSTANT": INSTANT,
    "DCGM_FI_DEV_GPU_UTIL": LOAD,
}
_SAMPLE = re.compile(r"\s*([A-Za-z_:][\w:]*)?\s*(\{.*\})\s*(\S+)(?:\s+(-?\d+(?:\.\d+)?))?\s*")
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_STAMP = re.compile(r"\s*#?\s*(\d{9,19}(?:\.\d+)?|\d{4}[-/]\d\d[-/]\d\d[T ]\S+(?: UTC)?)\s*")
_JSON = re.compile(r'\s*\{\s*["}]')
_PREFIX = "DCGM_FI_DEV_"
_MOST_SENSORS = 16 * MOST_DEVICES
# Prometheus' text has ms, OpenMetrics s: what is larger is no time in s.
_MS = 1e11


MAX_LOST = 0.05
"""More of the samples without a time, or damaged, and a file is refused: what is missing would not show."""


@dataclass(frozen=True)
class _Sensor:
    """One metric of one GPU, or of a part of it."""

    node: str | None
    gpu: int
    metric: str
    part: str
    """Of a divided GPU, which part; "" for the whole one."""


@dataclass(frozen=True)
class _About:
    uuid: str | None
    model: str | None


@dataclass(eq=False)
class _Samples:
    """The samples of a file by sensor: times in unix seconds, or -1 - the place of a stamp, and values."""

    found: dict[_Sensor, tuple[list[float], list[str]]] = field(default_factory=dict)
    about: dict[tuple[str | None, int], _About] = field(default_factory=dict)
    stamps: list[str] = field(default_factory=list)
    """Lines that hold a time alone."""
    damaged: int = 0
    untimed: int = 0

    def of(self, sensor: _Sensor, about: _About) -> tuple[list[float], list[str]]:
        """Return the lists of a sensor's times and values, to add to."""
        if sensor not in self.found:
            if len(self.found) >= _MOST_SENSORS:
                raise InputError(f"names over {_MOST_SENSORS} sensors; allowed: at most so many")
            self.found[sensor] = ([], [])
            self.about.setdefault((sensor.node, sensor.gpu), about)
        return self.found[sensor]


def read_prometheus(path: Path, options: Options) -> Recording:
    """Read one or several nodes' metrics. Raises InputError if no sample of a GPU has a time."""
    content = read_text(path)
    # Prometheus' answers end without a line end; if one is cut off, it is no JSON.
    is_json = _JSON.match(content) is not None
    text = TextFile(path, [], torn=False) if is_json else lines_of(path, content)
    try:
        samples = _of_json(content) if is_json else _of_text(text.lines)
        stamped = unix_times(pd.Series(samples.stamps, dtype=str), options, path)
    except InputError as error:
        raise InputError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from error
    if not samples.found and samples.untimed:
        raise InputError(
            f"{path}: its samples have no times; put one before each scrape "
            "((date +%s.%N; curl -s HOST:9400/metrics) >> FILE), or ask Prometheus (/api/v1/query_range)"
        )
    if not samples.found:
        raise InputError(
            f"{path}: holds no sample that is read; expected one of {', '.join(METRICS)}"
        )
    stamp_s, flags = stamped or (np.empty(0), [])
    read = sum(len(values) for _, values in samples.found.values())
    lost = samples.damaged + samples.untimed
    if lost > MAX_LOST * (read + lost):
        raise InputError(
            f"{path}: of {read + lost} samples {samples.damaged} cannot be read and {samples.untimed} have "
            "no time of their own; expected a time before each scrape, and whole lines"
        )
    series, more = _all_series(samples, stamp_s, node_of(path, options))
    if not any(one.time_s.size for one in series):
        such = unread(samples.stamps[:1], stamp_s[:1] if stamp_s.size else [np.nan])
        raise InputError(f"{path}: holds no sample with a time that can be read{such}")
    lost = samples.damaged + samples.untimed
    return Recording(
        nodes=by_node(series),
        t0_known=True,
        sampling_period_s=None,
        source=str(path),
        problems=(*flags, *more, *text.damage(lost)),
    )


def _sensor_of(name: str | None, labels: Mapping[str, str]) -> tuple[_Sensor, _About] | None:
    """Return what labels name; None if it is not read."""
    metric = name or labels.get("__name__")
    gpu = labels.get("gpu", "")
    if metric not in METRICS or not (gpu.isascii() and gpu.isdigit() and len(gpu) < 6):
        return None
    node = labels.get("Hostname") or labels.get("exported_Hostname") or labels.get("hostname")
    if node is None and "instance" in labels:
        node = labels["instance"].rpartition(":")[0] or labels["instance"]
    part = labels.get("GPU_I_ID", "")
    if int(gpu) >= MOST_DEVICES or (part and METRICS[metric] is LOAD):
        return None
    about = _About(labels.get("UUID"), labels.get("modelName"))
    return _Sensor(node or None, int(gpu), metric, part), about


def _labels(text: str) -> dict[str, str] | None:
    """Return the labels within braces; None if they are damaged."""
    found: dict[str, str] = {}
    place, inside = 0, text[1:-1]
    while place < len(inside):
        label = _LABEL.match(inside, place)
        if label is None:
            return found if not inside[place:].strip(", ") else None
        found[label[1]] = label[2].replace('\\"', '"').replace("\\\\", "\\")
        place = label.end()
    return found


def _of_text(lines: Sequence[str]) -> _Samples:
    samples = _Samples()
    known: dict[tuple[str | None, str], tuple[_Sensor, _About] | None] = {}
    damaged: set[tuple[str | None, str]] = set()
    last: dict[tuple[str | None, str], tuple[int, str]] = {}
    for line in lines:
        if _PREFIX not in line:
            if line[:4].strip("# ").isdigit() and (stamp := _STAMP.fullmatch(line)):
                samples.stamps.append(stamp[1])
            continue
        if line.startswith("#"):
            continue
        found = _SAMPLE.fullmatch(line)
        if found is None:
            samples.damaged += any(f"{metric}{{" in line for metric in METRICS)
            continue
        key = (found[1], found[2])
        if key not in known:
            labels = _labels(found[2])
            known[key] = None if labels is None else _sensor_of(found[1], labels)
            if labels is None and (found[1] or "") in ("", *METRICS):
                damaged.add(key)
        samples.damaged += key in damaged
        if (of := known[key]) is None:
            continue
        place, said = last.get(key, (0, found[3]))
        # A second scrape under one stamp has no time of its own, unless it says the same again.
        if found[4] is None and (
            not samples.stamps or (place == len(samples.stamps) and said != found[3])
        ):
            samples.untimed += 1
            continue
        last[key] = len(samples.stamps), found[3]
        time_s, values = samples.of(*of)
        time_s.append(-float(len(samples.stamps)) if found[4] is None else _seconds(found[4]))
        values.append(found[3])
    return samples


def _seconds(text: str) -> float:
    number = float(text)
    return number / 1e3 if number > _MS else max(number, 0.0)


def _of_json(text: str) -> _Samples:
    """Return the samples of an answer of Prometheus' API. Raises InputError for any other JSON."""
    try:
        content = parse_json(text)
    except ValueError as error:
        raise InputError(f"is no JSON ({error})") from error
    data = content.get("data") if isinstance(content, dict) else None
    results = data.get("result") if isinstance(data, dict) else None
    if not isinstance(results, list):
        raise InputError("is no answer of Prometheus' API; expected data.result")
    samples = _Samples()
    for result in results:
        labels = result.get("metric") if isinstance(result, dict) else None
        if not isinstance(labels, dict):
            samples.damaged += 1
            continue
        texts = {name: value for name, value in labels.items() if isinstance(value, str)}
        if (of := _sensor_of(None, texts)) is None:
            continue
        time_s, values = samples.of(*of)
        pairs = result.get("values", [result.get("value")])
        for pair in pairs if isinstance(pairs, list) else [None]:
            time, value = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
            number = finite_number(time)
            if number is None or not isinstance(value, str):
                samples.damaged += 1
            else:
                time_s.append(max(number, 0.0))
                values.append(value)
    return samples


def _all_series(
    samples: _Samples, stamp_s: np.ndarray, file_node: str
) -> tuple[list[SensorSeries], list[Flag]]:
    """Return the series of all GPUs, one of each metric, that of the whole GPU or its first part."""
    flags: list[Flag] = []
    gpus: dict[tuple[str | None, int], dict[str, SensorSeries]] = {}
    order = list(METRICS)
    for sensor in sorted(
        samples.found,
        key=lambda s: (s.node or "", s.gpu, order.index(s.metric), len(s.part), s.part),
    ):
        metrics = gpus.setdefault((sensor.node, sensor.gpu), {})
        if sensor.metric not in metrics:
            metrics[sensor.metric] = _series(samples, sensor, stamp_s, sensor.node or file_node)
        else:
            name = metrics[sensor.metric].sensor
            detail = f"not added: part {sensor.part} of a divided GPU, which repeats {name}"
            flags.append(flag("second_sensor", f"{name} {sensor.part}", detail))
    return [one for metrics in gpus.values() for one in with_values(list(metrics.values()))], flags


def _series(samples: _Samples, sensor: _Sensor, stamp_s: np.ndarray, node: str) -> SensorSeries:
    time_s, texts = samples.found[sensor]
    times = np.array(time_s, dtype=np.float64)
    numbers = without_blanks(as_numbers(pd.Series(texts, dtype=str)))
    stamped = times < 0
    if stamped.any():
        times[stamped] = stamp_s[(-times[stamped]).astype(np.int64) - 1]
    else:  # Prometheus' own times: several label sets of one GPU follow each other
        inorder = np.argsort(times, kind="stable")
        times, numbers = times[inorder], numbers[inorder]
    good = np.isfinite(within(times))
    samples.untimed += int((~good).sum())
    about = samples.about[(sensor.node, sensor.gpu)]
    what = METRICS[sensor.metric]
    power = sensor.metric == "DCGM_FI_DEV_POWER_USAGE"
    return SensorSeries(
        node=node,
        sensor=f"GPU:{sensor.gpu} {sensor.metric}",
        device_kind="gpu",
        device_index=sensor.gpu,
        quantity=what.quantity,
        time_s=times[good],
        values=numbers[good] * what.factor,
        valid_max=what.valid_max,
        uuid=about.uuid,
        samples=gpu_quantity(about.model or "") if power else what.samples,
    )


def _recognises(head: Head) -> bool:
    if '"resultType"' in head.text and _PREFIX in head.text:
        return True
    begins = (_PREFIX, f"# HELP {_PREFIX}", f"# TYPE {_PREFIX}", f'{{__name__="{_PREFIX}')
    return any(line.startswith(begins) for line in head.lines)


FORMAT = Format("prometheus", _recognises, read_prometheus)
