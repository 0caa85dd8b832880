"""Steps that the workflow's rules call: a dataset, a training, a simulation, a probe."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from scalewatt.cli.command import command, flag, option, site
from scalewatt.common.errors import InputError


@command(
    option(
        "--definition",
        "JSON",
        "what it is, as a campaign has it, with its name; default: what the folder was prepared for",
        json.loads,
    ),
    option("--folder", "FOLDER", "where the dataset lies or goes", required=True),
    option("--source", "SOURCE", "what of: a path, a URL, or patterns of files", str),
    option("--year", "YEAR", "only this year of ERA5", int),
    option("--out", "FILE", "JSON file that describes it"),
    flag("--pack", "also put the images of each split into one file, for staging"),
)
def prepare(args: argparse.Namespace) -> None:
    """Prepare a dataset and describe it."""
    from scalewatt.common.files import write_json
    from scalewatt.data.prepared import prepare_dataset, prepare_dataset_year, read_manifest

    definition = args.definition or read_manifest(args.folder)["definition"]
    if args.pack and definition["format"] != "imagenet":
        raise InputError(
            f"--pack: is for images, dataset {definition['name']} is of format "
            f"{definition['format']}; expected format imagenet"
        )
    given = definition, args.folder, args.source or None
    try:
        described = (
            prepare_dataset(*given)
            if args.year is None
            else prepare_dataset_year(*given, args.year)
        )
    except OSError as error:
        error.filename = error.filename or str(args.folder)  # HDF5 and Zarr name no file
        raise
    if args.pack:
        from scalewatt.data.node_copy import pack

        pack(args.folder)
    if args.out is not None:
        write_json(args.out, described)


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
def train(args: argparse.Namespace) -> int:
    """Train (the next segment of) a run under perun."""
    from scalewatt.campaign.cluster import device_of_run, load_site
    from scalewatt.campaign.external_command import is_command_spec
    from scalewatt.campaign.run_spec import read_spec
    from scalewatt.execution.launch import LaunchOptions, run_training

    spec, cluster = read_spec(args.spec), load_site(args.site)
    device = device_of_run(cluster, spec.device, spec.configuration)
    work = args.work or Path(cluster.work_root)

    def check() -> None:
        if args.budget_of is not None:
            from scalewatt.campaign.load import load_campaign
            from scalewatt.tracking.energy_used import check_budget

            campaign = load_campaign(args.budget_of, cluster, to_run=False).whole
            results = args.out.absolute().parents[2]  # runs/<configuration>/<repeat>
            check_budget(campaign, cluster.devices, results, work, spec)

    data = None if is_command_spec(spec) else Path(cluster.data_folder(spec.dataset))
    given = cluster, device, work, data, args.initial_weights, args.max_updates, check
    return run_training(args.spec, args.out, LaunchOptions(*given))


@command(
    option("spec", "SPEC", "spec.json of the run, beside which its files go"),
    site(default="simulate"),
    option("--model", "FILE", "the scaling model", required=True),
)
def simulate(args: argparse.Namespace) -> None:
    """Write a run's files from the scaling model, without training."""
    from scalewatt.campaign.cluster import device_of_run, load_site
    from scalewatt.campaign.run_spec import read_spec
    from scalewatt.scaling.simulation.simulate import simulate_run

    cluster, spec = load_site(args.site), read_spec(args.spec)
    device_of_run(cluster, spec.device, spec.configuration)
    if not cluster.simulates:
        raise InputError(
            f"{args.spec}: the cluster '{cluster.name}' trains, so this may be the folder of a measured "
            "run; allowed: a cluster file with `mode: simulate`"
        )
    simulate_run(args.spec, args.spec.parent, cluster, args.model)


@command(
    option("device", "DEVICE", "a device of the cluster", str),
    site(),
    option("--seconds", "S", "how long to measure", float, default=300.0),
    option("--sampling-period", "S", "in seconds", float, default=1.0),
    option("--repeat", "N", "which of several probes this is", int, default=1),
    option("--out", "FOLDER", "folder for the recording", required=True),
)
def probe(args: argparse.Namespace) -> int:
    """Measure a device's idle power on one node."""
    from scalewatt.campaign.cluster import device_of_run, load_site
    from scalewatt.execution.idle_probe import run_probe

    cluster = load_site(args.site)
    name = f"idle probe of {args.device} repeat {args.repeat}"
    device = device_of_run(cluster, args.device, name)
    return run_probe(device, cluster, args.seconds, args.sampling_period, args.repeat, args.out)
