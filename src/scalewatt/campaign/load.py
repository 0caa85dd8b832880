"""Load a campaign, and check that a cluster can train it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scalewatt.campaign.campaign_part import part_of
from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, known_devices, other_device
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.operating_points import require_ways
from scalewatt.common.errors import InputError
from scalewatt.common.yaml_files import read_yaml

SIMULATED = "-simulated"
"""Ends the name of a campaign whose runs are simulated."""


def load_campaign(
    path: Path | str,
    cluster: Cluster | None = None,
    max_gpus: int | None = None,
    to_run: bool = True,
) -> Campaign:
    """Read, check and expand a campaign file, without what `cluster` leaves out (`campaign_part`).

    Node geometry and limits come from `cluster`, or from whichever profile has the device; a
    campaign of registered runs needs neither. On a cluster that simulates, the campaign's name says so:
    simulated and trained runs never lie in one folder.
    `max_gpus` counts instead of the cluster's. Not `to_run`, its points need not fit the devices: the
    workflow may have left larger ones out.
    """
    if max_gpus is None and cluster is not None:
        max_gpus = cluster.max_gpus
    whole = _whole(path, cluster, max_gpus if to_run else 0)
    return part_of(whole, max_gpus, cluster.only if cluster else None)


def _whole(path: Path | str, cluster: Cluster | None, max_gpus: int | None) -> Campaign:
    """Expand all of a campaign; points above `max_gpus` need not fit the devices."""
    campaign = expand(read_yaml(path), Path(path), known_devices(cluster), max_gpus)
    if cluster is None or not cluster.simulates:
        return campaign
    if campaign.registered:
        raise InputError(
            f"{path}: its runs are registered, made elsewhere, and cannot be simulated; allowed: a "
            "profile whose mode is train"
        )
    return replace(campaign, name=f"{campaign.name}{SIMULATED}")


def check_devices(campaign: Campaign, cluster: Cluster) -> None:
    """Raise InputError if a series cannot be trained on a cluster's devices.

    Registered runs are trained elsewhere.
    """
    if campaign.registered:
        return
    for series in campaign.series.values():
        where = f"{campaign.path}: series.{series.name}.device: '{series.device}'"
        if series.device not in cluster.devices:
            raise InputError(
                f"{where} is not on the cluster '{cluster.name}'; "
                f"{other_device(series.device, cluster.devices)}; to draw from finished runs only, "
                "Snakemake has --config results_only=true"
            )
        if not cluster.devices[series.device].cpu:
            raise InputError(
                f"{where} of the cluster '{cluster.name}' has no key 'cpu', without which the energy "
                "of a run may be unknown in the end; expected it of every device that trains"
            )
    for point in campaign.configurations.values():
        if point.operating_point and cluster.simulates:
            raise InputError(
                f"{campaign.path}: {point.id}: simulations know nothing of clocks and power limits; "
                "allowed: a profile whose mode is train"
            )
        require_ways(point.operating_point or (), cluster.levers, f"{campaign.path}: {point.id}")


def is_results_only(campaign: Campaign, cluster: Cluster) -> bool:
    """True if finished runs are used as they are, and none is trained."""
    if campaign.registered:
        return True
    if cluster.results_only is not None:
        return cluster.results_only
    if cluster.simulates:  # there are no finished runs for it: what it cannot simulate is refused
        return False
    return not campaign.whole.devices() & set(cluster.devices)
