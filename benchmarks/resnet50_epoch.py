"""An epoch of ResNet50: our loop against a plain one, and the corrected protocol against the paper's.

    python benchmarks/resnet50_epoch.py [--images 192] [--rounds 7] [--size 64] [--batch 64]
                                        [--workers 0] [--device cpu] [--json FILE]

The plain loop is in the style of the PyTorch ImageNet example: torchvision's transforms and folder
reader, a DataLoader, SGD, loss and accuracies brought to the host at every step. Both train the same
network on the same JPEGs (500 × 375, in the page cache) and validate 1 image for 25 that they
train on, as ImageNet has it; checkpoints are left out. Without workers and on the CPU the times are
processor times of one thread, which other programs disturb less, else wall times. In every round all
take their turn; a ratio is the median over the rounds, with the smallest and the largest. Ends with
1 where a target is missed: ours no slower, the corrected protocol 1.3 times as fast as the paper's.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.models import resnet50

from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.termination import StopRequest
from scalewatt.datasets.imagenet.generated_photos import write_photos
from scalewatt.datasets.imagenet.imagenet_dataset import CHANNEL_MEAN, CHANNEL_SD
from scalewatt.recordings.stage_log import EventLog
from scalewatt.run_files.work_directory import Job
from scalewatt.training.process_group import Ranks
from scalewatt.training.trainer import Trainer

CAMPAIGN = Path(__file__).parents[1] / "config.yaml"
CLASSES, VALIDATION_SHARE = 8, 25
TARGETS = {"plain / ours": 1.0, "paper / corrected": 1.3}


class Meter:
    """A running mean."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, value: float, count: int) -> None:
        """Add the mean of `count` samples."""
        self.total += value * count
        self.count += count


class Plain:
    """A training as most people write it."""

    def __init__(self, folder: Path, arguments: argparse.Namespace) -> None:
        size, self.device = arguments.size, torch.device(arguments.device)
        ending = [transforms.ToTensor(), transforms.Normalize(CHANNEL_MEAN, CHANNEL_SD)]
        crop = transforms.RandomResizedCrop(size, scale=(0.5, 1.0))
        views = {
            "train": [crop, transforms.RandomHorizontalFlip(), *ending],
            "val": [
                transforms.Resize(round(size * 256 / 224)),
                transforms.CenterCrop(size),
                *ending,
            ],
        }
        self.loaders = {
            split: DataLoader(
                ImageFolder(str(folder / split), transforms.Compose(steps)),
                batch_size=arguments.batch,
                shuffle=split == "train",
                num_workers=arguments.workers,
                persistent_workers=arguments.workers > 0,
                pin_memory=self.device.type == "cuda",
            )
            for split, steps in views.items()
        }
        self.network = resnet50(num_classes=CLASSES).to(self.device)
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), 0.1, momentum=0.9, weight_decay=1e-4
        )

    def epoch(self) -> None:
        """Train and validate once."""
        self.network.train()
        self._pass(self.loaders["train"], train=True)
        self.network.eval()
        with torch.no_grad():
            self._pass(self.loaders["val"], train=False)

    def _pass(self, loader: DataLoader[Any], train: bool) -> None:
        meters = Meter(), Meter(), Meter()
        for images, labels in loader:
            images = images.to(self.device, non_blocking=True)
            labels = labels.to(self.device, non_blocking=True)
            output = self.network(images)
            loss = functional.cross_entropy(output, labels)
            top = output.topk(5, dim=1).indices == labels[:, None]
            found = loss, 100 * top[:, 0].float().mean(), 100 * top.any(dim=1).float().mean()
            for meter, value in zip(meters, found, strict=True):
                meter.update(value.item(), len(labels))
            if train:
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()


class Alone:
    """MPI's communicator of a world of one."""

    def allgather(self, value: Any) -> list[Any]:
        """What all have."""
        return [value]


class Ours:
    """The loop's own training and evaluation."""

    def __init__(self, folder: Path, protocol: str, arguments: argparse.Namespace) -> None:
        device = torch.device(arguments.device)
        spec = small_spec(protocol, arguments)
        ranks = Ranks(Alone(), 0, 1, 0, "here", 1)  # type: ignore[arg-type]
        job = Job(spec, "", str(folder), folder, 0)
        self.trainer = Trainer(job, ranks, device, StopRequest(), EventLog(None, 0))
        self.trainer.warm_up()
        self.paper = protocol == "paper"

    def epoch(self) -> None:
        """Train, evaluate and write the history's row."""
        torch.backends.cudnn.deterministic = self.paper
        torch.backends.cudnn.benchmark = not self.paper
        began = time.monotonic()
        self.trainer._train_epoch()
        self.trainer.train_s = time.monotonic() - began
        with contextlib.redirect_stdout(io.StringIO()):
            self.trainer._end_epoch()


def small_spec(protocol: str, arguments: argparse.Namespace) -> RunSpec:
    """The paper's spec of one GPU, on so few images."""
    campaign = load_campaign(CAMPAIGN)
    one = next(c for c in campaign.configurations.values() if c.model == "resnet50")
    spec = run_spec(campaign, one.id, 1)
    settings = {"image_size": arguments.size, "loader_workers": arguments.workers}
    return replace(
        spec,
        protocol=protocol,
        dataset=spec.dataset | {"classes": CLASSES},
        dataset_fraction="1",
        dataset_samples=arguments.images,
        validation_samples=arguments.images // VALIDATION_SHARE,
        gpus=1,
        local_batch_size=arguments.batch,
        global_batch_size=arguments.batch,
        settings=spec.settings | settings,
    )


def measure(arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of every epoch but the first, by training."""
    device = torch.device(arguments.device)
    by_processor = device.type == "cpu" and not arguments.workers
    clock: Callable[[], float] = time.process_time if by_processor else time.perf_counter
    if by_processor:
        torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        validation = arguments.images // VALIDATION_SHARE
        definition = {"train_samples": arguments.images, "validation_samples": validation}
        write_photos(folder, {"name": "photos", "classes": min(CLASSES, validation), **definition})
        trainings: dict[str, Plain | Ours] = {
            "plain": Plain(folder, arguments),
            "corrected": Ours(folder, "corrected", arguments),
            "paper": Ours(folder, "paper", arguments),
        }
        times: dict[str, list[float]] = {name: [] for name in trainings}
        for number in range(arguments.rounds + 1):
            names = list(trainings) if number % 2 else list(reversed(trainings))
            for name in names:
                began = clock()
                trainings[name].epoch()
                if device.type == "cuda":
                    torch.cuda.synchronize()
                if number:
                    times[name].append(clock() - began)
    return times


def compared(times: dict[str, list[float]]) -> dict[str, list[float]]:
    """Ratio of each round."""
    pairs = {"plain / ours": ("plain", "corrected"), "paper / corrected": ("paper", "corrected")}
    return {
        name: [a / b for a, b in zip(times[slow], times[fast], strict=True)]
        for name, (slow, fast) in pairs.items()
    }


def main() -> int:
    """Measure, print, and say whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    times = measure(arguments)
    dist.destroy_process_group()
    for name, own in times.items():
        print(f"{name:<18} {statistics.median(own):8.3f} s an epoch")
    met = True
    for name, ratios in compared(times).items():
        middle = statistics.median(ratios)
        met = met and middle >= TARGETS[name]
        print(
            f"{name:<18} {middle:8.3f}   {min(ratios):.3f} … {max(ratios):.3f}"
            f"   target ≥ {TARGETS[name]}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(times, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
