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
from scalewatt.recordings.block import Block, Recording, sensor_frame
from scalewatt.recordings.tables import Options, damage_flags, decoded, node_of
from scalewatt.recordings.terms import Flag, Floats, flag, gpu_quantity
from scalewatt.recordings.times import as_numbers, within, zoned_times

NODE_LABELS = ("Hostname", "exported_Hostname", "hostname", "node_name", "node", "nodename")
UUID_LABELS = ("UUID", "uuid", "gpu_uuid")
MODEL_LABELS = ("modelName", "gpu_name", "name")
PART_LABEL = "GPU_I_ID"
CHIP_NAMES = "node_hwmon_chip_names"
"""Metric of node exporters that names the driver of each `chip`, as the label `chip_name`."""

_SAMPLE = (
    r"^(?P<key>[A-Za-z_:][\w:]*\s*(?:\{.*\})?|\{.*\})\s*"
    r"(?P<value>[^\s{}]+)(?:\s+(?P<time>-?\d+(?:\.\d+)?))?$"
)
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_STAMP = r"^#?\s*(\d{9,19}(?:\.\d+)?|\d{4}[-/]\d\d[-/]\d\d[T ]\S+(?: UTC)?)$"
_JSON = re.compile(r'\s*\{\s*["}]')
_MODULE = re.compile(r"\bG[HB]\d00\b")
_LOCAL = re.compile(r"localhost|127\..*|\[?::1\]?")
_MS = 1e11
"""Prometheus' text has times in ms, OpenMetrics in s: what is larger is ms."""
MAX_LOST = 0.05
"""Share of samples without a time, or damaged, above which a file is refused: the loss would not show."""

Sensor = dict[str, Any]
"""One metric of one device: a row of the table of metrics, with what labels say, `time_s` and `values`."""


@dataclass(eq=False)
class _Content:
    """What a file holds."""

    sets: list[tuple[dict[str, str], list[float], list[Any]]] = field(default_factory=list)
    """Labels, times in unix s or minus the number of the stamp before, and values."""
    stamps: list[str] = field(default_factory=list)
    """Lines that hold a time alone."""
    damaged: int = 0
    untimed: int = 0
    torn: bool = False


@cache
def metrics() -> pd.DataFrame:
    """The table of metrics, a row for each kind of device that a metric is of."""
    path = Path(__file__).with_name("prometheus_metrics.csv")
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    numbers = {"factor": table["factor"].astype(float), "range_j": pd.to_numeric(table["range_j"])}
    return table.assign(**numbers)


def grouped(sensors: Iterable[Sensor], *keys: str) -> list[list[Sensor]]:
    """Sensors that agree in some keys, in the order in which they come first."""
    groups: dict[tuple[Any, ...], list[Sensor]] = {}
    for sensor in sensors:
        groups.setdefault(tuple(sensor[key] for key in keys), []).append(sensor)
    return list(groups.values())


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
        content = _of_json(text) if _JSON.match(text) else _of_text(text)
        stamp_s, flags = zoned_times(path.name, content.stamps, options.time_zone)
        read = list(_sensors(content, stamp_s, node_of(path, options)))
        _refuse_lost(content, read)
        flags += _one_name_a_device(read)
        sensors = [_joined(own, flags) for own in grouped(read, "node", "kind", "index", "metric")]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    damage = damage_flags(path, content.damaged + content.untimed, content.torn)
    return Recording(
        nodes=_blocks(sensors),
        clock_known=True,
        period_s=None,
        source=str(path),
        flags=(*flags, *damage),
        format="prometheus",
    )


def _of_text(text: str) -> _Content:
    """Read scrapes of exporters, or of Prometheus' /federate."""
    *texts, rest = text.split("\n")
    lines = pd.Series(texts, dtype="str").str.strip()
    stamps = lines.str.extract(_STAMP, expand=False)
    rows = lines[stamps.isna() & ~lines.str.startswith("#")].str.extract(_SAMPLE)
    known = "|".join([*metrics()["metric"].unique(), CHIP_NAMES])
    rows = rows[rows["key"].str.contains(rf'^(?:\{{.*__name__=")?(?:{known})\b', na=True)]
    labels = {key: _labels(key) for key in rows["key"].dropna().unique()}
    broken = lines[rows.index[rows["key"].isna()]].str.contains(known).sum()
    rows = rows.dropna(subset="key")
    is_damaged = np.array([not labels[key] for key in rows["key"]], dtype=np.bool_)
    rows = rows[~is_damaged]
    rows = rows.assign(stamp=stamps.notna().cumsum()[rows.index])
    # A second scrape under one stamp has no time of its own, unless it repeats the first.
    again = rows.duplicated(["key", "stamp"]) & ~rows.duplicated(["key", "stamp", "value"])
    untimed = rows["time"].isna() & (again | (rows["stamp"] == 0))
    stated = pd.to_numeric(rows["time"]).clip(lower=0.0)
    time_s = stated.where(stated <= _MS, stated / 1e3).fillna(-rows["stamp"].astype(float))
    content = _Content(
        stamps=stamps.dropna().tolist(),
        damaged=int(broken + is_damaged.sum()),
        untimed=int(untimed.sum()),
        torn=bool(rest.strip()),
    )
    for key, own in rows.assign(time_s=time_s)[~untimed].groupby("key", sort=False):
        content.sets.append((labels[str(key)], own["time_s"].tolist(), own["value"].tolist()))
    return content


