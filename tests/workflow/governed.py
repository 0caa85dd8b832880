"""GPUs of a stated law, in place of real ones, and a training that is as fast as their clock."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

from workspace import first_on_path

FOLDER = Path(__file__).parent / "governed_gpus"
UPDATE_AT_DEFAULT_S = 0.1
"""How long an update takes at the default clock."""
UPDATES = 20
"""In an epoch."""
EPOCHS = 2
SAMPLES = 64
"""In an update of one rank."""
SCRIPT = """
import json, os, socket, sys, time
from pathlib import Path
from scalewatt.events import report, stage, stop_requested

updates, epochs, update_s = json.loads(sys.argv[1])
ignores = Path(os.environ["GOVERNED_GPUS"], f"{socket.gethostname()}-ignores").exists()
clock = 1410.0 if ignores else float(os.environ["GOVERNED_MHZ"])
checkpoint = Path(os.environ["SCALEWATT_WORK"], "epoch")
first = int(checkpoint.read_text()) if checkpoint.exists() else 0
time.sleep(0.5)
for epoch in range(first, epochs):
    stage("train", epoch)
    begun = time.monotonic()
    for update in range(1, updates + 1):
        # By the time since the epoch's begin, so that what lies between updates takes no time.
        time.sleep(max(0, begun + update * update_s * 1410.0 / clock - time.monotonic()))
    stage("checkpoint", epoch)
    # A checkpoint is of what all ranks have done, so the first of them waits for the others.
    checkpoint.with_name(f"done-{epoch}-{os.environ['RANK']}").touch()
    if os.environ["RANK"] == "0":
        while len(list(checkpoint.parent.glob(f"done-{epoch}-*"))) < int(os.environ["WORLD_SIZE"]):
            time.sleep(0.01)
        checkpoint.with_suffix(".new").write_text(str(epoch + 1))
        checkpoint.with_suffix(".new").rename(checkpoint)
    samples = 64 * updates * int(os.environ["WORLD_SIZE"])
    report(epoch=epoch, metric=1.0 / (1 + epoch), updates=updates, samples=samples)
    if stop_requested():
        sys.exit(75)
stage("shutdown")
"""
LEVERS = {"gpu_clock_mhz": "--export=ALL,GOVERNED_MHZ={value}"}
"""By srun, which hands the clock to the ranks and their samplers."""


def environment_of(settings: Path, gpus: int) -> dict[str, str]:
    """The environment in which processes see `gpus` such GPUs on each node."""
    return {
        "PYTHONPATH": first_on_path(FOLDER),
        "GOVERNED_GPUS": str(settings),
        "SCALEWATT_FAULTS": "," * (gpus - 1),
    }


def command(
    updates: int = UPDATES, epochs: int = EPOCHS, update_s: float = UPDATE_AT_DEFAULT_S
) -> str:
    """The command of a model `workload: command` that trains so long."""
    return f"python governed.py {json.dumps([updates, epochs, update_s], separators=(',', ':'))}"


def power_w(clock_mhz: float) -> float:
    """The law of the stand-in's power."""
    os.environ.setdefault("GOVERNED_GPUS", os.devnull)
    spec = importlib.util.spec_from_file_location("governed_nvml", FOLDER / "pynvml.py")
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return float(module.power_w(clock_mhz))


def training_s(clock_mhz: float, updates: int) -> float:
    """The law of the training's time."""
    return updates * UPDATE_AT_DEFAULT_S * 1410.0 / clock_mhz
