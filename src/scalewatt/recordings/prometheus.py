"""Metrics of exporters, as Prometheus and VictoriaMetrics give them: JSON.

Two forms are read: answers of /api/v1/query_range and /query; lines of VictoriaMetrics' /api/v1/export, an
object {"metric": {labels}, "values": […], "timestamps": [ms, …]} for each series.
Which metrics are read, of which exporters, is the table prometheus_metrics.csv, a row for each device kind:

samples  of a power: instantaneous, or empty where it depends on the GPU's name
index    labels that tell the devices of a kind apart
where    a label, and the expression that its value matches

Steps: the label sets (`series`: a row each, a column a label) and their samples; the device of each series;
the series of each sensor, joined in time; blocks. Of a GPU that is divided (MIG) each part repeats the whole
board's power and energy: the first counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.recordings.block import Recording, in_stretches, make_blocks
from scalewatt.recordings.tables import Options, alternates, decoded, name_node
from scalewatt.recordings.terms import Flag, flag
from scalewatt.recordings.times import as_numbers, within

NODE_LABELS = ("Hostname", "exported_Hostname", "hostname", "node_name", "node", "nodename")
UUID_LABELS = ("UUID", "uuid", "gpu_uuid")
MODEL_LABELS = ("modelName", "gpu_name", "name")
PART_LABEL = "GPU_I_ID"

_BEGIN = re.compile(r'(?s)\s*\{\s*(?:"metric"\s*:\s*\{|(?=["}]).*"(?:resultType|errorType)")')
_LOCAL = r"localhost|127\..*|\[?::1\]?"
_CONTRADICTING = 0.05
"""Share of samples with another value at the same time above which they are of two nodes."""
DEVICE = ["node", "kind", "index"]


@cache
def metrics() -> pd.DataFrame:
    """Table of metrics, a row for each kind of device that a metric is of."""
    path = Path(__file__).with_name("prometheus_metrics.csv")
    return pd.read_csv(path, keep_default_na=False, na_values={"range_j": [""]})


def recognises(head: str) -> bool:
    """Recognise JSON of Prometheus by a file's beginning."""
    return _BEGIN.match(head) is not None


def read_prometheus(path: Path, options: Options) -> Recording:
    """Read one or several nodes' metrics. Raises InputError if no sample is of a metric that is read."""
    results = _read_results(decoded(path.read_bytes()))
    sensors = _sensors(pd.DataFrame([labels for labels, _ in results]))

    # The samples of each series (`series`, `time_s`: unix, `value`), in order of time
    pairs = pd.Series([pairs for _, pairs in results], dtype=object).rename_axis("series")
    each = pairs.explode().dropna()
    samples = pd.DataFrame(each.tolist(), each.index, columns=["time_s", "value"]).reset_index()
    samples = samples[samples["series"].isin(sensors["series"])]
    if samples.empty:
        names = ", ".join(metrics()["metric"].unique())
        raise InputError(f"holds no sample that is read; expected one of {names}")
    times_s, values = within(as_numbers(samples["time_s"])), as_numbers(samples["value"])
    samples = samples.assign(time_s=times_s, value=values)
    samples = samples.sort_values("time_s", kind="stable", ignore_index=True)
    if lost := int(samples["time_s"].isna().sum()):
        raise InputError(f"{lost} samples have no unix time in s; expected that of Prometheus' API")

    begins = samples.groupby("series")["time_s"].min().rename("begin_s")
    sensors = sensors.merge(begins, on="series").sort_values(["begin_s", "series"])
    sensors["sure"] = (sensors["node"] + sensors["uuid"] != "") | bool(options.node_of(path))
    sensors["node"] = sensors["node"].replace("", name_node(path, options))
    flags = _number_devices(sensors)
    nodes = make_blocks(_join_series(sensors, samples, flags))
    return Recording(nodes, True, None, str(path), tuple(flags), format="prometheus")


# --- forms of files -----------------------------------------------------------------------------------


def _read_results(text: str) -> list[tuple[Mapping[str, str], Sequence[Any]]]:
    """Read the labels of each series, and its pairs of unix time in s and value.

    The text is an answer of Prometheus' API, or lines of an export, each of which is a whole series.
    """
    results: list[tuple[Mapping[str, str], Sequence[Any]]] = []
    if '"timestamps"' in text.partition("\n")[0]:
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                times_s = [time_ms / 1e3 for time_ms in row["timestamps"]]
                results.append((row["metric"], [*zip(times_s, row["values"], strict=True)]))
            except (ValueError, KeyError, TypeError) as error:
                what = f"line {number} is no whole series of an export ({error})"
                raise InputError(f"{what}; export it again, or leave the line out") from error
        return results
    try:
        answer = json.loads(text)
        if answer.get("status") == "error":
            raise InputError(f"Prometheus' answer to a query that failed: {answer.get('error')}")
        for row in answer["data"]["result"]:
            pairs = row["values"] if "values" in row else [row["value"]]
            results.append((row["metric"], [(time_s, value) for time_s, value in pairs]))
    except json.JSONDecodeError as error:
        raise InputError(f"not whole JSON ({error})") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        message = "is JSON, but not an answer of Prometheus' API; expected data.result"
        raise InputError(message) from error
    return results


# --- devices of series --------------------------------------------------------------------------------


