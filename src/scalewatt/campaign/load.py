"""Load a campaign, the part of it that is asked for, and check that a cluster can train it.

A part is the points up to a number of GPUs (`max_gpus`), or chosen runs (`only`). What is left out is out of
tables, figures and totals too, and is counted. Its results stay where they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_file import LEAD_STEPS, part_years, samples_with_targets
from scalewatt.campaign.campaign_types import Campaign, Series
from scalewatt.campaign.cluster import Cluster, known_devices, other_device
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.operating_points import require_ways
from scalewatt.common.errors import InputError, nearest
from scalewatt.common.yaml_files import read_yaml

SIMULATED = "-simulated"
"""Ends the name of a campaign whose runs are simulated."""
Chosen = Mapping[str, tuple[int, ...]]
"""Repeats by configuration."""


def load_campaign(
    path: Path | str,
    cluster: Cluster | None = None,
    max_gpus: int | None = None,
    to_run: bool = True,
) -> Campaign:
    """Read, check and expand a campaign file, without what `cluster` leaves out.

    Node geometry and limits come from `cluster`, or from whichever site has the device; a campaign of
    registered runs needs neither. On a cluster that simulates, the campaign's name says so: simulated and
    trained runs never lie in one folder.
    `max_gpus` counts instead of the cluster's. Not `to_run`, its points need not fit the devices: the
    workflow may have left larger ones out.
    """
    if max_gpus is None and cluster is not None:
        max_gpus = cluster.max_gpus
    fitting = max_gpus if to_run else 0
    campaign = expand(read_yaml(path), Path(path), known_devices(cluster), fitting)
    if cluster is not None and cluster.simulates:
        if campaign.registered:
            raise InputError(f"{path}: registered runs, made elsewhere, cannot be simulated")
        campaign = replace(campaign, name=f"{campaign.name}{SIMULATED}")
    if max_gpus is not None and not campaign.registered:
        campaign = _up_to(campaign, max_gpus)
    if cluster is not None and cluster.only is not None:
        chosen = _chosen(campaign, cluster.only)
        campaign = replace(_part(campaign, chosen, "only"), only=chosen)
    return campaign


# --- a part -----------------------------------------------------------------------------------------


def _up_to(whole: Campaign, most: int) -> Campaign:
    """The points of at most `most` GPUs."""
    points = whole.configurations.values()
    kept = {point.id: tuple(whole.repeats_of(point.id)) for point in points if point.gpus <= most}
    if not kept:
        least = min(point.gpus for point in points)
        raise InputError(f"max_gpus: {most}: {whole.path}: allowed: {least} or more")
    return whole if len(kept) == len(points) else _part(whole, kept, f"max_gpus {most}")


def _chosen(whole: Campaign, text: str) -> Chosen:
    """Runs of CONFIGURATION/REPEAT or CONFIGURATION, several with commas or spaces.

    With a run that starts from another's weights comes that one.
    """
    chosen: dict[str, set[int]] = {}
    for word in re.split(r"[,\s]+", text.strip(" \t\n,")):
        id_, _, repeat = word.partition("/")
        if id_ not in whole.configurations:
            raise InputError(
                f"only: no configuration '{id_[:200]}'{nearest(id_, whole.configurations)}; `scalewatt "
                f"campaign {whole.path}` lists all"
            )
        repeats = {str(number): number for number in whole.repeats_of(id_)}
        if repeat not in ("", *repeats):
            raise InputError(f"only: {id_} has no repeat {repeat}; allowed: {', '.join(repeats)}")
        for name in filter(None, (id_, whole.configurations[id_].initial_weights)):
            numbers = [repeats[repeat]] if repeat else repeats.values()
            chosen.setdefault(name, set()).update(numbers)
    return {id_: tuple(sorted(chosen[id_])) for id_ in whole.configurations if id_ in chosen}


def _part(whole: Campaign, kept: Chosen, key: str) -> Campaign:
    """The campaign of these runs alone, with the series and figures that show any of them."""
    series = {
        name: replace(line, points=points)
        for name, line in whole.series.items()
        if (points := {n: id_ for n, id_ in line.points.items() if id_ in kept})
    }
    figures = {name: _figure(content, series) for name, content in whole.figures.items()}
    repeats = {id_: len(numbers) for id_, numbers in kept.items()}
    left_out = [f"{key}: {sum(repeats.values())} of {sum(whole.repeats.values())} runs"]
    if empty := [name for name, content in figures.items() if content is None]:
        left_out.append(f"{key}: no run is left to show in {', '.join(empty)}")
    return replace(
        whole,
        series=series,
        configurations={id_: whole.configurations[id_] for id_ in kept},
        repeats=repeats,
        figures={name: content for name, content in figures.items() if content is not None},
        left_out=(*whole.left_out, *left_out),
        part_of=whole.whole,
    )


def _figure(content: Mapping[str, Any], series: Mapping[str, Series]) -> dict[str, Any] | None:
    """Content of a figure with the series and points that are left; None if nothing is."""
    shown = dict(content)
    if "points" in shown:
        left = {(name, gpus) for name, line in series.items() for gpus in line.points}
        shown["points"] = [p for p in shown["points"] if (p["series"], p["gpus"]) in left]
        return shown if shown["points"] else None
    for key in {"series", "baselines"} & shown.keys():
        shown[key] = [name for name in shown[key] if name in series]
    if "baselines" in shown:  # a series without its baseline is compared with nothing
        kinds = {series[name].kind for name in shown["baselines"]}
        shown["series"] = [name for name in shown["series"] if series[name].kind in kinds]
    return shown if shown["series"] else None


# --- on a cluster -----------------------------------------------------------------------------------


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
                f"{where} of the cluster '{cluster.name}' has no key 'cpu', without which the energy of a "
                "run may be unknown in the end"
            )
    for point in campaign.configurations.values():
        if point.operating_point and cluster.simulates:
            raise InputError(
                f"{campaign.path}: {point.id}: simulations know nothing of clocks and power limits"
            )
        require_ways(point.operating_point or (), cluster.levers, f"{campaign.path}: {point.id}")


def check_targets(campaign: Campaign) -> None:
    """Raise InputError for a year of ERA5 with training samples whose targets the dataset lacks."""
    for point in campaign.configurations.values():
        dataset, lead_steps = point.dataset, LEAD_STEPS.get(point.phase, 1)
        if dataset["format"] != "era5" or point.settings.get("loader") == "synthetic":
            continue
        for year in part_years(dataset, "train"):
            usable = samples_with_targets(dataset, year, lead_steps)
            if usable < (asked := dataset["samples_per_year"]):
                raise InputError(
                    f"{campaign.path}: datasets.{dataset['name']}.samples_per_year: {asked}, but {year} has "
                    f"{usable} samples with targets {6 * lead_steps} h ahead; allowed: up to {usable}"
                )


def is_results_only(campaign: Campaign, cluster: Cluster) -> bool:
    """True if finished runs are used as they are, and none is trained."""
    if campaign.registered:
        return True
    if cluster.results_only is not None:
        return cluster.results_only
    # Of simulations there are no finished runs: what cannot be simulated is refused.
    return not cluster.simulates and not campaign.whole.devices() & set(cluster.devices)
