"""Runs of a script that notes each update as it trains: what was trained, and used, in truth.

The script waits rather than computes, on stand-in GPUs of a known power; where a test says so it pauses in
the middle of an epoch until something has happened to it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml
from mini_node import Node, wait_for
from mini_project import DEVICES, MiniProject
from minislurm import MiniSlurm
from training import changed_python
from workspace import environment

POWER_W = 300.0
"""Of each GPU of failing_nvml before its fault."""
PATIENCE_S = 240.0
"""For a job to come to its pause, or to its end, on a machine with much to do."""
UPDATES, EPOCHS, UPDATE_S = 20, 3, 0.2
SCRIPT = """
import json, os, sys, time
from pathlib import Path
from scalewatt.events import report, stage, stop_requested

updates, epochs, update_s = json.loads(sys.argv[1])
work, segment = Path(os.environ["SCALEWATT_WORK"]), int(os.environ["SCALEWATT_SEGMENT"])
checkpoint, log = work / "epoch", open(work / "trained.jsonl", "a", buffering=1)


def note(epoch, update):
    log.write(json.dumps([segment, epoch, update, time.time()]) + "\\n")


def pauses():
    files = Path(os.environ["COUNTED_PAUSES"]).iterdir()
    return [file for file in files if work.parent.name.startswith(file.name + "-")]


stop_requested()
for epoch in range(int(checkpoint.read_text()) if checkpoint.exists() else 0, epochs):
    stage("train", epoch)
    note(epoch, 0)
    for update in range(1, updates + 1):
        time.sleep(update_s)
        note(epoch, update)
        while epoch and update == updates // 2 and pauses():
            note(epoch, None)
            time.sleep(0.1)
    stage("checkpoint", epoch)
    checkpoint.with_suffix(".new").write_text(str(epoch + 1))
    checkpoint.with_suffix(".new").rename(checkpoint)
    report(epoch=epoch, metric=1.0 / (1 + epoch), updates=updates, samples=64 * updates)
    if stop_requested():
        sys.exit(75)
