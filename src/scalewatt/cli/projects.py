"""The command that begins a project."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

from scalewatt.cli.command import argument, command


@command(
    argument("folder", type=Path, metavar="FOLDER", help="a new folder, or an empty one"),
    examples=("scalewatt init study",),
)
def init(arguments: argparse.Namespace) -> None:
    """Write a project of one's own: campaigns, profiles and a Snakefile that runs them.

    The workflow stays in the installed package, so that campaigns of one's own are no fork.
    """
    from scalewatt.targets.new_project import write_project

    folder = arguments.folder
    made = write_project(folder)
    names = ", ".join(f"{p.name}/" if p.is_dir() else p.name for p in made if p.name[0] != ".")
    print(f"{folder}: {names}")
    print(f"Next: cd {folder}; edit campaigns/demo.yaml; snakemake --profile profiles/local -n all")
    if find_spec("snakemake") is None:
        print("Snakemake is not installed: pip install 'scalewatt[workflow,train]' brings it")