def _sensors(series: pd.DataFrame) -> pd.DataFrame:
    """Rows of the table of metrics for the series that they fit, with what labels say of the device."""
    address = _label(series, "instance").str.replace(r"(.+):[^:]*$", r"\1", regex=True)
    address = address.mask(address.str.fullmatch(_LOCAL), "")
    node = _label(series, *NODE_LABELS)
    series = series.assign(
        series=series.index,
        metric=_label(series, "__name__"),
        node=node.where(node != "", address),
        uuid=_label(series, *UUID_LABELS),
        model=_label(series, *MODEL_LABELS),
        board=_label(series, PART_LABEL).str.zfill(4),
        scraper=node + " " + _label(series, "instance") + " " + _label(series, "job"),
    )
    frames = []
    for row in cast(list[dict[str, Any]], metrics().to_dict("records")):
        fit = series[series["metric"] == row["metric"]]
        label, _, expression = row["where"].partition("~")
        fit = fit[_label(fit, label).str.fullmatch(expression)]
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


def _number_devices(sensors: pd.DataFrame) -> list[Flag]:
    """Add the index and the name of each sensor, in place: the number in its labels, or by their order.

    Nodes that share a GPU, by its UUID, get the name of the first in time. Raises InputError for two UUIDs
    under one number.
    """
    flags = []
    for uuid, gpu in sensors[sensors["uuid"] != ""].groupby("uuid", sort=False):
        first, *others = sensors["node"][gpu.index].unique()
        sensors["node"] = sensors["node"].replace(others, first)
        sensors.loc[gpu.index, "device"] = gpu["device"].max()
        if others:
            detail = f"{uuid} is a GPU of {first} and of {', '.join(others)}: one node"
            flags.append({**flag("second_sensor", None, detail), "node": first})

    # Exporters name packages in ways of their own; a UUID is the same everywhere
    names = sensors["device"].where(sensors["device"] != "", sensors["uuid"])
    of_metric = sensors["metric"].where(sensors["uuid"] == "", "")
    ranks = names.groupby([sensors["node"], sensors["kind"], of_metric]).rank("dense") - 1
    numbers = pd.to_numeric(names.where(names.str.fullmatch(r"\d{1,4}")), errors="coerce")
    sensors["index"] = numbers.fillna(ranks).astype(int)
    number = sensors["index"].astype(str)
    sensors["name"] = sensors["kind"].str.upper() + ":" + number + " " + sensors["metric"]
    for (node, kind, index), gpus in sensors[sensors["uuid"] != ""].groupby(DEVICE):
        if len(uuids := gpus["uuid"].unique()) > 1:
            raise InputError(
                f"{uuids[1]} and {uuids[0]} are both {kind} {index} of {node}; expected a label that names "
                "the node, or a file for each node"
            )
    return flags


# --- samples of sensors -------------------------------------------------------------------------------


def _join_series(
    sensors: pd.DataFrame, samples: pd.DataFrame, flags: list[Flag]
) -> Iterator[dict[str, Any]]:
    """Rows of sensors for `make_blocks`, with values in W, J or as a share, joined in time.

    Where exporters, or parts of a GPU, share time the first counts.
    """
    numbers = samples["value"]
    # DCGM's numbers for a missing value
    missing = ((numbers >= 2.0**47) & (numbers <= 2.0**47 + 8)) | (numbers >= 9.2e18)
    samples = samples.assign(value=numbers.mask(missing))
    by_series = {series: rows.drop(columns="series") for series, rows in samples.groupby("series")}
    for _, series in sensors.groupby([*DEVICE, "metric"]):
        sensor, kept, kept_s = series.iloc[0], list[pd.DataFrame](), np.zeros(0)
        ordered = series.sort_values(["begin_s", "board", "scraper"])
        for _, scraped in ordered.groupby(["board", "scraper"], sort=False):
            source = pd.concat([by_series[each] for each in scraped["series"]]).sort_index()
            _refuse_two_nodes(sensor, source)
            again = source["time_s"].diff() == 0
            shared = in_stretches(source["time_s"].to_numpy(), kept_s)
            for code, left_out, what in (
                ("damaged", again, "repeat or contradict the one before, at its time"),
                ("second_sensor", shared, "are of a time that another exporter or part has"),
            ):
                if left_out.any():
                    detail = f"{left_out.sum()} samples {what}, and are left out"
                    flags.append(flag(code, sensor["name"], detail))
            kept.append(source[~again & ~shared])
            kept_s = np.concatenate((kept_s, kept[-1]["time_s"]))
        whole = pd.concat(kept).sort_values("time_s", kind="stable")
        yield {
            **sensor,
            "device": sensor["model"],
            "time_s": whole["time_s"].to_numpy(),
            "values": whole["value"].to_numpy() * sensor["factor"],
        }


def _refuse_two_nodes(sensor: pd.Series, samples: pd.DataFrame) -> None:
    """Refuse samples that contradict each other at one time or alternate, as of two nodes without a label.

    Powers of one device may alternate: a label of its node, its UUID or the user tells.
    """
    samples = samples.dropna()
    if sensor["quantity"] == "utilisation" or len(samples) < 4:
        return
    values = samples["value"]
    is_changed = values.diff().abs() > 0
    contradicting = ((samples["time_s"].diff() == 0) & is_changed).mean() > _CONTRADICTING
    level = values.median() if sensor["quantity"] == "power" else 0.0
    alternating = alternates(values, 0.05 * level)
    if contradicting or (alternating and not (sensor["sure"] and sensor["quantity"] == "power")):
        raise InputError(
            f"{sensor['name']} has two values at a time, as of two nodes; expected a label that names the "
            "node (Hostname, instance), a file for each node, or --node NAME if it is one node's"
        )
