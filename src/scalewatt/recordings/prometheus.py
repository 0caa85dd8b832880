"""Metrics of exporters, as their text or as Prometheus and VictoriaMetrics give them.

    DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-…",modelName="…",Hostname="n1"} 61.23 1717144753123

Three forms are read: scrapes in text, whose lines have a time (ms) or a line before each scrape has it, as
`date +%s.%N` prints it; JSON of /api/v1/query_range and /query; lines of VictoriaMetrics' /api/v1/export.
Which metrics are read, of which exporters, is the table prometheus_metrics.csv, a row for each device kind:

samples  of a power: instantaneous, or `model` where it depends on the GPU's name
index    labels that tell the devices of a kind apart
where    a label, and the expression that its value matches
unless   the metric is left out where the node has one that matches

Steps: the label sets (`series`: a row each, a column a label) and their samples; the device of each series;
the series of each sensor, joined in time; blocks. Of a GPU that is divided (MIG) each part repeats the whole
board's power and energy: the first counts.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.recordings.block import Recording, blocks_by_time, with_values
from scalewatt.recordings.tables import Options, damage_flags, decoded, node_of
from scalewatt.recordings.terms import Flag, flag, gpu_quantity
from scalewatt.recordings.times import as_numbers, within, zoned_times

NODE_LABELS = ("Hostname", "exported_Hostname", "hostname", "node_name", "node", "nodename")
UUID_LABELS = ("UUID", "uuid", "gpu_uuid")
MODEL_LABELS = ("modelName", "gpu_name", "name")
PART_LABEL = "GPU_I_ID"
CHIP_NAMES = "node_hwmon_chip_names"
"""Metric of node exporters that names the driver of each `chip`, as the label `chip_name`."""

_SAMPLE = (
    r"^(?P<name>[A-Za-z_:][\w:]*)?\s*"
    r'(?:\{(?P<labels>(?:\s*\w+\s*=\s*"(?:[^"\\]|\\.)*"\s*,?)*\s*)\})?\s*'
    r"(?P<value>[^\s{}]+)(?:\s+(?P<time>-?\d+(?:\.\d+)?))?$"
)
_LABEL = r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"'
_STAMP = r"^#?\s*(\d{9,19}(?:\.\d+)?|\d{4}[-/]\d\d[-/]\d\d[T ]\S+(?: UTC)?)$"
_JSON = re.compile(r'\s*\{\s*["}]')
_LOCAL = r"localhost|127\..*|\[?::1\]?"
_MS = 1e11
"""Prometheus' text has times in ms, OpenMetrics in s: what is larger is ms."""
MAX_LOST = 0.05
"""Share of samples without a time, or damaged, above which a file is refused: the loss would not show."""
DEVICE = ["node", "kind", "index"]


Content = tuple[pd.DataFrame, pd.DataFrame, int, bool, list[Flag]]
"""Series, a row a label set and a column a label; samples (`series`, `time_s`: unix, NaN without a time,
`value`) in order of the file or of time; number of damaged lines; True if the end is torn; flags."""


