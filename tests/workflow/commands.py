"""Scripts of users, and one run of such a script started as the workflow's rule does."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from training import CLUSTER
from workspace import environment, start_process

from scalewatt.campaign.cluster import known_devices
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.run_spec import run_spec

PATIENCE_S = 120

SCRIPTS = {
    "plain": """
import time
begun = time.time()
import argparse, os
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int)
parser.add_argument("--epochs", type=int)
parser.add_argument("--samples", type=int)
given = parser.parse_args()
assert not [name for name in os.environ if name.startswith("PMI_")]
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(given.epochs):
    loss = model(torch.ones(given.batch_size, 4) * (1 + dist.get_rank())).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
local = [os.environ[name] for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")]
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # whole lines, of two ranks in one log

say("rank", dist.get_rank(), "of", dist.get_world_size(), *local, given.batch_size)
say("rank", dist.get_rank(), "ran from", begun, "to", time.time())
dist.destroy_process_group()
""",
    "marked": """
import time
from scalewatt.events import report, stage

time.sleep(1)  # so that its start is recorded
for epoch in range(3):
    stage("train", epoch)
    time.sleep(0.3)
    stage("validate", epoch)
    time.sleep(0.2)
    report(epoch=epoch, metric=50.0 + epoch % 2, samples=90, updates=9, train_loss=1.0 / (1 + epoch))
""",
    "early": """
import time
from scalewatt.events import report, stage

for epoch in range(2):
    stage("train", epoch=epoch)
    time.sleep(0.6)
    report(epoch=epoch, metric=50.0 - epoch, samples=1000)
""",
    "stopped": """
import os, signal, sys, time
from pathlib import Path
from scalewatt.events import report, stage, stop_requested

checkpoint = Path(os.environ["SCALEWATT_WORK"], "epoch")
first = int(checkpoint.read_text()) if checkpoint.exists() else 0
for epoch in range(first, 4):
    stage("train", epoch)
    if stop_requested():
        stage("checkpoint", epoch)
        if os.environ["RANK"] == "0":
            checkpoint.write_text(str(epoch))
        sys.exit(75)
    report(epoch=epoch, metric=float(epoch))
    if epoch == 1 and os.environ["RANK"] == "0" and os.environ["SCALEWATT_SEGMENT"] == "0":
        os.kill(os.getppid(), signal.SIGUSR1)  # as a scheduler does before the limit
    time.sleep(2 if epoch == 1 and first == 0 else 0.1)
""",
    "failing": """
import os, sys, time
if os.environ["RANK"] == "1":
    sys.exit("no such optimiser")
time.sleep(600)
""",
    "spawning": """
import os, sys
import torch.distributed as dist, torch.multiprocessing as mp
from scalewatt.events import report

def train(rank, size):
    os.environ["MASTER_PORT"] = str(20000 + os.getppid() % 20000)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    if rank == 0:
        report(epoch=0, metric=1.0)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(train, args=(3,), nprocs=3)
""",
    "lingering": """
import os, time
from scalewatt.events import report
if os.environ["RANK"] == "1":
    time.sleep(600)
for epoch in range(4):
    report(epoch=epoch, metric=1.0)
""",
    "waiting": """
import os, subprocess, time
from pathlib import Path
child = subprocess.Popen(["sleep", "600"])
Path(os.environ["SCALEWATT_WORK"], os.environ["RANK"]).write_text(f"{os.getpid()} {child.pid}")
time.sleep(600)
""",
    "listening": """
import os, signal, sys, time
from pathlib import Path

work, rank = Path(os.environ["SCALEWATT_WORK"]), os.environ["RANK"]
def leave(number, frame):
    (work / f"{rank}-got").write_text(signal.Signals(number).name)
    sys.exit(75)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, leave)
(work / f"{rank}-ready").touch()
time.sleep(600)
""",
    "whose": """
import sys
from scalewatt.events import report

sys.stdout.write(f"mine is {sys.prefix}\\n")
report(epoch=0, metric=1.0)
""",
}
"""Training scripts of users, by what is special about them."""
ALONE = """
name: own
protocol: corrected
sampling_period_s: 0.2
models:
  {name}: {{workload: command, command: python {name}.py, folder: scripts, files: [{name}.py], epochs: 4}}
series:
  one: {{model: {name}, device: local, gpus: [2], local_batch_size: 8}}
figures: {{figure1: {{series: [one]}}}}
"""


def wait_for(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "what was waited for did not come"
        time.sleep(0.05)


class Direct:
    """One run of a script, started as the workflow's rule does, in the folder `path`."""

    def __init__(
        self, path: Path, name: str, monkeypatch: pytest.MonkeyPatch, **changes: Any
    ) -> None:
        self.path = path
        monkeypatch.chdir(path)
        (path / "scripts").mkdir()
        (path / "scripts" / f"{name}.py").write_text(SCRIPTS[name])
        content = yaml.safe_load(ALONE.format(name=name))
        content["models"][name] |= changes
        campaign = expand(content, Path("own.yaml"), known_devices())
        (configuration,) = campaign.configurations
        (path / "spec.json").write_text(run_spec(campaign, configuration, 1).text)
        self.cluster: dict[str, Any] = {}
        """Keys of the cluster that depart from CLUSTER."""

    def start(self, launcher: str = "", **variables: str) -> subprocess.Popen[str]:
        """Start one segment, with another launcher or other variables if given."""
        cluster = {**CLUSTER, "launcher": launcher or CLUSTER["launcher"], **self.cluster}
        (self.path / "cluster.json").write_text(json.dumps(cluster))
        command = [
            *(sys.executable, "-m", "scalewatt.cli", "train", "spec.json"),
            *("--site", "cluster.json", "--work", "work", "--out", "out"),
        ]
        return start_process(command, cwd=self.path, env=environment() | variables)

    def run(self, launcher: str = "", **variables: str) -> tuple[int, str]:
        """Run one segment to its end: exit code and all it printed."""
        process = self.start(launcher, **variables)
        output, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, output

    def process_ids(self) -> list[int]:
        """Ids of the waiting commands and of what they started."""
        files = list(self.path.glob("work/*/script/[01]"))
        return [int(word) for file in files for word in file.read_text().split()]
