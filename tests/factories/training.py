"""Starting `scalewatt train` on small specs, as the workflow's rule does."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from workspace import PROJECT, TINY, environment, first_on_path

from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.data.prepared import prepare_dataset

CLUSTER = {
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
SLOW_UPDATES = PROJECT / "tests" / "workflow" / "slow_updates"
SLOW_REMOVAL = PROJECT / "tests" / "workflow" / "slow_removal"
UPDATE_S = 0.05
"""How long each update of a training waits to which something is to happen meanwhile."""
NOT_LEARNT = ("segment", "peak_memory_bytes")


def slowed(update_s: float) -> dict[str, str]:
    """The environment in which each update of a training waits so long, without using a processor."""
    return {"PYTHONPATH": first_on_path(SLOW_UPDATES), "UPDATE_S": str(update_s)}


def slow_launcher(launcher: str, update_s: float) -> str:
    """The launcher of such a training."""
    return launcher_in(slowed(update_s), launcher)


def slow_removal(removal_s: float) -> dict[str, str]:
    """The environment in which removing a node's copy of the images takes so long."""
    return {"PYTHONPATH": first_on_path(SLOW_REMOVAL), "REMOVAL_S": str(removal_s)}


def launcher_in(environment: dict[str, str], launcher: str) -> str:
    """The launcher of ranks with further variables in their environment."""
    return f"env {shlex.join(f'{k}={v}' for k, v in environment.items())} {launcher}"


WRONG_CLOCK = PROJECT / "tests" / "workflow" / "wrong_clock"
AHEAD_S = 2.0


def wrong_clock(host: str) -> dict[str, str]:
    """The environment in which the clock of Python's processes on a host is AHEAD_S ahead."""
    return {"PYTHONPATH": first_on_path(WRONG_CLOCK), "WRONG_HOST": host, "AHEAD_S": str(AHEAD_S)}


def prepare(folder: Path) -> None:
    """Prepare the tiny campaign's datasets below `folder`."""
    for name, definition in load_campaign(TINY).datasets().items():
        prepare_dataset(definition, folder / name, None)


@dataclass(frozen=True)
class Training:
    """One run in a folder of its own."""

    folder: Path
    data: Path
    spec: RunSpec
    launcher: str = CLUSTER["launcher"]  # type: ignore[assignment]
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
            },  # type: ignore[index]
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
        return subprocess.Popen(
            self.command(*options),
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def start_slowly(self) -> subprocess.Popen[str]:
        """Start one segment that is long enough for something to happen to it."""
        return replace(self, launcher=slow_launcher(self.launcher, UPDATE_S)).start()

    def run(self, *options: str) -> tuple[int, str]:
        """Run one segment to its end."""
        process = self.start(*options)
        output, _ = process.communicate()
        return process.returncode, output

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
