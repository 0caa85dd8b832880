"""Commands and options that are gone, each with what to do instead."""

from __future__ import annotations

from collections.abc import Sequence

REMOVED = {
    "advise --model": "was removed; scalewatt plan predicts what was not measured",
    "boamps": "was removed; scalewatt export writes an archive with every run's energy and settings",
    "calibrate --leave-n-out": "was removed; docs/scaling.md says how far the model's predictions are off",
    "compare --html": "was removed; the command prints the comparison, --out writes its tables",
    "completion": "was removed; pip install shtab; shtab --shell=bash scalewatt.cli.command_line prints it",
    "energy --kind": "was removed with Slurm's profiles; --columns says what the columns of a CSV are",
    "export --agent": "was removed; --author names the authors of an archive",
    "gpu-check": "was removed; pytest -m gpu tests/gpu checks training and measuring on a GPU, in a checkout",
    "gpu-study": "was removed; snakemake --profile profiles/local --config campaign=campaigns/one-gpu.yaml "
    "all runs that campaign",
    "init": "was removed; campaigns and profiles go into a clone of the repository",
    "keys": "was removed; docs/your-campaign.md and docs/your-cluster.md list all keys",
    "plan --at-once": "was removed with --start-between; a plan's carbon is by carbon_intensity",
    "plan --finish-by": "was removed with --start-between; a plan's carbon is by carbon_intensity",
    "plan --start-between": "was removed; a plan's carbon is by carbon_intensity in the cluster file",
    "probe --load": "was removed; docs/idle-probe.md says how the load_w of a cluster file is measured",
    "status --html": "was removed; scalewatt status prints it, --json gives all runs to a program",
}
"""What to do instead of a command, or of an option of a command that stays."""


def removed(words: Sequence[str]) -> str | None:
    """Return the sentence for a removed command, or option, among the words typed; else None."""
    if not words:
        return None
    typed = (words[0], *(f"{words[0]} {word.partition('=')[0]}" for word in words[1:]))
    return next((f"{name} {REMOVED[name]}" for name in typed if name in REMOVED), None)
