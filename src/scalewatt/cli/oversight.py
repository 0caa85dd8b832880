"""Commands about a campaign while it runs: its status, and which of its runs count."""

from __future__ import annotations

import argparse

from scalewatt.cli.command import MAX_GPUS, PLACE, command, flag, option


@command(
    *PLACE,
    MAX_GPUS,
    flag("--all", "one line for each run"),
    flag("--json", "one JSON object, with all runs"),
    examples=(
        "scalewatt status",
        "scalewatt status --site horeka --max-gpus 16",
    ),
)
def status(arguments: argparse.Namespace) -> None:
    """Show a campaign at a glance, while it runs or not."""
    from scalewatt.tracking.status_text import show_status

    folders = arguments.campaign, arguments.results, arguments.work
    show_status(arguments.site, *folders, arguments.all, arguments.json, arguments.max_gpus)


RUN = (
    option("configuration", "CONFIGURATION", "the name of its folder", str, nargs="?"),
    option("repeat", "REPEAT", "which of its runs, from 1", int, nargs="?"),
    option("--reason", "TEXT", "why, in one line", str),
    *PLACE,
)
"""A finished run, and why it does not count; without a run these commands list what is recorded."""


@command(
    *RUN,
    flag("--undo", "include it again"),
    examples=(
        'scalewatt exclude resnet50-local-n002-lbs0032-full 1 --reason "the node was shared"',
        "scalewatt exclude",
    ),
)
def exclude(arguments: argparse.Namespace) -> None:
    """Leave a finished run out of tables and figures.

    Without a run, list those that are left out.
    """
    _change_run(arguments, arguments.undo)


@command(
    *RUN,
    examples=(
        'scalewatt remeasure resnet50-local-n002-lbs0032-full 1 --reason "the sensor failed"',
    ),
)
def remeasure(arguments: argparse.Namespace) -> None:
    """Set a finished run's measurement aside, to measure it again."""
    _change_run(arguments)


def _change_run(arguments: argparse.Namespace, undo: bool = False) -> None:
    from scalewatt.tracking.exclude import find_place, run_command

    folders = arguments.campaign, arguments.results, arguments.work
    place = find_place(arguments.site, *folders)
    run = arguments.configuration, arguments.repeat
    print("\n".join(run_command(arguments.command, place, *run, arguments.reason, undo)))
