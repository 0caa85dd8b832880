"""What checks do with a network in their own process, with the trainer that trainings have."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchvision.io import ImageReadMode, decode_jpeg

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.common.termination import StopRequest
from scalewatt.datasets.imagenet.alternative_loaders import TorchvisionImages, decode
from scalewatt.datasets.imagenet.device_decoding import JpegBytes, decoded_batch
from scalewatt.datasets.imagenet.generated_photos import write_photos
from scalewatt.gpu_checks.check_types import CheckSkipped
from scalewatt.gpu_checks.small_trainings import FOURCASTNET, RESNET50, small_spec
from scalewatt.provenance.rank_placement import Ranks
from scalewatt.recordings.stage_log import EventLog
from scalewatt.run_files.work_directory import Job
from scalewatt.training.history import PHASES
from scalewatt.training.process_group import choose_device, join_ranks, start_process_group
from scalewatt.training.step_timer import finish
from scalewatt.training.trainer import Trainer

_UPDATES = 4
_PHOTOS = {True: 4, False: 64}
"""By whether it is a rehearsal."""
_TRAIN = "train"
_SENSITIVE: dict[str, Any] = {"warmup_start": 1e-8}
"""A rate at which rounding of gradients does not grow from update to update."""


@cache
def joined(rehearse: bool) -> tuple[Ranks, torch.device]:
    """Return this process as the only rank, and its device, with a process group started as a training's."""
    torch.set_num_threads(1 if rehearse else 4)
    ranks = join_ranks("gpu-check", 1, 1)
    device = choose_device("cpu" if rehearse else "cuda", ranks)
    start_process_group(ranks, device)
    return ranks, device


def trainer_of(
    spec: RunSpec,
    folder: Path,
    rehearse: bool,
    max_updates: int | None = None,
    events: EventLog | None = None,
) -> Trainer:
    """Return the trainer of a run, not yet warmed up, whose files go to `folder`."""
    ranks, device = joined(rehearse)
    folder.mkdir(parents=True)
    job = Job(spec, spec.sha256, str(folder), folder, 0, max_updates=max_updates)
    return Trainer(job, ranks, device, StopRequest(), events or EventLog(None, 0))


def losses_of(trainer: Trainer, updates: int = _UPDATES) -> list[float]:
    """Return the mean loss of each of the first updates; the trainer must stop after every one."""
    found, before = [], torch.zeros(2, dtype=torch.float64)
    for _ in range(updates):
        trainer.run()
        assert trainer.sums is not None
        sums = trainer.sums.cpu()[:2]
        samples, loss = (sums - before).tolist()
        found.append(loss / samples)
        before = sums
    return found


def large_images() -> RunSpec:
    """Return a ResNet50 whose updates keep a GPU busy for much longer than it takes to give them to it."""
    return small_spec(False, RESNET50, local_batch_size=64, settings={"image_size": 224})


# --- parts ----------------------------------------------------------------------------------------


def one_rank_group(folder: Path, rehearse: bool) -> dict[str, Any]:
    """Return the backend of a group of one rank, and whether a sum over it is right."""
    _, device = joined(rehearse)
    values = torch.arange(1000, dtype=torch.float32, device=device)
    summed = values.clone()
    dist.all_reduce(summed)
    finish(device)
    return {
        "backend": str(dist.get_backend()),
        "device": str(summed.device),
        "sum": float(summed.sum()),
        "expected": float(sum(range(1000))),
    }


class _WatchedEvents(EventLog):
    """Stages, and how much the device had still to do when each training stage ended."""

    def __init__(self, path: Path, device: torch.device) -> None:
        self._device, self._current = device, ""
        self.left_s: list[float] = []
        super().__init__(path, 0)

    def enter(self, stage: str, epoch: int | None = None, at_s: float | None = None) -> None:
        super().enter(stage, epoch, at_s)
        if self._current == _TRAIN:
            ended_s = time.perf_counter()
            finish(self._device)
            self.left_s.append(time.perf_counter() - ended_s)
        self._current = stage


def phases_and_stages(folder: Path, rehearse: bool) -> dict[str, Any]:
    """Return phases against the clock for each epoch, and what was left to do at the end of `train`.

    The first epoch is left out: a GPU's clocks and caches settle in it.
    """
    if rehearse:
        # A batch large enough that what lies between the phases is small against them, and epochs
        # enough that a process that takes the CPU between two phases disturbs few of them.
        spec = small_spec(rehearse, FOURCASTNET, local_batch_size=20, dataset_samples=800, epochs=6)
    else:
        spec = large_images()
    _, device = joined(rehearse)
    events = _WatchedEvents(folder / "events.jsonl", device)
    trainer = trainer_of(spec, folder / "phases", rehearse, events=events)
    trainer.warm_up()
    trainer.run()
    epochs = trainer.history[1:]
    return {
        "phases_s": [
            sum(epoch[f"step_{name}_s"] for name in PHASES) * epoch["updates"] for epoch in epochs
        ],
        "train_s": [epoch["train_s"] for epoch in epochs],
        "left_s": events.left_s,
    }


