"""From a campaign file to series, configurations and runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_part import part_of
from scalewatt.campaign.campaign_types import (
    Campaign,
    Cluster,
    Configuration,
    Device,
    IdleProbe,
    Series,
)
from scalewatt.campaign.cluster import known_devices, other_device
from scalewatt.campaign.dataset_rules import check_apart
from scalewatt.campaign.external_command import CommandExpansion, is_command
from scalewatt.campaign.imported_campaign import read_imported
from scalewatt.campaign.model_registry import campaign_schema, known_models
from scalewatt.campaign.operating_points import (
    by_id,
    require_ways,
    with_single_points,
    without_point,
)
from scalewatt.campaign.registered_campaign import check_seeds, expand_registered
from scalewatt.campaign.series_expansion import Expansion, sampling_period_s
from scalewatt.campaign.table_requests import check_variants
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import check, defaults, nearest, one_of
from scalewatt.common.yaml_files import read_yaml

MOST_RUNS = 10_000
"""Of a campaign: as many jobs as Slurm's queue takes by default."""
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
    campaign of registered runs needs neither, and one that came with an archive brings them. On a
    cluster that simulates, the campaign's name says so: simulated and trained runs never lie in one
    folder. `max_gpus` counts instead of the cluster's. Not `to_run`, its points need not fit the devices:
    the workflow may have left larger ones out.
    """
    if max_gpus is None and cluster is not None:
        max_gpus = cluster.max_gpus
    whole = _whole(path, cluster, max_gpus if to_run else 0)
    return part_of(whole, max_gpus, cluster.only if cluster else None)


def _whole(path: Path | str, cluster: Cluster | None, max_gpus: int | None) -> Campaign:
    """Return all of a campaign; points above `max_gpus` need not fit the devices."""
    imported = read_imported(Path(path))
    devices = {**known_devices(cluster), **(imported.devices if imported else {})}
    campaign = expand(read_yaml(path), Path(path), devices, 0 if imported else max_gpus)
    if imported is not None:
        campaign = replace(campaign, name=imported.name, imported=imported)
    if cluster is None or not cluster.simulates:
        return campaign
    if campaign.registered or campaign.imported:
        how = "imported" if campaign.imported else "registered"
        raise InputError(
            f"{path}: its runs are {how}, made elsewhere: there is nothing to simulate; allowed: "
            "a profile whose mode is train"
        )
    return replace(campaign, name=f"{campaign.name}{SIMULATED}")


def expand(
    content: dict[str, Any],
    path: Path,
    devices: dict[str, Device],
    max_gpus: int | None = None,
) -> Campaign:
    """Expand a campaign's content; InputError names `path`, the key and what is allowed.

    Points of more than `max_gpus` GPUs, which are left out afterwards, need not fit their device.
    """
    if content.get("registered"):
        campaign = expand_registered(content, path)
        _check_count(campaign.repeats, path)
        _check_figures(campaign.figures, campaign.series, str(path))
        return campaign
    root = campaign_schema(content, str(path))
    check(content, root, str(path), root)
    content, written = with_single_points(content, str(path))
    configurations: dict[str, Configuration] = {}
    repeats: dict[str, tuple[str, int]] = {}
    series: dict[str, Series] = {}
    for name, entry in content["series"].items():
        where = f"{path}: series.{written[name]}"
        kind = CommandExpansion if is_command(content, entry) else Expansion
        one = kind(content, entry, where, devices, root, max_gpus)
        points: dict[int, str] = {}
        for gpus in sorted(entry["gpus"]):
            configuration = one.configuration(gpus)
            points[gpus] = configuration.id
            own = (written[name], entry.get("repeats", 1))
            first, count = repeats.setdefault(configuration.id, own)
            there = configurations.setdefault(configuration.id, configuration)
            check_seeds(configuration, there, where, first)
            if there != configuration:
                raise InputError(
                    f"{where}: at {gpus} GPUs differs from series.{first} in what the id "
                    f"{configuration.id} does not show (dataset_fraction "
                    f"{configuration.dataset_fraction}, there {there.dataset_fraction}); allowed: the "
                    "same"
                )
            if count != entry.get("repeats", 1):
                raise InputError(
                    f"{where}.repeats: {entry.get('repeats', 1)}, but series.{first} asks for {count} "
                    f"repeats of the same configuration {configuration.id}; allowed: the same number"
                )
        series[name] = one.series(name, written[name], points)
    _check_count({id_: count for id_, (_, count) in repeats.items()}, path)
    configurations = _with_initial_weights(configurations, repeats, path)
    _check_figures(content["figures"], series, str(path))
    return Campaign(
        name=content["name"],
        path=path,
        protocol=content["protocol"],
        series=series,
        configurations=by_id(configurations),
        repeats={id_: count for id_, (_, count) in repeats.items()},
        figures=content["figures"],
        idle_probe=_idle_probe(content, root),
        energy_budget_kwh=content.get("energy_budget_kwh"),
    )


def _check_count(repeats: dict[str, int], path: Path) -> None:
    """Raise InputError for more runs than Slurm's queue takes by default (MaxJobCount)."""
    total = sum(repeats.values())
    if total > MOST_RUNS:
        raise InputError(
            f"{path}: asks for {total} runs; allowed: at most {MOST_RUNS} in a campaign"
        )


