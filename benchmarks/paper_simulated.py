"""How long the paper's whole campaign takes to simulate, to all figures and the report, and what it needs.

    python benchmarks/paper_simulated.py [--cores 2] [--json FILE]

Plays `snakemake --profile profiles/simulate all` once in a copy of the workflow, on so many cores of this
machine: wall and processor time, the largest memory of one process and of all together (what they share
counted once, looked at four times a second), and what was written. Ends with 1 where a target is missed,
ten minutes on 2 cores and 4 GiB of all together, or where a run, a figure or the report is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import pyarrow.parquet as pq
from dry_run import copied_workflow

TARGET_S, TARGET_BYTES = 600.0, 4 << 30
LOOK_S = 0.25
RUNS = 175


@dataclass(frozen=True)
class Taken:
    """What the whole campaign took."""

    cores: int
    wall_s: float
    processor_s: float
    largest_process_bytes: int
    largest_together_bytes: int
    written_bytes: int
    runs: int


def played(folder: Path, cores: int) -> Taken:
    """Play the campaign in a copy of the workflow."""
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/simulate", "all"]
    command += ["--cores", str(cores), "--quiet", "all"]
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    begin = time.perf_counter()
    child = os.fork()
    if not child:
        os.sched_setaffinity(0, allowed)
        os.chdir(folder)
        os.execve(sys.executable, command, {**os.environ, "PATH": path})
    together = 0
    while True:
        ended, status, used = os.wait4(child, os.WNOHANG)
        if ended:
            break
        together = max(together, proportional_bytes(child))
        time.sleep(LOOK_S)
    wall_s = time.perf_counter() - begin
    if status:
        sys.exit(f"{' '.join(command)}: ended with {os.waitstatus_to_exitcode(status)}")
    results = folder / "results" / "paper-simulated"
    return Taken(
        cores,
        wall_s,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss * 1024,
        together,
        sum(path.stat().st_size for path in results.rglob("*") if path.is_file()),
        missing_refused(results),
    )


def proportional_bytes(process: int) -> int:
    """Memory of a process and all that it started; what several share is counted once."""
    found = 0
    try:
        root = psutil.Process(process)
        for one in (root, *root.children(recursive=True)):
            try:
                found += one.memory_full_info().pss
            except psutil.Error:  # it has just ended
                continue
    except psutil.Error:
        pass
    return found


def missing_refused(results: Path) -> int:
    """How many runs there are; ends where a run, a figure or the report is missing."""
    runs = pq.read_table(results / "tables" / "runs.parquet").num_rows
    wanted = [f"figures/figure{number}.png" for number in range(1, 8)]
    wanted += ["report.html", "tables/claims.csv", "tables/table1.csv"]
    absent = [name for name in wanted if not (results / name).is_file()]
    if absent or runs != RUNS:
        sys.exit(f"{runs} runs, expected {RUNS}; missing: {', '.join(absent) or 'nothing'}")
    return runs


def main() -> int:
    """Measure, print, and say whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="paper-simulated-") as folder:
        found = played(copied_workflow(Path(folder) / "project"), given.cores)
    print(
        f"{found.runs} runs on {found.cores} cores: {found.wall_s:.0f} s, {found.processor_s:.0f} s of "
        f"processor; {found.largest_process_bytes / 2**30:.2f} GiB in one process, "
        f"{found.largest_together_bytes / 2**30:.2f} GiB together; {found.written_bytes / 1e9:.2f} GB"
    )
    if given.json:
        given.json.write_text(json.dumps(asdict(found), indent=1), encoding="utf-8")
    slow = found.wall_s > TARGET_S
    return int(slow or found.largest_together_bytes > TARGET_BYTES)


if __name__ == "__main__":
    sys.exit(main())
