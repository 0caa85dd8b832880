"""Starting `scalewatt train` on small specs, as the workflow's rule does."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
from workspace import PROJECT, TINY, first_on_path, run_process, start_process

from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import RunSpec, run_spec

CLUSTER: dict[str, Any] = {
    "cluster": "local",
    "launcher": "mpiexec -n {gpus}",
    "checkpoint_every_s": 0,
    "devices": {
        "local": {
            "gpus_per_node": 4,
            "cpus_per_rank": 1,
            "torch_device": "cpu",
            "cpu": {"sockets": 1, "idle_w": 50, "rated_w": 150},
        }
    },
}
UPDATE_S = 0.05
"""How long each update of a training waits to which something is to happen meanwhile."""
NOT_LEARNT = ("segment", "peak_memory_bytes")


def changed_python(folder: str, **variables: object) -> dict[str, str]:
    """The environment in which Python takes what tests/workflow/FOLDER has before all else, and variables."""
    path = first_on_path(PROJECT / "tests" / "workflow" / folder)
    return {"PYTHONPATH": path, **{name: str(value) for name, value in variables.items()}}


def launcher_in(environment: dict[str, str], launcher: str) -> str:
    """The launcher of ranks with further variables in their environment."""
    return f"env {shlex.join(f'{k}={v}' for k, v in environment.items())} {launcher}"


def slow_launcher(launcher: str) -> str:
    """The launcher of a training whose updates wait."""
    return launcher_in(changed_python("slow_updates", UPDATE_S=UPDATE_S), launcher)


def rank_processes(pid: int) -> list[psutil.Process]:
    """The ranks below a process, without their samplers and loaders, which have the same command."""
    ranks = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            words, parent = process.cmdline(), process.parent()
            is_rank = words[1:3] == ["-m", "scalewatt.execution.rank"]
            if is_rank and parent is not None and parent.cmdline() != words:
                ranks.append(process)
    return ranks


@dataclass(frozen=True)
class Training:
    """One run in a folder of its own."""

    folder: Path
    data: Path
    spec: RunSpec
    launcher: str = CLUSTER["launcher"]
    scratch: Path | None = None
    closing_s: float | None = None
    torch_device: str = "cpu"

    @classmethod
    def of(cls, folder: Path, data: Path, configuration: str, **changes: Any) -> Training:
        """A run of the tiny campaign, with top-level fields of its spec and some settings changed."""
        spec = run_spec(load_campaign(TINY), configuration, 1)
        settings = {**spec.settings, **changes.pop("settings", {})}
        spec = replace(spec, **changes, settings=settings)
        folder.mkdir(parents=True)
        (folder / "spec.json").write_text(spec.text)
        return cls(folder, data, spec)

    def command(self, *options: str) -> list[str]:
        """The command line."""
        cluster = {
            **CLUSTER,
            "launcher": self.launcher,
            "devices": {
                "local": {**CLUSTER["devices"]["local"], "torch_device": self.torch_device}
            },
            **({"scratch": str(self.scratch)} if self.scratch else {}),
            **({"closing_s": self.closing_s} if self.closing_s else {}),
            "data_roots": {name: str(self.data / name) for name in ("scans", "waves")},
        }
        site = self.folder / "cluster.json"
        site.write_text(json.dumps(cluster), encoding="utf-8")
        return [
            *(sys.executable, "-m", "scalewatt.cli", "train", str(self.folder / "spec.json")),
            *("--site", str(site), "--work", str(self.folder / "work")),
            *("--out", str(self.folder / "out"), *options),
        ]

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Start one segment."""
        return start_process(self.command(*options))

    def start_slowly(self) -> subprocess.Popen[str]:
        """Start one segment that is long enough for something to happen to it."""
        return replace(self, launcher=slow_launcher(self.launcher)).start()

    def run(self, *options: str) -> tuple[int, str]:
        """Run one segment to its end."""
        return run_process(self.command(*options))

    @property
    def out(self) -> Path:
        """The run folder."""
        return self.folder / "out"

    @property
    def work(self) -> Path:
        """The working directory, once there is one."""
        (work,) = (path.parent for path in (self.folder / "work").glob("*/spec.json"))
        return work

    def history(self) -> list[dict[str, Any]]:
        """What was learnt, without clocks and memory."""
        rows = pq.read_table(self.out / "history.parquet").to_pylist()
        return [
            {k: v for k, v in row.items() if not k.endswith("_s") and k not in NOT_LEARNT}
            for row in rows
        ]
