"""Campaigns of runs that were made elsewhere: what `scalewatt register` writes, and a user edits.

Every point of a series is written out, as nothing is derived from a dataset or a cluster file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from scalewatt.campaign.campaign_file import CampaignName, Figures, FileName, Label, Size
from scalewatt.campaign.campaign_types import (
    PASS_KEYS,
    Campaign,
    Configuration,
    Series,
    check_accumulation,
    check_replicas,
    shared_points,
)
from scalewatt.campaign.cluster import Cluster, Device
from scalewatt.campaign.model_registry import model_key
from scalewatt.campaign.operating_points import id_parts, point_of
from scalewatt.common.errors import InputError
from scalewatt.common.settings import STRICT, Bounds, Count, Settings, matching, validated

DATASET = {"name": "registered", "format": "registered"}
"""Stands for the dataset of a run that was made elsewhere."""
OTHER_PROTOCOL = "other"
TARGET_PROTOCOL = "target"
"""Trained until the metric reached a target: repeats differ in samples; epochs is 1 by convention."""

Point = dict[str, Any]
Words = Annotated[str, matching(r"[A-Za-z0-9._]{1,100}", "letters, digits, '.' and '_'")]
Name = Annotated[
    str, matching(r"[a-z0-9][a-z0-9._-]{0,99}", "lower-case letters, digits, '.', '_' and '-'")
]
Phase = Annotated[
    str, matching(r"[a-z0-9][a-z0-9_]{0,99}", "lower-case letters, digits and '_', at most 100")
]


@with_config(STRICT)
class RegisteredPoint(TypedDict):
    """A configuration of a series."""

    gpus: Size
    """GPUs of the run."""
    nodes: NotRequired[Size]
    """Nodes of the run; without this key 1."""
    gpus_per_replica: NotRequired[Size]
    """GPUs that share one copy of the model; without this key 1."""
    gradient_accumulation_steps: NotRequired[Size]
    """Passes whose gradients a copy of the model adds up for one update; without this key 1."""
    local_batch_size: Annotated[int, Field(ge=1, le=10**9)]
    """Samples per replica and update; a replica is one GPU unless gpus_per_replica says otherwise."""
    dataset_samples: Count
    """Samples in the training set."""
    epochs: Annotated[int, Field(ge=1, le=10**8)]
    """Passes over the training set."""
    precision: NotRequired[Words]
    """Precision of the training: letters, digits, '.' and '_'."""
    variant: NotRequired[Words]
    """What else sets it apart: letters, digits, '.' and '_'."""
    gpu_clock_mhz: NotRequired[Annotated[float, Bounds(ge=100, le=10_000)]]
    """Clock that the GPUs were set to, in MHz."""
    gpu_power_limit_w: NotRequired[Annotated[float, Bounds(ge=10, le=10_000)]]
    """Power limit that each GPU was set to, in W."""
    cpu_clock_mhz: NotRequired[Annotated[float, Bounds(ge=100, le=20_000)]]
    """Clock that the CPUs were set to, in MHz."""
    protocol: NotRequired[Literal["paper", "corrected", "target", "other"]]
    """Protocol of the training; without this key other."""
    repeats: NotRequired[Annotated[int, Field(ge=1, le=10_000)]]
    """Highest repeat that is registered; without this key 1."""


@with_config(STRICT)
class RegisteredSeries(TypedDict):
    """A line in a figure."""

    label: NotRequired[Label]
    """Its name in the legends, at most 200 characters; a line break is kept."""
    model: Name
    """Name of the model: lower-case letters, digits, '.', '_' and '-'."""
    phase: NotRequired[Phase]
    """Phase of the model; without this key train."""
    device: Name
    """Name of the device in lower-case letters."""
    metric_name: NotRequired[str]
    """Name of the metric with its unit."""
    seeds: NotRequired[Literal["same", "varied"]]
    """same: its repeats had one seed; varied: each had its own. Without this key nothing is known of them."""
    points: Annotated[list[RegisteredPoint], Field(min_length=1, max_length=10_000)]
    """Its configurations, one for each number of GPUs."""


class RegisteredFile(Settings):
    """A campaign of runs that were made elsewhere."""

    registered: bool
    """The runs were registered: nothing is trained."""
    name: CampaignName
    """Names the results folder: lower-case letters, digits and hyphens, not ending in -simulated."""
    series: dict[FileName, RegisteredSeries] = Field(min_length=1, max_length=10_000)
    """The lines of the figures, by name."""
    figures: Figures


def expand_registered(content: dict[str, Any], path: Path) -> Campaign:
    """Expand a registered campaign's content; InputError names `path`, the key and what is allowed.

    The names in `figures` are not checked here.
    """
    file: RegisteredFile = validated(RegisteredFile, content, str(path))
    lines: dict[str, list[tuple[Configuration, int]]] = {}
    series: dict[str, Series] = {}
    for name, entry in file.series.items():
        where, points = f"{path}: series.{name}", sorted(entry["points"], key=lambda p: p["gpus"])
        lines[name] = [(configuration(entry, p, where), p.get("repeats", 1)) for p in points]
        series[name] = _series(name, entry, lines[name], where)
    configurations, repeats, _ = shared_points(lines, str(path))
    protocols = {point.protocol for point in configurations.values()}
    return Campaign(
        name=file.name,
        path=path,
        protocol=protocols.pop() if len(protocols) == 1 else "several",
        series=series,
        configurations=dict(sorted(configurations.items())),
        repeats=repeats,
        figures=file.figures.contents(),
        registered=True,
    )


def _series(
    name: str, entry: Mapping[str, Any], line: Sequence[tuple[Configuration, int]], where: str
) -> Series:
    """Series of these points, ascending in GPUs."""
    points = [point for point, _ in line]
    sizes = [point.gpus for point in points]
    if len(set(sizes)) < len(sizes):
        raise InputError(
            f"{where}.points: duplicate GPUs in {sizes}; allowed: one point for each number of GPUs"
        )
    batches = ("local_batch_size", "global_batch_size")
    constant = [key for key in batches if len({getattr(point, key) for point in points}) == 1]
    return Series(
        name=name,
        label=entry.get("label", name),
        model=points[0].model,
        phase=points[0].phase,
        device=points[0].device,
        constant=constant[0] if constant else "neither",
        fraction_rule="1" if len({point.dataset_samples for point in points}) == 1 else "n",
        repeats=max(count for _, count in line),
        points={point.gpus: point.id for point in points},
    )


# --- a point ----------------------------------------------------------------------------------------


def configuration(entry: Mapping[str, Any], point: Mapping[str, Any], where: str) -> Configuration:
    """Configuration at a point of a series; InputError if GPUs and nodes do not fit."""
    gpus, nodes = point["gpus"], point.get("nodes", 1)
    local, per_replica = point["local_batch_size"], point.get("gpus_per_replica", 1)
    if gpus % nodes:
        raise InputError(
            f"{where}: gpus {gpus} on {nodes} nodes; allowed: the same number of GPUs on every node"
        )
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


def configuration_id(entry: Mapping[str, Any], point: Mapping[str, Any]) -> str:
    """Id with all that tells configurations apart; what is at its default does not appear."""
    nodes = point.get("nodes", 1)
    sizes = f"n{point['gpus']:03d}-lbs{point['local_batch_size']:04d}"
    parts = [series_key(entry), entry["device"], sizes, work_key(point)]
    return "-".join([*parts, *([f"nodes{nodes}"] if nodes > 1 else []), *extras(point)])


def series_key(entry: Mapping[str, Any]) -> str:
    """Model of a series, with its phase where that is not `train`."""
    return model_key(entry["model"], entry.get("phase", "train"))


def work_key(point: Mapping[str, Any]) -> str:
    """Samples of the training set and epochs, as ids show them."""
    target = point.get("protocol") == TARGET_PROTOCOL
    return f"s{point['dataset_samples']:07d}-" + ("target" if target else f"e{point['epochs']:03d}")


def extras(point: Mapping[str, Any]) -> list[str]:
    """GPUs per replica, accumulation, precision, variant, protocol and levers, as ids show them."""
    protocol = point.get("protocol", OTHER_PROTOCOL)
    return [
        *(f"{short}{point[key]}" for key, short in PASS_KEYS.items() if point.get(key, 1) > 1),
        *filter(None, (point.get("precision"), point.get("variant"))),
        *([f"protocol{protocol}"] if protocol not in (OTHER_PROTOCOL, TARGET_PROTOCOL) else []),
        *id_parts(point_of(point)),
    ]


# --- devices ----------------------------------------------------------------------------------------


def facility_cluster(campaign: Campaign, cluster: Cluster) -> Cluster:
    """Cluster without PUE, carbon and price where not all runs were made on its devices."""
    if campaign.devices() <= set(cluster.devices):
        return cluster
    return cluster.model_copy(update={"pue": None, "carbon_intensity": None, "price": None})


def registered_devices(campaign: Campaign, cluster: Cluster) -> dict[str, Device]:
    """The campaign's devices by name: the cluster's, and any other without rated powers.

    Another cluster's device of the same name may be another machine, so its powers are not used.
    """
    gpus: dict[str, int] = {}
    for made in campaign.configurations.values():
        gpus[made.device] = max(made.ranks_per_node, gpus.get(made.device, 1))
    return {
        name: cluster.devices.get(name) or Device(name=name, gpus_per_node=most, cpus_per_rank=1)
        for name, most in gpus.items()
    }
