"""`scalewatt status` of the paper's campaign, against the bare reading of the files that it reads.

    python benchmarks/status.py [--folder FOLDER] [--running 12] [--hours 24] [--rounds 7]

Makes results and working directories of the 175 runs: some running, with journals of so many hours,
most finished and accounted for, others stopped or failed. Then, in turn and each in a process of its
own: plain Python reads all their JSON notes; the command prints the status. Prints both times and the
median of their ratios, the first look (which counts all journals) apart, and the time of a look while
the journals grow.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.files import write_json, write_table
from scalewatt.energies.accounting.energy_schema import ENERGY_SCHEMA
from scalewatt.recordings.record_file import Field, RecordWriter
from scalewatt.run_files.attempt_log import Attempt, attempt_path
from scalewatt.run_files.progress_files import Progress, note_position, note_progress

ROOT = Path(__file__).parents[1]
SENSORS: dict[str, dict[str, Any]] = {
    **{
        f"CUDA:{i}_POWER": {"device_kind": "gpu", "device_index": i, "unit": "W", "mag": 1e-3}
        for i in range(4)
    },
    **{
        f"{kind}_{i}_package": {"device_kind": kind, "device_index": i, "unit": "J", "mag": 1e-6}
        for kind in ("cpu", "ram")
        for i in range(2)
    },
}
READ_NOTES = """
import json, pathlib, sys
for folder in sys.argv[1:]:
    for path in pathlib.Path(folder).rglob("*.json"):
        json.loads(path.read_text())
"""


def make(folder: Path, running: int, hours: float) -> list[RecordWriter]:
    """Make the campaign's files; the writers of the running runs' journals."""
    campaign = load_campaign(
        ROOT / "config.yaml", load_cluster(ROOT / "profiles/horeka/cluster.yaml")
    )
    results, work = folder / "results" / campaign.name, folder / "work" / campaign.name
    writers = []
    for number, run in enumerate(campaign.runs()):
        spec = run_spec(campaign, run.configuration.id, run.repeat)
        path = work / f"{spec.key}-{'0' * 8}"
        (path / "perun").mkdir(parents=True)
        (path / "spec.json").write_text(spec.text)
        if number < running:
            writers.append(_running(path, work, spec, hours))
        elif number % 9 == 0:
            _ended(path, work, spec, 75 if number % 2 else 70)
        else:
            _finished(results, spec)
    return writers


def _note(path: Path, work: Path, spec: RunSpec, outcome: str, attempt: Attempt) -> None:
    segment: dict[str, Any] = {
        "segment": 0,
        "started_s": attempt.started_s,
        "ended_s": attempt.ended_s,
    }
    segment |= {"outcome": outcome, "from_updates": 0, "to_updates": None}
    write_json(path / "segments.json", [segment])
    write_json(attempt_path(work, spec), asdict(attempt))
    gpus = {"n1": list(range(spec.ranks_per_node))}
    described = {"hostnames": ["n1"], "gpus": gpus, "gpu_uuids": None, "torch_device": "cuda"}
    write_json(path / "segment-000.json", described)
    note_position(path, spec.updates // 2, spec.epochs // 2, 0)


def _running(path: Path, work: Path, spec: RunSpec, hours: float) -> RecordWriter:
    now = time.time()
    _note(path, work, spec, "running", Attempt("7", "n1", 99, now - 3600 * hours))
    holder = {"host": "n1", "pid": 99, "pid_started_s": 1.0, "job": "7", "since_s": now}
    write_json(path / "holder.json", {**holder, "machine": "another"})
    steps, half = spec.updates_per_epoch, spec.updates // 2
    epoch, step = divmod(half, steps)
    total = spec.updates
    note_progress(
        path, Progress(0, epoch, spec.epochs, step, steps, half, total, 9e3, "train", now)
    )
    marks = [
        {"segment": 0, "stage": stage, "epoch": e, "start_s": now - 3600 * hours + 400 * e + at_s}
        for e in range(epoch)
        for stage, at_s in (("train", 0), ("evaluate_train", 300), ("validate", 350))
    ]
    (path / "events.jsonl").write_text("".join(json.dumps(mark) + "\n" for mark in marks))
    header = {"journal": 3, "host": "n1", "sampling_period_s": 1.0, "sensors": SENSORS}
    fields = [Field(name, "<u4" if "CUDA" in name else "<u8") for name in SENSORS]
    writer = RecordWriter(path / "perun", "segment-000.n1", "journal", header, fields)
    write_samples(writer, now - 3600 * hours, int(3600 * hours))
    return writer


def write_samples(writer: RecordWriter, start_s: float, count: int) -> None:
    """Write samples, one a second: noise on the GPUs' powers, steady counters."""
    noise = np.random.default_rng(0).integers(200_000, 350_000, count)
    for i in range(count):
        counters = [round(1e6 * watts * (start_s % 1e6 + i)) for watts in (150, 150, 15, 15)]
        writer.append(start_s + i, start_s + i, [*(int(noise[i]),) * 4, *counters])