def _labels(key: str) -> dict[str, str]:
    """The labels of a metric, its name as `__name__`; none if they are damaged."""
    name, _, inside = key.strip().removesuffix("}").partition("{")
    if _LABEL.sub("", inside).strip(", "):
        return {}
    pairs = {label: re.sub(r"\\(.)", r"\1", value) for label, value in _LABEL.findall(inside)}
    return {"__name__": name.strip(), **pairs} if name else pairs


def _of_json(text: str) -> _Content:
    """Read an answer of Prometheus' API, or lines of VictoriaMetrics' export."""
    first, _, _ = text.partition("\n")
    if first.rstrip().endswith("}") and '"timestamps"' in first:
        return _of_export(text)
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not whole JSON ({error})") from error
    if answer.get("status") == "error":
        raise InputError(f"is Prometheus' answer to a query that failed: {answer.get('error')}")
    content = _Content()
    try:
        for result in answer["data"]["result"]:
            pairs = result["values"] if "values" in result else [result["value"]]
            _add(content, result["metric"], *zip(*pairs, strict=True))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        text = "is JSON, but no answer of Prometheus' API; expected data.result"
        raise InputError(text) from error
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
    content: _Content, labels: Mapping[str, Any], time_s: Sequence[Any], values: Sequence[Any]
) -> None:
    numbers = [max(float(t), 0.0) if isinstance(t, int | float) else 0.0 for t in time_s]
    if len(numbers) != len(values):
        raise ValueError("times and values differ in number")
    content.sets.append(({k: str(v) for k, v in labels.items()}, numbers, list(values)))


def _sensors(content: _Content, stamp_s: Floats, file_node: str) -> Iterator[Sensor]:
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
        part = labels.get(PART_LABEL, "")
        for row in table.get(labels.get("__name__", ""), []):
            if not _counts(row, labels, present[node]):
                continue
            time_s, value = _samples(times, values, stamp_s)
            content.untimed += len(times) - time_s.size
            yield {
                **{str(key): cell for key, cell in row.items()},
                "node": node or file_node,
                "labelled": bool(node),
                "device": _first(labels, row["index"].split()),
                "uuid": _first(labels, UUID_LABELS),
                "model": _first(labels, MODEL_LABELS),
                "part": labels.get(row["sum"], ""),
                "source": (len(part), part, node, labels.get("instance"), labels.get("job")),
                "begin_s": float(time_s.min(initial=np.inf)),
                "time_s": time_s,
                "values": value * row["factor"],
            }


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
    return not (row["quantity"] == "utilisation" and labels.get(PART_LABEL))


def _samples(
    times: Sequence[float], values: Sequence[Any], stamp_s: Floats
) -> tuple[Floats, Floats]:
    """Times in unix s and numbers, (n,) each, of the samples with a time; NaN for DCGM's missing values."""
    time_s = np.array(times, dtype=np.float64)
    numbers = as_numbers(pd.Series(values, dtype=object))
    missing = ((numbers >= 2.0**47) & (numbers <= 2.0**47 + 8)) | (numbers >= 9.2e18)
    stamped = time_s < 0
    if stamped.any():
        time_s[stamped] = stamp_s[(-time_s[stamped]).astype(np.int64) - 1]
    known = np.isfinite(within(time_s))
    return time_s[known], np.where(missing, np.nan, numbers)[known]


def _refuse_lost(content: _Content, read: Sequence[Sensor]) -> None:
    """Refuse a file without a sample that counts, or of which too many are lost."""
    count, lost = sum(s["values"].size for s in read), content.damaged + content.untimed
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


def _one_name_a_device(read: Sequence[Sensor]) -> list[Flag]:
    """Give nodes that share a GPU, by its UUID, the name of the first in time; and number all devices.

    Raises InputError for two UUIDs under one number.
    """
    flags: list[Flag] = []
    for gpu in grouped((s for s in read if s["uuid"]), "uuid"):
        first, *others = dict.fromkeys(s["node"] for s in sorted(gpu, key=lambda s: s["begin_s"]))
        for sensor in read:
            sensor["node"] = first if sensor["node"] in others else sensor["node"]
        for sensor in gpu:
            sensor["device"] = gpu[0]["device"]
        if others:
            detail = f"{gpu[0]['uuid']} is a GPU of {first} and of {', '.join(others)}: one node"
            flags.append({**flag("second_sensor", None, detail), "node": first})
    for devices in grouped(read, "node", "kind"):
        names = sorted({s["device"] or s["uuid"] for s in devices})
        uuids: dict[int, str] = {}
        for sensor in devices:
            numeric = re.fullmatch(r"\d{1,4}", sensor["device"])
            index = (
                int(sensor["device"])
                if numeric
                else names.index(sensor["device"] or sensor["uuid"])
            )
            sensor |= {
                "index": index,
                "name": f"{sensor['kind'].upper()}:{index} {sensor['metric']}",
            }
            if sensor["uuid"] and uuids.setdefault(index, sensor["uuid"]) != sensor["uuid"]:
                raise InputError(
                    f"{sensor['uuid']} and {uuids[index]} are both {sensor['kind']} {index} of "
                    f"{sensor['node']}; expected a label that names the node, or a file for each node"
                )
    return flags


