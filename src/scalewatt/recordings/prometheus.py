"""Metrics of exporters, as their text or as Prometheus and VictoriaMetrics give them.

    DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-…",modelName="…",Hostname="n1"} 61.23 1717144753123

Three forms are read: scrapes in text, whose lines have a time (ms) or a line before each scrape has it, as
`date +%s.%N` prints it; JSON of /api/v1/query_range and /query; lines of VictoriaMetrics' /api/v1/export.
Which metrics are read, of which exporters, is the table prometheus_metrics.csv, a row for each device kind:

index   labels that tell the devices of a kind apart
where   a label, and the expression that its value matches
sum     a label whose values are parts to be added, such as Kepler's idle and dynamic energy
unless  the metric is left out where the node has one that matches

Of a GPU that is divided (MIG) each part repeats the whole board's power and energy: the first counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.recordings.block import Block, Flag, Floats, Recording, sensor_frame
from scalewatt.recordings.series import flag, gpu_quantity
from scalewatt.recordings.tables import Options, damage_flags, decoded, node_of
from scalewatt.recordings.times import as_numbers, within, zoned_times

NODE_LABELS = ("Hostname", "exported_Hostname", "hostname", "node_name", "node", "nodename")
UUID_LABELS = ("UUID", "uuid", "gpu_uuid")
MODEL_LABELS = ("modelName", "gpu_name", "name")
PART_LABEL = "GPU_I_ID"
CHIP_NAMES = "node_hwmon_chip_names"
"""Metric of node exporters that names the driver of each `chip`, as the label `chip_name`."""

_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)?\s*(\{.*\})?\s*(\S+)(?:\s+(-?\d+(?:\.\d+)?))?\s*")
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_STAMP = re.compile(r"\s*#?\s*(\d{9,19}(?:\.\d+)?|\d{4}[-/]\d\d[-/]\d\d[T ]\S+(?: UTC)?)\s*")
_JSON = re.compile(r'\s*\{\s*["}]')
_MODULE = re.compile(r"\bG[HB]\d00\b")
_LOCAL = re.compile(r"localhost|127\..*|\[?::1\]?")
_MS = 1e11
"""Prometheus' text has times in ms, OpenMetrics in s: what is larger is ms."""
MAX_LOST = 0.05
"""Share of samples without a time, or damaged, above which a file is refused: the loss would not show."""


@dataclass(eq=False)
class _Sensor:
    """One metric of one device as one label set, or later all of its label sets, state it."""

    metric: str
    kind: str
    quantity: str
    range_j: float
    samples: str
    node: str
    labelled: bool
    """True if a label names the node."""
    device: str
    uuid: str
    model: str
    part: str
    """Part of a divided GPU, or of a sum; empty for the whole."""
    summed: bool
    target: str
    """The exporter and its job."""
    time_s: Floats
    values: Floats
    index: int = 0

    @property
    def name(self) -> str:
        return f"{self.kind.upper()}:{self.index} {self.metric}"

    @property
    def begin_s(self) -> float:
        return float(self.time_s.min(initial=np.inf))


_LabelSet = tuple[dict[str, str], list[float], list[Any]]
"""Labels, times in unix s or minus the number of the stamp before, and values."""


@dataclass(eq=False)
class _Content:
    """What a file holds."""

    sets: list[_LabelSet] = field(default_factory=list)
    stamps: list[str] = field(default_factory=list)
    """Lines that hold a time alone."""
    damaged: int = 0
    untimed: int = 0
    torn: bool = False


@cache
def metrics() -> pd.DataFrame:
    """The table of metrics, a row for each kind of device that a metric is of."""
    table = pd.read_csv(
        Path(__file__).with_name("prometheus_metrics.csv"), dtype=str, keep_default_na=False
    )
    numbers = {"factor": table["factor"].astype(float), "range_j": pd.to_numeric(table["range_j"])}
    return table.assign(**numbers)


