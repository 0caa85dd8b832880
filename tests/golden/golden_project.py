"""The workflow in a folder of its own, and its commands, as a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
LINKED = ("Snakefile", "workflow", "src", "envs", "reference", "profiles", "config", "config.yaml")


def environment() -> dict[str, str]:
    """This environment with this Python's commands first, in one time zone, on one thread a process."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "TZ": "UTC", "OMP_NUM_THREADS": "1"}


def run(*command: str, cwd: Path = PROJECT) -> str:
    """Run a command to its success; what it printed."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (
        f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    )
    return done.stdout


def link_workflow(folder: Path) -> None:
    """Make a folder in which Snakemake runs the workflow of this checkout, with campaigns of its own."""
    (folder / "campaigns").mkdir(parents=True)
    for name in LINKED:
        (folder / name).symlink_to(PROJECT / name)


def snakemake(folder: Path, *arguments: str) -> str:
    """Run Snakemake in a folder; what it printed."""
    return run(sys.executable, "-m", "snakemake", *arguments, cwd=folder)
