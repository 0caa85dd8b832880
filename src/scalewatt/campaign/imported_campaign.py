"""Campaigns that came with an archive: what a small file beside them says of where they ran.

`scalewatt import` writes `<campaign>.imported.json`, from what `scalewatt export` took of the cluster.
With it nothing of the campaign is trained or simulated here by itself: one run is trained again, beside
the campaign's own, where `reproduce` is given it by name (`reproduce_run`).
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, Cluster, Device, Imported
from scalewatt.common.files import read_json
from scalewatt.common.schema_validation import check, schema

SUFFIX = ".imported.json"
FACTORS = ("pue", "carbon_intensity", "price")
NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
"""What a campaign may be called, `-simulated` included."""
DEVICE_KEYS = (
    *("description", "gpus_per_node", "cpus_per_rank", "max_gpus", "torch_device"),
    *("gpu_memory_gib", "cpu", "gpu", "ram", "max_local_batch_size"),
)
"""All that is told of a device: how its nodes are made and what they draw; nothing of who may use it."""


def imported_path(campaign: Path) -> Path:
    """Return where the file beside a campaign file lies."""
    return campaign.with_name(f"{campaign.stem}{SUFFIX}")


def read_imported(campaign: Path) -> Imported | None:
    """Return what the file beside a campaign file says; None if there is none. InputError."""
    if not campaign.name:  # "", "." or "/": a folder
        return None
    path = imported_path(campaign)
    return parse_imported(read_json(path), str(path)) if path.exists() else None


def parse_imported(content: Any, where: str) -> Imported:
    """Hold the content of such a file against what is allowed; InputError names `where` and the key."""
    root, cluster = schema("imported"), schema("cluster")
    device = cluster["$defs"]["device"]
    told = {key: device["properties"][key] for key in DEVICE_KEYS}
    factors = {key: _as_recorded(cluster["properties"][key]) for key in FACTORS}
    root = {
        **root,
        "properties": {**root["properties"], **factors},
        "$defs": {**cluster["$defs"], "device": {**device, "properties": told}},
    }
    check(content, root, where, root)
    devices = {name: Device(name=name, **entry) for name, entry in content["devices"].items()}
    return Imported(**{"cluster": "", **content, "devices": devices})


def _as_recorded(factor: dict[str, Any]) -> dict[str, Any]:
    """Return a factor's schema without the bounds for new ones: what is recorded stays as it was."""
    properties = factor["properties"]
    value = {**properties["value"], "minimum": 0}
    value.pop("maximum", None)
    return {**factor, "properties": {**properties, "value": value}}


def imported_content(one: Imported) -> dict[str, Any]:
    """Return the file's content: what differs from a device's defaults, in a fixed order."""
    defaults = {f.name: f.default for f in fields(Device)}
    devices = {
        name: {
            key: getattr(device, key)
            for key in DEVICE_KEYS
            if getattr(device, key) not in (None, {}, defaults[key])
        }
        for name, device in sorted(one.devices.items())
    }
    factors = {key: getattr(one, key) for key in FACTORS if getattr(one, key) is not None}
    original = {"original": one.original} if one.original is not None else {}
    return {"name": one.name, **original, "cluster": one.cluster, "devices": devices, **factors}


def as_imported(campaign: Campaign, cluster: Cluster, devices: dict[str, Device]) -> Imported:
    """Return what there is to tell of the cluster a campaign ran on; `devices`: all that are known by name.

    PUE, carbon and price only where all its devices are the cluster's own.
    """
    if campaign.imported is not None:
        return campaign.imported
    own = campaign.devices() <= set(cluster.devices)
    known = {name: devices[name] for name in sorted(campaign.devices()) if name in devices}
    factors = {key: getattr(cluster, key) for key in FACTORS} if own else {}
    if (carbon := factors.get("carbon_intensity")) and "file" in carbon:
        # What it says of each run lies beside the run's energy; a folder would tell of the machine.
        factors["carbon_intensity"] = {**carbon, "file": Path(carbon["file"]).name}
    return Imported(campaign.name, cluster.name if own else "", known, **factors)


def with_imported(campaign: Campaign, cluster: Cluster) -> Cluster:
    """Return the cluster as the campaign's archive tells of it, where it came with one; else as it is."""
    one = campaign.imported
    if one is None:
        return cluster
    factors = {key: getattr(one, key) for key in FACTORS}
    return replace(cluster, devices={**cluster.devices, **one.devices}, **factors)
