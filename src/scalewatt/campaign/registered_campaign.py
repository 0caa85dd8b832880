"""Campaigns of runs that were made elsewhere: what `scalewatt register` writes, and a user edits.

Every point of a series is written out, as nothing is derived from a dataset or a cluster file.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import (
    PASS_KEYS,
    Campaign,
    Cluster,
    Configuration,
    Device,
    Series,
    check_accumulation,
    check_replicas,
)
from scalewatt.campaign.operating_points import by_id, id_parts, point_of
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import check, schema

DATASET = {"name": "registered", "format": "registered"}
"""Stands for the dataset of a run that was made elsewhere."""
OTHER_PROTOCOL = "other"
TARGET_PROTOCOL = "target"
"""Trained until the metric reached a target: repeats differ in samples; epochs is 1 by convention."""

Point = dict[str, Any]


def expand_registered(content: dict[str, Any], path: Path) -> Campaign:
    """Expand a registered campaign's content; InputError names `path`, the key and what is allowed.

    The names in `figures` are not checked here.
    """
    root = registered_schema()
    check(content, root, str(path), root)
    configurations: dict[str, Configuration] = {}
    repeats: dict[str, tuple[str, int]] = {}
    series: dict[str, Series] = {}
    for name, entry in content["series"].items():
        where = f"{path}: series.{name}"
        points: dict[int, str] = {}
        for point in sorted(entry["points"], key=lambda p: p["gpus"]):
            gpus, count = point["gpus"], point.get("repeats", 1)
            one = configuration(entry, point, where)
            if gpus in points:
                raise InputError(
                    f"{where}.points: duplicate point at {gpus} GPUs; allowed: one point for each "
                    "number of GPUs (put the other to a series of its own)"
                )
            points[gpus] = one.id
            there = configurations.setdefault(one.id, one)
            first, known = repeats.setdefault(one.id, (name, count))
            if known != count:
                raise InputError(
                    f"{where}.points: {count} repeats of {one.id}, but series.{first} says {known}; "
                    "allowed: the same number"
                )
            check_seeds(one, there, where, first)
        series[name] = _series(name, entry, points, configurations)
    protocols = sorted({c.protocol for c in configurations.values()})
    return Campaign(
        name=content["name"],
        path=path,
        protocol=protocols[0] if len(protocols) == 1 else "several",
        series=series,
        configurations=by_id(configurations),
        repeats={id_: count for id_, (_, count) in repeats.items()},
        figures=content["figures"],
        registered=True,
    )


def check_seeds(one: Configuration, there: Configuration, where: str, series: str) -> None:
    """Raise InputError if a configuration has other seeds in another series."""
    if there.seeds != one.seeds:
        raise InputError(
            f"{where}.seeds: {one.seeds or 'not given'}, but series.{series} has "
            f"{there.seeds or 'none'} for the same configuration {one.id}; allowed: the same in both"
        )


def registered_schema() -> dict[str, Any]:
    """Return the schema of a registered campaign; its figures are those of any campaign."""
    root, of_campaigns = schema("registered"), schema("campaign")
    properties = {**root["properties"], "figures": of_campaigns["properties"]["figures"]}
    return {**root, "properties": properties, "$defs": {**of_campaigns["$defs"], **root["$defs"]}}


def configuration(entry: dict[str, Any], point: Point, where: str) -> Configuration:
    """Return the configuration at one point of a series; InputError if GPUs and nodes do not fit."""
    gpus, nodes = point["gpus"], point.get("nodes", 1)
    if gpus % nodes:
        raise InputError(
            f"{where}: gpus {gpus} on {nodes} nodes; allowed: the same number of GPUs on every node"
        )
    local, per_replica = point["local_batch_size"], point.get("gpus_per_replica", 1)
    check_replicas(gpus, per_replica, where)
    check_accumulation(local, point.get("gradient_accumulation_steps", 1), where)
    return Configuration(
        id=configuration_id(entry, point),
        model=entry["model"],
        phase=entry.get("phase", "train"),
        device=entry["device"],
        gpus=gpus,
        nodes=nodes,
        ranks_per_node=gpus // nodes,
        local_batch_size=local,
        global_batch_size=local * (gpus // per_replica),
        dataset=DATASET,
        dataset_fraction="1",
        dataset_samples=point["dataset_samples"],
        protocol=point.get("protocol", OTHER_PROTOCOL),
        epochs=point["epochs"],
        seeds=entry.get("seeds"),
        settings={
            "precision": point.get("precision"),
            "variant": point.get("variant"),
            **{key: point[key] for key in PASS_KEYS if point.get(key, 1) > 1},
        },
        operating_point=point_of(point),
    )


def configuration_id(entry: dict[str, Any], point: Point) -> str:
    """Return the id: all that tells configurations apart; what is at its default does not appear."""
    nodes = point.get("nodes", 1)
    parts = [
        model_key(entry),
        entry["device"],
        f"n{point['gpus']:03d}",
        f"lbs{point['local_batch_size']:04d}",
        work_key(point),
        f"nodes{nodes}" if nodes > 1 else "",
        *extras(point),
    ]
    return "-".join(filter(None, parts))


def model_key(entry: dict[str, Any]) -> str:
    """Return the model, with its phase where that is not `train`."""
    phase = entry.get("phase", "train")
    return entry["model"] if phase == "train" else f"{entry['model']}.{phase}"


def work_key(point: Point) -> str:
    """Return samples of the training set and epochs, as ids show them."""
    target = point.get("protocol") == TARGET_PROTOCOL
    return f"s{point['dataset_samples']:07d}-" + ("target" if target else f"e{point['epochs']:03d}")


def extras(point: Point) -> list[str]:
    """Return GPUs per replica, accumulation, precision, variant, protocol and levers, as ids show them."""
    protocol = point.get("protocol", OTHER_PROTOCOL)
    return [
        *(f"{short}{point[key]}" for key, short in PASS_KEYS.items() if point.get(key, 1) > 1),
        *filter(None, (point.get("precision"), point.get("variant"))),
        *([f"protocol{protocol}"] if protocol not in (OTHER_PROTOCOL, TARGET_PROTOCOL) else []),
        *id_parts(point_of(point)),
    ]


def facility_cluster(campaign: Campaign, cluster: Cluster) -> Cluster:
    """Return the cluster without PUE, carbon and price where not all runs were made on its devices."""
    if campaign.devices() <= set(cluster.devices):
        return cluster
    return replace(cluster, pue=None, carbon_intensity=None, price=None)


def registered_devices(campaign: Campaign, cluster: Cluster) -> dict[str, Device]:
    """Return the campaign's devices by name: the cluster's own; any other without rated powers.

    Another cluster's device of the same name may be another machine, so its powers are not used.
    """
    most: dict[str, int] = {}
    for one in campaign.configurations.values():
        most[one.device] = max(one.ranks_per_node, most.get(one.device, 1))
    return {
        name: cluster.devices.get(name)
        or Device(name=name, gpus_per_node=gpus, cpus_per_rank=1, cpu={})
        for name, gpus in most.items()
    }


def _series(
    name: str,
    entry: dict[str, Any],
    points: dict[int, str],
    configurations: dict[str, Configuration],
) -> Series:
    own = [configurations[id_] for id_ in points.values()]
    return Series(
        name=name,
        written=name,
        label=entry.get("label", name),
        model=entry["model"],
        phase=entry.get("phase", "train"),
        device=entry["device"],
        constant=constant_batch_size(own),
        fraction_rule="1" if len({c.dataset_samples for c in own}) == 1 else "n",
        repeats=max(p.get("repeats", 1) for p in entry["points"]),
        points=points,
    )


def constant_batch_size(configurations: list[Configuration]) -> str:
    """Return which batch size stays constant: local_batch_size, global_batch_size or neither."""
    for key in ("local_batch_size", "global_batch_size"):
        if len({getattr(c, key) for c in configurations}) == 1:
            return key
    return "neither"
