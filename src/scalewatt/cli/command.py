"""Commands as they are declared: a handler and its arguments."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.common.project_files import find_file
from scalewatt.common.redaction import without_logins

Handler = Callable[[argparse.Namespace], int | None]
"""Returns the exit code; None: 0."""
Argument = Callable[[argparse.ArgumentParser], Any]
"""Adds itself to a parser."""


@dataclass(frozen=True)
class Command:
    """A command; its handler's docstring is what --help says of it."""

    handler: Handler
    arguments: tuple[Argument, ...]

    @property
    def description(self) -> str:
        """Sentences on what it does, of which the first is a line."""
        return inspect.cleandoc(self.handler.__doc__ or "")

    @property
    def summary(self) -> str:
        """What it does, as a phrase that begins with a small letter."""
        first = self.description.partition("\n")[0].rstrip(".")
        return f"{first[:1].lower()}{first[1:]}"


COMMANDS: dict[str, Command] = {}
"""All commands by name."""


def command(*arguments: Argument) -> Callable[[Handler], Handler]:
    """Make a handler the command of its name."""

    def add(handler: Handler) -> Handler:
        COMMANDS[handler.__name__.strip("_")] = Command(handler, arguments)
        return handler

    return add


def print_error(problem: object) -> None:
    """Print what is wrong, without passwords in addresses."""
    print(f"scalewatt: error: {without_logins(str(problem))}", file=sys.stderr)


def print_json(content: object, indent: int | None = 1) -> None:
    """Print what --json asks for."""
    print(json.dumps(content, indent=indent, allow_nan=False))


# --- arguments --------------------------------------------------------------------------------------


def option(name: str, metavar: str, text: str, type_: Any = Path, **others: Any) -> Argument:
    """An option, or an argument, with a value; `others` are those of `add_argument`."""
    given = {"metavar": metavar, "help": text, "type": type_, **others}
    return lambda parser: parser.add_argument(name, **given)


def flag(name: str, text: str) -> Argument:
    """An option without a value."""
    return lambda parser: parser.add_argument(name, action="store_true", help=text)


def site(text: str = "whose machine counts", default: str | None = "local") -> Argument:
    """The cluster file, by its name or path (`scalewatt.campaign.cluster.site_file`)."""
    text = f"{text}: NAME of config/NAME.yaml, or any cluster file; default: {default or 'none'}"
    return option("--site", "NAME|FILE", text, str, default=default)


def folder(name: str) -> Argument:
    """The folder of all results, or of all campaigns, whose default has its name."""
    text = f"folder of all {name}; default: {name}"
    return option(f"--{name}", "FOLDER", text, default=Path(name))


MAX_GPUS = option(
    "--max-gpus", "N", "leave out points of more than N GPUs; default: the cluster's", int
)
CAMPAIGN = (
    site(),
    option("--campaign", "FILE", "default: what the cluster file names", find_file),
)
FOLDERS = (
    *CAMPAIGN,
    folder("results"),
    option("--work", "FOLDER", "default: the cluster's work_root"),
)
