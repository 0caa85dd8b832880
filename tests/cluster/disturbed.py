"""Runs to which something happens: where they are, what they left, and whether all of it is right."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import torch
import yaml
from mini_node import Node, wait_for
from mini_project import DEVICES, HERE, MiniProject
from minislurm import MiniSlurm
from training import slowed

from scalewatt.energies.node import MAX_UNCOVERED

KILLS = HERE / "kills.yaml"
EPOCHS, UPDATES = 5, 200
"""Of a run: its epochs, and the updates of each. kills.yaml has them."""
UPDATE_S = 0.02
PATIENCE_S = 240.0
"""For a job to come to its first checkpoint, or to its end, on a machine with much to do."""
RANK, PYTHON = "scalewatt.execution.rank", "python"
NOT_LEARNT = ("segment", "peak_memory_bytes", "throughput_samples_per_s")


def prepared(slurm: MiniSlurm, path: Path) -> MiniProject:
    """A project whose dataset is prepared, for copies."""
    project = MiniProject.on(slurm, path, KILLS)
    low = {**DEVICES["a100"], "partition": "low"}
    project.change("cluster", devices={**DEVICES, "a100-low": low})
    project.variables.update(slowed(UPDATE_S))
    code, output = project.snakemake("results/mini/datasets/waves.json")
    assert code == 0, output
    return project


def copied(project: MiniProject, path: Path) -> MiniProject:
    """Another project in the same state."""
    shutil.copytree(project.path, path, symlinks=True)
    return MiniProject(path, slurm=project.slurm, variables=project.variables)


@dataclass(frozen=True)
class Run:
    """One run of the campaign kills.yaml."""

    project: MiniProject
    device: str = "a100"
    repeat: int = 1

    @property
    def configuration(self) -> str:
        """Id of the run's configuration."""
        return f"fourcastnet.pretrain-{self.device}-n002-lbs0001-full"

    @property
    def target(self) -> str:
        """The last file that the workflow makes of this run alone."""
        return f"results/mini/energy/{self.configuration}/{self.repeat}.parquet"

    @property
    def out(self) -> Path:
        """The run folder."""
        return self.project.results / "runs" / self.configuration / str(self.repeat)

    @property
    def work(self) -> Path:
        """The folder of the campaign's working directories."""
        cluster = yaml.safe_load((self.project.path / "profiles/mini/cluster.yaml").read_text())
        return self.project.path / cluster["work_root"] / "mini"

    @property
    def workdir(self) -> Path | None:
        """The working directory, once there is one; there is never more than one."""
        found = list(self.work.glob(f"{self.configuration}-{self.repeat}-*"))
        assert len(found) <= 1, found
        return found[0] if found else None

    def note(self, name: str) -> Any:
        """A JSON file of the working directory; None where there is none."""
        path = None if self.workdir is None else self.workdir / name
        return json.loads(path.read_text()) if path is not None and path.exists() else None

    @property
    def segments(self) -> list[dict[str, Any]]:
        """The segments that have begun."""
        return (self.note("run.json") or {"segments": []})["segments"]

    @property
    def safe_updates(self) -> int:
        """Updates that are in a checkpoint."""
        progress = self.note("progress.json") or {}
        return (progress.get("checkpoint") or {"updates": 0})["updates"]

    @property
    def job(self) -> str:
        """Slurm's job that holds the run."""
        return str(self.note("holder.json")["job"])

    @property
    def node(self) -> Node:
        """The node that holds the run."""
        return self.project.slurm.nodes[self.note("holder.json")["host"]]

    def wait_in_epoch(self, snakemake: subprocess.Popen[str]) -> int:
        """Wait until an epoch is safe and the next is trained; updates that are safe then."""

        def is_there() -> bool:
            assert snakemake.poll() is None, snakemake.communicate()[0]
            return self.safe_updates >= UPDATES

        wait_for(is_there, f"checkpoint of {self.configuration} {self.repeat}", PATIENCE_S)
        return self.safe_updates

    def ranks(self) -> list[psutil.Process]:
        """The ranks on the run's node."""
        return [process for process in self._recording() if not _is_forked(process)]

    def samplers(self) -> list[psutil.Process]:
        """perun's samplers on the run's node."""
        return [process for process in self._recording() if _is_forked(process)]

    def _recording(self) -> list[psutil.Process]:
        """Ranks and samplers, without the launcher and the workers that load data."""
        return [p for p in self.node.processes(PYTHON) if RANK in p.cmdline()]

    def history(self) -> list[dict[str, Any]]:
        """What was learnt, without clocks."""
        rows = pq.read_table(self.out / "history.parquet").to_pylist()
        return [
            {k: v for k, v in row.items() if not k.endswith("_s") and k not in NOT_LEARNT}
            for row in rows
        ]

    def weights(self) -> dict[str, torch.Tensor]:
        """The weights at the end."""
        return torch.load(self.out / "weights.pt", map_location="cpu")


