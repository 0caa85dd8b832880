"""What `scalewatt` takes on the command line: its commands and their arguments."""

from __future__ import annotations

import argparse
import re
from typing import NoReturn

from scalewatt import __version__
from scalewatt.cli import campaigns, reproducing, tables, training
from scalewatt.common.schema_validation import one_of


class _Parser(argparse.ArgumentParser):
    """A parser that says which word was probably meant."""

    def error(self, message: str) -> NoReturn:
        """End with what is wrong; of a choice, what is allowed and what comes near it."""
        found = re.fullmatch(r"(.*)invalid choice: '(.*)' \(choose from (.*)\)", message)
        if found:
            allowed = one_of(found[2], re.findall(r"'([^']+)'", found[3]))
            message = f"{found[1]}unknown '{found[2]}'; {allowed}"
        super().error(message)


def command_line() -> argparse.ArgumentParser:
    """Return the parser, whose result names the `command`."""
    parser = _Parser(
        prog="scalewatt",
        description="What data-parallel training of neural networks costs in energy.",
    )
    parser.add_argument("--version", action="version", version=f"scalewatt {__version__}")
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    for group in (campaigns, training, tables, reproducing):
        group.add(commands)
    return parser
