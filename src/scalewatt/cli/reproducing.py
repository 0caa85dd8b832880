"""Commands about what others need to believe a result: this machine, archives, repetition."""

from __future__ import annotations

import argparse
from pathlib import Path

from scalewatt.cli.completion import SHELLS
from scalewatt.cli.shared_arguments import Commands, add_campaign, command


def add(commands: Commands) -> None:
    """Add them."""
    _doctor(commands)
    _completion(commands)
    _export(commands)
    _import(commands)
    _manifest(commands)
    _reproduce(commands)


def _doctor(commands: Commands) -> None:
    doctor = command(
        commands,
        "doctor",
        "say what this machine can measure, what is missing for runs, and how to fix it",
        [
            "scalewatt doctor",
            "scalewatt doctor --profile profiles/horeka",
            "scalewatt doctor --json",
        ],
    )
    doctor.add_argument(
        "--profile",
        type=Path,
        default=Path("profiles/local"),
        help="for whose runs; default: profiles/local",
    )
    doctor.add_argument("--json", action="store_true", help="one JSON object, with all checks")


def _completion(commands: Commands) -> None:
    completion = command(
        commands,
        "completion",
        "print the script by which a shell completes this command",
        [
            "source <(scalewatt completion bash)",
            "source <(scalewatt completion zsh)",
            "scalewatt completion fish | source",
        ],
    )
    completion.add_argument("shell", choices=SHELLS)


def _export(commands: Commands) -> None:
    export = command(
        commands,
        "export",
        "write a campaign's results as one archive, in RO-Crate form",
        [
            "scalewatt export campaigns/demo.yaml",
            "scalewatt export config.yaml --profile profiles/horeka --license CC-BY-4.0",
        ],
    )
    export.add_argument("campaign", type=Path, metavar="CAMPAIGN", help="campaign file")
    export.add_argument(
        "--profile",
        type=Path,
        default=Path("profiles/local"),
        help="where it ran: whose cluster file counts; default: profiles/local",
    )
    export.add_argument("--cluster", type=Path, metavar="FILE", help="instead: a cluster file")
    export.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER")
    export.add_argument(
        "--traces", action="store_true", help="with the power traces, which are large"
    )
    export.add_argument(
        "--out", type=Path, metavar="FILE", help="default: <name of the campaign>.crate.zip"
    )
    export.add_argument("--license", metavar="NAME", help="SPDX name or URL, e.g. CC-BY-4.0")
    export.add_argument(
        "--author", action="append", default=[], metavar="NAME", help="may be given several times"
    )
    export.add_argument(
        "--allow-private", action="store_true", help="though files tell of paths on this machine"
    )


def _import(commands: Commands) -> None:
    bring = command(
        commands,
        "import",
        "check an archive and bring its campaign and results in",
        [
            "scalewatt import demo.crate.zip --name theirs",
            "scalewatt import --check demo.crate.zip",
            "scalewatt import --check reference",
        ],
    )
    bring.add_argument(
        "archive", type=Path, metavar="ARCHIVE", help="file, or the folder of its content"
    )
    bring.add_argument("--check", action="store_true", help="check it alone: nothing is written")
    bring.add_argument(
        "--name", metavar="NAME", help="what it is called here; default: its own name"
    )
    bring.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER")
    bring.add_argument("--campaigns", type=Path, default=Path("campaigns"), metavar="FOLDER")


def _manifest(commands: Commands) -> None:
    manifest = command(
        commands,
        "manifest",
        "write the SHA-256 of a campaign's tables and figures to its manifest.json",
        ["scalewatt manifest --results results/demo"],
    )
    manifest.add_argument(
        "--results", type=Path, required=True, metavar="FOLDER", help="the campaign's folder"
    )


def _reproduce(commands: Commands) -> None:
    reproduce = command(
        commands,
        "reproduce",
        "check whether a campaign's results can be made again; 1 where something differs",
        [
            "scalewatt reproduce",
            "scalewatt reproduce --profile profiles/horeka --campaign config.yaml",
        ],
    )
    add_campaign(reproduce)
    reproduce.add_argument(
        "--cluster", metavar="CLUSTER", help="instead of the profile's: a file, or JSON"
    )
    reproduce.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER")
    reproduce.add_argument(
        "--run-failed",
        metavar="CONFIGURATION/REPEAT",
        help=argparse.SUPPRESS,  # a run that could not be made again, as the target `reproduce` says
    )