def _idle_probe(content: dict[str, Any], root: dict[str, Any]) -> IdleProbe | None:
    if "idle_probe" not in content:
        return None
    given = {**defaults(root["properties"]["idle_probe"]), **content["idle_probe"]}
    period_s = sampling_period_s(content)
    return IdleProbe(float(given["seconds"]), given["repeats"], period_s)


def check_years(campaign: Campaign) -> None:
    """Raise InputError if years are trained on and tested on; finished runs from elsewhere may be so."""
    if campaign.registered or campaign.imported:
        return
    for name, dataset in campaign.datasets().items():
        check_apart(f"{campaign.path}: datasets.{name}", dataset)


def check_devices(campaign: Campaign, cluster: Cluster) -> None:
    """Raise InputError if a series cannot be trained: its device is not the cluster's, or years overlap.

    Registered runs are trained elsewhere.
    """
    check_years(campaign)
    if campaign.registered:
        return
    for series in campaign.series.values():
        if series.device not in cluster.devices:
            raise InputError(
                f"{campaign.path}: series.{series.written}.device: '{series.device}' is not on the cluster "
                f"'{cluster.name}'; {other_device(series.device, cluster.devices)}; to draw from "
                "finished runs only, Snakemake has --config results_only=true"
            )
        if not cluster.devices[series.device].cpu:
            raise InputError(
                f"{campaign.path}: series.{series.written}.device: '{series.device}' of the cluster "
                f"'{cluster.name}' has no key 'cpu', without which the energy of a run may be unknown in the "
                "end; expected it of every device that trains"
            )
    _check_levers(campaign, cluster)


def _check_levers(campaign: Campaign, cluster: Cluster) -> None:
    """Raise InputError if series ask for clocks or limits that cannot be set, or not be simulated."""
    asked: dict[str, str] = {}
    for series in campaign.series.values():
        first = next(iter(series.points.values()))
        for lever in campaign.configurations[first].operating_point or {}:
            asked.setdefault(lever, f"series.{series.written}")
    if asked and cluster.simulates:
        lever, where = next(iter(asked.items()))
        raise InputError(
            f"{campaign.path}: {where}.{lever}: simulations know nothing of clocks and power limits; "
            "allowed: a profile whose mode is train"
        )
    require_ways(asked, cluster.levers, f"'{cluster.name}'", f"{campaign.path}: ")


def _with_initial_weights(
    configurations: dict[str, Configuration], repeats: dict[str, tuple[str, int]], path: Path
) -> dict[str, Configuration]:
    """Let fine-tuning start from the weights of the same configuration's pre-training."""
    result = dict(configurations)
    for id_, configuration in configurations.items():
        if configuration.phase != "finetune":
            continue
        source = id_.replace(".finetune-", ".pretrain-", 1)
        if source not in configurations:  # the weights are the same whatever the clock
            source = without_point(source)
        series, count = repeats[id_]
        if source not in configurations or repeats[source][1] < count:
            raise InputError(
                f"{path}: series.{series}: fine-tuning at {configuration.gpus} GPUs starts from the "
                f"weights of {source}, of which no series has {count} repeats"
            )
        for key in known_models()[configuration.model].network:
            own, before = configuration.settings.get(key), configurations[source].settings.get(key)
            if own != before:
                raise InputError(
                    f"{path}: series.{series}: fine-tuning has {key} {own}, but the weights of "
                    f"{source} have {before}; allowed: the same"
                )
        result[id_] = replace(configuration, initial_weights=source)
    return result


def _check_figures(figures: dict[str, Any], series: dict[str, Series], where: str) -> None:
    for figure, content in figures.items():
        points = content.get("points", [{"series": name} for name in content.get("series", [])])
        for point in points:
            name = point["series"]
            if name not in series:
                written = dict.fromkeys(one.written for one in series.values())
                raise InputError(
                    f"{where}: figures.{figure}: no series '{name}'; allowed: "
                    f"{', '.join(written) or 'nothing'}{nearest(name, [*written, *series])}"
                )
            if "gpus" in point and point["gpus"] not in series[name].points:
                raise InputError(
                    f"{where}: figures.{figure}: series.{series[name].written} has no point at "
                    f"{point['gpus']} GPUs; {one_of(point['gpus'], series[name].points)}"
                )
        if figure == "variants":
            check_variants(content, series, where)