def recognises(head: str) -> bool:
    """Tell JSON of Prometheus, or text with a known metric, by a file's beginning."""
    if _JSON.match(head):
        return re.search(r'"resultType"|"errorType"|^\s*\{\s*"metric"\s*:\s*\{', head) is not None
    names = "|".join([*metrics()["metric"].unique(), CHIP_NAMES])
    return re.search(rf'^(# \w+ )?(\{{__name__=")?({names})\b', head, re.MULTILINE) is not None


def read_prometheus(path: Path, options: Options) -> Recording:
    """Read one or several nodes' metrics. Raises InputError if no sample that is read has a time."""
    try:
        text = decoded(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        content = _of_json(text) if _JSON.match(text) else _of_text(text)
        stamp_s, flags = zoned_times(path.name, content.stamps, options.time_zone)
        read = list(_sensors(content, stamp_s, node_of(path, options)))
        _refuse_lost(content, read)
        flags += _one_name_a_device(read)
        sensors = []
        for own in _groups(read, "node", "kind", "index", "metric"):
            sensor, more = _whole(own)
            sensors.append(sensor)
            flags += more
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    damage = damage_flags(path, content.damaged + content.untimed, content.torn)
    return Recording(
        nodes=_blocks(_with_values(sensors)),
        clock_known=True,
        period_s=None,
        source=str(path),
        flags=(*flags, *damage),
        format="prometheus",
    )


def _of_text(text: str) -> _Content:
    """Read scrapes of exporters, or of Prometheus' /federate."""
    *lines, rest = text.split("\n")
    content = _Content(torn=bool(rest.strip()))
    wanted = {*metrics()["metric"], CHIP_NAMES}
    sets: dict[str, _LabelSet | None] = {}
    last: dict[str, tuple[int, str]] = {}
    for line in filter(str.strip, lines):
        if line[:1] in "#0123456789":
            if line[:4].strip("# ").isdigit() and (stamp := _STAMP.fullmatch(line)):
                content.stamps.append(stamp[1])
            continue
        match = _SAMPLE.fullmatch(line.lstrip())
        if match is None:
            content.damaged += any(name in line for name in wanted)
            continue
        key = line[: match.start(3)]
        if key not in sets:
            labels = _labels(match[1], match[2] or "")
            sets[key] = None if labels.get("__name__") not in wanted else (labels, [], [])
            content.damaged += not labels and match[1] in wanted
        if (known := sets[key]) is None:
            continue
        # A second scrape under one stamp has no time of its own, unless it repeats the first.
        before, value = last.get(key, (0, ""))
        now = len(content.stamps)
        if match[4] is None and (not now or (before == now and value != match[3])):
            content.untimed += 1
            continue
        last[key] = now, match[3]
        known[1].append(-float(now) if match[4] is None else _seconds(match[4]))
        known[2].append(match[3])
    content.sets = [known for known in sets.values() if known is not None]
    return content


def _labels(name: str | None, braces: str) -> dict[str, str]:
    """The labels of a line, its metric as `__name__`; none if they are damaged."""
    labels = {"__name__": name} if name else {}
    at, inside = 0, braces[1:-1]
    while at < len(inside) and inside[at:].strip(", "):
        if (label := _LABEL.match(inside, at)) is None:
            return {}
        labels[label[1]] = label[2].replace('\\"', '"').replace("\\\\", "\\")
        at = label.end()
    return labels


def _seconds(text: str) -> float:
    number = float(text)
    return number / 1e3 if number > _MS else max(number, 0.0)


def _of_json(text: str) -> _Content:
    """Read an answer of Prometheus' API, or lines of VictoriaMetrics' export."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        if '"timestamps"' not in text:
            raise InputError(f"is not whole JSON ({error})") from error
        return _of_export(text)
    if "metric" in answer:
        return _of_export(text + "\n")
    if answer.get("status") == "error":
        raise InputError(f"is Prometheus' answer to a query that failed: {answer.get('error')}")
    content = _Content()
    try:
        for result in answer["data"]["result"]:
            pairs = result["values"] if "values" in result else [result["value"]]
            _add(content, result["metric"], *zip(*pairs, strict=True))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            "is JSON, but no answer of Prometheus' API; expected data.result"
        ) from error
    return content


def _of_export(text: str) -> _Content:
    """Read lines {"metric": {labels}, "values": […], "timestamps": [ms, …]}."""
    *lines, rest = text.split("\n")
    content = _Content(torn=bool(rest.strip()))
    for line in filter(str.strip, lines):
        try:
            row = json.loads(line)
            _add(content, row["metric"], [t / 1e3 for t in row["timestamps"]], row["values"])
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            content.damaged += 1
    return content


def _add(
    content: _Content, labels: Mapping[str, Any], time_s: Iterable[Any], values: Iterable[Any]
) -> None:
    texts = {name: str(value) for name, value in labels.items()}
    numbers = [float(time) if isinstance(time, int | float) else 0.0 for time in time_s]
    read = list(values)
    if len(read) != len(numbers):
        raise ValueError("times and values differ in number")
    content.sets.append((texts, [max(number, 0.0) for number in numbers], read))


def _sensors(content: _Content, stamp_s: Floats, file_node: str) -> Iterator[_Sensor]:
    """Yield what label sets state of devices; `stamp_s` has the times of the stamps, (n,) unix s."""
    table = {str(name): rows.to_dict("records") for name, rows in metrics().groupby("metric")}
    chips: dict[tuple[str, str | None], str] = {}
    present: dict[str, set[str]] = {}
    for labels, _, _ in content.sets:
        present.setdefault(_node(labels), set()).add(labels.get("__name__", ""))
        if labels.get("__name__") == CHIP_NAMES:
            chips[_node(labels), labels.get("chip")] = labels.get("chip_name", "")
    for labels, times, values in content.sets:
        node = _node(labels)
        labels = {"chip_name": chips.get((node, labels.get("chip")), ""), **labels}
        for row in table.get(labels.get("__name__", ""), []):
            if not _counts(row, labels, present[node]):
                continue
            time_s, value = _samples(times, values, stamp_s)
            content.untimed += len(times) - time_s.size
            yield _Sensor(
                **{key: row[key] for key in ("metric", "kind", "quantity", "range_j", "samples")},
                node=node or file_node,
                labelled=bool(node),
                device=_first(labels, row["index"].split()),
                uuid=_first(labels, UUID_LABELS),
                model=_first(labels, MODEL_LABELS),
                part=labels.get(row["sum"] or PART_LABEL, ""),
                summed=bool(row["sum"]),
                target=f"{node} {labels.get('instance')} {labels.get('job')}",
                time_s=time_s,
                values=value * row["factor"],
            )


def _node(labels: Mapping[str, str]) -> str:
    """The node that labels name, "" if none: last the scraped address without its port."""
    address = labels.get("instance", "")
    host = address.rpartition(":")[0] or address
    return _first(labels, NODE_LABELS) or ("" if _LOCAL.fullmatch(host) else host)


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _counts(row: Mapping[Any, Any], labels: Mapping[str, str], metrics_of_node: set[str]) -> bool:
    """Tell whether a row of the table holds for labels."""
    name, _, expression = row["where"].partition("~")
    if name and not re.fullmatch(expression, labels.get(name, "")):
        return False
    if row["unless"] and any(re.fullmatch(row["unless"], other) for other in metrics_of_node):
        return False
    if row["metric"].startswith("DCGM_") and not re.fullmatch(r"\d{1,4}", labels.get("gpu", "")):
        return False
    return not (row["quantity"] == "utilisation" and labels.get(PART_LABEL))


def _samples(
    times: Sequence[float], values: Sequence[Any], stamp_s: Floats
) -> tuple[Floats, Floats]:
    """Times in unix s and numbers, (n,) each, of the samples with a time; NaN for DCGM's missing values."""
    time_s = np.array(times, dtype=np.float64)
    numbers = as_numbers(pd.Series(values, dtype=object))
    missing = ((numbers >= 2.0**47) & (numbers <= 2.0**47 + 8)) | (numbers >= 9.2e18)
    numbers = np.where(missing, np.nan, numbers)
    stamped = time_s < 0
    if stamped.any():
        at = (-time_s[stamped]).astype(np.int64) - 1
        time_s[stamped] = stamp_s[at]
    known = np.isfinite(within(time_s))
    return time_s[known], numbers[known]


def _refuse_lost(content: _Content, read: Sequence[_Sensor]) -> None:
    """Refuse a file without a sample that counts, or of which too many are lost."""
    count, lost = sum(s.values.size for s in read), content.damaged + content.untimed
    if not count and content.untimed:
        raise InputError(
            "its samples have no times that can be read; put one before each scrape "
            "((date +%s.%N; curl -s HOST:9400/metrics) >> FILE), or ask Prometheus (/api/v1/query_range)"
        )
    if not count:
        names = ", ".join(metrics()["metric"].unique())
        raise InputError(f"holds no sample that is read; expected one of {names}")
    if lost > MAX_LOST * (count + lost):
        raise InputError(
            f"of {count + lost} samples {content.damaged} cannot be read and {content.untimed} have no time "
            "of their own; expected whole lines, a time before each scrape, and a file for each node"
        )


def _groups(sensors: Iterable[_Sensor], *names: str) -> list[list[_Sensor]]:
    """Sensors with equal attributes, in order of these."""
    groups: dict[tuple[Any, ...], list[_Sensor]] = {}
    for sensor in sensors:
        groups.setdefault(tuple(getattr(sensor, name) for name in names), []).append(sensor)
    return [groups[key] for key in sorted(groups)]


def _one_name_a_device(read: Sequence[_Sensor]) -> list[Flag]:
    """Give nodes that share a GPU, by its UUID, the name of the first in time; and number all devices.

    Raises InputError for two UUIDs under one number.
    """
    flags: list[Flag] = []
    for gpu in _groups((s for s in read if s.uuid), "uuid"):
        first, *others = dict.fromkeys(s.node for s in sorted(gpu, key=lambda s: s.begin_s))
        for sensor in read:
            sensor.node = first if sensor.node in others else sensor.node
        for sensor in gpu:
            sensor.device = gpu[0].device
        if others:
            detail = (
                f"{gpu[0].uuid} is a GPU of {first} and of {', '.join(others)}: taken for one node"
            )
            flags.append({**flag("second_sensor", None, detail), "node": first})
    for devices in _groups(read, "node", "kind"):
        ranks = {name: i for i, name in enumerate(sorted({s.device or s.uuid for s in devices}))}
        uuids: dict[int, str] = {}
        for sensor in devices:
            numeric = re.fullmatch(r"\d{1,4}", sensor.device)
            sensor.index = int(sensor.device) if numeric else ranks[sensor.device or sensor.uuid]
            if sensor.uuid and uuids.setdefault(sensor.index, sensor.uuid) != sensor.uuid:
                raise InputError(
                    f"{sensor.uuid} and {uuids[sensor.index]} are both {sensor.name} of {sensor.node}; "
                    "expected a label that names the node, or a file for each node"
                )
    return flags


def _whole(own: Sequence[_Sensor]) -> tuple[_Sensor, list[Flag]]:
    """Join the label sets of one metric of one device: parts that repeat it or are added, and exporters."""
    flags: list[Flag] = []
    parts = _groups(own, "part")
    if not own[0].summed:
        parts.sort(key=lambda part: (len(part[0].part), part[0].part))
        for part in parts[1:]:
            detail = f"not added: part {part[0].part} of a divided GPU, which repeats {own[0].name}"
            flags.append(flag("second_sensor", f"{own[0].name} {part[0].part}", detail))
        parts = parts[:1]
    columns = [_joined(part, flags) for part in parts]
    sensor = parts[0][0]
    sensor.time_s, sensor.values = columns[0]
    if len(columns) > 1:
        table = pd.concat([pd.Series(v, t) for t, v in columns], axis=1, join="inner").sum(axis=1)
        sensor.time_s, sensor.values = table.index.to_numpy(float), table.to_numpy(float)
    if _MODULE.search(sensor.model) and sensor.quantity == "counter":
        sensor.kind = "node"
        detail = f"{sensor.name}: counts the whole module of {sensor.model}, not its GPU alone"
        flags.append(flag("assumed", sensor.name, detail))
    return sensor, flags


def _joined(part: Sequence[_Sensor], flags: list[Flag]) -> tuple[Floats, Floats]:
    """Join label sets in order of time; of a time that another exporter has, only the first one's count."""
    time_s, values = np.empty(0), np.empty(0)
    for target in sorted(_groups(part, "target"), key=lambda own: min(s.begin_s for s in own)):
        more_s, more = (
            np.concatenate([getattr(s, of) for s in target]) for of in ("time_s", "values")
        )
        if len(target) > 1:  # one set keeps its order, so that a clock that was set back shows
            order = np.argsort(more_s, kind="stable")
            more_s, more = more_s[order], more[order]
        _refuse_two_nodes(target[0], more_s, more)
        after = more_s > time_s.max(initial=-np.inf)
        if not after.all():
            detail = f"{(~after).sum()} samples of a time that another exporter has are left out"
            flags.append(flag("second_sensor", target[0].name, f"{target[0].name}: {detail}"))
        time_s, values = (
            np.concatenate((time_s, more_s[after])),
            np.concatenate((values, more[after])),
        )
    return time_s, values


def _refuse_two_nodes(sensor: _Sensor, time_s: Floats, values: Floats) -> None:
    """Refuse samples that alternate or contradict each other at one time, as of two nodes without a label."""
    if sensor.quantity == "utilisation" or values.size < 4:
        return
    one, two = np.abs(np.diff(values)), np.abs(values[2:] - values[:-2])
    contradicting = np.sum((np.diff(time_s) == 0) & (one > 0)) > MAX_LOST * values.size
    level = np.nanmedian(values) if sensor.quantity == "power" else 0.0
    alternating = np.nanmedian(one) > max(5 * np.nanmedian(two), 0.05 * level)
    if contradicting or (alternating and not sensor.labelled):
        raise InputError(
            f"{sensor.name} has two values at a time, as of two nodes; expected a label that names the node "
            "(Hostname, instance), or a file for each node"
        )


def _with_values(sensors: Sequence[_Sensor]) -> list[_Sensor]:
    """Leave out sensors without a value where another of their device has one; else the first stays."""
    kept = []
    for device in _groups(sensors, "node", "kind", "index"):
        valued = [s for s in device if np.isfinite(s.values).any()]
        energetic = [s for s in device if s.quantity != "utilisation"]
        kept += valued
        if energetic and not any(s in valued for s in energetic):
            kept.append(energetic[0])
    return kept


def _blocks(sensors: Sequence[_Sensor]) -> dict[str, list[Block]]:
    """The blocks of each node, of sensors that were read at the same times."""
    axes: dict[tuple[str, bytes], list[_Sensor]] = {}
    for sensor in sensors:
        if sensor.metric == "DCGM_FI_DEV_POWER_USAGE":
            sensor.samples = gpu_quantity(sensor.model) or ""
        axes.setdefault((sensor.node, sensor.time_s.tobytes()), []).append(sensor)
    nodes: dict[str, list[Block]] = {}
    columns = ("name", "kind", "index", "quantity", "range_j", "uuid", "samples")
    for node, time in sorted(axes, key=lambda axis: axis[0]):
        own = axes[node, time]
        frame = sensor_frame([{c: getattr(s, c) for c in columns} for s in own])
        values = np.asfortranarray(np.column_stack([s.values for s in own]))
        nodes.setdefault(node, []).append(Block(node, own[0].time_s, values, frame))
    return nodes
