"""Why a target cannot be made, for the person who asked for it; and what is left out of results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scalewatt.campaign.campaign_types import Campaign, Cluster
from scalewatt.campaign.load import check_devices
from scalewatt.common.errors import InputError
from scalewatt.results.text.number_format import count
from scalewatt.targets.result_set import ResultSet, came_with


def figure_obstacle(results: ResultSet, name: str) -> str | None:
    """Return why there is no such figure, or Table 1."""
    path = results.campaign.path
    if name in results.figures:
        return None
    if name in results.campaign.figures:
        return (
            f"{name}: is drawn from power traces, and {path} was imported without them;"
            " allowed: an archive of `scalewatt export --traces`"
        )
    if name in results.campaign.whole.figures:
        return f"{name}: {_limits(results.campaign)}"
    if name == "variants":
        return (
            f"{path}: has no key 'figures.variants', so there is nothing to compare; add for"
            " example variants: {series: [plain, fast], baselines: [plain]}, or take"
            " --config campaign=campaigns/variants.yaml"
        )
    make = "make" if name == "table1" else "draw"
    return (
        f"{path}: has no key 'figures.{name}', so there is nothing to {make}; add for example"
        f" {_example(results.campaign, name)}"
    )


def _limits(campaign: Campaign) -> str:
    """Return why a figure of the campaign file shows nothing."""
    by = "only" if campaign.only is not None else "max_gpus"
    return f"shows none of the runs that `{by}` leaves; without it, it is drawn"


def _example(campaign: Campaign, name: str) -> str:
    """Return an entry of the campaign that would define a figure, or Table 1."""
    series = list(campaign.series)[:2]
    if name not in ("figure5", "table1"):
        return f"{name}: {{series: [{', '.join(series)}]}}"
    gpus = next(iter(campaign.series[series[0]].points))
    return f"{name}: {{points: [{{series: {series[0]}, gpus: {gpus}}}]}}"


def all_obstacle(results: ResultSet, cluster_file: str) -> str | None:
    """Return why there is nothing to train and nothing to draw: results without a run are none."""
    campaign, cluster = results.campaign, results.cluster
    if results.runs():
        return None
    path, devices = campaign.path, ", ".join(sorted(campaign.devices()))
    if cluster.results_only:
        why = f"{cluster_file}: trains nothing (results_only)"
    else:
        why = f"{cluster_file}: has no device of {path} ({devices})"
    return (
        f"{why}, and none of the campaign's runs is finished, so there is nothing to train or to draw; give"
        f" the profile of the cluster that is to train it (its `devices` must name {devices}; not"
        " results_only), or name in the series a device of this one:"
        f" {', '.join(sorted(cluster.devices)) or 'it has none'}"
    )


def idle_obstacle(results: ResultSet) -> str | None:
    """Return why there is no table of idle powers."""
    if results.campaign.idle_probe is None:
        return (
            f"{results.campaign.path}: has no key 'idle_probe', so nothing is probed; add for example"
            " idle_probe: {seconds: 300, repeats: 3}"
        )
    if not results.probes:
        by = "results_only" if results.finished_only else "only"
        return f"{results.folder}/idle: no finished probe; with {by} none is started"
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
        return None if came_with(files) else f"{campaign.path}: was imported without a plan"
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
    if campaign.imported:
        return None if came_with(files) else f"{campaign.path}: was imported without predictions"
    if cluster.simulates:
        return (
            f"{cluster_file}: mode simulate: the scaling model makes the runs, so they are no test of"
            " it; 'prediction' is for runs that were trained"
        )
    return plan_obstacle(campaign, cluster, cluster_file, forecaster, files)


def notices(results: ResultSet, cluster_file: str) -> list[str]:
    """Return the messages before anything starts: that nothing is trained, what is left out."""
    campaign = results.campaign
    found = list(campaign.left_out)
    wanted = results.cluster.results_only or campaign.registered or campaign.imported
    runs = len(results.runs())
    if (
        results.finished_only and not wanted
    ):  # the default where the cluster has none of the devices
        found.append(
            f"{cluster_file}: has no device of {campaign.path}"
            f" ({', '.join(sorted(campaign.devices()))}), so nothing is trained;"
            f" finished runs: {runs} of {sum(campaign.repeats.values())}"
        )
    if campaign.imported:
        left_out = [name for name in campaign.figures if name not in results.figures]
        lost = runs - sum(map(len, results.pages.values()))
        left_out += [f"pages of {count(lost, 'run')}"] if lost else []
        if left_out:
            found.append(
                f"{campaign.path}: imported without traces, so left out: {', '.join(left_out)}"
            )
    return found
