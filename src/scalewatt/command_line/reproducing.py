"""Commands about what others need to believe a result: this machine, archives, repetition."""

from __future__ import annotations

from pathlib import Path

from scalewatt.command_line.parts import Commands, command


def add(commands: Commands) -> None:
    """Add them."""
    _export(commands)
    _import(commands)


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
