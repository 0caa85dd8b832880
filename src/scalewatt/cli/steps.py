"""Steps that the workflow's rules call: a dataset, a training, a simulation, a probe."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from scalewatt.cli.command import command, flag, option, site
from scalewatt.common.errors import InputError
from scalewatt.common.files import parse_json


@command(
    option(
        "--definition",
        "JSON",
        "what it is; default: what the folder was prepared for",
        str,
    ),
    option("--folder", "FOLDER", "where the dataset lies or goes", required=True),
    option("--source", "SOURCE", "what of: a path, a URL, or patterns of files", str),
    option("--year", "YEAR", "only this year of ERA5", int),
    option("--out", "FILE", "JSON file that describes it"),
    flag("--pack", "also put the images of each split into one file, for staging"),
)
def prepare(arguments: argparse.Namespace) -> None:
    """Prepare a dataset and describe it."""
    from scalewatt.common.files import write_json
    from scalewatt.data.prepared import (
        definition_of_prepared,
        prepare_dataset,
        prepare_dataset_year,
    )

    if arguments.definition is None:
        definition = definition_of_prepared(arguments.folder)
    else:
        definition = _definition(arguments.definition)
    if arguments.pack and definition["format"] != "imagenet":
        raise InputError(
            f"--pack: is for images, dataset {definition['name']} is of format "
            f"{definition['format']}; expected format imagenet"
        )
    given = definition, arguments.folder, arguments.source or None
    try:
        if arguments.year is None:
            described = prepare_dataset(*given)
        else:
            described = prepare_dataset_year(*given, arguments.year)
    except OSError as error:
        error.filename = error.filename or str(arguments.folder)  # HDF5 and Zarr name no file
        raise
    if arguments.pack:
        from scalewatt.data.node_copy import pack

        pack(arguments.folder)
    if arguments.out is not None:
        write_json(arguments.out, described)


def _definition(text: str) -> dict[str, Any]:
    """Definition of a dataset, a campaign's with its `name`; InputError if it is wrong."""
    from scalewatt.campaign.campaign_file import Dataset
    from scalewatt.common.settings import validated

    try:
        definition = parse_json(text)
    except ValueError as error:
        raise InputError(f"--definition: {text[:100]!r} is not JSON ({error})") from error
    if not isinstance(definition, dict) or not isinstance(definition.get("name"), str):
        raise InputError("--definition: expected an object with name and format")
    settings = {key: value for key, value in definition.items() if key != "name"}
    validated(Dataset, settings, "--definition")
    return definition


@command(
    option("spec", "SPEC", "spec.json of the run"),
    option("--out", "FOLDER", "run folder for the results", required=True),
    site(),
    option("--work", "FOLDER", "root of working directories; default: the cluster's"),
    option("--initial-weights", "FILE", "weights that a fine-tuning starts from"),
    option("--max-updates", "N", "stop at a checkpoint after so many updates", int),
    option(
        "--budget-of",
        "CAMPAIGN",
        "refuse if its energy budget is used up; --out lies in its results",
    ),
)
def train(arguments: argparse.Namespace) -> int:
    """Train (the next segment of) a run under perun."""
    from scalewatt.campaign.cluster import device_of_run, load_site
    from scalewatt.campaign.external_command import is_command_spec
    from scalewatt.campaign.run_spec import read_spec
    from scalewatt.execution.launch import LaunchOptions, run_training

    spec, cluster = read_spec(arguments.spec), load_site(arguments.site)
    device = device_of_run(cluster, spec.device, spec.configuration)
    work = arguments.work or Path(cluster.work_root)

    def check() -> None:
        if arguments.budget_of is not None:
            from scalewatt.campaign.load import load_campaign
            from scalewatt.tracking.energy_used import check_budget

            campaign = load_campaign(arguments.budget_of, cluster, to_run=False).whole
            results = arguments.out.absolute().parents[2]  # runs/<configuration>/<repeat>
            check_budget(campaign, cluster.devices, results, work, spec)

    data = None if is_command_spec(spec) else Path(cluster.data_folder(spec.dataset))
    options = LaunchOptions(
        *(cluster, device, work, data),
        *(arguments.initial_weights, arguments.max_updates, check),
    )
    return run_training(arguments.spec, arguments.out, options)


@command(
    option("spec", "SPEC", "spec.json of the run, beside which its files go"),
    site(default="simulate"),
    option("--model", "FILE", "the scaling model", required=True),
)
def simulate(arguments: argparse.Namespace) -> None:
    """Write a run's files from the scaling model, without training."""
    from scalewatt.campaign.cluster import device_of_run, load_site
    from scalewatt.campaign.run_spec import read_spec
    from scalewatt.scaling.simulation.simulate import simulate_run

    cluster, spec = load_site(arguments.site), read_spec(arguments.spec)
    device_of_run(cluster, spec.device, spec.configuration)
    if not cluster.simulates:
        raise InputError(
            f"{arguments.spec}: the cluster '{cluster.name}' trains, so this may be the folder of a "
            "measured run; allowed: a cluster file with `mode: simulate`"
        )
    simulate_run(arguments.spec, arguments.spec.parent, cluster, arguments.model)


@command(
    option("device", "DEVICE", "a device of the cluster", str),
    site(),
    option("--seconds", "S", "how long to measure", float, default=300.0),
    option("--sampling-period", "S", "in seconds", float, default=1.0),
    option("--repeat", "N", "which of several probes this is", int, default=1),
    option("--out", "FOLDER", "folder for the recording", required=True),
)
def probe(arguments: argparse.Namespace) -> int:
    """Measure a device's idle power on one node."""
    from scalewatt.campaign.cluster import device_of_run, load_site
    from scalewatt.execution.idle_probe import run_probe

    cluster = load_site(arguments.site)
    name = f"idle probe of {arguments.device} repeat {arguments.repeat}"
    device = device_of_run(cluster, arguments.device, name)
    period_s = arguments.sampling_period
    return run_probe(device, cluster, arguments.seconds, period_s, arguments.repeat, arguments.out)
