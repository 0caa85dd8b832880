"""Time and memory of commands for which a document states a number.

    python benchmarks/timing.py [NAME ...] [--cores 2]

Runs each in a new copy of the workflow, on so many cores of this machine: wall and processor time, and the
largest memory of a process.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "factories"))
from workspace import copy_workflow, environment

COMMANDS = {
    "demo": (
        "snakemake --profile profiles/local all --quiet all",
        "README.md: about 8 minutes on 2 cores",
    ),
    "paper-simulated": (
        "snakemake --profile profiles/simulate all --quiet all --cores {cores}",
        "docs/paper/simulate.md: 860 s of processor time, at most 0.4 GiB a process",
    ),
    "doctor": ("scalewatt doctor", "docs/install.md: a few seconds"),
}
"""By name: the command, and what is stated of it."""


def run(command: str, folder: Path, cores: int) -> str:
    """Run a command in a folder; return what it took, as text."""
    words = shlex.split(command.format(cores=cores))
    begin_s = time.perf_counter()
    child = os.fork()
    if not child:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        os.chdir(folder)
        os.execvpe(words[0], words, environment())
    _, status, used = os.wait4(child, 0)
    wall_s = time.perf_counter() - begin_s
    return (
        f"{wall_s:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processor, "
        f"{used.ru_maxrss / 2**20:.2f} GiB in one process; exit code {os.waitstatus_to_exitcode(status)}"
    )


def main() -> None:
    """Time the commands that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(COMMANDS))
    parser.add_argument("--cores", type=int, default=2)
    given = parser.parse_args()
    for name in given.names or COMMANDS:
        command, stated = COMMANDS[name]
        with tempfile.TemporaryDirectory(prefix="timing-") as folder:
            copy = Path(folder) / "project"
            copy_workflow(copy)
            print(f"{name}: {run(command, copy, given.cores)} ({stated})", flush=True)


if __name__ == "__main__":
    main()
