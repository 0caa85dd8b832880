"""The command `scalewatt`: thin, every step's code is imported when it is asked for."""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import sys
from typing import NoReturn

from scalewatt import __version__
from scalewatt.cli import oversight, planning, results, sharing, steps  # noqa: F401 (add COMMANDS)
from scalewatt.cli.command import COMMANDS, print_error
from scalewatt.common.errors import InputError, one_of
from scalewatt.common.project_files import INSTALLED

_GROUPS = {
    "to begin": ("doctor", "campaign"),
    "before a campaign is submitted": ("plan", "advise", "pilot", "calibrate"),
    "while it runs": ("status", "exclude", "remeasure"),
    "recordings and results": ("energy", "register", "compare", "claims"),
    "share and reproduce": ("export", "import", "reproduce"),
}
"""What --help lists; the workflow's own steps are left out."""
_EXTRAS = {
    "figures": ("matplotlib", "seaborn"),
    "workflow": ("snakemake", "snakemake_executor_plugin_slurm"),
    "train": (
        *("PIL", "aiohttp", "eccodes", "fsspec", "h5netcdf", "mpi4py", "perun", "sklearn", "torch"),
        *("torchvision", "xarray", "zarr"),
    ),
}
"""Modules of the packages that each extra brings (pyproject.toml)."""


class _Parser(argparse.ArgumentParser):
    """A parser that suggests the word which was probably meant."""

    def error(self, message: str) -> NoReturn:
        """Exit with the message: of a choice, with the nearest spelling."""
        match = re.fullmatch(r"(.*)invalid choice: '(.*)' \(choose from (.*)\)", message)
        if match:
            allowed = one_of(match[2], re.findall(r"'([^']+)'", match[3]))
            message = f"{match[1]}unknown '{match[2]}'; {allowed}"
        super().error(message)


class _CommandLine(_Parser):
    """The whole command line, whose help lists the commands by what they are for."""

    def format_help(self) -> str:
        """Usage, the commands in their groups, and where their options are."""
        lines = [self.format_usage(), self.description or "", ""]
        for group, names in _GROUPS.items():
            lines += [f"{group}:", *(f"  {n:<11}{COMMANDS[n].summary}" for n in names), ""]
        return "\n".join(lines) + "\nscalewatt COMMAND --help shows options and examples.\n"


def command_line() -> argparse.ArgumentParser:
    """Parser whose result names the `command`."""
    parser = _CommandLine(
        prog="scalewatt",
        description="Measure what data-parallel training of neural networks costs in energy.",
    )
    parser.add_argument("--version", action="version", version=f"scalewatt {__version__}")
    commands = parser.add_subparsers(
        required=True, dest="command", metavar="COMMAND", parser_class=_Parser
    )
    for name, command in COMMANDS.items():
        of_command = commands.add_parser(
            name,
            help=command.summary,
            description=command.description,
            epilog="\n".join(["examples:", *(f"  {example}" for example in command.examples)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for add_to in command.arguments:
            add_to(of_command)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run a command; an input error, or one of the system, is one line and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files need not be text in its encoding
            stream.reconfigure(errors="backslashreplace")
    arguments = command_line().parse_args(argv)
    # Pictures go to files: a display's backend, or an unknown one, is of no use.
    os.environ.pop("MPLBACKEND", None)
    try:
        return COMMANDS[arguments.command].handler(arguments) or 0
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 1
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
        print_error(problem)
        return 1


def problem_of(error: Exception) -> str | None:
    """A user's problem in one line; None for a fault of this program."""
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):  # a wheel without one of its extras
        return install_hint(error.name or "")
    if isinstance(error, OSError):  # a full disk, a read-only folder, a name that is too long
        path = error.filename2 or error.filename
        code = error.errno if error.errno in errno.errorcode else None
        reason = " ".join(str(error).split()) if code is None else os.strerror(code)
        return f"{path}: {reason}" if path else reason
    # As Python before 3.13 says it.
    return str(error) if str(error).startswith("Symlink loop") else None


def install_hint(module: str) -> str | None:
    """How a missing module is installed; None for one that no extra brings."""
    name = module.partition(".")[0]
    for extra, modules in _EXTRAS.items():
        if name in modules:
            way = f"pip install 'scalewatt[{extra}]'" if INSTALLED else "make setup"
            return f"{name} is not installed here; `{way}` brings it"
    return None