@cache
def metrics() -> list[dict[str, Any]]:
    """Table of metrics, a row for each kind of device that a metric is of."""
    with Path(__file__).with_name("prometheus_metrics.csv").open(encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    return [
        {**r, "factor": float(r["factor"]), "range_j": float(r["range_j"] or "nan")} for r in rows
    ]


def _known_names() -> str:
    """Expression that the names of all metrics match that are read."""
    return "|".join(dict.fromkeys([*(row["metric"] for row in metrics()), CHIP_NAMES]))


def recognises(head: str) -> bool:
    """Recognise JSON of Prometheus, or text with a known metric, by a file's beginning."""
    if _JSON.match(head):
        return re.search(r'"resultType"|"errorType"|^\s*\{\s*"metric"\s*:\s*\{', head) is not None
    return re.search(rf'^(# \w+ )?(\{{__name__=")?({_known_names()})\b', head, re.M) is not None


def read_prometheus(path: Path, options: Options) -> Recording:
    """Read one or several nodes' metrics. Raises InputError if no sample that is read has a time."""
    text = decoded(path.read_bytes())
    is_export = '"timestamps"' in text.partition("\n")[0]
    read = _read_export if is_export else _read_answer if _JSON.match(text) else _read_text
    series, samples, damaged, torn, flags = read(text, options)
    sensors = _sensors(series)
    samples = samples[samples["series"].isin(sensors["series"])]
    timed = samples[within(samples["time_s"].to_numpy(np.float64)) > 0]
    untimed = len(samples) - len(timed)
    _refuse_lost(len(timed), damaged, untimed)
    begins = timed.groupby("series")["time_s"].min().rename("begin_s")
    sensors = sensors.merge(begins, on="series").sort_values(["begin_s", "series"])
    sensors["sure"] = (sensors["node"] != "") | bool(options.node)
    sensors["node"] = sensors["node"].replace("", node_of(path, options))
    flags += _merge_nodes(sensors)
    rows = _join_series(_number_devices(sensors), timed, flags)
    nodes = {node: blocks_by_time(node, rows[node]) for node in sorted(rows)}
    flags += damage_flags(damaged + untimed, torn)
    return Recording(nodes, True, None, str(path), tuple(flags), format="prometheus")


# --- forms of files -----------------------------------------------------------------------------------


def _read_text(text: str, options: Options) -> Content:
    """Read scrapes of exporters, or of Prometheus' /federate."""
    *whole, rest = text.split("\n")
    lines = pd.Series(whole, dtype="str").str.strip()
    stamps = lines.str.extract(_STAMP, expand=False)
    stamp_s, flags = zoned_times(stamps.dropna().tolist(), options.time_zone)
    is_known = lines.str.contains(_known_names()) & ~lines.str.startswith("#")
    rows = lines[is_known].str.extract(_SAMPLE).assign(stamp=stamps.notna().cumsum())
    damaged = int(rows["value"].isna().sum())
    rows = rows.dropna(subset="value").fillna({"name": "", "labels": ""})
    rows["key"] = rows["name"] + "{" + rows["labels"]
    # A second scrape under one stamp has no time of its own, unless it repeats the first.
    again = rows.duplicated(["key", "stamp"]) & ~rows.duplicated(["key", "stamp", "value"])
    of_stamp = pd.Series(np.append(np.nan, stamp_s)[rows["stamp"]], rows.index).mask(again)
    stated_s = pd.to_numeric(rows["time"]).astype(float)
    stated_s = stated_s.where(stated_s <= _MS, stated_s / 1e3)
    codes, keys = pd.factorize(rows["key"])
    times = stated_s.fillna(of_stamp)
    samples = pd.DataFrame({"series": codes, "time_s": times, "value": rows["value"]})
    return pd.DataFrame(map(_parse_labels, keys)), samples, damaged, bool(rest.strip()), flags


def _parse_labels(key: str) -> dict[str, str]:
    """Labels of a metric, its name as `__name__`."""
    name, _, inside = key.partition("{")
    pairs = {label: re.sub(r"\\(.)", r"\1", value) for label, value in re.findall(_LABEL, inside)}
    return {"__name__": name, **pairs}


def _read_answer(text: str, *_: Any) -> Content:
    """Read an answer of Prometheus' API."""
    try:
        answer = json.loads(text)
        if answer.get("status") == "error":
            raise InputError(f"Prometheus' answer to a query that failed: {answer.get('error')}")
        results = answer["data"]["result"]
        pairs = [r["values"] if "values" in r else [r["value"]] for r in results]
        return *_in_order_of_time([r["metric"] for r in results], pairs), 0, False, []
    except json.JSONDecodeError as error:
        raise InputError(f"not whole JSON ({error})") from error
    except (KeyError, TypeError, ValueError) as error:
        message = "is JSON, but not an answer of Prometheus' API; expected data.result"
        raise InputError(message) from error


def _read_export(text: str, *_: Any) -> Content:
    """Read lines {"metric": {labels}, "values": […], "timestamps": [ms, …]} of VictoriaMetrics."""
    *lines, rest = text.split("\n")
    lines = [line for line in lines if line.strip()]
    labels, pairs = [], []
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            row = json.loads(line)
            times_s = [time_ms / 1e3 for time_ms in row["timestamps"]]
            pairs.append([*zip(times_s, row["values"], strict=True)])
            labels.append(row["metric"])
    damaged = len(lines) - len(labels)
    return *_in_order_of_time(labels, pairs), damaged, bool(rest.strip()), []


def _in_order_of_time(
    labels: Sequence[Any], pairs: Sequence[Any]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Series with their labels, and their samples, of pairs of time and value, in order of time."""
    each = pd.Series(pairs, dtype=object).rename_axis("series").explode().dropna()
    samples = pd.DataFrame(each.tolist(), each.index, columns=["time_s", "value"])
    samples["time_s"] = as_numbers(samples["time_s"])
    samples = samples.reset_index().sort_values("time_s", kind="stable", ignore_index=True)
    return pd.DataFrame(labels), samples


def _refuse_lost(timed: int, damaged: int, untimed: int) -> None:
    """Refuse a file without a sample that counts, or of which too many are lost."""
    if timed + untimed == 0:
        names = _known_names().replace("|", ", ")
        raise InputError(f"holds no sample that is read; expected one of {names}")
    count = timed + damaged + untimed
    if damaged + untimed > MAX_LOST * count:
        raise InputError(
            f"of {count} samples {damaged} cannot be read and {untimed} have no time of their own; expected "
            "a file for each node, and a time before each scrape "
            "((date +%s.%N; curl -s HOST:9400/metrics) >> FILE)"
        )


# --- devices of series --------------------------------------------------------------------------------


def _sensors(series: pd.DataFrame) -> pd.DataFrame:
    """Rows of the table of metrics for the series that they fit, with what labels say of the device."""
    names = _label(series, "__name__")
    address = _label(series, "instance").str.replace(r"(.+):[^:]*$", r"\1", regex=True)
    address = address.mask(address.str.fullmatch(_LOCAL), "")
    node = _label(series, *NODE_LABELS)
    series = series.assign(
        series=series.index,
        node=node.where(node != "", address),
        uuid=_label(series, *UUID_LABELS),
        model=_label(series, *MODEL_LABELS),
        board=_label(series, PART_LABEL).str.zfill(4),
        scraper=node + " " + _label(series, "instance") + " " + _label(series, "job"),
    )
    chips = series["node"] + " " + _label(series, "chip")
    drivers = _label(series, "chip_name")[names == CHIP_NAMES].groupby(chips).first()
    series["chip_name"] = chips.map(drivers)
    frames = []
    for row in metrics():
        fit = series[names == row["metric"]]
        label, _, expression = row["where"].partition("~")
        fit = fit[_label(fit, label).str.fullmatch(expression)]
        if row["unless"]:
            fit = fit[~fit["node"].isin(series["node"][names.str.fullmatch(row["unless"])])]
        if row["quantity"] == "utilisation":  # a part's is not the board's
            fit = fit[_label(fit, PART_LABEL) == ""]
        frames.append(fit.assign(device=_label(fit, row["index"]), **row))
    return pd.concat(frames, ignore_index=True)


def _label(series: pd.DataFrame, *names: str) -> pd.Series:
    """Text of the first of some labels that each series has; empty without any."""
    first = pd.Series("", series.index, dtype="str")
    for name in names:
        if name in series:
            first = first.where(first != "", series[name].fillna("").astype("str"))
    return first


def _merge_nodes(sensors: pd.DataFrame) -> list[Flag]:
    """Give nodes that share a GPU, by its UUID, the name of the first in time, in place."""
    flags = []
    for uuid, gpu in sensors[sensors["uuid"] != ""].groupby("uuid", sort=False):
        first, *others = sensors["node"][gpu.index].unique()
        sensors["node"] = sensors["node"].replace(others, first)
        sensors.loc[gpu.index, "device"] = gpu["device"].max()
        if others:
            detail = f"{uuid} is a GPU of {first} and of {', '.join(others)}: one node"
            flags.append({**flag("second_sensor", None, detail), "node": first})
    return flags


def _number_devices(sensors: pd.DataFrame) -> pd.DataFrame:
    """Add the index and the name of each sensor: the number in its labels, or by the order of the names.

    Raises InputError for two UUIDs under one number.
    """
    names = sensors["device"].where(sensors["device"] != "", sensors["uuid"])
    # Exporters name packages in ways of their own; a UUID is the same everywhere.
    of_metric = sensors["metric"].where(sensors["uuid"] == "", "")
    ranks = names.groupby([sensors["node"], sensors["kind"], of_metric]).rank("dense") - 1
    numbers = pd.to_numeric(names.where(names.str.fullmatch(r"\d{1,4}")), errors="coerce")
    index = numbers.fillna(ranks).astype(int)
    text = sensors["kind"].str.upper() + ":" + index.astype(str) + " " + sensors["metric"]
    sensors = sensors.assign(index=index, name=text)
    for (node, kind, number), gpus in sensors[sensors["uuid"] != ""].groupby(DEVICE):
        if len(uuids := gpus["uuid"].unique()) > 1:
            raise InputError(
                f"{uuids[1]} and {uuids[0]} are both {kind} {number} of {node}; expected a label that names "
                "the node, or a file for each node"
            )
    return sensors


# --- samples of sensors -------------------------------------------------------------------------------


def _join_series(
    sensors: pd.DataFrame, samples: pd.DataFrame, flags: list[Flag]
) -> dict[str, list[dict[str, Any]]]:
    """Rows of each node's sensors, with times and values in W, J or as a share, joined in time."""
    numbers = as_numbers(samples["value"])
    # DCGM's numbers for a missing value
    missing = ((numbers >= 2.0**47) & (numbers <= 2.0**47 + 8)) | (numbers >= 9.2e18)
    samples = samples.assign(value=np.where(missing, np.nan, numbers))
    by_series = {series: rows.drop(columns="series") for series, rows in samples.groupby("series")}
    is_counted = (sensors["quantity"] == "counter").groupby([sensors[k] for k in DEVICE])
    sensors["sure"] |= (sensors["uuid"] != "") | is_counted.transform("any")
    nodes: dict[str, list[dict[str, Any]]] = {}
    for (node, *_), device in sensors.groupby(DEVICE):
        rows = []
        for _, sensor in device.groupby("metric"):
            whole = _join_sources(sensor, by_series, flags)
            row: dict[str, Any] = {**sensor.iloc[0], "time_s": whole["time_s"].to_numpy()}
            if row["samples"] == "model":
                row["samples"] = gpu_quantity(row["model"]) or ""
            values = whole["value"].to_numpy() * row["factor"]
            rows.append({**row, "device": row["model"], "values": values})
        nodes.setdefault(str(node), []).extend(with_values(rows))
    return nodes


def _join_sources(
    series: pd.DataFrame, samples: Mapping[Any, pd.DataFrame], flags: list[Flag]
) -> pd.DataFrame:
    """Join a sensor's series in time; where exporters, or parts of a GPU, share time the first counts."""
    kept: list[pd.DataFrame] = []
    end_s = -np.inf
    sensor = series.iloc[0]
    series = series.sort_values(["begin_s", "board", "scraper"])
    for _, scraped in series.groupby(["board", "scraper"], sort=False):
        source = pd.concat([samples[each] for each in scraped["series"]]).sort_index()
        _refuse_two_nodes(sensor, source)
        again = source["time_s"].diff() == 0
        shared = source["time_s"] <= end_s
        for code, left_out, what in (
            ("duplicate", again, "repeat or contradict the one before, at its time"),
            ("second_sensor", shared, "are of a time that another exporter or part has"),
        ):
            if left_out.any():
                detail = f"{left_out.sum()} samples {what}, and are left out"
                flags.append(flag(code, sensor["name"], detail))
        kept.append(source[~again & ~shared])
        end_s = max(end_s, source["time_s"].max())
    return pd.concat(kept)


def _refuse_two_nodes(sensor: pd.Series, samples: pd.DataFrame) -> None:
    """Refuse samples that contradict each other at one time or alternate, as of two nodes without a label.

    Powers of one device may alternate: a label of its node or its UUID, its counter, or the user tells.
    """
    samples = samples.dropna()
    if sensor["quantity"] == "utilisation" or len(samples) < 4:
        return
    values = samples["value"]
    steps, every_second = values.diff().abs(), values.diff(2).abs().median()
    contradicting = ((samples["time_s"].diff() == 0) & (steps > 0)).mean() > MAX_LOST
    level = values.median() if sensor["quantity"] == "power" else 0.0
    alternating = steps.median() > max(5 * every_second, 0.05 * level)
    if contradicting or (alternating and not (sensor["sure"] and sensor["quantity"] == "power")):
        raise InputError(
            f"{sensor['name']} has two values at a time, as of two nodes; expected a label that names the "
            "node (Hostname, instance), a file for each node, or --node NAME if it is one node's"
        )
