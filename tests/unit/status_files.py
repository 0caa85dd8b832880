"""A small campaign with made working directories and results, by the code that makes real ones."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from energy_files import gpu, write_journal
from run_files import WHOLE, write_energy

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, parse_cluster
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.files import write_json
from scalewatt.monitoring.sampler import RunningTotal
from scalewatt.recordings.journal import beside
from scalewatt.run_files.inventory import Inventory
from scalewatt.run_files.record import note_position, note_progress, read_segments
from scalewatt.tracking.energy_used import energy_sums, energy_used
from scalewatt.tracking.status import campaign_status, status_text

ONE, TWO = "resnet50-a100-n001-lbs0016-full", "resnet50-a100-n002-lbs0016-full"
CAMPAIGN = yaml.safe_load("""
name: made
protocol: corrected
datasets:
  scans: {format: imagenet, source: embedded, train_samples: 320, validation_samples: 31, classes: 10}
models:
  resnet50:
    {dataset: scans, epochs: 10, image_size: 32, base_learning_rate: 0.02, warmup_epochs: 1,
     warmup_start: 0.001, loader_workers: 0}
series:
  images: {model: resnet50, device: a100, gpus: [1, 2], local_batch_size: 16, repeats: 2}
figures: {figure2: {series: [images]}}
""")
CLUSTER = yaml.safe_load("""
cluster: made
launcher: srun --mpi=pmi2 --ntasks={gpus}
devices:
  a100:
    {gpus_per_node: 4, cpus_per_rank: 1, torch_device: cuda, partition: accelerated, gres: gpu,
     time_limit_min: 600, cpu: {sockets: 2, idle_w: 50, rated_w: 150}}
""")


@dataclass(frozen=True)
class Made:
    """The campaign in a folder of its own: 2 configurations × 2 repeats."""

    folder: Path
    campaign: Campaign
    cluster: Cluster

    @classmethod
    def create(cls, folder: Path, **changes: Any) -> Made:
        """The campaign, with top-level keys changed."""
        cluster = parse_cluster(CLUSTER, "made")
        campaign = expand({**CAMPAIGN, **changes}, Path("made.yaml"), cluster.devices)
        return cls(folder, campaign, cluster)

    @property
    def results(self) -> Path:
        return self.folder / "results" / "made"

    @property
    def work(self) -> Path:
        return self.folder / "work" / "made"

    def spec(self, configuration: str = TWO, repeat: int = 1) -> RunSpec:
        return run_spec(self.campaign, configuration, repeat)

    def work_folder(self, configuration: str = TWO, repeat: int = 1) -> Path:
        """A working directory as a training makes it."""
        spec = self.spec(configuration, repeat)
        folder = self.work / f"{spec.key}-{'0' * 8}"
        (folder / "perun").mkdir(parents=True, exist_ok=True)
        (folder / "spec.json").write_text(spec.text)
        return folder

    def publish(self, configuration: str = TWO, repeat: int = 1, **changes: Any) -> Path:
        """A finished run's spec and provenance; its dataset is that of `work_folder`."""
        spec = replace(self.spec(configuration, repeat), **changes)
        folder = self.results / "runs" / configuration / str(repeat)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "spec.json").write_text(spec.text)
        hashes = {"spec_sha256": spec.sha256, "dataset_sha256": "0" * 64}
        content = {**hashes, "segments": [], "hostnames": ["n1"]}
        write_json(folder / "provenance.json", content)
        return folder

    def account(self, configuration: str = TWO, repeat: int = 1, rows: Any = None) -> Path:
        """An energy table: 0.45 kWh of two GPUs in an hour."""
        path = self.results / "energy" / configuration / f"{repeat}.parquet"
        write_energy(path, WHOLE if rows is None else rows)
        return path

    def held(self, folder: Path, silent_s: float = 0.0, **changes: Any) -> None:
        """The marker of a holder on another machine."""
        holder = {"host": "n1", "pid": 99, "job": "7"}
        holder |= {"since_s": time.time() - 60, "token": "a", **changes}
        write_json(folder / "holder.json", holder)
        os.utime(folder / "holder.json", (time.time() - silent_s,) * 2)

    def status(self) -> dict[str, Any]:
        """What the command prints with --json."""
        folders = self.folder / "results", self.folder / "work"
        return campaign_status(self.campaign, self.cluster, *folders)

    def text(self, every_run: bool = False) -> str:
        return status_text(self.status(), every_run)

    def run(self, configuration: str = TWO, repeat: int = 1) -> dict[str, Any]:
        """A run's row of the status."""
        return row_of(self.status(), configuration, repeat)

    def measurements(self, rated: dict[str, Any] | None = None) -> pd.DataFrame:
        """What each measurement has used so far."""
        rated = rated or {"cpu": None, "gpu": None, "ram": None}
        inventory = Inventory.of(self.results, self.work)
        return energy_used(self.campaign, self.results, inventory, lambda *_: rated)

    def used(self) -> dict[str, Any]:
        """Sums over all of them."""
        return energy_sums(self.measurements())


