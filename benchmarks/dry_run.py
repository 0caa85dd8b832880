"""How long `-n` of the whole paper campaign takes with profiles/horeka.

    python benchmarks/dry_run.py [--rounds 5] [--json FILE]

Each round plans the campaign twice from the start, in changing order: with the profile as it is, and
with a cluster file whose devices have no partition, so that no job asks Slurm for anything (the same
jobs otherwise). Times are wall times of the whole command, `snakemake` started anew; there is neither
Slurm nor an account, and no data. The ratio is what asking for every job's geometry and wall time
costs: the median over the rounds, with the smallest and the largest. Ends with 1 where the median
with the profile as it is takes longer than 15 s.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).parents[1]
NEEDED = (
    "Snakefile",
    "config.yaml",
    "workflow",
    "profiles",
    "campaigns",
    "reference",
    "src",
    "envs",
)
TARGET_S = 15.0
TRAININGS = "(nodes × ranks × CPUs: "


def copied_workflow(folder: Path) -> Path:
    """A copy of the workflow without results, in a new `folder`."""
    folder.mkdir()
    for name in NEEDED:
        if (PROJECT / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(PROJECT / name, folder / name, ignore=ignore)
        else:
            shutil.copy2(PROJECT / name, folder / name)
    return folder


def workspace(folder: Path, partitions: bool) -> Path:
    """A copy of the workflow without results; with or without the devices' partitions."""
    copied_workflow(folder)
    cluster = folder / "profiles" / "horeka" / "cluster.yaml"
    lines = cluster.read_text(encoding="utf-8").splitlines(keepends=True)
    if not partitions:
        lines = [line for line in lines if not line.lstrip().startswith("partition:")]
        cluster.write_text("".join(lines), encoding="utf-8")
    return folder


def plan_s(folder: Path, asking: int) -> float:
    """Seconds of one dry run, in which `asking` jobs must say what they ask for."""
    environment = {k: v for k, v in os.environ.items() if k != "SCALEWATT_ACCOUNT"}
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/horeka", "-n", "all"]
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    took_s = time.perf_counter() - begin
    found = (done.stdout + done.stderr).count(TRAININGS)
    if done.returncode != 0 or found != asking:
        sys.exit(
            f"{' '.join(command)}: code {done.returncode}, {found} jobs\n{done.stderr[-2000:]}"
        )
    return took_s


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folders = {
            "profiles/horeka": (workspace(Path(temporary) / "with", True), 175),
            "without partitions": (workspace(Path(temporary) / "without", False), 0),
        }
        times: dict[str, list[float]] = {name: [] for name in folders}
        for number in range(arguments.rounds + 1):
            for name in list(folders)[:: 1 if number % 2 else -1]:
                took_s = plan_s(*folders[name])
                if number:  # the first round fills the caches
                    times[name].append(took_s)
    for name, values in times.items():
        median_s = statistics.median(values)
        print(f"{name:20s} {median_s:6.2f} s  ({min(values):.2f} – {max(values):.2f})")
    ratios = [a / b for a, b in zip(*times.values(), strict=True)]
    ratio, low, high = statistics.median(ratios), min(ratios), max(ratios)
    print(f"{'ratio':20s} {ratio:6.2f}    ({low:.2f} – {high:.2f}) over {len(ratios)} rounds")
    if arguments.json:
        arguments.json.write_text(json.dumps({"seconds": times, "ratios": ratios}, indent=1))
    median_s = statistics.median(times["profiles/horeka"])
    print(f"target: at most {TARGET_S:g} s: {'met' if median_s <= TARGET_S else 'missed'}")
    return 0 if median_s <= TARGET_S else 1


if __name__ == "__main__":
    sys.exit(main())
