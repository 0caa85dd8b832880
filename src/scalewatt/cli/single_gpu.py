"""The study of one GPU."""

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