stage("shutdown")
"""


def counted_project(
    slurm: MiniSlurm, folder: Path, series: Mapping[str, Mapping[str, Any]], epochs: int = EPOCHS
) -> MiniProject:
    """A project whose campaign has these series of the script, on devices of this name."""
    campaign = folder / "counted.yaml"
    model = {
        "workload": "command",
        "command": f"python counted.py [{UPDATES},{epochs},{UPDATE_S}]",
        "folder": "scripts",
        "files": ["counted.py"],
        "epochs": epochs,
    }
    line = {"model": "counted", "gpus": [1], "local_batch_size": 64}
    content = {
        "name": "mini",
        "protocol": "corrected",
        "sampling_period_s": 0.1,
        "models": {"counted": model},
        "figures": {},
        "series": {name: {**line, "device": name, **keys} for name, keys in series.items()},
    }
    campaign.write_text(yaml.safe_dump(content))
    project = MiniProject.on(slurm, folder / "project", campaign)
    (project.path / "scripts").mkdir()
    (project.path / "scripts" / "counted.py").write_text(SCRIPT)
    (folder / "pauses").mkdir()
    node = {**DEVICES["a100-apart"], "torch_device": "cuda"}
    devices = {
        "a100": node,
        "h100": {**node, "partition": "accelerated-h100"},
        "low": {**node, "partition": "low"},
        "scavenge": {**node, "partition": "scavenge"},
    }
    project.change("cluster", devices=devices, stop_warning_s=5)
    faults = ",,,"  # four GPUs without any
    pauses = folder / "pauses"
    project.variables.update(
        changed_python("failing_nvml", SCALEWATT_FAULTS=faults, COUNTED_PAUSES=pauses)
    )
    return project


@dataclass(frozen=True)
class CountedRun:
    """One run of such a campaign."""

    project: MiniProject
    device: str = "a100"
    repeat: int = 1
    epochs: int = EPOCHS

    @property
    def configuration(self) -> str:
        """Id of the run's configuration."""
        return f"counted-{self.device}-n001-lbs0064-full"

    @property
    def target(self) -> str:
        """The last file that the workflow makes of this run alone."""
        return f"results/mini/energy/{self.configuration}/{self.repeat}.parquet"

    @property
    def work(self) -> Path:
        """The folder of the campaign's working directories."""
        cluster = yaml.safe_load((self.project.path / "profiles/mini/cluster.yaml").read_text())
        return self.project.path / cluster["work_root"] / "mini"

    @property
    def workdir(self) -> Path | None:
        """The working directory, once there is one; there is never more than one."""
        folders = list(self.work.glob(f"{self.configuration}-{self.repeat}-*"))
        assert len(folders) <= 1, folders
        return folders[0] if folders else None

    def note(self, name: str) -> Any:
        """A JSON file of the working directory; None where there is none."""
        path = None if self.workdir is None else self.workdir / name
        return json.loads(path.read_text()) if path is not None and path.exists() else None

    @property
    def segments(self) -> list[dict[str, Any]]:
        """The segments that have begun."""
        return (self.note("run.json") or {"segments": []})["segments"]

    @property
    def job(self) -> str:
        """Slurm's job that holds the run."""
        return str(self.note("holder.json")["job"])

    @property
    def node(self) -> Node:
        """The node that holds the run."""
        return self.project.slurm.nodes[self.note("holder.json")["host"]]

    @property
    def _pause(self) -> Path:
        return self.project.path.parent / "pauses" / f"{self.configuration}-{self.repeat}"

    def pause(self) -> None:
        """Let the run pause in the middle of its next epoch but the first."""
        self._pause.write_text("")

    def go_on(self) -> None:
        """End the pause."""
        self._pause.unlink()

    @property
    def trained(self) -> list[tuple[int, int, int | None, float]]:
        """What the script noted: segment, epoch, updates of the epoch (None in a pause), Unix s."""
        path = None if self.workdir is None else self.workdir / "script" / "trained.jsonl"
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        return [tuple(json.loads(line)) for line in lines]

    @property
    def is_paused(self) -> bool:
        """Whether the last segment has come to its pause."""
        return bool(rows := self.trained) and rows[-1][2] is None

    def wait_paused(self, snakemake: subprocess.Popen[str]) -> None:
        """Wait for the pause."""

        def is_there() -> bool:
            assert snakemake.poll() is None, snakemake.communicate()[0]
            return self.is_paused

        wait_for(is_there, f"pause of {self.configuration} {self.repeat}", PATIENCE_S)

    @property
    def queued_job(self) -> str | None:
        """The run's job in Slurm's queue, by the comment that Snakemake gives it."""
        text = self.project.slurm.command("squeue", "--noheader", "--format=%i %k")
        ends = f"_{self.configuration}_{self.repeat}"
        return next((i for i, c in map(str.split, text.splitlines()) if c.endswith(ends)), None)

    def ends(self) -> list[tuple[str, str]]:
        """How each segment and its job ended, by us and by Slurm's accounting."""
        ended = []
        for segment in self.segments:
            *_, last = self.project.slurm.sacct(segment["job"])
            ended.append((segment["outcome"], last["State"].split()[0]))
        return ended

    def assert_truly_recorded(self) -> None:
        """Each update was trained once but for what a kill lost; all energy is that of the stand-ins."""
        stints = {key: [*rows] for key, rows in groupby(self.trained, lambda row: row[:2])}
        whole = {key: rows for key, rows in stints.items() if rows[-1][2] == UPDATES}
        assert [epoch for _, epoch in whole] == list(range(self.epochs)), stints.keys()
        lost = stints.keys() - whole.keys()
        killed = {s["segment"] for s in self.segments if s["outcome"] in ("killed", "failed")}
        assert {segment for segment, _ in lost} <= killed, lost
        kept_s = sum(rows[-1][3] - rows[0][3] for rows in whole.values())
        lost_s = sum(stints[key][-1][3] - stints[key][0][3] for key in lost)
        table = self.project.energy(self.configuration, self.repeat)
        rows = [r for r in table if (r["device_kind"], r["stage"]) == ("gpu", "train")]
        energy_j = sum(r["energy_j"] for r in rows)
        discarded_j = sum(r["discarded_j"] or 0.0 for r in rows)
        assert energy_j - discarded_j == pytest.approx(POWER_W * kept_s, rel=0.005)
        # The script's last note and the last sample before a kill are up to 0.1 s before it each.
        assert discarded_j == pytest.approx(
            POWER_W * lost_s, rel=0.005, abs=0.3 * POWER_W * len(lost)
        )
        assert [s["segment"] for s in self.segments] == list(range(len(self.segments)))
        assert [
            row["epoch"] for row in self.project.history(self.configuration, self.repeat)
        ] == list(range(self.epochs))

    def said_by_status(self) -> dict[str, Any]:
        """What `scalewatt status` says of the run."""
        answer = subprocess.run(
            ["scalewatt", "status", "--site", "profiles/mini/cluster.yaml", "--json"],
            cwd=self.project.path,
            env={**self.project.slurm.environment, "PATH": environment()["PATH"]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert answer.returncode == 0, answer.stderr
        runs = json.loads(answer.stdout)["runs"]
        this = (self.configuration, self.repeat)
        (status,) = [run for run in runs if (run["configuration"], run["repeat"]) == this]
        return status


def disturb(
    snakemake: subprocess.Popen[str], happens: list[tuple[CountedRun, Callable[[CountedRun], None]]]
) -> None:
    """Let something happen to each run as soon as it pauses, in whatever order they do."""
    waiting = list(happens)

    def have_happened() -> bool:
        assert snakemake.poll() is None, snakemake.communicate()[0]
        for run, what in [pair for pair in waiting if pair[0].is_paused]:
            what(run)
            waiting.remove((run, what))
        return not waiting

    wait_for(have_happened, "pauses of all runs", 2 * PATIENCE_S)
