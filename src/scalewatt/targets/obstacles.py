"""Why a target cannot be made, for the person who asked for it; and what is left out of results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster
from scalewatt.campaign.load import check_devices
from scalewatt.common.errors import InputError
from scalewatt.targets.result_set import ResultSet


def figure_obstacle(results: ResultSet, name: str) -> str | None:
    """Explain why a figure, or Table 1, cannot be made; None if it can."""
    campaign = results.campaign
    if name in results.figures:
        return None
    if name not in campaign.whole.figures:
        return f"{name}: needs figures.{name} in {campaign.path}"
    return f"{name}: needs power traces of finished runs, and runs that `only` or `max_gpus` leaves out"


def all_obstacle(results: ResultSet) -> str | None:
    """Explain why nothing can be trained or drawn; None if something can."""
    if results.runs():
        return None
    campaign, devices = results.campaign, ", ".join(sorted(results.campaign.devices()))
    return f"all: needs finished runs of {campaign.path}, or a profile that trains on {devices}"


def idle_obstacle(results: ResultSet) -> str | None:
    """Explain why there is no table of idle powers; None if there is."""
    if results.probes:
        return None
    where = f"{results.campaign.path}, or finished probes: results_only and `only` start none"
    return f"idle: needs idle_probe in {where}"


def plan_obstacle(
    campaign: Campaign, cluster: Cluster, cluster_file: str, scaling_model: Callable[[], Any]
) -> str | None:
    """Explain why no run of the campaign can be predicted; None if one can."""
    from scalewatt.scaling.predict import check_any, no_model

    try:
        if cluster.scaling_model is None:
            raise no_model(cluster_file, campaign)
        check_devices(campaign, cluster)
        check_any(campaign, scaling_model())
    except InputError as error:
        return str(error)
    return None


def prediction_obstacle(
    campaign: Campaign, cluster: Cluster, cluster_file: str, scaling_model: Callable[[], Any]
) -> str | None:
    """Explain why predictions cannot be compared with measurements; None if they can."""
    if cluster.simulates:
        return f"prediction: needs runs that were trained; {cluster_file} has mode: simulate"
    return plan_obstacle(campaign, cluster, cluster_file, scaling_model)


def notices(results: ResultSet, cluster_file: str) -> list[str]:
    """Messages before anything starts: that nothing is trained, what is left out."""
    campaign, runs = results.campaign, len(results.runs())
    messages = list(campaign.left_out)
    is_asked_for = results.cluster.results_only or campaign.registered
    if results.finished_only and not is_asked_for:  # the cluster has none of the devices
        messages.append(
            f"{cluster_file}: has no device of {campaign.path}, so nothing is trained;"
            f" finished runs: {runs} of {sum(campaign.repeats.values())}"
        )
    left_out = [name for name in campaign.figures if name not in results.figures]
    if runs > sum(map(len, results.pages.values())):
        left_out.append("pages of runs")
    if left_out:
        messages.append(
            f"{results.folder}: has neither traces nor recordings for {', '.join(left_out)}"
        )
    return messages
