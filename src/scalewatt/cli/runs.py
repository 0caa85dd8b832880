"""Commands that make data and runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from scalewatt.cli.command import CLUSTER, Amount, argument, command, count, folder, json_of, output
from scalewatt.common.errors import InputError

if TYPE_CHECKING:
    from scalewatt.campaign.run_spec import RunSpec
    from scalewatt.run_files.attempt_log import AttemptNote

_MANY, _FEW = 20, 5
"""Of more lines of one kind than the first, as many as the second are shown."""


@command(
    argument(
        "--definition",
        metavar="JSON",
        help="file with JSON, or the JSON itself; default: what the folder was prepared for",
    ),
    argument("--folder", type=Path, required=True, help="where the dataset lies or goes"),
    argument("--source", help="what it is prepared from: a path, a URL, or an object as JSON"),
    argument("--year", help="only this year of a dataset in ERA5's format, or years as 1979-1988"),
    argument("--processes", type=count, default=1, help="years prepared side by side"),
    argument("--out", type=Path, help="JSON file that describes it"),
    argument("--pack", action="store_true", help="also put all images into one file, for staging"),
    examples=(
        "scalewatt prepare --folder data/imagenet --source /data/imagenet-tars \\\n"
        '    --definition \'{"name": "imagenet", "format": "imagenet", "source": "data_root", \\\n'
        '    "train_samples": 1281167, "validation_samples": 50000, "classes": 1000}\'',
        "scalewatt prepare --folder data/imagenet --pack",
    ),
)
def prepare(arguments: argparse.Namespace) -> None:
    """Prepare a dataset and describe it."""
    from scalewatt.campaign.cluster import read_source
    from scalewatt.common.files import write_json
    from scalewatt.datasets.prepare import prepare_dataset, prepare_dataset_years
    from scalewatt.datasets.prepared_check import checked_definition, definition_of_prepared

    if arguments.definition is None:
        definition = definition_of_prepared(arguments.folder)
    else:
        definition = checked_definition(json_of("--definition", arguments.definition))
    if arguments.pack and definition["format"] != "imagenet":
        raise InputError(
            f"--pack: is for images, dataset {definition['name']} is of format "
            f"{definition['format']}; expected format imagenet"
        )
    source = read_source(arguments.source) if arguments.source else None
    given = (definition, arguments.folder, source)
    year = arguments.year
    if year is None:
        marker = prepare_dataset(*given)
    else:
        marker = prepare_dataset_years(*given, year, arguments.processes)
    if arguments.pack:
        from scalewatt.datasets.packed_tar import pack

        pack(arguments.folder)
    if arguments.out is not None:
        write_json(arguments.out, marker)


@command(
    argument("spec", type=Path, help="spec.json of the run"),
    output("run folder for the results"),
    CLUSTER,
    argument("--work", type=Path, help="root of working directories; default: the cluster's"),
    argument("--initial-weights", type=Path, help="weights that a fine-tuning starts from"),
    argument("--max-updates", type=int, help="stop at a checkpoint after so many updates"),
    argument(
        "--budget-of",
        type=Path,
        metavar="CAMPAIGN",
        help="refuse if its energy budget is used up; --out lies in its results",
    ),
    examples=(
        "scalewatt train results/demo/runs/resnet50-local-n002-lbs0032-full/1/spec.json \\\n"
        "    --cluster profiles/local/cluster.yaml --out again",
    ),
)
def train(arguments: argparse.Namespace) -> int:
    """Train (the next segment of) a run under perun."""
    from scalewatt.campaign.cluster import cluster_of_run
    from scalewatt.campaign.run_spec import read_spec
    from scalewatt.run_files.attempt_log import noted_attempt

    spec = read_spec(arguments.spec)
    if arguments.work is None:
        arguments.work = Path(
            cluster_of_run(arguments.cluster, spec.device, spec.configuration)[0].work_root
        )
    with noted_attempt(arguments.work, spec) as note:
        note.code = _train_noted(arguments, spec, note)
        return note.code


def _train_noted(arguments: argparse.Namespace, spec: RunSpec, note: AttemptNote) -> int:
    from scalewatt.campaign.cluster import cluster_of_run, powers
    from scalewatt.campaign.external_command import is_command_spec
    from scalewatt.execution.launch import LaunchOptions, run_training
    from scalewatt.execution.watchdog import Limits

    cluster, device = cluster_of_run(arguments.cluster, spec.device, spec.configuration)
    if arguments.budget_of is not None:
        from scalewatt.campaign.load import load_campaign
        from scalewatt.scaling.planning.forecast import energy_by
        from scalewatt.tracking.budget import check_budget

        campaign = load_campaign(arguments.budget_of, cluster, to_run=False).whole
        results = arguments.out.absolute().parents[2]  # runs/<configuration>/<repeat>
        predicted = energy_by(cluster.scaling_model)
        check_budget(campaign, cluster.devices, results, arguments.work, spec, predicted)
    options = LaunchOptions(
        None if is_command_spec(spec) else Path(cluster.data_folder(spec.dataset)),
        arguments.work,
        cluster.launcher,
        device.torch_device,
        device.cpus_per_rank,
        Limits(closing_s=cluster.closing_s),
        scratch=cluster.scratch,
        initial_weights=arguments.initial_weights,
        max_updates=arguments.max_updates,
        levers=cluster.levers,
        rated_powers=powers(device),
    )
    return run_training(arguments.spec, arguments.out, options, note)


@command(
    argument("specs", type=Path, nargs="+", metavar="SPEC", help="spec.json of a run"),
    argument("--out", type=Path, help="run folder for the results; default: the one of SPEC"),
    CLUSTER,
    argument("--model", type=Path, required=True, help="file of the scaling model"),
    examples=(
        "scalewatt simulate results/paper-simulated/runs/resnet50-a100-n004-lbs0256-full/1/spec.json \\\n"
        "    --cluster profiles/simulate/cluster.yaml --model reference/scaling_model.json",
    ),
)
def simulate(arguments: argparse.Namespace) -> None:
    """Write a run's folder from the scaling model, without training."""
    from scalewatt.campaign.cluster import cluster_of_run
    from scalewatt.campaign.run_spec import read_spec
    from scalewatt.scaling.simulation.simulate_run import simulate_run

    if arguments.out is not None and len(arguments.specs) > 1:
        raise InputError(
            f"--out: is one folder, for {len(arguments.specs)} runs; allowed: without, then each "
            "run's files go beside its spec"
        )
    for spec in arguments.specs:
        planned = read_spec(spec)
        cluster, _ = cluster_of_run(arguments.cluster, planned.device, planned.configuration)
        if arguments.out is None and not cluster.simulates:
            raise InputError(
                f"{spec}: the cluster '{cluster.name}' trains (mode), so this may be the folder of a "
                "measured run; allowed: --out FOLDER, or a cluster file with `mode: simulate`"
            )
        simulate_run(spec, arguments.out or spec.parent, cluster, arguments.model)