def row_of(status: dict[str, Any], configuration: str, repeat: int = 1) -> dict[str, Any]:
    """A run's row of a status."""
    (row,) = (
        row
        for row in status["runs"]
        if (row["configuration"], row["repeat"]) == (configuration, repeat)
    )
    return row


def begin_segment(
    folder: Path, number: int = 0, outcome: str = "running", refusal: str | None = None, **more: Any
) -> None:
    """Note a segment as a launcher does, after those before, and what it runs on."""
    now = time.time()
    segment = {"segment": number, "started_s": now - 100, "job": "7", "code": None}
    segment |= {"ended_s": None if outcome == "running" else now, "outcome": outcome}
    segment |= {"from_updates": 0, "to_updates": None, **more}
    segments = [*read_segments(folder)[:number], segment]
    write_json(folder / "run.json", {"since": 0, "refusal": refusal, "segments": segments})
    describe(folder, [("n1", 0), ("n1", 1)], number)


def describe(folder: Path, ranks: list[tuple[str, int]], segment: int = 0) -> None:
    """Note hosts and GPUs of a segment's ranks, as rank 0 does."""
    rows = [{"host": host, "gpu": gpu, "gpu_uuid": None} for host, gpu in ranks]
    content = {"torch_device": "cuda", "ranks": rows}
    write_json(folder / f"segment-{segment:03d}.json", content)


def record(
    folder: Path, sensors: dict[str, Any], segment: int = 0, host: str = "n1", ago_s: float = 0.0
) -> Path:
    """Write a segment's journal, one sample a second, the last one `ago_s` before now."""
    path = folder / "perun" / f"segment-{segment:03d}.{host}.csv"
    length = len(next(iter(sensors.values())))
    return write_journal(path, host, sensors, start=time.time() - ago_s - length + 1)


def add_up(journal: Path, until: int | None = None) -> None:
    """The sampler's running total of a journal's first `until` samples, by default of all."""
    total = RunningTotal(
        beside(journal, ".total.json"), json.loads(beside(journal, ".sensors.json").read_text())
    )
    for row in pd.read_csv(journal).head(until).itertuples(index=False):
        total.add(row[0], row[1], row[2:])


def progress(folder: Path, updates: int, segment: int = 0, **changes: Any) -> None:
    """Note the position of a training of 10 epochs of 10 updates."""
    epoch, step = divmod(updates, 10)
    fields = {"segment": segment, "epoch": epoch, "epochs": 10, "step": step, "steps": 10}
    fields |= {"updates": updates, "updates_total": 100, "samples_per_s": 320.0, "stage": "train"}
    note_position(folder, epoch * 10, epoch, 0)
    note_progress(folder, **fields, **changes)


SQUEUE = """#!/bin/sh
[ -n "$SQUEUE_STATES$SQUEUE_PARTITION$SLURM_TIME_FORMAT" ] && exit 0
while [ -n "$HANG" ]; do :; done
[ -n "$FAIL" ] && echo "$FAIL" >&2 && exit 1
while IFS= read -r line; do printf '%s\\n' "$line"; done < "${0%/*}/answer"
"""


def queue(made: Made, *lines: str) -> None:
    """From now on there is a squeue, which answers so."""
    program = made.folder / "bin" / "squeue"
    program.write_text(SQUEUE)
    program.chmod(0o755)
    (made.folder / "bin" / "answer").write_text("".join(f"{line}\n" for line in lines))


def submitted(
    made: Made,
    job: str = "8",
    state: str = "PENDING",
    reason: str = "Priority",
    nodes: str = "",
) -> None:
    """From now on Slurm's queue has a job of the run, as Snakemake submits it."""
    comment = f"rule_train_wildcards_results_made_{TWO}_1"
    queue(made, "|".join((job, state, nodes, reason, "uuid", str(made.folder), comment)))


def stopped(made: Made, updates: int = 40) -> Path:
    """A working directory at a checkpoint."""
    folder = made.work_folder()
    begin_segment(folder, 0, "stopped", to_updates=updates)
    note_position(folder, updates, updates // 10, updates % 10)
    return folder


def running(made: Made, updates: int = 40, **changes: Any) -> Path:
    """A working directory that a job on another node holds."""
    folder = made.work_folder()
    begin_segment(folder)
    progress(folder, updates, **changes)
    made.held(folder)
    return folder


def everything(made: Made) -> None:
    """Runs in four states."""
    folder = running(made, 45)
    mark = {"segment": 0, "stage": "train", "epoch": 4, "start_s": time.time() - 5}
    (folder / "events.jsonl").write_text(json.dumps(mark) + "\n")
    record(folder, {"CUDA:0_POWER": gpu(100), "CUDA:1_POWER": gpu(100), "CPU_BUSY": [9.0] * 100})
    made.publish(ONE)
    made.account(ONE)
    why = "torch.OutOfMemoryError: CUDA out of memory. " * 9
    begin_segment(made.work_folder(ONE, 2), 0, "failed", detail=why)
    made.publish(TWO, 2, seed=9)
