"""The command `scalewatt`: thin, every step's code is imported when it is asked for."""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import shutil
import sys
import textwrap
from typing import Any, NoReturn

from scalewatt import __version__
from scalewatt.cli import (  # noqa: F401 (they add to COMMANDS)
    campaigns,
    comparing,
    oversight,
    reproducing,
    runs,
    tables,
)
from scalewatt.cli.command import COMMANDS, install_hint, print_error
from scalewatt.cli.removed import removed
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import one_of

_GROUPS = {
    "to begin": ("doctor", "campaign"),
    "before a campaign is submitted": ("plan", "advise", "pilot", "calibrate"),
    "while it runs": ("status", "exclude", "remeasure"),
    "recordings and results": ("energy", "register", "compare", "claims"),
    "share and reproduce": ("export", "import", "manifest", "reproduce"),
    "steps that the workflow runs": (
        *("prepare", "probe", "train", "simulate", "account", "carbon", "idle", "table", "figure"),
        *("run-pages", "prediction", "report"),
    ),
}
"""All commands, in the order in which --help lists them."""
_DRAWING = ("figure", "run-pages", "report", "reproduce")
"""Commands that write pictures to files: matplotlib needs no display's backend, and fails for one unknown."""


class _Parser(argparse.ArgumentParser):
    """A parser that suggests the word which was probably meant."""

    _words: tuple[str, ...] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Keep the words for `error`, and parse them."""
        self._words = tuple(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Exit with the message: of what is removed, or of a choice with the nearest spelling."""
        sentence = removed([*self.prog.split()[1:], *self._words])
        if sentence:
            super().error(sentence)
        found = re.fullmatch(r"(.*)invalid choice: '(.*)' \(choose from (.*)\)", message)
        if found:
            allowed = one_of(found[2], re.findall(r"'([^']+)'", found[3]))
            message = f"{found[1]}unknown '{found[2]}'; {allowed}"
        super().error(message)


class _CommandLine(_Parser):
    """The whole command line, whose help lists the commands by what they are for."""

    def format_help(self) -> str:
        """Return the usage, the commands in their groups, and the options."""
        width = max(map(len, COMMANDS)) + 4
        fill = textwrap.TextWrapper(
            width=min(shutil.get_terminal_size().columns - 2, 100), subsequent_indent=" " * width
        )
        lines = [self.format_usage(), self.description or "", ""]
        for group, names in _GROUPS.items():
            lines += [
                f"{group}:",
                *map(fill.fill, (f"  {n:{width - 2}}{COMMANDS[n].does}" for n in names)),
                "",
            ]
        lines += ["scalewatt COMMAND --help shows a command's options and examples."]
        return "\n".join(lines) + "\n"


def command_line() -> argparse.ArgumentParser:
    """Return the parser, whose result names the `command`."""
    parser = _CommandLine(
        prog="scalewatt",
        description="Measure what data-parallel training of neural networks costs in energy.",
    )
    parser.add_argument("--version", action="version", version=f"scalewatt {__version__}")
    commands = parser.add_subparsers(
        required=True, dest="command", metavar="COMMAND", parser_class=_Parser
    )
    for one in COMMANDS.values():
        one.add_to(commands)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command; an input error, or one of the system, is one line and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files need not be text in its encoding
            stream.reconfigure(errors="backslashreplace")
    arguments = command_line().parse_args(argv)
    if arguments.command in _DRAWING:
        os.environ.pop("MPLBACKEND", None)
    try:
        return COMMANDS[arguments.command].handler(arguments) or 0
    except InputError as error:
        print_error(error)
        return 1
    except ModuleNotFoundError as error:  # a wheel without one of its extras
        hint = install_hint(error.name or "")
        if hint is None:
            raise
        print_error(f"{arguments.command}: {hint}")
        return 1
    except BrokenPipeError:
        return 1
    except OSError as error:  # a full disk, a folder that is read-only, a name that is too long
        place = error.filename2 or error.filename
        code = error.errno if error.errno in errno.errorcode else None
        reason = " ".join(str(error).split()) if code is None else os.strerror(code)
        print_error(f"{f'{place}: ' if place else ''}{reason}")
        return 1
    except RuntimeError as error:
        if not str(error).startswith("Symlink loop"):  # as Python before 3.13 says it
            raise
        print_error(error)
        return 1
    except KeyboardInterrupt:
        return 130
