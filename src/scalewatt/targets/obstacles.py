"""What a user is told before anything starts: why a campaign or a target cannot be made, what is left out."""

from __future__ import annotations

from pathlib import Path

from scalewatt.campaign.external_command import check_commands
from scalewatt.campaign.load import check_devices, check_targets
from scalewatt.common.errors import InputError
from scalewatt.scheduling.job_request import check_requests
from scalewatt.targets.result_set import ResultSet
from scalewatt.tracking.changed_files import changed_files


def check_campaign(results: ResultSet, cluster_file: str) -> list[str]:
    """Refuse what could not be trained, simulated or drawn; return what else a user is told, in sentences.

    InputError with the first problem.
    """
    campaign, cluster = results.campaign, results.cluster
    for name, figure in campaign.figures.items():
        if letters := figure.get("panels"):
            from scalewatt.results.figures.figure_schema import check_panels  # with pyarrow

            check_panels(name, letters, [campaign.series[line] for line in figure["series"]])
        if font := figure.get("font"):
            from scalewatt.figures.style import check_font  # with matplotlib

            check_font(font)
    if results.finished_only:
        return notices(results, cluster_file)
    check_devices(campaign, cluster)
    check_requests(campaign, cluster, cluster_file, results.upper_s)
    check_commands(campaign)
    sentences = notices(results, cluster_file)
    if not cluster.simulates:
        check_targets(campaign)
        return [*sentences, *changed_files(campaign, Path(results.folder))]
    from scalewatt.scaling.simulation.simulate import check_simulations

    assert results.model is not None  # `mode: simulate` needs one
    check_simulations(campaign, cluster, results.model)
    return sentences


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


def obstacle(results: ResultSet, target: str, cluster_file: str) -> str | None:
    """Explain why a target (all, idle, plan, prediction, a figure) cannot be made; None if it can."""
    campaign = results.campaign
    if target in ("plan", "prediction"):
        return _plan_obstacle(results, target, cluster_file)
    if target == "all":
        devices = ", ".join(sorted(campaign.devices()))
        needed = f"finished runs of {campaign.path}, or a profile that trains on {devices}"
        return None if results.runs() else f"all: needs {needed}"
    if target == "idle":
        where = f"{campaign.path}, or finished probes: results_only and `only` start none"
        return None if results.probes else f"idle: needs idle_probe in {where}"
    if target not in campaign.whole.figures:
        return f"{target}: needs figures.{target} in {campaign.path}"
    needed = "power traces of finished runs, and runs that `only` or `max_gpus` leaves out"
    return None if target in results.figures else f"{target}: needs {needed}"


def _plan_obstacle(results: ResultSet, target: str, cluster_file: str) -> str | None:
    """Explain why no run can be predicted, or predictions cannot be compared with measurements."""
    from scalewatt.scaling.predict import check_any, no_model

    campaign, cluster = results.campaign, results.cluster
    if target == "prediction" and cluster.simulates:
        return f"prediction: needs runs that were trained; {cluster_file} has mode: simulate"
    try:
        if results.model is None:
            raise no_model(cluster_file, campaign)
        check_devices(campaign, cluster)
        check_any(campaign, results.model)
    except InputError as error:
        return str(error)
    return None
