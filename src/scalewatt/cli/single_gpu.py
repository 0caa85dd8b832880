"""Commands for one GPU: the study of it, and the checks on it."""

from __future__ import annotations

import argparse
from pathlib import Path

from scalewatt.cli.command import argument, command


@command(
    argument("--rehearse", action="store_true", help="tiny sizes, on the CPU"),
    argument(
        "--config",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="minutes (25), energy_error (0.03), seconds of each point, trial_s (2)",
    ),
    argument("--train-only", action="store_true", help="draw nothing; needs no Snakemake"),
    argument(
        "--pack", type=Path, metavar="FILE", help="then put results without weights into a .tar.gz"
    ),
    examples=("scalewatt gpu-study --rehearse", "scalewatt gpu-study --config minutes=10"),
)
def gpu_study(arguments: argparse.Namespace) -> int:
    """Measure what a training costs per sample on this machine's GPU, by its settings."""
    from scalewatt.gpu_study.study import limits_of, study

    limits = limits_of(arguments.config, arguments.rehearse)
    return study(arguments.rehearse, limits, not arguments.train_only, arguments.pack)


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