@command(
    argument("device", help="a device of the cluster"),
    argument("--cluster", required=True, help="cluster file, or its content as JSON"),
    argument("--seconds", type=Amount("seconds", "300"), default=300.0, help="how long to measure"),
    argument("--sampling-period", type=Amount("seconds", "0.5"), default=1.0, help="in seconds"),
    argument("--repeat", type=int, default=1, help="which of several probes this is"),
    argument("--out", type=Path, required=True, help="folder for the recording"),
    examples=(
        "scalewatt probe local --cluster profiles/local/cluster.yaml --seconds 60 --out idle-probe",
    ),
)
def probe(arguments: argparse.Namespace) -> int:
    """Measure a device's idle power on one node."""
    from scalewatt.campaign.cluster import cluster_of_run
    from scalewatt.execution.idle_probe import Probe, run_probe

    probe = Probe(arguments.device, arguments.repeat, arguments.seconds, arguments.sampling_period)
    cluster, device = cluster_of_run(arguments.cluster, probe.device, probe.name)
    return run_probe(probe, cluster.launcher, device, arguments.out)


@command(
    argument("name", help="the campaign's name"),
    argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="recordings, each with a YAML file that describes it (docs/register.md); with --table: "
        "only their rows",
    ),
    argument(
        "--table",
        type=Path,
        metavar="FILE",
        help="what describes the runs: CSV or YAML, one row per run; default: files beside PATH",
    ),
    folder("results"),
    folder("campaigns"),
    examples=(
        "scalewatt register elsewhere recordings/*.hdf5",
        "scalewatt register elsewhere --table runs.csv",
    ),
)
def register(arguments: argparse.Namespace) -> None:
    """Make runs of recordings from elsewhere."""
    from scalewatt.registration.register import register

    given = arguments.name, arguments.paths, arguments.table
    print("\n".join(_shortened(register(*given, arguments.results, arguments.campaigns))))


def _shortened(lines: list[str]) -> list[str]:
    """Return lines of which those of one kind, where they are many, are the first few and a count."""
    for kind in ("registered: ", "already there: "):
        those = [number for number, line in enumerate(lines) if line.startswith(kind)]
        if len(those) > _MANY:
            rest = f"{kind}… and {len(those) - _FEW} more, {len(those)} in all"
            left_out = set(those[_FEW + 1 :])
            lines = [
                rest if number == those[_FEW] else line
                for number, line in enumerate(lines)
                if number not in left_out
            ]
    return lines