def _joined(own: Sequence[Sensor], flags: list[Flag]) -> Sensor:
    """Join the label sets of one metric of one device, adding parts of a sum."""
    parts = [_one_source(part, flags) for part in grouped(own, "part")]
    sensor, (time_s, values) = own[0], parts[0]
    if len(parts) > 1:
        table = pd.concat([pd.Series(v, t) for t, v in parts], axis=1, join="inner").sum(axis=1)
        time_s, values = table.index.to_numpy(float), table.to_numpy(float)
    sensor |= {"time_s": time_s, "values": values}
    if _MODULE.search(sensor["model"]) and sensor["quantity"] == "counter":
        sensor |= {"kind": "node", "name": sensor["name"].replace("GPU", "MODULE", 1)}
        detail = (
            f"{sensor['name']}: counts the whole module of {sensor['model']}, not its GPU alone"
        )
        flags.append(flag("assumed", sensor["name"], detail))
    return sensor


def _one_source(part: Sequence[Sensor], flags: list[Flag]) -> tuple[Floats, Floats]:
    """Join label sets in order of time; where exporters, or parts of a GPU, share time the first counts."""
    time_s, values = np.empty(0), np.empty(0)
    sources = grouped(part, "source")
    sources.sort(key=lambda own: (min(s["begin_s"] for s in own), str(own[0]["source"])))
    for source in sources:
        more_s, more = (np.concatenate([s[key] for s in source]) for key in ("time_s", "values"))
        if len(source) > 1:  # one set keeps its order, so that a clock that was set back shows
            order = np.argsort(more_s, kind="stable")
            more_s, more = more_s[order], more[order]
        _refuse_two_nodes(source[0], more_s, more)
        again = np.diff(more_s, prepend=np.nan) == 0
        after = more_s > time_s.max(initial=-np.inf)
        for code, left_out, what in (
            ("duplicate", again, "repeat or contradict the one before, at its time"),
            ("second_sensor", ~after, "are of a time that another exporter or part has"),
        ):
            if left_out.any():
                detail = f"{source[0]['name']}: {left_out.sum()} samples {what}, and are left out"
                flags.append(flag(code, source[0]["name"], detail))
        kept = after & ~again
        time_s = np.concatenate((time_s, more_s[kept]))
        values = np.concatenate((values, more[kept]))
    return time_s, values


def _refuse_two_nodes(sensor: Sensor, time_s: Floats, values: Floats) -> None:
    """Refuse samples that alternate or contradict each other at one time, as of two nodes without a label."""
    known = np.isfinite(values)
    time_s, values = time_s[known], values[known]
    if sensor["quantity"] == "utilisation" or values.size < 4:
        return
    one, two = np.abs(np.diff(values)), np.abs(values[2:] - values[:-2])
    contradicting = np.sum((np.diff(time_s) == 0) & (one > 0)) > MAX_LOST * values.size
    level = np.median(values) if sensor["quantity"] == "power" else 0.0
    alternating = np.median(one) > max(5 * np.median(two), 0.05 * level)
    if contradicting or (alternating and not sensor["labelled"]):
        raise InputError(
            f"{sensor['name']} has two values at a time, as of two nodes; expected a label that names the "
            "node (Hostname, instance), or a file for each node"
        )


def _blocks(sensors: Iterable[Sensor]) -> dict[str, list[Block]]:
    """The blocks of each node, of sensors that were read at the same times.

    Left out are sensors without a value where another of their device has one; else the first stays.
    """
    kept: list[Sensor] = []
    for device in grouped(sensors, "node", "kind", "index"):
        valued = [s for s in device if np.isfinite(s["values"]).any()]
        energetic = [s for s in device if s["quantity"] != "utilisation"]
        is_known = any(s["quantity"] != "utilisation" for s in valued)
        kept += valued if is_known else [*valued, *energetic[:1]]
    for sensor in kept:
        sensor["axis"] = sensor["time_s"].tobytes()
        if sensor["metric"] == "DCGM_FI_DEV_POWER_USAGE":
            sensor["samples"] = gpu_quantity(sensor["model"]) or ""
    nodes: dict[str, list[Block]] = {node: [] for node in sorted({s["node"] for s in kept})}
    columns = ("name", "kind", "index", "quantity", "range_j", "uuid", "samples")
    for own in grouped(kept, "node", "axis"):
        frame = sensor_frame([{column: s[column] for column in columns} for s in own])
        values = np.asfortranarray(np.column_stack([s["values"] for s in own]))
        node = own[0]["node"]
        nodes[node].append(Block(node, own[0]["time_s"], values, frame))
    return nodes
