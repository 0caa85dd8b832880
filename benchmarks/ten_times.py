"""Ten times the runs, and ten times the nodes: what they take in time, and in memory of a process.

    python benchmarks/ten_times.py [runs] [nodes] [--rounds 3] [--hours 2.4] [--folder FOLDER] [--json FILE]

runs: the paper's campaign with its 175 finished runs, and with ten times the repeats (made results,
benchmarks/paper_results.py). On both, in turn, whole commands: the workflow's plan, the tables of all
runs, a figure from its table's absence, `scalewatt status`, the table of all runs by itself, the report,
and the archive (without its traces). nodes: traces and energy of a recording of 64 and of 640 nodes, as
perun writes it, of so many hours (benchmarks/traces.py).

Prints the medians of the wall times, their ratios, and the largest process' memory. Ends with 1 where
something takes more than eleven times the time, or a process of the accounting more than half as much
memory again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import traces
import yaml
from dry_run import copied_workflow
from figures import remove_made
from paper_results import make

MOST_TIMES, MOST_MEMORY = 11.0, 1.5
PROFILE = "profiles/local"
CHOSEN = ("--config", "campaign=config.yaml", "results_only=true")


@dataclass(frozen=True)
class Taken:
    """What a command took."""

    wall_s: float
    processor_s: float
    """Of all its processes."""
    memory_gib: float
    """Of the largest of its processes."""


def taken(command: list[str], folder: Path) -> Taken:
    """Run a command to its end."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, "PATH": path}, stdout=said, stderr=said
        )
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        process.returncode = code = os.waitstatus_to_exitcode(status)
        if code:
            said.seek(0)
            sys.exit(f"{' '.join(command)}: code {code}\n{said.read().decode()[-3000:]}")
    return Taken(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20)


def workspace(folder: Path, times: int) -> Path:
    """A copy of the workflow with the finished runs of so many times the repeats."""
    copied_workflow(folder)
    path = folder / "config.yaml"
    campaign = yaml.safe_load(path.read_text()) | {"idle_probe": {"repeats": 1}}
    for series in campaign["series"].values():
        series["repeats"] = times * series.get("repeats", 1)
    path.write_text(yaml.safe_dump(campaign, sort_keys=False))
    made = make(folder / "results" / "paper", set(), path)
    print(f"{made} finished runs", flush=True)
    return folder


def of_runs(folder: Path) -> dict[str, Callable[[], Taken]]:
    """What is measured of a folder with finished runs, by name."""
    results = folder / "results" / "paper"

    def snakemake(target: str, *options: str) -> Taken:
        command = [sys.executable, "-m", "snakemake", "--profile", PROFILE, target, *options]
        return taken([*command, *CHOSEN], folder)

    def scalewatt(*words: str) -> Taken:
        return taken([sys.executable, "-m", "scalewatt.cli", *words], folder)

    def drawn(target: str) -> Taken:
        remove_made(results)
        return snakemake(target)

    def archived() -> Taken:
        (folder / "paper.crate.zip").unlink(missing_ok=True)
        return scalewatt("export", "config.yaml", "--profile", PROFILE)

    return {
        "plan (-n report)": lambda: snakemake("report", "-n"),
        "tables": lambda: drawn("tables"),
        "figure 2": lambda: drawn("figure2"),
        "report": lambda: drawn("report"),
        "status": lambda: scalewatt(
            "status", "--profile", PROFILE, "--campaign", "config.yaml", "--results", "results"
        ),
        "export": archived,
    }


def of_nodes(folder: Path, nodes: int, hours: float) -> Callable[[], Taken]:
    """The accounting of a recording of so many nodes."""
    (folder / "perun").mkdir(parents=True)
    samples = int(hours * 3600 / traces.STEP_S)
    traces.build(folder / "perun" / "segment-000.hdf5", nodes, samples)
    traces.make_run(folder, nodes, samples)
    print(f"{nodes} nodes, {nodes * 8 * samples / 1e6:.1f} million samples", flush=True)

    def account() -> Taken:
        found = traces.timed("account", folder, cold=False)
        return Taken(found["seconds"], found["cpu_s"], found["peak_gib"])

    return account


def main() -> int:
    """Make both sizes, measure them in turn, print and judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", choices=("runs", "nodes", []), default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hours", type=float, default=2.4)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", help="measure only what has this in its name")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as temporary:
        pairs: dict[str, list[Callable[[], Taken]]] = {}
        for times in (1, 10):
            folder = Path(temporary) / f"times-{times}"
            folder.mkdir()
            if "runs" in (given.what or "runs"):
                for name, one in of_runs(workspace(folder / "project", times)).items():
                    pairs.setdefault(name, []).append(one)
            if "nodes" in (given.what or "nodes"):
                one = of_nodes(folder / "run", 64 * times, given.hours)
                pairs.setdefault("traces and energy", []).append(one)
        chosen = {name: pair for name, pair in pairs.items() if (given.only or "") in name}
        found = {name: measured(name, pair, given.rounds) for name, pair in chosen.items()}
    if given.json:
        content = {name: [list(map(asdict, side)) for side in two] for name, two in found.items()}
        given.json.write_text(json.dumps(content, indent=1))
    missed = [name for name, (few, many) in found.items() if not kept(name, few, many)]
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; missed: {missed or 'nothing'}")
    return int(bool(missed))


def measured(
    name: str, pair: list[Callable[[], Taken]], rounds: int
) -> tuple[list[Taken], list[Taken]]:
    """Measure both sizes in turn, and print what they took."""
    few, many = [], []
    for _ in range(rounds):
        few.append(pair[0]())
        many.append(pair[1]())
    ratios = [b.wall_s / a.wall_s for a, b in zip(few, many, strict=True)]
    processors = [b.processor_s / a.processor_s for a, b in zip(few, many, strict=True)]
    print(
        f"{name:18s} {median_s(few):7.2f} s, ten times as many {median_s(many):7.2f} s: "
        f"{statistics.median(ratios):5.2f} times ({min(ratios):.2f} to {max(ratios):.2f}), "
        f"{statistics.median(processors):5.2f} times in processors' time; "
        f"{memory(few):.2f} and {memory(many):.2f} GiB",
        flush=True,
    )
    return few, many


def kept(name: str, few: list[Taken], many: list[Taken]) -> bool:
    """Whether the limits are kept; tables of all runs are held in memory, samples are not."""
    times = statistics.median(b.wall_s / a.wall_s for a, b in zip(few, many, strict=True))
    more = memory(many) / memory(few)
    return times <= MOST_TIMES and (more <= MOST_MEMORY or name != "traces and energy")


def median_s(side: list[Taken]) -> float:
    """The median of the wall times."""
    return statistics.median(one.wall_s for one in side)


def memory(side: list[Taken]) -> float:
    """The largest memory."""
    return max(one.memory_gib for one in side)


if __name__ == "__main__":
    sys.exit(main())