def layouts(folder: Path, rehearse: bool) -> dict[str, Any]:
    """Return by precision how far losses in channels_last are from contiguous ones, and what is in it."""
    found: dict[str, Any] = {}
    for precision in ("fp32",) if rehearse else ("fp32", "bf16"):
        losses = {}
        for name, channels_last in (("contiguous", False), ("channels_last", True)):
            settings = {"precision": precision, "channels_last": channels_last, **_SENSITIVE}
            if rehearse:
                settings["image_size"] = 64  # smaller ones leave batch normalisation too few pixels
            spec = small_spec(rehearse, RESNET50, protocol="paper", settings=settings)
            trainer = trainer_of(spec, folder / f"{precision}-{name}", rehearse, max_updates=1)
            inputs: list[bool] = []
            handle = _first_convolution(trainer.network.weights).register_forward_pre_hook(
                lambda _, given, seen=inputs: seen.append(is_channels_last(given[0]))
            )
            losses[name] = losses_of(trainer, 2 if rehearse else _UPDATES)
            handle.remove()
            weights = [p for p in trainer.network.weights.parameters() if p.dim() == 4]
            found.setdefault(precision, {})[name] = {
                "inputs": sum(inputs) / len(inputs),
                "parameters": sum(map(is_channels_last, weights)) / len(weights),
            }
        found[precision]["losses"] = losses
    return found


def decoding(folder: Path, rehearse: bool) -> dict[str, Any]:
    """Return how far pixels of photos are from a CPU's, in grey levels, and where they were decoded.

    `pixels` are of whole images, `views` of what a training sees; each is [mean, largest].
    """
    definition = {"train_samples": _PHOTOS[rehearse], "validation_samples": 1, "classes": 1}
    write_photos(folder / "photos", {"name": "photos", **definition})
    shown: dict[str, Any] = {"image_size": 224, "augment": True, "seed": 0}
    files = JpegBytes(folder / "photos", "train", None, **shown)
    expected = TorchvisionImages(folder / "photos", "train", None, **shown)
    keys = [(0, position) for position in range(_PHOTOS[rehearse])]
    _, device = joined(rehearse)
    batch = files.collate([files[key] for key in keys])
    contents = list(batch.content.split(batch.lengths))
    whole = decode_jpeg(contents, mode=ImageReadMode.RGB, device=device)
    seen, _ = decoded_batch(batch, 224, device)
    return {
        "device": str(whole[0].device),
        "photos": len(whole),
        "pixels": _apart(whole, [decode(view.path) for view in batch.views]),
        "views": _apart(seen, [expected[key][0] for key in keys]),
    }


def _apart(found: Iterable[torch.Tensor], expected: Iterable[torch.Tensor]) -> list[float]:
    differences = [(a.cpu().int() - b.int()).abs() for a, b in zip(found, expected, strict=True)]
    means = [difference.double().mean().item() for difference in differences]
    return [sum(means) / len(means), float(max(difference.max() for difference in differences))]


def _first_convolution(network: nn.Module) -> nn.Module:
    return next(part for part in network.modules() if isinstance(part, nn.Conv2d))


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Return True if a 4-d tensor lies in memory with its channels last."""
    return tensor.is_contiguous(memory_format=torch.channels_last)


def compiling(folder: Path, rehearse: bool, start: int) -> dict[str, Any]:
    """Return the seconds of a compiled network's warm-up and its losses; of start 1 the eager one's too."""
    shape = {"depth": 1} if rehearse else {}
    found: dict[str, Any] = {}
    for name in ("eager", "compiled") if start == 1 else ("compiled",):
        settings = {"compile": name == "compiled", **shape}
        spec = small_spec(rehearse, FOURCASTNET, settings=settings)
        try:
            trainer = trainer_of(spec, folder / f"{name}-{start}", rehearse, max_updates=1)
        except InputError as error:  # no compiler
            raise CheckSkipped(str(error)) from error
        began_s = time.perf_counter()
        trainer.warm_up()
        found[f"{name}_s"] = time.perf_counter() - began_s
        found[f"{name}_losses"] = losses_of(trainer)
    return found
