"""Select the run to repeat: the cheapest that this machine can run, or the one that was asked for."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, is_made_here
from scalewatt.campaign.external_command import is_command_spec
from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.common.errors import InputError
from scalewatt.data.prepared import content_of_prepared
from scalewatt.run_files.inventory import json_object, published_runs

KEY = "reproduce_run"
FOLDER = "reproduction"
"""Below the campaign's results: the page, and the re-run, laid out as the results are."""

Run = tuple[str, int]


@dataclass(frozen=True)
class Choice:
    """The run to repeat; None if none can be, and why."""

    run: Run | None
    reason: str


def choose_run(campaign: Campaign, cluster: Cluster, results: Path) -> Choice:
    """Choose among a campaign's finished runs, whose folder is `results`.

    InputError if `reproduce_run` is not a finished run, or cannot be run here.
    """
    if cluster.results_only or campaign.registered:
        why = "its runs are recordings from elsewhere" if campaign.registered else "results_only"
        reason = f"nothing is trained here ({why})"
        if cluster.reproduce_run is not None:
            raise InputError(f"{KEY}: {cluster.reproduce_run}: {reason}; leave it out")
        return Choice(None, reason)
    finished = sorted(published_runs(results))
    obstacles = {run: _obstacle(campaign, cluster, results, run) for run in finished}
    if cluster.reproduce_run is not None:
        run = parse_run(cluster.reproduce_run)
        if run not in obstacles:
            raise InputError(
                f"{KEY}: {cluster.reproduce_run} is not a finished run of {results}; allowed: "
                f"{_some([f'{c}/{r}' for c, r in finished])}"
            )
        if obstacles[run] is not None:
            raise InputError(f"{KEY}: {cluster.reproduce_run}: {obstacles[run]}")
        return Choice(run, "asked for")
    possible = [run for run in finished if obstacles[run] is None]
    if not possible:
        reasons = list(dict.fromkeys(filter(None, obstacles.values())))
        return Choice(None, _some(reasons) if reasons else f"{results} has no finished run")
    costs = {run: gpu_hours(results, run) for run in possible}
    run = min(possible, key=lambda one: (costs[one], one))
    return Choice(run, f"the fewest GPU hours ({costs[run]:.3g}) of {len(possible)} possible runs")


def parse_run(text: str) -> Run:
    """Parse CONFIGURATION/REPEAT; InputError if `text` is not such."""
    configuration, _, repeat = text.rpartition("/")
    if not configuration or "/" in configuration or not (repeat.isdigit() and int(repeat)):
        raise InputError(
            f"{KEY}: {text!r}; expected CONFIGURATION/REPEAT, such as "
            "resnet50-local-n001-lbs0032-full/1"
        )
    return configuration, int(repeat)


def gpu_hours(results: Path, run: Run) -> float:
    """Return the GPU hours of a finished run's segments; infinite where unknown."""
    folder = run_folder(results, run)
    spec, provenance = read_spec(folder / "spec.json"), json_object(folder / "provenance.json")
    seconds = 0.0
    for one in provenance.get("segments") or []:
        start, end = one.get("started_s"), one.get("ended_s")
        if start is None or end is None:
            return math.inf
        seconds += end - start
    return spec.gpus * seconds / 3600 if seconds else math.inf


def run_folder(results: Path, run: Run) -> Path:
    """Return the folder of a run's files, below a campaign's results."""
    return results / "runs" / run[0] / str(run[1])


def again_folder(results: Path) -> Path:
    """Return the folder of re-runs, laid out as the campaign's results are."""
    return results / FOLDER


def _obstacle(campaign: Campaign, cluster: Cluster, results: Path, run: Run) -> str | None:
    """Return why a finished run cannot be repeated here; None if it can."""
    folder = run_folder(results, run)
    try:
        spec = read_spec(folder / "spec.json")
    except InputError as error:
        return str(error)
    if not (folder / "history.parquet").exists():
        return f"{run[0]}/{run[1]} has no history.parquet to compare with"
    if run[0] not in campaign.configurations:
        return f"{campaign.path} no longer has the configuration {run[0]}"
    simulated = "simulated" in json_object(folder / "provenance.json")
    if simulated != cluster.simulates:
        how = ("simulated", "trains") if simulated else ("trained", "simulates")
        return f"the run was {how[0]}, and the cluster '{cluster.name}' {how[1]}"
    try:
        lacking = _machine(cluster, spec) or _data(campaign, cluster, spec)
        weights = None if lacking else weights_of(results, spec)
        if weights is not None and not weights.exists():  # making them is another training
            return f"its initial weights {weights.relative_to(results)} are missing"
        return lacking
    except InputError as error:
        return str(error)


def _machine(cluster: Cluster, spec: RunSpec) -> str | None:
    device = cluster.devices.get(spec.device)
    if device is None:
        return f"the cluster '{cluster.name}' has no device '{spec.device}'"
    if device.max_gpus is not None and spec.gpus > device.max_gpus:
        return f"the cluster '{cluster.name}' has fewer than {spec.gpus} {device.name}"
    width = (-(-spec.gpus // device.gpus_per_node), min(spec.gpus, device.gpus_per_node))
    if (spec.nodes, spec.ranks_per_node) != width:
        return f"nodes of {device.name} have {device.gpus_per_node} GPUs on '{cluster.name}'"
    return None


def _data(campaign: Campaign, cluster: Cluster, spec: RunSpec) -> str | None:
    """Return which data are missing: downloading or converting them may take days."""
    if cluster.simulates or is_command_spec(spec):
        return None
    name = spec.dataset["name"]
    dataset = campaign.datasets().get(name)
    if dataset is None:
        return f"{campaign.path} no longer has the dataset {name}"
    if is_made_here(dataset):
        return None
    folder = cluster.data_folder(dataset)
    try:
        content_of_prepared(Path(folder))
    except InputError:
        return (
            f"its dataset {name} is not prepared here, in {folder}; allowed: another folder in the "
            f"cluster file's data_roots, or to prepare it separately: "
            f"snakemake --profile PROFILE prepare_{dataset['format']} -R dataset"
        )
    return None


def weights_of(results: Path, spec: RunSpec) -> Path | None:
    """Return the weights that a run starts from; None if it starts from none.

    InputError if they would not lie among the campaign's runs: a spec may have come with an archive.
    """
    source = spec.initial_weights
    if source is None:
        return None
    path = run_folder(results, (source.configuration, source.repeat)) / "weights.pt"
    if not Path(os.path.normpath(path)).is_relative_to(os.path.normpath(results / "runs")):
        raise InputError(f"initial_weights: {path}: allowed: weights below {results / 'runs'}")
    return path


def _some(words: list[str], most: int = 3) -> str:
    shown = "; ".join(words[:most]) or "none"
    return shown if len(words) <= most else f"{shown}; … ({len(words)})"
