"""Commands about a campaign before and while it runs."""

from __future__ import annotations

from pathlib import Path

from scalewatt.cli.shared_arguments import (
    Commands,
    add_campaign,
    add_place,
    add_run_command,
    command,
)


def add(commands: Commands) -> None:
    """Add them."""
    _campaign(commands)
    _plan(commands)
    _pilot(commands)
    _calibrate(commands)
    _status(commands)
    _exclude_and_remeasure(commands)
    _keys(commands)


def _campaign(commands: Commands) -> None:
    campaign = command(
        commands,
        "campaign",
        "check a campaign and print it as a table",
        [
            "scalewatt campaign config.yaml",
            "scalewatt campaign --cluster profiles/horeka/cluster.yaml config.yaml",
        ],
    )
    campaign.add_argument(
        "files", nargs="*", type=Path, default=[Path("config.yaml")], metavar="FILE"
    )
    campaign.add_argument(
        "--cluster", type=Path, help="cluster file; default: all profiles' devices"
    )
    campaign.add_argument("--json", action="store_true", help="one object per run")


def _plan(commands: Commands) -> None:
    plan = command(
        commands,
        "plan",
        "predict time, energy and cost of a campaign before it is submitted",
        [
            "scalewatt plan --profile profiles/horeka",
            "scalewatt plan --profile profiles/horeka --from 16 --to 64",
        ],
    )
    add_campaign(plan)
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


def _pilot(commands: Commands) -> None:
    pilot = command(
        commands,
        "pilot",
        "write the campaign of short runs that calibrate the scaling model for another",
        ["scalewatt pilot campaigns/demo.yaml"],
    )
    pilot.add_argument("campaign", type=Path, metavar="CAMPAIGN", help="campaign file")
    pilot.add_argument(
        "--out", type=Path, metavar="FILE", help="default: <campaign>-pilot.yaml beside it"
    )


def _calibrate(commands: Commands) -> None:
    calibrate = command(
        commands,
        "calibrate",
        "calibrate the scaling model of time and energy on results, and validate it",
        [
            "scalewatt calibrate reference --out model.json",
            "scalewatt calibrate results/paper reference --out model.json",
        ],
    )
    calibrate.add_argument(
        "sources",
        nargs="+",
        type=Path,
        metavar="SOURCE",
        help="results/<campaign>, a table of configurations, or reference (the published rows)",
    )
    calibrate.add_argument("--out", type=Path, required=True, help="the model's file (JSON)")


def _status(commands: Commands) -> None:
    status = command(
        commands,
        "status",
        "show a campaign at a glance, while it runs or not",
        ["scalewatt status", "scalewatt status --profile profiles/horeka --watch 60"],
    )
    add_place(status)
    status.add_argument("--all", action="store_true", help="one line for each run")
    status.add_argument("--json", action="store_true", help="one JSON object, with all runs")
    status.add_argument(
        "--watch", type=float, metavar="SECONDS", help="show it again so often, until Ctrl-C"
    )


def _exclude_and_remeasure(commands: Commands) -> None:
    for name, does, examples in (
        (
            "exclude",
            "leave a finished run out of tables and figures; name all that is left out",
            [
                'scalewatt exclude resnet50-local-n002-lbs0032-full 1 --reason "the node was shared"',
                "scalewatt exclude",
            ],
        ),
        (
            "remeasure",
            "set a finished run's measurement aside, so that it is measured again",
            ['scalewatt remeasure resnet50-local-n002-lbs0032-full 1 --reason "the sensor failed"'],
        ),
    ):
        add_run_command(command(commands, name, does, examples), name)


def _keys(commands: Commands) -> None:
    keys = command(
        commands,
        "keys",
        "print every key of a campaign or cluster file, with what it takes, as Markdown",
        ["scalewatt keys campaign", "scalewatt keys cluster --write docs/your-cluster.md"],
    )
    keys.add_argument("kind", choices=("campaign", "cluster"))
    keys.add_argument(
        "--write", type=Path, metavar="FILE", help="put them between the markers of this document"
    )