def _ended(path: Path, work: Path, spec: RunSpec, code: int) -> None:
    now = time.time()
    outcome = "stopped" if code == 75 else "failed"
    _note(path, work, spec, outcome, Attempt("7", "n1", 99, now - 9, now, code, "a reason"))


def _finished(results: Path, spec: RunSpec) -> None:
    folder = results / "runs" / spec.configuration / str(spec.repeat)
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(spec.text)
    said = {"spec_sha256": spec.sha256, "dataset_sha256": "0" * 64, "segments": []}
    write_json(folder / "provenance.json", said)
    rows = [
        {
            "segment": 0,
            "node": f"n{node}",
            "device_kind": kind,
            "stage": stage,
            "devices": 4,
            "duration_s": 900.0,
            "energy_j": 9e5,
            "recorded_j": 9e5,
            "energy_origin": "measured",
            "coverage": 1.0,
            "short": False,
        }
        for node in range(spec.nodes)
        for kind in ("gpu", "cpu", "ram")
        for stage in ("startup", "train", "evaluate_train", "validate", "checkpoint", "shutdown")
    ]
    path = results / "energy" / spec.configuration / f"{spec.repeat}.parquet"
    write_table(pa.Table.from_pylist(rows, ENERGY_SCHEMA), path)


def timed(command: list[str]) -> tuple[float, float]:
    """Run a command; its seconds, and those of processors."""
    began, used = time.perf_counter(), _used_s()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began, _used_s() - used


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Make the files, look at them, print the times."""
    parser = argparse.ArgumentParser(description="Time of `scalewatt status`.")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--running", type=int, default=12)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        writers = make(folder, arguments.running, arguments.hours)
        print(f"175 runs, {len(writers)} of them running for {arguments.hours:g} h", flush=True)
        places = ["--results", str(folder / "results"), "--work", str(folder / "work")]
        profile = ["--profile", "profiles/horeka", "--campaign", "config.yaml"]
        status = [sys.executable, "-m", "scalewatt.cli", "status", *profile, *places]
        plain = [sys.executable, "-c", READ_NOTES, str(folder / "results"), str(folder / "work")]
        first = timed(status)
        looks, reads = [], []
        for _ in range(arguments.rounds):
            for writer in writers:
                write_samples(writer, time.time() - 60, 60)
            looks.append(timed(status))
            reads.append(timed(plain))
        for i, what in enumerate(("wall clock", "processors")):
            pairs = [(look[i], read[i]) for look, read in zip(looks, reads, strict=True)]
            print(f"{what}: first look {first[i]:.2f} s")
            print(f"  a look         {spread([look for look, _ in pairs])} s")
            print(f"  plain reading  {spread([read for _, read in pairs])} s")
            print(f"  ratio          {spread([look / read for look, read in pairs])}")
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


def spread(values: list[float]) -> str:
    """Median, least and most."""
    return f"{statistics.median(values):6.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
