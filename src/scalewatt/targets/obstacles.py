"""Why a target cannot be made, for the person who asked for it; and what is left out of results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, Cluster
from scalewatt.campaign.load import check_devices
from scalewatt.common.errors import InputError
from scalewatt.targets.result_set import ResultSet, came_with


def figure_obstacle(results: ResultSet, name: str) -> str | None:
    """Return why there is no such figure, or Table 1."""
    campaign = results.campaign
    if name in results.figures:
        return None
    if name in campaign.figures:
        return f"{name}: needs power traces; {campaign.path} was imported without them"
    if name in campaign.whole.figures:
        return f"{name}: needs runs that `only` or `max_gpus` leaves out"
    return f"{name}: needs figures.{name} in {campaign.path}"


def all_obstacle(results: ResultSet, cluster_file: str) -> str | None:
    """Return why there is nothing to train and nothing to draw: results without a run are none."""
    if results.runs():
        return None
    devices = ", ".join(sorted(results.campaign.devices()))
    found = "results_only" if results.cluster.results_only else ", ".join(results.cluster.devices)
    return (
        f"all: needs finished runs of {results.campaign.path}, or a profile that trains on {devices};"
        f" {cluster_file} has {found or 'no device'}"
    )


def idle_obstacle(results: ResultSet) -> str | None:
    """Return why there is no table of idle powers."""
    if results.campaign.idle_probe is None:
        return f"idle: needs idle_probe in {results.campaign.path}"
    if not results.probes:
        by = "results_only" if results.finished_only else "only"
        return f"idle: needs a finished probe in {results.folder}/idle; with {by} none is started"
    return None


def plan_obstacle(
    campaign: Campaign,
    cluster: Cluster,
    cluster_file: str,
    forecaster: Callable[[], Any],
    files: list[str],
) -> str | None:
    """Return why no run of the campaign can be predicted; an imported plan is what it came with."""
    from scalewatt.scaling.planning.forecast import check_any, no_model

    if campaign.imported:
        return None if came_with(files) else f"{campaign.path}: was imported without {files[0]}"
    try:
        if cluster.scaling_model is None:
            raise no_model(cluster_file, campaign)
        check_devices(campaign, cluster)
        check_any(campaign, forecaster())
    except InputError as error:
        return str(error)
    return None


def prediction_obstacle(
    campaign: Campaign,
    cluster: Cluster,
    cluster_file: str,
    forecaster: Callable[[], Any],
    files: list[str],
) -> str | None:
    """Return why predictions cannot be compared with measurements."""
    if cluster.simulates and not campaign.imported:
        return f"prediction: needs runs that were trained; {cluster_file} has mode: simulate"
    return plan_obstacle(campaign, cluster, cluster_file, forecaster, files)


def notices(results: ResultSet, cluster_file: str) -> list[str]:
    """Return the messages before anything starts: that nothing is trained, what is left out."""
    campaign = results.campaign
    found = list(campaign.left_out)
    wanted = results.cluster.results_only or campaign.registered or campaign.imported
    runs = len(results.runs())
    if results.finished_only and not wanted:  # the cluster has none of the devices
        found.append(
            f"{cluster_file}: has no device of {campaign.path}, so nothing is trained;"
            f" finished runs: {runs} of {sum(campaign.repeats.values())}"
        )
    if campaign.imported:
        left_out = [name for name in campaign.figures if name not in results.figures]
        if runs > sum(map(len, results.pages.values())):
            left_out.append("pages of runs")
        if left_out:
            found.append(
                f"{campaign.path}: imported without traces, so left out: {', '.join(left_out)}"
            )
    return found
