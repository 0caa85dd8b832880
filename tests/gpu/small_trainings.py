"""Small trainings on synthetic data, some milliseconds an update on a GPU."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from training import Training

from scalewatt.campaign.cluster import Device
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.termination import StopRequest
from scalewatt.data.prepared import prepare_dataset
from scalewatt.energies.account import write_energy
from scalewatt.energies.tables import EnergyTotals
from scalewatt.recordings.stage_log import EventLog
from scalewatt.run_files.record import Job
from scalewatt.training.checkpoint import load_checkpoint
from scalewatt.training.distributed import choose_device, join_ranks, start_process_group
from scalewatt.training.train import Trainer

DEVICE = "cuda"
RESNET50, FOURCASTNET = "resnet50", "fourcastnet"
POWERS = {"cpu": {"sockets": 1, "idle_w": 50, "rated_w": 150}, "gpu": None, "ram": None}
"""Where the CPUs have no counter they are estimated; GPUs never are."""
IMAGES = {"train_samples": 960, "validation_samples": 64, "classes": 100}
FIELDS = {"grid": [176, 352], "samples_per_year": 120}
SIZES: dict[str, dict[str, Any]] = {
    # At its start ResNet50 has gradients of a norm in the hundreds: with the paper's rates rounding
    # alone would drive two trainings apart.
    RESNET50: {
        "image_size": 128,
        "base_learning_rate": 1e-5,
        "warmup_epochs": 1,
        "warmup_start": 1e-7,
    },
    FOURCASTNET: {"patch_size": 8, "embed_dim": 256, "depth": 4, "num_blocks": 8},
}
BATCHES = {RESNET50: 32, FOURCASTNET: 4}
LARGE = {"local_batch_size": 64, "settings": {"image_size": 224}}
"""Changes of ResNet50 with which an update keeps a GPU busy for longer than it takes to start it."""


def small_spec(model: str, gpus: int = 1, protocol: str = "corrected", **changes: Any) -> RunSpec:
    """Return the spec of a small training; `settings` are the model's, other changes fields of the spec."""
    settings = {"loader": "synthetic", "loader_workers": 0, **changes.pop("settings", {})}
    batch = changes.pop("local_batch_size", BATCHES[model])
    phase = {"phase": "pretrain"} if model == FOURCASTNET else {}
    weather = {"initial_conditions": 2, "initial_condition_spacing": 2}
    years = {
        f"{part}_years": [year, year]
        for part, year in zip(("train", "validation", "test"), (1979, 1980, 1981), strict=True)
    }
    content = {
        "name": "small",
        "protocol": protocol,
        "sampling_period_s": 0.1,
        "datasets": {
            "scans": {"format": "imagenet", "source": "none", **IMAGES},
            "waves": {"format": "era5", "source": "none", **years, **FIELDS},
        },
        "models": {
            "resnet50": {"dataset": "scans", "epochs": 2, **SIZES[RESNET50]},
            "fourcastnet.pretrain": {"dataset": "waves", "epochs": 2, **weather, **SIZES[FOURCASTNET]},
        },
        "series": {
            "points": {
                **{"model": model, **phase, "device": "local", "gpus": [gpus]},
                **{"local_batch_size": batch, "settings": settings},
            }
        },
        "figures": {"breakdown": {"series": ["points"]}},
    }  # fmt: skip
    campaign = expand(
        content,
        Path("small"),
        {"local": Device(name="local", gpus_per_node=4, cpus_per_rank=1, cpu=POWERS["cpu"])},
    )
    (configuration,) = campaign.configurations
    return replace(run_spec(campaign, configuration, 1), **changes)


def prepared(folder: Path, spec: RunSpec, torch_device: str = DEVICE) -> Training:
    """Return a run of `spec` in a new folder, not yet started."""
    folder.mkdir()
    (folder / "spec.json").write_text(spec.text)
    prepare_dataset(dict(spec.dataset), folder / "data" / spec.dataset["name"], None)
    return Training(folder, folder / "data", spec, torch_device=torch_device)


def run_updates(training: Training, updates: int) -> dict[str, Any]:
    """Train for so many updates, to a stop, and return the checkpoint."""
    code, output = training.run("--max-updates", str(updates))
    assert code == 75, output
    state = load_checkpoint(training.work / "checkpoint.pt", training.spec.sha256)
    assert state is not None
    return state


def energies_of(training: Training) -> EnergyTotals:
    """Account for a finished run as the workflow does."""
    energy = training.folder / "energy.parquet"
    traces = training.folder / "traces.parquet"
    write_energy(training.out, training.folder / "spec.json", POWERS, traces, energy)
    return EnergyTotals(pq.read_table(energy).to_pandas(), with_staging=True)


def in_child(function: Callable[..., Any], *args: Any) -> Any:
    """Return what a function of a module returns in a process of its own, where CUDA has not begun."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def trainer_of(
    spec: RunSpec, folder: Path, max_updates: int | None = None, events: EventLog | None = None
) -> Trainer:
    """Return the trainer of a run in this process, with a process group as a training has it."""
    ranks = join_ranks("small", 1, 1)
    device = choose_device(DEVICE, ranks)
    if not torch.distributed.is_initialized():
        start_process_group(ranks, device)
    folder.mkdir(parents=True)
    job = Job(spec, str(folder), folder, 0, max_updates=max_updates)
    return Trainer(job, ranks, device, StopRequest(), events or EventLog(None, 0))


def losses_of(trainer: Trainer, updates: int = 4) -> list[float]:
    """Return the mean loss of each of the first updates; the trainer must stop after each of them."""
    losses, before = [], torch.zeros(2, dtype=torch.float64)
    for _ in range(updates):
        trainer.run()
        assert trainer.sums is not None
        sums = trainer.sums.cpu()[:2]
        samples, loss = (sums - before).tolist()
        losses.append(loss / samples)
        before = sums
    return losses


# --- states of trainings --------------------------------------------------------------------------

_NOT_COMPARED = {"phases", "segment", "peak_memory_bytes"}
"""Clocks and memory."""


def differences(state: Any, other: Any, name: str = "") -> list[str]:
    """Return the names of the parts in which two checkpoints differ in a bit, clocks left out."""
    if isinstance(state, torch.Tensor):
        same = state.dtype == other.dtype and torch.equal(_bits(state), _bits(other))
        return [] if same else [name]
    if isinstance(state, Mapping):
        if set(state) != set(other):
            return [name]
        keys = [k for k in state if k not in _NOT_COMPARED and not str(k).endswith("_s")]
        return [d for k in keys for d in differences(state[k], other[k], f"{name}.{k}")]
    if isinstance(state, list | tuple):
        if len(state) != len(other):
            return [name]
        pairs = enumerate(zip(state, other, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{name}[{i}]")]
    return [] if state == other or (state != state and other != other) else [name]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def distance(weights: Mapping[str, Any], others: Mapping[str, Any]) -> float:
    """Return the L2 norm of the difference of two networks' states."""
    names = [name for name, part in others.items() if part.is_floating_point()]
    return (
        sum(float((weights[n].double() - others[n].double()).square().sum()) for n in names) ** 0.5
    )
