"""One figure, and all figures, from the finished runs of the paper's whole campaign.

    python benchmarks/figures.py [--rounds 3] [--folder FOLDER] [--json FILE]

Makes results of the 175 runs (benchmarks/paper_results.py), with an idle baseline, the energy of each
epoch, and traces as long as the runs of figure 5. Then times whole commands: a dry run of the same
target, which is Snakemake's own time; single figures from their tables' absence to their files (figure 2;
figure 5, which reads traces; learning and breakdown, which read every run's energy); all figures.
The ratio is that of a figure to its dry run. Ends with 1 where the median of one figure is more than
10 s, or that of all more than 60 s.
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

from dry_run import copied_workflow
from paper_results import make

ONE_S, ALL_S = 10.0, 60.0
TARGETS_S = dict.fromkeys(("figure2", "figure5", "learning", "breakdown"), ONE_S)
TARGETS_S |= {"figures": ALL_S}
TRACED = {
    "fourcastnet.pretrain-a100-n004-lbs0004-full",
    "fourcastnet.pretrain-a100-n016-lbs0001-full",
    "fourcastnet.pretrain-h100-n004-lbs0004-full",
    "fourcastnet.pretrain-h100-n016-lbs0001-full",
}


def workspace(folder: Path) -> Path:
    """A copy of the workflow with the finished runs."""
    copied_workflow(folder)
    campaign = folder / "config.yaml"
    campaign.write_text(f"{campaign.read_text().rstrip()}\nidle_probe: {{repeats: 1}}\n")
    made = make(folder / "results" / "paper", TRACED)
    print(f"{made} finished runs", flush=True)
    return folder


def remove_made(results: Path) -> None:
    """Remove figures and tables, but for that of the idle probes, which are there in name only."""
    shutil.rmtree(results / "figures", ignore_errors=True)
    for path in (results / "tables").iterdir():
        if path.stem != "idle":
            path.unlink()


def run_s(folder: Path, target: str, *options: str) -> float:
    """Seconds of one command."""
    chosen = ("--config", "campaign=config.yaml", "results_only=true")
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/local", target]
    begin = time.perf_counter()
    done = subprocess.run(
        [*command, *options, *chosen],
        cwd=folder,
        env=_environment(),
        capture_output=True,
        text=True,
    )
    took_s = time.perf_counter() - begin
    if done.returncode != 0:
        sys.exit(
            f"{' '.join(command)}: code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}"
        )
    return took_s


def _environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path}


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        folder = workspace(Path(temporary) / "project")
        for _ in range(arguments.rounds):
            for target in TARGETS_S:
                remove_made(folder / "results" / "paper")
                times.setdefault(f"{target} -n", []).append(run_s(folder, target, "-n"))
                times.setdefault(target, []).append(run_s(folder, target))
    missed = False
    for name, values in times.items():
        median_s = statistics.median(values)
        print(f"{name:12s} {median_s:6.2f} s  ({min(values):.2f} – {max(values):.2f})")
        missed = missed or median_s > TARGETS_S.get(name, float("inf"))
    for target in TARGETS_S:
        ratios = [a / b for a, b in zip(times[target], times[f"{target} -n"], strict=True)]
        low, high = min(ratios), max(ratios)
        print(f"{target} / its dry run {statistics.median(ratios):6.2f}  ({low:.2f} – {high:.2f})")
    if arguments.json:
        arguments.json.write_text(json.dumps(times, indent=1))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {'missed' if missed else 'met'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
