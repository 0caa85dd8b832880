"""The command `scalewatt`: thin, every step's code is imported when it is asked for."""

from __future__ import annotations

import argparse
import io
import os
import sys
from typing import Any

from scalewatt import __version__
from scalewatt.cli import campaigns, results, steps  # noqa: F401 (add COMMANDS)
from scalewatt.cli.command import COMMANDS, print_error
from scalewatt.common.errors import InputError
from scalewatt.common.project_files import INSTALLED

_GROUPS = {
    "to begin": ("doctor", "campaign"),
    "before a campaign is submitted": ("plan", "advise", "pilot", "calibrate"),
    "while it runs": ("status", "exclude", "remeasure"),
    "recordings and results": ("energy", "register", "compare", "claims"),
    "share and reproduce": ("export", "import", "reproduce"),
}
"""What --help lists; the workflow's own steps are left out."""


class _CommandLine(argparse.ArgumentParser):
    """The whole command line, whose help lists the commands by what they are for."""

    def format_help(self) -> str:
        """Usage, the commands in their groups, and where their options are."""
        lines = [self.format_usage(), self.description or "", ""]
        for group, names in _GROUPS.items():
            lines += [f"{group}:", *(f"  {n:<11}{COMMANDS[n].summary}" for n in names), ""]
        return "\n".join(lines) + "\nscalewatt COMMAND --help shows its options.\n"


class _CommandOptions(argparse.ArgumentParser):
    """The options of a command, which answers unknown ones with its own usage."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command's arguments, all of which it must know."""
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return namespace, unknown


def command_line() -> argparse.ArgumentParser:
    """Parser whose result names the `command`."""
    parser = _CommandLine(
        prog="scalewatt",
        description="Measure what data-parallel training of neural networks costs in energy.",
    )
    parser.add_argument("--version", action="version", version=f"scalewatt {__version__}")
    commands = parser.add_subparsers(
        required=True, dest="command", metavar="COMMAND", parser_class=_CommandOptions
    )
    for name, command in COMMANDS.items():
        of_command = commands.add_parser(
            name,
            help=command.summary,
            description=command.description,
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
        way = "pip install 'scalewatt[figures,workflow,train]'" if INSTALLED else "make setup"
        return f"{error.name} is not installed here; `{way}` brings it"
    if isinstance(error, OSError):  # a full disk, a read-only folder, a name that is too long
        path = error.filename2 or error.filename
        reason = " ".join((error.strerror or str(error)).split())
        return f"{path}: {reason}" if path else reason
    return None
