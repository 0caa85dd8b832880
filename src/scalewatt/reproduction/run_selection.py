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
from scalewatt.results.text.number_format import listed
from scalewatt.run_files.inventory import json_object, published_runs

KEY = "reproduce_run"
FOLDER = "reproduction"
"""Below the campaign's results: the page, and the re-run, laid out as the results are."""
_MOST_NAMED = 3

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
    asked = cluster.reproduce_run
    if cluster.results_only or campaign.registered:
        why = "its runs are recordings from elsewhere" if campaign.registered else "results_only"
        if asked is not None:
            raise InputError(f"{KEY}: {asked}: nothing is trained here ({why}); leave it out")
        return Choice(None, f"nothing is trained here ({why})")
    finished = sorted(published_runs(results))
    if asked is not None:
        run = parse_run(asked)
        if run not in finished:
            allowed = listed([f"{name}/{repeat}" for name, repeat in finished], _MOST_NAMED)
            raise InputError(
                f"{KEY}: {asked} is not a finished run of {results}; allowed: {allowed or 'none'}"
            )
        if obstacle := _obstacle(campaign, cluster, results, run):
            raise InputError(f"{KEY}: {asked}: {obstacle}")
        return Choice(run, "asked for")
    obstacles = {run: _obstacle(campaign, cluster, results, run) for run in finished}
    costs = {run: gpu_hours(results, run) for run in finished if obstacles[run] is None}
    if not costs:
        reasons = list(dict.fromkeys(filter(None, obstacles.values())))
        return Choice(None, listed(reasons, _MOST_NAMED) or f"{results} has no finished run")
    run = min(costs, key=lambda run: (costs[run], run))
    return Choice(run, f"the fewest GPU hours ({costs[run]:.3g}) of {len(costs)} possible runs")


def parse_run(text: str) -> Run:
    """Parse CONFIGURATION/REPEAT; InputError if `text` is anything else."""
    configuration, _, repeat = text.rpartition("/")
    if not configuration or "/" in configuration or not (repeat.isdigit() and int(repeat)):
        raise InputError(
            f"{KEY}: {text!r}; expected CONFIGURATION/REPEAT, such as "
            "resnet50-local-n001-lbs0032-full/1"
        )
    return configuration, int(repeat)


def gpu_hours(results: Path, run: Run) -> float:
    """GPU hours of a finished run's segments; infinite where unknown."""
    folder = run_folder(results, run)
    segments = json_object(folder / "provenance.json").get("segments") or []
    ends = [(segment.get("started_s"), segment.get("ended_s")) for segment in segments]
    if not ends or any(None in pair for pair in ends):
        return math.inf
    return read_spec(folder / "spec.json").gpus * sum(end - start for start, end in ends) / 3600


def run_folder(results: Path, run: Run) -> Path:
    """Folder of a run's files, below a campaign's results."""
    return results / "runs" / run[0] / str(run[1])


def again_folder(results: Path) -> Path:
    """Folder of re-runs, laid out as the campaign's results are."""
    return results / FOLDER


def weights_of(results: Path, spec: RunSpec) -> Path | None:
    """Weights that a run starts from; None if it starts from none.

    InputError if they would not lie among the campaign's runs: a spec may have come with an archive.
    """
    source = spec.initial_weights
    if source is None:
        return None
    path = run_folder(results, (source.configuration, source.repeat)) / "weights.pt"
    if not Path(os.path.normpath(path)).is_relative_to(os.path.normpath(results / "runs")):
        raise InputError(f"initial_weights: {path}: allowed: weights below {results / 'runs'}")
    return path


def _obstacle(campaign: Campaign, cluster: Cluster, results: Path, run: Run) -> str | None:
    """Why a finished run cannot be repeated here; None if it can."""
    folder = run_folder(results, run)
    simulated = "simulated" in json_object(folder / "provenance.json")
    if not (folder / "history.parquet").exists():
        return f"{run[0]}/{run[1]} has no history.parquet to compare with"
    if run[0] not in campaign.configurations:
        return f"{campaign.path} no longer has the configuration {run[0]}"
    if simulated != cluster.simulates:
        how = ("simulated", "trains") if simulated else ("trained", "simulates")
        return f"the run was {how[0]}, and the cluster '{cluster.name}' {how[1]}"
    try:
        spec = read_spec(folder / "spec.json")
        weights = weights_of(results, spec)
        if lacking := _machine(cluster, spec) or _data(campaign, cluster, spec):
            return lacking
    except InputError as error:
        return str(error)
    if weights is not None and not weights.exists():  # making them is another training
        return f"its initial weights {weights.relative_to(results)} are missing"
    return None


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
    """Which data are missing: downloading or converting them may take days."""
    name = spec.dataset["name"]
    dataset = campaign.datasets().get(name)
    if cluster.simulates or is_command_spec(spec) or (dataset and is_made_here(dataset)):
        return None
    if dataset is None:
        return f"{campaign.path} no longer has the dataset {name}"
    folder = Path(cluster.data_folder(dataset))
    try:
        content_of_prepared(folder)
    except InputError:
        return (
            f"its dataset {name} is not prepared here, in {folder}; allowed: another folder in data_roots "
            f"of the cluster file, or snakemake --profile PROFILE prepare_{dataset['format']} -R dataset"
        )
    return None
