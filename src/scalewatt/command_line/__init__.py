"""What `scalewatt` takes on the command line: its commands and their arguments."""

from __future__ import annotations

import argparse

from scalewatt import __version__
from scalewatt.command_line import campaigns, reproducing, tables, training


def command_line() -> argparse.ArgumentParser:
    """Return the parser, whose result names the `command`."""
    parser = argparse.ArgumentParser(
        prog="scalewatt",
        description="What data-parallel training of neural networks costs in energy.",
    )
    parser.add_argument("--version", action="version", version=f"scalewatt {__version__}")
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    for group in (campaigns, training, tables, reproducing):
        group.add(commands)
    return parser