def _is_forked(process: psutil.Process) -> bool:
    """Whether a process was forked from a rank."""
    parent = process.parent()
    return parent is not None and parent.cmdline() == process.cmdline()


def assert_same_results(run: Run, undisturbed: Run) -> None:
    """Weights and history, bit for bit."""
    assert run.history() == undisturbed.history()
    weights, others = run.weights(), undisturbed.weights()
    assert weights.keys() == others.keys()
    for name, tensor in weights.items():
        assert torch.equal(tensor, others[name]), name


def assert_nothing_twice(run: Run, recording_lost: bool = False) -> None:
    """Segments that follow one another, each with its own recording, energy counted once, no holder left.

    Without a sampler, or on a full disk, nothing is recorded until the run has ended, which takes long on a
    busy machine.
    """
    segments = run.segments
    assert [s["segment"] for s in segments] == list(range(len(segments)))
    assert [s["outcome"] for s in segments].count("finished") == 1
    assert segments[0]["from_updates"] == 0 and segments[-1]["to_updates"] == EPOCHS * UPDATES
    for one, following in pairwise(segments):
        assert one["to_updates"] == following["from_updates"], segments
        assert last_known_s(one) <= following["started_s"], segments
    assert [row["epoch"] for row in run.history()] == list(range(EPOCHS))
    files = Counter(path.name for path in (run.out / "perun").iterdir())
    recorded = {name.split(".")[0] for name in files if name.endswith(".sensors.json")}
    assert recorded == {f"segment-{s['segment']:03d}" for s in segments}
    rows = pq.read_table(run.project.path / run.target).to_pylist()
    keys = Counter((r["segment"], r["node"], r["device_kind"], r["stage"]) for r in rows)
    assert set(keys.values()) == {1}
    used = [r for r in rows if r["device_kind"] == "cpu"]
    too_little = recording_lost and all(r["coverage"] < 1 - MAX_UNCOVERED for r in used)
    assert all((r["energy_j"] is None) == too_little for r in used), rows
    until_s = [s["ended_s"] or following["started_s"] for s, following in pairwise(segments)]
    for segment, end_s in zip(segments, [*until_s, segments[-1]["ended_s"]], strict=True):
        covered_s = sum(r["duration_s"] for r in used if r["segment"] == segment["segment"])
        assert 0 < covered_s < end_s - segment["started_s"] + 1, segment
    assert run.workdir is not None and not (run.workdir / "holder.json").exists()
    assert not list(run.out.rglob("*.tmp*")) and not list(run.workdir.rglob("*.tmp*"))


def last_known_s(segment: dict[str, Any]) -> float:
    """When a segment ended, or began where nobody could say more, in Unix s."""
    return float(segment["ended_s"] or segment["started_s"])


def assert_nothing_safe_was_lost(run: Run, safe_updates: int) -> None:
    """What was in a checkpoint before the first segment's disturbance stayed there."""
    first, *others = run.segments
    assert first["to_updates"] >= safe_updates >= UPDATES
    assert all(other["from_updates"] >= safe_updates for other in others)
