"""The command `scalewatt`: thin, every step's code is imported when it is asked for."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt import __version__
from scalewatt.errors import InputError

if TYPE_CHECKING:
    from scalewatt.jobs.attempts import AttemptNote


def main(argv: list[str] | None = None) -> int:
    """Run one command; an input error is one line and exit code 1."""
    arguments = _parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except InputError as error:
        print(f"scalewatt: error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scalewatt",
        description="What data-parallel training of neural networks costs in energy.",
    )
    parser.add_argument("--version", action="version", version=f"scalewatt {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    campaign = commands.add_parser("campaign", help="check a campaign and print it as a table")
    campaign.add_argument(
        "files", nargs="*", type=Path, default=[Path("config.yaml")], metavar="FILE"
    )
    campaign.add_argument(
        "--cluster", type=Path, help="cluster file; default: all profiles' devices"
    )
    campaign.add_argument("--json", action="store_true", help="one object per run")
    campaign.set_defaults(run=_campaign)

    prepare = commands.add_parser("prepare", help="prepare a dataset and describe it")
    prepare.add_argument(
        "--definition", type=json.loads, help="JSON; default: what the folder was prepared for"
    )
    prepare.add_argument(
        "--folder", type=Path, required=True, help="where the dataset lies or goes"
    )
    prepare.add_argument(
        "--source", help="what it is prepared from: a path, a URL, or an object as JSON"
    )
    prepare.add_argument("--year", type=int, help="only this year, of a dataset in ERA5's format")
    prepare.add_argument("--out", type=Path, help="JSON file that describes it")
    prepare.add_argument(
        "--pack", action="store_true", help="also put all images into one file, for staging"
    )
    prepare.set_defaults(run=_prepare)

    train = commands.add_parser("train", help="train (the next segment of) a run under perun")
    train.add_argument("spec", type=Path)
    train.add_argument("--out", type=Path, required=True, help="run folder for the results")
    train.add_argument("--cluster", required=True, help="cluster file, or its content as JSON")
    train.add_argument(
        "--work", type=Path, help="root of working directories; default: the cluster's"
    )
    train.add_argument("--initial-weights", type=Path)
    train.add_argument("--max-updates", type=int, help="stop at a checkpoint after so many updates")
    train.add_argument(
        "--budget-of",
        type=Path,
        metavar="CAMPAIGN",
        help="refuse if its energy budget is spent; --out lies in its results",
    )
    train.set_defaults(run=_train)

    status = commands.add_parser("status", help="show a campaign at a glance, while it runs or not")
    _add_place(status)
    status.add_argument("--all", action="store_true", help="one line for each run")
    status.add_argument("--json", action="store_true", help="one JSON object, with all runs")
    status.add_argument(
        "--watch", type=float, metavar="SECONDS", help="show it again so often, until Ctrl-C"
    )
    status.set_defaults(run=_status)

    for name, does in (
        ("exclude", "leave a finished run out of tables and figures; name all that is left out"),
        ("remeasure", "set a finished run's measurement aside, so that it is measured again"),
    ):
        _add_run_command(commands.add_parser(name, help=does), name)

    probe = commands.add_parser("probe", help="measure a device's idle power on one node")
    probe.add_argument("device", help="a device of the cluster")
    probe.add_argument("--cluster", required=True, help="cluster file, or its content as JSON")
    probe.add_argument("--seconds", type=float, default=300.0, help="how long to measure")
    probe.add_argument("--sampling-period", type=float, default=1.0, help="in seconds")
    probe.add_argument("--repeat", type=int, default=1, help="which of several probes this is")
    probe.add_argument("--out", type=Path, required=True, help="folder for the recording")
    probe.set_defaults(run=_probe)

    idle = commands.add_parser("idle", help="build the table of idle powers from finished probes")
    idle.add_argument("--definition", type=json.loads, required=True, help="JSON")
    idle.add_argument("--results", type=Path, required=True)
    idle.add_argument("--out", type=Path, required=True, help="the table")
    idle.set_defaults(run=_idle)

    energy = commands.add_parser(
        "energy", help="print the energy of any perun file, journal or run folder"
    )
    energy.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    energy.add_argument("--json", action="store_true", help="one JSON object a line for each path")
    energy.add_argument(
        "--stages", type=Path, metavar="EVENTS", help="stage events (Parquet, CSV, JSON lines)"
    )
    energy.add_argument(
        "--gpus-per-node", type=int, metavar="N", help="how many GPUs each node must have recorded"
    )
    energy.add_argument(
        "--run", dest="run_id", metavar="RUN", help="which run of a file; default: the last"
    )
    energy.add_argument(
        "--round", dest="round_id", metavar="ROUND", help="which round of a run; default: the last"
    )
    energy.add_argument(
        "--cluster", type=Path, help="cluster file with rated powers, to estimate of run folders"
    )
    energy.set_defaults(run=_energy)

    account = commands.add_parser("account", help="a run's recordings to traces and energy tables")
    account.add_argument("folder", type=Path, help="run folder")
    account.add_argument("--powers", type=json.loads, required=True, help="rated powers (JSON)")
    account.add_argument("--traces", type=Path, required=True)
    account.add_argument("--energy", type=Path, required=True)
    account.set_defaults(run=_account)

    table = commands.add_parser("table", help="build a figure's table, or all runs' tables")
    table.add_argument("--definition", type=json.loads, required=True, help="JSON")
    table.add_argument("--results", type=Path, required=True)
    table.add_argument(
        "--out", type=Path, required=True, help="a figure's table, or the folder of tables"
    )
    table.set_defaults(run=_table)

    figure = commands.add_parser("figure", help="draw a figure from its table")
    figure.add_argument(
        "figure", choices=(*map(str, range(1, 8)), "variants", "breakdown", "learning", "pareto")
    )
    figure.add_argument("--table", type=Path, required=True)
    figure.add_argument("--out", type=Path, required=True, help="path without suffix")
    figure.set_defaults(run=_figure)

    pages = commands.add_parser("run-pages", help="draw one page for each run of a configuration")
    pages.add_argument("configuration", help="the name of its folder")
    pages.add_argument("repeats", nargs="+", type=int, metavar="REPEAT")
    pages.add_argument("--results", type=Path, required=True, help="results of the campaign")
    pages.add_argument("--excluded", type=json.loads, default={}, help="JSON: repeat to reason")
    pages.set_defaults(run=_run_pages)

    register = commands.add_parser("register", help="make runs of recordings from elsewhere")
    register.add_argument("name", help="the campaign's name")
    register.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    register.add_argument("--table", type=Path, help="CSV, YAML or Parquet, one row per run")
    register.add_argument("--results", type=Path, default=Path("results"))
    register.add_argument("--campaigns", type=Path, default=Path("campaigns"))
    register.set_defaults(run=_register)

    claims = commands.add_parser("claims", help="check the paper's claims on results")
    claims.add_argument(
        "--results",
        type=Path,
        default=Path("reference"),
        metavar="FOLDER",
        help="results/<campaign>; default: reference, the paper's published numbers",
    )
    claims.add_argument(
        "--campaign",
        type=Path,
        metavar="FILE",
        help="default: config.yaml or the one in campaigns/ that has the folder's name",
    )
    claims.add_argument(
        "--cluster", help="cluster file, or its content as JSON; default: all profiles' devices"
    )
    claims.add_argument("--json", action="store_true", help="a list of verdicts")
    claims.add_argument(
        "--out", type=Path, metavar="STEM", help="also write .parquet, .csv, .md and .json"
    )
    claims.set_defaults(run=_claims)

    report = commands.add_parser("report", help="write report.html from tables and figures")
    report.add_argument("--definition", type=json.loads, required=True, help="JSON")
    report.add_argument("--results", type=Path, required=True, help="the campaign's folder")
    report.add_argument("--out", type=Path, required=True)
    report.set_defaults(run=_report)

    return parser


def _add_place(parser: argparse.ArgumentParser) -> None:
    """Where a command finds its campaign."""
    parser.add_argument(
        "--profile",
        type=Path,
        default=Path("profiles/local"),
        help="whose cluster file counts; default: profiles/local",
    )
    parser.add_argument(
        "--campaign", type=Path, metavar="FILE", help="default: what the cluster file names"
    )
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER")
    parser.add_argument(
        "--work", type=Path, metavar="FOLDER", help="default: the cluster's work_root"
    )


def _add_run_command(parser: argparse.ArgumentParser, name: str) -> None:
    """The arguments of the commands about one run; without a run they name what was said of all."""
    parser.add_argument("configuration", nargs="?", metavar="CONFIGURATION")
    parser.add_argument("repeat", nargs="?", type=int, metavar="REPEAT")
    parser.add_argument("--reason", metavar="TEXT", help="why, in one line")
    _add_place(parser)
    if name == "exclude":
        parser.add_argument("--undo", action="store_true", help="take it in again")
    parser.set_defaults(run=_run_command, command=name, undo=False)


def _campaign(arguments: argparse.Namespace) -> int:
    from scalewatt.campaign.cluster import load_cluster
    from scalewatt.campaign.command import check_commands
    from scalewatt.campaign.expand import check_devices, load_campaign
    from scalewatt.campaign.listing import campaign_table, runs_json

    cluster = load_cluster(arguments.cluster) if arguments.cluster else None
    campaigns = [load_campaign(path, cluster) for path in arguments.files]
    if cluster:
        for campaign in campaigns:
            check_devices(campaign, cluster)
    for campaign in campaigns:
        check_commands(campaign)
    if arguments.json:
        runs = [run for campaign in campaigns for run in runs_json(campaign)]
        print(json.dumps({"runs": runs}, indent=1))
    else:
        print("\n\n".join(campaign_table(campaign) for campaign in campaigns))
    return 0


def _prepare(arguments: argparse.Namespace) -> int:
    from scalewatt.campaign.cluster import read_source
    from scalewatt.datasets.prepare import prepare_dataset, prepare_dataset_year
    from scalewatt.datasets.prepared import definition_of_prepared
    from scalewatt.files import write_json

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
        from scalewatt.datasets.packed import pack

        pack(arguments.folder)
    if arguments.out is not None:
        write_json(arguments.out, marker)
    return 0


def _train(arguments: argparse.Namespace) -> int:
    from scalewatt.campaign.cluster import cluster_of_run
    from scalewatt.campaign.spec import read_spec
    from scalewatt.jobs.attempts import noted_attempt

    spec = read_spec(arguments.spec)
    if arguments.work is None:
        arguments.work = Path(cluster_of_run(arguments.cluster, spec)[0].work_root)
    with noted_attempt(arguments.work, spec) as note:
        note.code = _train_noted(arguments, spec, note)
        return note.code


def _train_noted(arguments: argparse.Namespace, spec: dict[str, Any], note: AttemptNote) -> int:
    from scalewatt.campaign.cluster import cluster_of_run
    from scalewatt.campaign.command import is_command_spec
    from scalewatt.energy.launch import Place, run_training

    cluster, device = cluster_of_run(arguments.cluster, spec)
    if arguments.budget_of is not None:
        from scalewatt.campaign.expand import load_campaign
        from scalewatt.results.budget import check_budget

        campaign = load_campaign(arguments.budget_of, cluster)
        results = arguments.out.absolute().parents[2]  # runs/<configuration>/<repeat>
        check_budget(campaign, cluster.devices, results, arguments.work, spec)
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


def _status(arguments: argparse.Namespace) -> int:
    from scalewatt.results.show import show_status

    if arguments.watch is not None and not 1 <= arguments.watch <= 86_400:
        raise InputError(f"--watch: {arguments.watch:g}; allowed: 1 to 86400 seconds")
    folders = arguments.campaign, arguments.results, arguments.work
    return show_status(arguments.profile, *folders, arguments.all, arguments.json, arguments.watch)


def _run_command(arguments: argparse.Namespace) -> int:
    from scalewatt.results.exclude import find_place, run_command

    folders = arguments.campaign, arguments.results, arguments.work
    place = find_place(arguments.profile, *folders)
    run = arguments.configuration, arguments.repeat
    lines = run_command(arguments.command, place, *run, arguments.reason, arguments.undo)
    print("\n".join(lines))
    return 0


def _probe(arguments: argparse.Namespace) -> int:
    from scalewatt.campaign.cluster import cluster_of_run
    from scalewatt.energy.probe import Probe, run_probe

    probe = Probe(arguments.device, arguments.repeat, arguments.seconds, arguments.sampling_period)
    wanted = {"configuration": probe.name, "device": probe.device}
    cluster, device = cluster_of_run(arguments.cluster, wanted)
    return run_probe(probe, cluster.launcher, device, arguments.out)


def _idle(arguments: argparse.Namespace) -> int:
    from scalewatt.results.idle import write_idle

    write_idle(arguments.definition, arguments.results, arguments.out)
    return 0


def _energy(arguments: argparse.Namespace) -> int:
    from scalewatt.campaign.cluster import cluster_of_run
    from scalewatt.campaign.cluster import powers as rated_powers
    from scalewatt.energy.summary import describe
    from scalewatt.energy.text import energy_text

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
    from scalewatt.energy.account import write_energy

    spec = arguments.folder / "spec.json"
    write_energy(arguments.folder, spec, arguments.powers, arguments.traces, arguments.energy)
    return 0


def _table(arguments: argparse.Namespace) -> int:
    from scalewatt.results.build import write_figure_table, write_runs

    write = write_figure_table if "figure" in arguments.definition else write_runs
    write(arguments.definition, arguments.results, arguments.out)
    return 0


def _figure(arguments: argparse.Namespace) -> int:
    from scalewatt.figures.draw import draw_figure

    figure = int(arguments.figure) if arguments.figure.isdigit() else arguments.figure
    draw_figure(figure, arguments.table, arguments.out)
    return 0


def _run_pages(arguments: argparse.Namespace) -> int:
    from scalewatt.figures.run_page import draw_pages

    given = arguments.results, arguments.configuration, arguments.repeats
    draw_pages(*given, arguments.excluded)
    return 0


def _register(arguments: argparse.Namespace) -> int:
    from scalewatt.registration.register import register

    given = arguments.name, arguments.paths, arguments.table
    print("\n".join(register(*given, arguments.results, arguments.campaigns)))
    return 0


def _claims(arguments: argparse.Namespace) -> int:
    from scalewatt.claims.command import check_claims

    given = arguments.results, arguments.campaign, arguments.cluster, arguments.out
    text, as_json = check_claims(*given)
    print(as_json if arguments.json else text)
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from scalewatt.report.definition import parse_definition
    from scalewatt.report.report import write_report

    write_report(arguments.results, arguments.out, parse_definition(arguments.definition))
    return 0


if __name__ == "__main__":
    sys.exit(main())
