"""What the commands' parsers share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Commands = Any
"""What `add_subparsers` gives."""


def command(
    commands: Commands, name: str, does: str, examples: Sequence[str]
) -> argparse.ArgumentParser:
    """A command's parser: what it does in one line, and examples that `--help` ends with."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=does,
        description=f"{does[0].upper()}{does[1:]}.",
        epilog="examples:\n" + "\n".join(f"  {one}" for one in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_campaign(parser: argparse.ArgumentParser) -> None:
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


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """The cluster of a command that rules call, which give its content."""
    parser.add_argument("--cluster", required=True, help="cluster file, or its content as JSON")


def add_place(parser: argparse.ArgumentParser) -> None:
    """Where a command finds its campaign, and what is there of it."""
    add_campaign(parser)
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER")
    parser.add_argument(
        "--work", type=Path, metavar="FOLDER", help="default: the cluster's work_root"
    )


def add_run_command(parser: argparse.ArgumentParser, name: str) -> None:
    """The arguments of the commands about one run; without a run they name what was said of all."""
    parser.add_argument("configuration", nargs="?", metavar="CONFIGURATION")
    parser.add_argument("repeat", nargs="?", type=int, metavar="REPEAT")
    parser.add_argument("--reason", metavar="TEXT", help="why, in one line")
    add_place(parser)
    if name == "exclude":
        parser.add_argument("--undo", action="store_true", help="take it in again")
    parser.set_defaults(undo=False)
