"""The command `scalewatt`: thin, every step's code is imported when it is asked for."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt.cli import reproducing_handlers as cli_reproducing
from scalewatt.cli.parser import command_line
from scalewatt.common.errors import InputError

if TYPE_CHECKING:
    from scalewatt.run_files.attempt_log import AttemptNote


def main(argv: list[str] | None = None) -> int:
    """Run one command; an input error is one line and exit code 1."""
    arguments = command_line().parse_args(argv)
    try:
        return COMMANDS[arguments.command](arguments)
    except InputError as error:
        print(f"scalewatt: error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130


def _campaign(arguments: argparse.Namespace) -> int:
    from scalewatt.campaign.cluster import load_cluster
    from scalewatt.campaign.external_command import check_commands, told_secrets
    from scalewatt.campaign.load import check_devices, load_campaign
    from scalewatt.cli.campaign_listing import campaign_table, runs_json

    cluster = load_cluster(arguments.cluster) if arguments.cluster else None
    campaigns = [load_campaign(path, cluster) for path in arguments.files]
    if cluster:
        for campaign in campaigns:
            check_devices(campaign, cluster)
    for campaign in campaigns:
        check_commands(campaign)
        for where in told_secrets(campaign):
            print(
                f"scalewatt: {where}: may hold a secret, which spec.json would keep; better in a "
                "variable of the environment",
                file=sys.stderr,
            )
    if arguments.json:
        runs = [run for campaign in campaigns for run in runs_json(campaign)]
        print(json.dumps({"runs": runs}, indent=1))
    else:
        print("\n\n".join(campaign_table(campaign) for campaign in campaigns))
    return 0


def _prepare(arguments: argparse.Namespace) -> int:
    from scalewatt.campaign.cluster import read_source
    from scalewatt.common.files import write_json
    from scalewatt.datasets.prepare import prepare_dataset, prepare_dataset_year
    from scalewatt.datasets.prepared_check import definition_of_prepared

    definition = arguments.definition or definition_of_prepared(arguments.folder)
    if arguments.pack and definition["format"] != "imagenet":
        raise InputError(
            f"--pack: is for images, dataset {definition['name']} is of format "
            f"{definition['format']}; expected format imagenet"
        )
    source = read_source(arguments.source) if arguments.source else None
    given = (definition, arguments.folder, source)
    year = arguments.year
    marker = prepare_dataset(*given) if year is None else prepare_dataset_year(*given, year)
    if arguments.pack:
        from scalewatt.datasets.packed_tar import pack

        pack(arguments.folder)
    if arguments.out is not None:
        write_json(arguments.out, marker)
    return 0


def _train(arguments: argparse.Namespace) -> int:
    from scalewatt.campaign.cluster import cluster_of_run
    from scalewatt.campaign.run_spec import read_spec
    from scalewatt.run_files.attempt_log import noted_attempt

    spec = read_spec(arguments.spec)
    if arguments.work is None:
        arguments.work = Path(cluster_of_run(arguments.cluster, spec)[0].work_root)
    with noted_attempt(arguments.work, spec) as note:
        note.code = _train_noted(arguments, spec, note)
        return note.code


def _train_noted(arguments: argparse.Namespace, spec: dict[str, Any], note: AttemptNote) -> int:
    from scalewatt.campaign.cluster import cluster_of_run
    from scalewatt.campaign.external_command import is_command_spec
    from scalewatt.execution.launch import Place, run_training

    cluster, device = cluster_of_run(arguments.cluster, spec)
    if arguments.budget_of is not None:
        from scalewatt.campaign.load import load_campaign
        from scalewatt.scaling.planning.forecast import energy_by
        from scalewatt.tracking.budget import check_budget

        campaign = load_campaign(arguments.budget_of, cluster)
        results = arguments.out.absolute().parents[2]  # runs/<configuration>/<repeat>
        predicted = energy_by(cluster.scaling_model)
        check_budget(campaign, cluster.devices, results, arguments.work, spec, predicted)
    place = Place(
        None if is_command_spec(spec) else Path(cluster.data_folder(spec["dataset"])),
        arguments.work,
        cluster.launcher,
        device.torch_device,
        device.cpus_per_rank,
        scratch=cluster.scratch,
    )
    return run_training(
        arguments.spec,
        arguments.out,
        place,
        arguments.initial_weights,
        arguments.max_updates,
        note,
    )


def _simulate(arguments: argparse.Namespace) -> int:
    from scalewatt.campaign.cluster import cluster_of_run
    from scalewatt.campaign.run_spec import read_spec
    from scalewatt.scaling.simulation.simulate_run import simulate_run

    if arguments.out is not None and len(arguments.specs) > 1:
        raise InputError(
            f"--out: is one folder, for {len(arguments.specs)} runs; allowed: without, then each "
            "run's files go beside its spec"
        )
    for spec in arguments.specs:
        cluster, _ = cluster_of_run(arguments.cluster, read_spec(spec))
        if arguments.out is None and not cluster.simulates:
            raise InputError(
                f"{spec}: the cluster '{cluster.name}' trains (mode), so this may be the folder of a "
                "measured run; allowed: --out FOLDER, or a cluster file with `mode: simulate`"
            )
        simulate_run(spec, arguments.out or spec.parent, cluster, arguments.model)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from scalewatt.tracking.watch import show_status

    if arguments.watch is not None and not 1 <= arguments.watch <= 86_400:
        raise InputError(f"--watch: {arguments.watch:g}; allowed: 1 to 86400 seconds")
    folders = arguments.campaign, arguments.results, arguments.work
    return show_status(arguments.profile, *folders, arguments.all, arguments.json, arguments.watch)


def _run_command(arguments: argparse.Namespace) -> int:
    from scalewatt.tracking.exclude import find_place, run_command

    folders = arguments.campaign, arguments.results, arguments.work
    place = find_place(arguments.profile, *folders)
    run = arguments.configuration, arguments.repeat
    lines = run_command(arguments.command, place, *run, arguments.reason, arguments.undo)
    print("\n".join(lines))
    return 0


def _probe(arguments: argparse.Namespace) -> int:
    from scalewatt.campaign.cluster import cluster_of_run
    from scalewatt.execution.idle_probe import Probe, run_probe

    probe = Probe(arguments.device, arguments.repeat, arguments.seconds, arguments.sampling_period)
    wanted = {"configuration": probe.name, "device": probe.device}
    cluster, device = cluster_of_run(arguments.cluster, wanted)
    return run_probe(probe, cluster.launcher, device, arguments.out)


def _idle(arguments: argparse.Namespace) -> int:
    from scalewatt.results.tables.idle import write_idle

    write_idle(arguments.definition, arguments.results, arguments.out)
    return 0


def _energy(arguments: argparse.Namespace) -> int:
    from scalewatt.campaign.cluster import cluster_of_run
    from scalewatt.campaign.cluster import powers as rated_powers
    from scalewatt.energy.views.describe import describe
    from scalewatt.energy.views.describe_text import energy_text

    def powers(spec: dict[str, Any]) -> dict[str, Any]:
        return rated_powers(cluster_of_run(str(arguments.cluster), spec)[1])

    failed = 0
    for number, path in enumerate(arguments.paths):
        try:
            said = describe(
                path,
                arguments.run_id,
                arguments.round_id,
                arguments.stages,
                arguments.gpus_per_node,
                powers if arguments.cluster else None,
            )
        except InputError as error:
            print(f"scalewatt: error: {error}", file=sys.stderr)
            failed += 1
            continue
        if arguments.json:
            print(json.dumps(said, allow_nan=False))
        else:
            print(("\n" if number > failed else "") + energy_text(said))
    return 1 if failed else 0


def _account(arguments: argparse.Namespace) -> int:
    from scalewatt.energy.accounting.account import write_energy

    counts = {name: len(getattr(arguments, name)) for name in ("folders", "traces", "energy")}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise InputError(f"account: {said}; expected as many of each, in the same order")
    for folder, traces, energy in zip(
        arguments.folders, arguments.traces, arguments.energy, strict=True
    ):
        write_energy(folder, folder / "spec.json", arguments.powers, traces, energy)
    return 0


def _table(arguments: argparse.Namespace) -> int:
    from scalewatt.results.build import write_tables

    write_tables(arguments.definition, arguments.results, arguments.out)
    return 0


def _figure(arguments: argparse.Namespace) -> int:
    from scalewatt.figures.draw_figure import draw_figure

    figure = int(arguments.figure) if arguments.figure.isdigit() else arguments.figure
    draw_figure(figure, arguments.table, arguments.out)
    return 0


def _run_pages(arguments: argparse.Namespace) -> int:
    from scalewatt.figures.run_page import save_pages
    from scalewatt.results.figures.run_page_table import read_pages

    given = arguments.results, arguments.configuration, arguments.repeats
    save_pages(read_pages(*given, arguments.excluded), arguments.results)
    return 0


def _register(arguments: argparse.Namespace) -> int:
    from scalewatt.registration.register import register

    given = arguments.name, arguments.paths, arguments.table
    print("\n".join(register(*given, arguments.results, arguments.campaigns)))
    return 0


def _claims(arguments: argparse.Namespace) -> int:
    from scalewatt.claims.check_claims import check_claims

    given = arguments.results, arguments.campaign, arguments.cluster, arguments.out
    text, as_json = check_claims(*given)
    print(as_json if arguments.json else text)
    return 0


def _calibrate(arguments: argparse.Namespace) -> int:
    from scalewatt.scaling.commands import calibrate_sources

    print(calibrate_sources(arguments.sources, arguments.out))
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    from scalewatt.scaling.commands import plan_campaign, write_plan
    from scalewatt.scaling.planning.plan_text import plan_text

    cluster = arguments.cluster or str(arguments.profile / "cluster.yaml")
    files = cluster, arguments.campaign, arguments.model, arguments.results
    step = arguments.smaller, arguments.larger
    plan = plan_campaign(*files, arguments.deadline_h, arguments.energy_kwh, step)
    if arguments.out is not None:
        write_plan(plan, arguments.out)
    print(
        json.dumps(plan.as_json(), indent=1, allow_nan=False) if arguments.json else plan_text(plan)
    )
    return 0


def _pilot(arguments: argparse.Namespace) -> int:
    from scalewatt.scaling.planning.pilot import write_pilot

    print(write_pilot(arguments.campaign, arguments.out))
    return 0


def _prediction(arguments: argparse.Namespace) -> int:
    from scalewatt.scaling.commands import write_prediction

    write_prediction(arguments.results, arguments.campaign, arguments.cluster, arguments.out)
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from scalewatt.report.build_report import write_report
    from scalewatt.report.report_request import parse_definition

    write_report(arguments.results, arguments.out, parse_definition(arguments.definition))
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "campaign": _campaign,
    "keys": cli_reproducing.keys,
    "prepare": _prepare,
    "train": _train,
    "simulate": _simulate,
    "status": _status,
    "exclude": _run_command,
    "remeasure": _run_command,
    "probe": _probe,
    "idle": _idle,
    "energy": _energy,
    "account": _account,
    "table": _table,
    "figure": _figure,
    "run-pages": _run_pages,
    "register": _register,
    "claims": _claims,
    "calibrate": _calibrate,
    "plan": _plan,
    "pilot": _pilot,
    "prediction": _prediction,
    "report": _report,
    "doctor": cli_reproducing.doctor,
    "completion": cli_reproducing.completion,
    "export": cli_reproducing.export,
    "import": cli_reproducing.import_,
    "manifest": cli_reproducing.manifest,
    "reproduce": cli_reproducing.reproduce,
}


if __name__ == "__main__":
    sys.exit(main())
