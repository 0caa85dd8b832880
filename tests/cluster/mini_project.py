"""A working copy of the project with a profile of the miniature cluster, made as a user makes one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
import yaml
from minislurm import MiniSlurm

sys.path.append(str(Path(__file__).parents[1] / "workflow"))
from training import NOT_LEARNT
from workspace import Workspace, environment

HERE = Path(__file__).parent
CAMPAIGN = HERE / "mini.yaml"
_NODE = {
    "cpus_per_rank": 1,
    "gres": "gpu",
    "torch_device": "cpu",
    "time_limit_min": 30,
    "cpu": {"sockets": 1, "idle_w": 50, "rated_w": 150},
}
DEVICES = {
    "a100": {**_NODE, "gpus_per_node": 2, "partition": "accelerated"},
    # One rank a node.
    "a100-apart": {**_NODE, "gpus_per_node": 1, "partition": "accelerated"},
    "h100": {**_NODE, "gpus_per_node": 4, "partition": "accelerated-h100"},
}


@dataclass(frozen=True)
class MiniProject(Workspace):
    """A working copy at `path`, whose user is on the login node of `slurm`."""

    slurm: MiniSlurm = field(kw_only=True)
    variables: dict[str, str] = field(default_factory=dict, kw_only=True)
    """Further variables of the user's shell, which sbatch and srun pass on."""

    @classmethod
    def on(cls, slurm: MiniSlurm, path: Path, campaign: Path = CAMPAIGN) -> MiniProject:
        """Copy the project to `path`, with profiles/mini: profiles/slurm, filled in."""
        Workspace.create(path)
        shutil.copy2(campaign, path / "campaigns" / "mini.yaml")
        project = cls(path, slurm=slurm)
        shutil.copytree(path / "profiles" / "slurm", path / "profiles" / "mini")
        shutil.copy2(path / "config" / "slurm.yaml", path / "profiles" / "mini" / "cluster.yaml")
        project.change(
            "cluster",
            cluster="mini",
            campaign="campaigns/mini.yaml",
            devices=DEVICES,
            stop_warning_s=30,
            checkpoint_every_s=0,
            min_free_gib=0.1,
        )
        project.change(
            "profile",
            **{
                "configfile": "profiles/mini/cluster.yaml",
                "latency-wait": 10,
                "default-resources": ["slurm_partition='cpuonly'", "runtime=10"],
                "set-resources": {"dataset": {"runtime": 10, "mem_mb": 4000}},
                "scalewatt-slurm-init-seconds-before-status-checks": 1,
            },
        )
        return project

    def change(self, name: str, **values: Any) -> None:
        """Set top-level keys of profiles/mini/{cluster,profile}.yaml; None removes one."""
        path = self.path / "profiles" / "mini" / f"{name}.yaml"
        content = {**yaml.safe_load(path.read_text()), **values}
        path.write_text(yaml.safe_dump({k: v for k, v in content.items() if v is not None}))

    def change_devices(self, **values: Any) -> None:
        """Set keys of every device."""
        self.change("cluster", devices={name: {**d, **values} for name, d in DEVICES.items()})

    def start(self, *arguments: str, profile: str | None = "mini") -> subprocess.Popen[str]:
        """Start snakemake as a user of the cluster, in a process group of its own."""
        chosen = ("--profile", f"profiles/{profile}") if profile else ()
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", *chosen, *arguments],
            cwd=self.path,
            env={**self.slurm.environment, "PATH": environment()["PATH"], **self.variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def snakemake(self, *arguments: str, profile: str | None = "mini") -> tuple[int, str]:
        """Run snakemake; exit code and all it printed."""
        return super().snakemake(*arguments, profile=profile)

    def state(self) -> str:
        """What Slurm says of nodes and jobs, and what Snakemake wrote last."""
        nodes = self.slurm.command("sinfo", "--noheader", "--Node", "--format=%N %T %E")
        jobs = self.slurm.command("squeue", "--noheader", "--format=%i %T %j %N %r")
        return f"Nodes:\n{nodes}Jobs:\n{jobs}{super().state()}"

    def jobs(self, *arguments: str, profile: str | None = "mini") -> dict[str, int]:
        """How many jobs of each rule a dry run would execute."""
        return super().jobs(*arguments, profile=profile)

    def out(self, configuration: str, repeat: int = 1) -> Path:
        """A run's folder."""
        return self.results / "runs" / configuration / str(repeat)

    def provenance(self, configuration: str, repeat: int = 1) -> dict[str, Any]:
        """What a finished run ran on."""
        return json.loads((self.out(configuration, repeat) / "provenance.json").read_text())

    def history(self, configuration: str, repeat: int = 1) -> list[dict[str, Any]]:
        """What a finished run learnt, without clocks and memory."""
        rows = pq.read_table(self.out(configuration, repeat) / "history.parquet").to_pylist()
        return [
            {k: v for k, v in row.items() if not k.endswith("_s") and k not in NOT_LEARNT}
            for row in rows
        ]

    def weights(self, configuration: str, repeat: int = 1) -> dict[str, torch.Tensor]:
        """The weights at the end of a finished run."""
        return torch.load(self.out(configuration, repeat) / "weights.pt", map_location="cpu")

    def energy(self, configuration: str, repeat: int = 1) -> list[dict[str, Any]]:
        """The energy table of a run."""
        path = self.results / "energy" / configuration / f"{repeat}.parquet"
        return pq.read_table(path).to_pylist()

    def assert_same_training(self, first: str, second: str) -> None:
        """Two configurations learnt the same, bit for bit."""
        assert self.history(first) == self.history(second)
        weights, theirs = self.weights(first), self.weights(second)
        assert weights.keys() == theirs.keys()
        for name, tensor in weights.items():
            assert torch.equal(tensor, theirs[name]), name

    @property
    def results(self) -> Path:
        """The campaign's results."""
        return self.path / "results" / "mini"

    @property
    def work(self) -> Path:
        """The folder of the runs' working directories."""
        return self.path / "work" / "mini"
