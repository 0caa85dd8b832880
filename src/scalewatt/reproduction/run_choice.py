"""Choose the run to repeat: the cheapest that this machine can run, or the one that was asked for."""

from __future__ import annotations

import math
import os
from pathlib import Path

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, is_made_here
from scalewatt.campaign.external_command import is_command_spec
from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.common.errors import InputError
from scalewatt.data.prepared import content_of_prepared
from scalewatt.results.text.number_format import listed
from scalewatt.run_files.inventory import RunName, json_object, published_runs, run_folder

KEY = "reproduce_run"
FOLDER = "reproduction"
"""Below the campaign's results: the findings, and the re-run, laid out as the results are."""
_MOST_NAMED = 3


def choose_run(campaign: Campaign, cluster: Cluster, results: Path) -> tuple[RunName | None, str]:
    """Choose among a campaign's finished runs; return the run, None if none can be repeated, and why.

    InputError if `reproduce_run` is not a finished run, or cannot be run here.
    """
    asked = cluster.reproduce_run
    if cluster.results_only or campaign.registered:
        return None, "nothing is trained here (results_only, or runs from elsewhere)"
    runs = {f"{run[0]}/{run[1]}": run for run in sorted(published_runs(results))}
    if asked is not None and asked not in runs:
        raise InputError(
            f"{KEY}: {asked}: is not a finished run (CONFIGURATION/REPEAT) of {results}; allowed: "
            f"{listed(runs, _MOST_NAMED) or 'none'}"
        )
    obstacles = {name: _obstacle(campaign, cluster, results, run) for name, run in runs.items()}
    if asked is not None:
        if obstacles[asked]:
            raise InputError(f"{KEY}: {asked}: {obstacles[asked]}")
        return runs[asked], "asked for"
    costs = {n: gpu_hours(results, run) for n, run in runs.items() if obstacles[n] is None}
    if not costs:
        reasons = listed(dict.fromkeys(filter(None, obstacles.values())), _MOST_NAMED)
        return None, reasons or f"{results} has no finished run"
    name = min(costs, key=lambda name: (costs[name], runs[name]))
    return runs[name], f"the fewest GPU hours ({costs[name]:.3g}) of {len(costs)} possible runs"


def gpu_hours(results: Path, run: RunName) -> float:
    """GPU hours of a finished run's segments; infinite if unknown."""
    folder = run_folder(results, run)
    segments = json_object(folder / "provenance.json").get("segments") or []
    times = [(segment.get("started_s"), segment.get("ended_s")) for segment in segments]
    if not times or any(None in pair for pair in times):
        return math.inf
    return read_spec(folder / "spec.json").gpus * sum(end - start for start, end in times) / 3600


def initial_weights_path(results: Path, spec: RunSpec) -> Path | None:
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


def _obstacle(campaign: Campaign, cluster: Cluster, results: Path, run: RunName) -> str | None:
    """Why a finished run cannot be repeated here; None if it can."""
    folder = run_folder(results, run)
    simulated = "simulated" in json_object(folder / "provenance.json")
    if not (folder / "history.parquet").exists():
        return f"{run[0]}/{run[1]} has no history.parquet to compare with"
    if run[0] not in campaign.configurations:
        return f"{campaign.path} no longer has the configuration {run[0]}"
    if simulated != cluster.simulates:
        first, now = ("simulated", "trains") if simulated else ("trained", "simulates")
        return f"the run was {first}, and the cluster '{cluster.name}' {now}"
    try:
        spec = read_spec(folder / "spec.json")
        weights = initial_weights_path(results, spec)
    except InputError as error:
        return str(error)
    if weights is not None and not weights.exists():  # making them is another training
        return f"its initial weights {weights.relative_to(results)} are missing"
    device = cluster.devices.get(spec.device)
    if device is None or spec.gpus > (device.max_gpus or spec.gpus):
        return f"the cluster '{cluster.name}' has fewer than {spec.gpus} of device '{spec.device}'"
    if spec.ranks_per_node != min(spec.gpus, device.gpus_per_node):
        return f"nodes of {device.name} have {device.gpus_per_node} GPUs on '{cluster.name}'"

    # Downloading or converting data may take days.
    dataset = campaign.datasets().get(spec.dataset["name"])
    if cluster.simulates or is_command_spec(spec) or (dataset and is_made_here(dataset)):
        return None
    if dataset is None:
        return f"{campaign.path} no longer has the dataset {spec.dataset['name']}"
    data = Path(cluster.data_folder(dataset))
    try:
        content_of_prepared(data)
    except InputError:
        return (
            f"its dataset {dataset['name']} is not prepared here, in {data}; allowed: another folder in "
            "data_roots of the cluster file, or snakemake --profile PROFILE "
            f"prepare_{dataset['format']} -R dataset"
        )
    return None
