"""What `scalewatt` takes on the command line: its commands and their arguments."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from scalewatt import __version__
from scalewatt.figures.draw import FIGURES, NAMED


def command_line() -> argparse.ArgumentParser:
    """Return the parser, whose result names the `command`."""
    parser = argparse.ArgumentParser(
        prog="scalewatt",
        description="What data-parallel training of neural networks costs in energy.",
    )
    parser.add_argument("--version", action="version", version=f"scalewatt {__version__}")
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")

    campaign = commands.add_parser("campaign", help="check a campaign and print it as a table")
    campaign.add_argument(
        "files", nargs="*", type=Path, default=[Path("config.yaml")], metavar="FILE"
    )
    campaign.add_argument(
        "--cluster", type=Path, help="cluster file; default: all profiles' devices"
    )
    campaign.add_argument("--json", action="store_true", help="one object per run")

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

    simulate = commands.add_parser(
        "simulate", help="write a run's folder from the scaling model, without training"
    )
    simulate.add_argument("specs", type=Path, nargs="+", metavar="SPEC")
    simulate.add_argument(
        "--out", type=Path, help="run folder for the results; default: the one of SPEC"
    )
    simulate.add_argument("--cluster", required=True, help="cluster file, or its content as JSON")
    simulate.add_argument("--model", type=Path, required=True, help="file of the scaling model")
    simulate.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="KIND[:option=value,…]",
        help="sensor_loss, node_loss, time_limit or counter_wrap; repeatable (docs/simulate.md)",
    )

    status = commands.add_parser("status", help="show a campaign at a glance, while it runs or not")
    _add_place(status)
    status.add_argument("--all", action="store_true", help="one line for each run")
    status.add_argument("--json", action="store_true", help="one JSON object, with all runs")
    status.add_argument(
        "--watch", type=float, metavar="SECONDS", help="show it again so often, until Ctrl-C"
    )

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

    idle = commands.add_parser("idle", help="build the table of idle powers from finished probes")
    idle.add_argument("--definition", type=json.loads, required=True, help="JSON")
    idle.add_argument("--results", type=Path, required=True)
    idle.add_argument("--out", type=Path, required=True, help="the table")

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

    account = commands.add_parser("account", help="a run's recordings to traces and energy tables")
    account.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="run folders")
    account.add_argument("--powers", type=json.loads, required=True, help="rated powers (JSON)")
    for name in ("--traces", "--energy"):
        account.add_argument(
            name, type=Path, nargs="+", required=True, metavar="FILE", help="one for each folder"
        )

    table = commands.add_parser("table", help="build a figure's table, or all runs' tables")
    table.add_argument("--definition", type=json.loads, required=True, help="JSON")
    table.add_argument("--results", type=Path, required=True)
    table.add_argument(
        "--out", type=Path, required=True, help="a figure's table, or the folder of tables"
    )

    figure = commands.add_parser("figure", help="draw a figure from its table")
    figure.add_argument("figure", choices=(*map(str, FIGURES), *NAMED))
    figure.add_argument("--table", type=Path, required=True)
    figure.add_argument("--out", type=Path, required=True, help="path without suffix")

    pages = commands.add_parser("run-pages", help="draw one page for each run of a configuration")
    pages.add_argument("configuration", help="the name of its folder")
    pages.add_argument("repeats", nargs="+", type=int, metavar="REPEAT")
    pages.add_argument("--results", type=Path, required=True, help="results of the campaign")
    pages.add_argument("--excluded", type=json.loads, default={}, help="JSON: repeat to reason")

    register = commands.add_parser("register", help="make runs of recordings from elsewhere")
    register.add_argument("name", help="the campaign's name")
    register.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    register.add_argument("--table", type=Path, help="CSV, YAML or Parquet, one row per run")
    register.add_argument("--results", type=Path, default=Path("results"))
    register.add_argument("--campaigns", type=Path, default=Path("campaigns"))

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

    calibrate = commands.add_parser(
        "calibrate",
        help="calibrate the scaling model of time and energy on results, and validate it",
    )
    calibrate.add_argument(
        "sources",
        nargs="+",
        type=Path,
        metavar="SOURCE",
        help="results/<campaign>, a table of configurations, or reference (the published rows)",
    )
    calibrate.add_argument("--out", type=Path, required=True, help="the model's file (JSON)")

    plan = commands.add_parser(
        "plan", help="predict time, energy and cost of a campaign before it is submitted"
    )
    _add_campaign(plan)
    plan.add_argument("--cluster", help="instead: a cluster file, or its content as JSON")
    plan.add_argument(
        "--model",
        type=Path,
        metavar="FILE",
        help="scaling model; default: the cluster file's scaling_model",
    )
    plan.add_argument(
        "--results",
        type=Path,
        metavar="FOLDER",
        help="results/<campaign>: count finished runs with what they used; default: all is predicted",
    )
    plan.add_argument(
        "--from",
        dest="smaller",
        type=int,
        metavar="N",
        help="with --to: what going from N GPUs to more buys and costs, of each series",
    )
    plan.add_argument("--to", dest="larger", type=int, metavar="N", help="see --from")
    plan.add_argument(
        "--deadline-h",
        type=float,
        metavar="H",
        help="cheapest n of each series for a run in H hours",
    )
    plan.add_argument(
        "--energy-kwh", type=float, metavar="E", help="fastest n of each series for a run of E kWh"
    )
    plan.add_argument("--json", action="store_true", help="one JSON object, with every run")
    plan.add_argument("--out", type=Path, metavar="STEM", help="also write .parquet, .csv and .md")

    pilot = commands.add_parser(
        "pilot",
        help="write the campaign of short runs that calibrate the scaling model for another",
    )
    pilot.add_argument("campaign", type=Path, metavar="CAMPAIGN", help="campaign file")
    pilot.add_argument(
        "--out", type=Path, metavar="FILE", help="default: <campaign>-pilot.yaml beside it"
    )

    prediction = commands.add_parser(
        "prediction", help="build the table of what was predicted and measured"
    )
    prediction.add_argument("--results", type=Path, required=True, help="the campaign's folder")
    prediction.add_argument("--campaign", type=Path, required=True, metavar="FILE")
    prediction.add_argument("--cluster", required=True, help="cluster file, or its content as JSON")
    prediction.add_argument("--out", type=Path, required=True, help="the table")

    report = commands.add_parser("report", help="write report.html from tables and figures")
    report.add_argument("--definition", type=json.loads, required=True, help="JSON")
    report.add_argument("--results", type=Path, required=True, help="the campaign's folder")
    report.add_argument("--out", type=Path, required=True)

    return parser


def _add_campaign(parser: argparse.ArgumentParser) -> None:
    """Which campaign a command is about, on which cluster."""
    parser.add_argument(
        "--profile",
        type=Path,
        default=Path("profiles/local"),
        help="whose cluster file counts; default: profiles/local",
    )
    parser.add_argument(
        "--campaign", type=Path, metavar="FILE", help="default: what the cluster file names"
    )


def _add_place(parser: argparse.ArgumentParser) -> None:
    """Where a command finds its campaign, and what is there of it."""
    _add_campaign(parser)
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
    parser.set_defaults(undo=False)
