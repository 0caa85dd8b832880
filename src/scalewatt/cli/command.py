"""A command of the command line: its handler, its arguments and examples, declared in one place."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.files import parse_json
from scalewatt.common.redaction import HIDDEN
from scalewatt.common.schema_validation import INSTALLED, shipped

Handler = Callable[[argparse.Namespace], int | None]
"""Returns the exit code; null: 0."""
Argument = Callable[[argparse.ArgumentParser], Any]
"""Adds itself to a parser."""


@dataclass(frozen=True)
class Command:
    """One command; the first line of its handler's docstring says what it does."""

    name: str
    handler: Handler
    arguments: tuple[Argument, ...]
    examples: tuple[str, ...]

    @property
    def does(self) -> str:
        """Return what it does, as a phrase that begins with a small letter."""
        does = (self.handler.__doc__ or "").partition("\n")[0].rstrip(".")
        return f"{does[:1].lower()}{does[1:]}"

    def add_to(self, commands: Any) -> None:
        """Add the command's parser to what `add_subparsers` returned."""
        parser = commands.add_parser(
            self.name,
            help=self.does,
            description=f"{self.does[:1].upper()}{self.does[1:]}.",
            epilog="examples:\n" + "\n".join(f"  {one}" for one in self.examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for add_to in self.arguments:
            add_to(parser)


COMMANDS: dict[str, Command] = {}
"""All commands by name."""


def command(*arguments: Argument, examples: tuple[str, ...]) -> Callable[[Handler], Handler]:
    """Register a handler as the command of its name, with its arguments and examples."""

    def register(handler: Handler) -> Handler:
        name = handler.__name__.strip("_").replace("_", "-")
        COMMANDS[name] = Command(name, handler, arguments, examples)
        return handler

    return register


def argument(*names: str, **options: Any) -> Argument:
    """Return an argument; it takes what `add_argument` takes."""
    return lambda parser: parser.add_argument(*names, **options)


_LOGIN = re.compile(r"(\w:/{1,2})[^\s/@]+@")
"""Name and password in an address; a path of it has one slash."""


def print_error(problem: object) -> None:
    """Print what is wrong, without passwords in addresses."""
    said = _LOGIN.sub(rf"\1{HIDDEN}@", str(problem))
    print(f"scalewatt: error: {said}", file=sys.stderr)


_EXTRAS = {
    "figures": ("matplotlib", "seaborn"),
    "workflow": ("snakemake", "snakemake_executor_plugin_slurm"),
    "train": (
        *("PIL", "aiohttp", "eccodes", "fsspec", "h5netcdf", "mpi4py", "perun", "sklearn", "torch"),
        *("torchvision", "xarray", "zarr"),
    ),
}
"""The modules of the packages that each extra brings (pyproject.toml)."""


def install_hint(module: str) -> str | None:
    """Return how a missing module is installed; None for one that no extra brings."""
    name = module.partition(".")[0]
    extra = next((extra for extra, modules in _EXTRAS.items() if name in modules), None)
    if extra is None:
        return None
    way = f"pip install 'scalewatt[{extra}]'" if INSTALLED else "make setup"
    return f"needs {name}, which is not installed here; install it by {way}"


def count(text: str) -> int:
    """Return an option's whole number from 1 to 1,000,000; argparse says what is allowed."""
    if not re.fullmatch(r"[0-9]{1,7}", text) or not 1 <= int(text) <= 10**6:
        raise argparse.ArgumentTypeError(f"'{text[:40]}'; allowed: a whole number from 1")
    return int(text)


@dataclass(frozen=True)
class Amount:
    """The type of an option that takes a number of a unit; argparse says what is allowed."""

    unit: str
    example: str

    def __call__(self, text: str) -> float:
        """Return the number; ArgumentTypeError for a text that is none."""
        try:
            return float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"'{text[:40]}'; allowed: a number of {self.unit}, such as {self.example}"
            ) from None


# --- arguments of several commands ----------------------------------------------------------------


def as_json(help_: str) -> Argument:
    """Return --json; `help_` says what is printed then."""
    return argument("--json", action="store_true", help=help_)


def folder(name: str) -> Argument:
    """Return the folder of all results, or of all campaigns, whose default has its name."""
    help_ = f"folder of all {name}; default: {name}"
    return argument(f"--{name}", type=Path, default=Path(name), metavar="FOLDER", help=help_)


def output(help_: str) -> Argument:
    """Return the file or folder that a command writes."""
    return argument("--out", type=Path, required=True, help=help_)


def profile(help_: str, default: str | None = "profiles/local") -> Argument:
    """Return the profile, whose folder has the cluster file."""
    help_ = f"{help_}; default: {default or 'none'}"
    return argument("--profile", type=named, default=default, help=help_)


def named(text: str) -> Path:
    """Return a campaign file, or folder of a profile: the working directory's, or one that came along."""
    path = shipped(text)
    return path if os.path.exists(path) else Path(text)


def json_of(option: str, text: str) -> Any:
    """Read a JSON object or list, or the file of JSON that the text names; InputError."""
    is_file = text.lstrip()[:1] not in ("{", "[")
    try:
        return parse_json(Path(text).read_bytes() if is_file else text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
    raise InputError(f"{option}: {text[:100]!r} is neither JSON nor a file of it ({reason})")


CAMPAIGN = (
    profile("whose cluster file counts"),
    argument("--campaign", type=named, metavar="FILE", help="default: what the cluster file names"),
)
MAX_GPUS = argument(
    "--max-gpus",
    type=count,
    metavar="N",
    help="leave out points of more than N GPUs; default: the cluster file's max_gpus",
)
PLACE = (
    *CAMPAIGN,
    folder("results"),
    argument("--work", type=Path, metavar="FOLDER", help="default: the cluster's work_root"),
)
CLUSTER = argument("--cluster", required=True, help="cluster file, or its content as JSON")
DEFINITION = argument(
    "--definition", required=True, metavar="JSON", help="file with JSON, or the JSON itself"
)
OWN_RESULTS = argument(
    "--results", type=Path, required=True, metavar="FOLDER", help="results/<campaign>"
)
