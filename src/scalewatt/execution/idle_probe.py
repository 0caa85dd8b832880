"""An idle probe: the power of a node while its GPUs are open and nothing is computed.

It is a run of a command (`scalewatt.idle`) on one node, one rank per GPU or a single one on a CPU.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.cluster import Cluster, Device
from scalewatt.campaign.load import expand
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json, write_json, write_text
from scalewatt.common.project_files import PACKAGE
from scalewatt.execution.launch import LaunchOptions, run_training
from scalewatt.idle import SETTLE_S

WORK = ".work"
"""Folder of a probe that runs, or has failed."""


def run_probe(
    device: Device, cluster: Cluster, seconds: float, period_s: float, repeat: int, out: Path
) -> int:
    """Measure once for `seconds` and leave `perun/`, `probe.log` and `probe.json` in `out`; an exit code.

    `probe.json` is written last: a folder with it has a finished probe, which InputError keeps.
    """
    if (out / "probe.json").exists():
        raise InputError(f"{out}: holds a finished probe; expected another --out, or remove it")
    ranks = device.probe_ranks
    if device.torch_device == "auto":
        import torch

        gpus = min(device.gpus_per_node, torch.cuda.device_count())
        ranks, kind = (gpus, "cuda") if gpus else (1, "cpu")
        device = device.model_copy(update={"torch_device": kind})
    spec = _spec(device, ranks, seconds, period_s, repeat)
    work, run = out / WORK, out / WORK / "run"
    shutil.rmtree(work, ignore_errors=True)
    write_text(work / "spec.json", spec.text)
    code = run_training(work / "spec.json", run, LaunchOptions(cluster, device, work))
    if code == 0:
        shutil.rmtree(out / "perun", ignore_errors=True)
        (run / "perun").rename(out / "perun")
        (run / "train.log").rename(out / "probe.log")
        write_json(out / "probe.json", _result(run, spec, seconds))
        shutil.rmtree(work)
    return code


def _spec(device: Device, ranks: int, seconds: float, period_s: float, repeat: int) -> RunSpec:
    """Spec of the run that sleeps; -E, because PYTHONPATH may name the packages of another Python."""
    python = f"{shlex.quote(sys.executable)} -E"
    model = {
        "workload": "command",
        "command": f"{python} -m scalewatt.idle {device.torch_device} {seconds:g}",
        "folder": str(PACKAGE.parent),
        "files": ["scalewatt/idle.py"],
        "epochs": 1,
    }
    series = {"model": "idle", "device": device.name, "gpus": [ranks], "local_batch_size": 1}
    content = {
        "name": "idle",
        "sampling_period_s": period_s,
        "idle_probe": {"seconds": seconds},
        "models": {"idle": model},
        "series": {"idle": series},
        "figures": {"figure1": {"series": ["idle"]}},
    }
    campaign = expand(content, Path("scalewatt probe"), {device.name: device}, max_gpus=0)
    (configuration,) = campaign.configurations
    return run_spec(campaign, configuration, repeat)


def _result(run: Path, spec: RunSpec, seconds: float) -> dict[str, Any]:
    provenance = read_json(run / "provenance.json")
    stages = pd.read_parquet(run / "events.parquet")
    start_s = float(stages.loc[stages["stage"] == "train", "start_s"].iloc[-1])
    keys = ("torch_device", "hostnames", "device_name", "gpus", "gpu_uuids", "packages")
    return {
        "device": spec.device,
        "repeat": spec.repeat,
        "seconds": seconds,
        "sampling_period_s": spec.sampling_period_s,
        "settle_s": SETTLE_S,
        **{key: provenance[key] for key in keys},
        "window": {"start_s": start_s, "end_s": start_s + seconds},
    }
