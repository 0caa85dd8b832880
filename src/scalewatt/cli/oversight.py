"""Commands about a campaign while it runs: its status, and which of its runs count."""

from __future__ import annotations

import argparse

from scalewatt.cli.command import MAX_GPUS, PLACE, Amount, argument, as_json, command
from scalewatt.common.errors import InputError


@command(
    *PLACE,
    MAX_GPUS,
    argument("--all", action="store_true", help="one line for each run"),
    as_json("one JSON object, with all runs"),
    argument(
        "--watch",
        type=Amount("seconds", "60"),
        metavar="SECONDS",
        help="show it again every SECONDS, until Ctrl-C",
    ),
    examples=(
        "scalewatt status",
        "scalewatt status --profile profiles/horeka --watch 60",
        "scalewatt status --max-gpus 16",
    ),
)
def status(arguments: argparse.Namespace) -> int:
    """Show a campaign at a glance, while it runs or not."""
    from scalewatt.tracking.status_text import show_status

    if arguments.watch is not None and not 1 <= arguments.watch <= 86_400:
        raise InputError(f"--watch: {arguments.watch:g}; allowed: 1 to 86400 seconds")
    folders = arguments.campaign, arguments.results, arguments.work
    most = arguments.max_gpus
    return show_status(
        arguments.profile, *folders, arguments.all, arguments.json, arguments.watch, most
    )


RUN = (
    argument("configuration", nargs="?", metavar="CONFIGURATION", help="the name of its folder"),
    argument("repeat", nargs="?", type=int, metavar="REPEAT", help="which of its runs, from 1"),
    argument("--reason", metavar="TEXT", help="why, in one line"),
    *PLACE,
)
"""A finished run, and why it does not count; without a run these commands list what is recorded."""


@command(
    *RUN,
    argument("--undo", action="store_true", help="include it again"),
    examples=(
        'scalewatt exclude resnet50-local-n002-lbs0032-full 1 --reason "the node was shared"',
        "scalewatt exclude",
    ),
)
def exclude(arguments: argparse.Namespace) -> int:
    """Leave a finished run out of tables and figures; without a run, list those left out."""
    return _change_run(arguments, arguments.undo)


@command(
    *RUN,
    examples=(
        'scalewatt remeasure resnet50-local-n002-lbs0032-full 1 --reason "the sensor failed"',
    ),
)
def remeasure(arguments: argparse.Namespace) -> int:
    """Set a finished run's measurement aside, so that it is measured again."""
    return _change_run(arguments)


def _change_run(arguments: argparse.Namespace, undo: bool = False) -> int:
    from scalewatt.tracking.exclude import find_place, run_command

    folders = arguments.campaign, arguments.results, arguments.work
    place = find_place(arguments.profile, *folders)
    run = arguments.configuration, arguments.repeat
    print("\n".join(run_command(arguments.command, place, *run, arguments.reason, undo)))
    return 0
