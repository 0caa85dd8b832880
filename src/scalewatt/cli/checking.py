"""The command that checks this project on a GPU."""

from __future__ import annotations

import argparse
from pathlib import Path

from scalewatt.cli.command import argument, command


@command(
    argument("--rehearse", action="store_true", help="tiny sizes on the CPU; needs no GPU"),
    argument("--only", nargs="+", metavar="NAME", help="these checks; default: all"),
    argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="for checks.json and checks.md; default: results/gpu-check/<device>. A number is added "
        "where it is taken",
    ),
    examples=(
        "scalewatt gpu-check",
        "scalewatt gpu-check --only bitwise_resume amp_resume",
        "scalewatt gpu-check --rehearse",
    ),
)
def gpu_check(arguments: argparse.Namespace) -> int:
    """Check on a GPU what training and measuring do there."""
    import time

    from scalewatt.gpu_checks.check_files import (
        chosen_checks,
        machine,
        new_folder,
        summary,
        write_results,
    )
    from scalewatt.gpu_checks.check_runner import Checked, run_checks
    from scalewatt.gpu_checks.check_types import FAILED

    began_s = time.monotonic()
    checks = chosen_checks(arguments.only)
    facts = machine(arguments.rehearse)
    folder = new_folder(arguments.out, facts["device_name"])
    found: list[Checked] = []

    def told(one: Checked) -> None:
        print(one.result.line, flush=True)
        found.append(one)  # written at once: the machine may be lent for a short time
        write_results(folder, facts, found, time.monotonic() - began_s)

    run_checks(checks, arguments.rehearse, told, named=bool(arguments.only))
    results = [one.result for one in found]
    print(f"{summary(results, time.monotonic() - began_s)}: {folder / 'checks.md'}")
    return int(any(one.verdict == FAILED for one in results))
