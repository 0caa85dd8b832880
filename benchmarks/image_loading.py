"""Images a second of the ways to load them, in one process.

    python benchmarks/image_loading.py [--images 256] [--rounds 7] [--size 224] [--json FILE]

JPEGs of 500 × 375 from the page cache, decoded, cropped at random, resized and put into batches of
64. `plain` is torchvision's transforms as in the PyTorch ImageNet example. `torchvision` leaves the
normalising to the device; `torchvision, normalised` does it here, on the processor. Times are the
process's processor time, which other programs disturb less than wall time; there is one thread. The
ratio to `plain` is the median over the rounds, in each of which all take their turn, with the
smallest and the largest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

from scalewatt.datasets.imagenet.alternative_loaders import (
    SyntheticImages,
    TorchvisionImages,
    normalised,
)
from scalewatt.datasets.imagenet.generated_photos import write_photos
from scalewatt.datasets.imagenet.imagenet_dataset import CHANNEL_MEAN, CHANNEL_SD, ImageNetDataset
from scalewatt.datasets.imagenet.index import ImageFolderIndex

BATCH, CLASSES = 64, 8


def plain(folder: Path, size: int) -> DataLoader[Any]:
    """torchvision's transforms and folder reader."""
    steps = [
        transforms.RandomResizedCrop(size, scale=(0.5, 1.0)),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(CHANNEL_MEAN, CHANNEL_SD),
    ]
    data = ImageFolder(str(folder / "train"), transforms.Compose(steps))
    return DataLoader(data, batch_size=BATCH, shuffle=True)


def ours(data: Any) -> DataLoader[Any]:
    """One of our readers, in the loop's way of asking."""
    keys = [(0, position) for position in range(len(data))]
    return DataLoader(
        data, batch_size=BATCH, sampler=keys, collate_fn=getattr(data, "collate", None)
    )


def seconds(loader: DataLoader[Any], finish: Callable[[Any], Any] | None) -> float:
    """Processor time of one pass."""
    began = time.process_time()
    for batch in loader:
        if finish:
            finish(batch[0])
    return time.process_time() - began


def measure(images: int, rounds: int, size: int) -> dict[str, Any]:
    """Images a second and ratios to `plain`."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_photos(
            folder,
            {
                "name": "photos",
                "train_samples": images,
                "validation_samples": CLASSES,
                "classes": CLASSES,
            },
        )
        sizes = ImageFolderIndex.load(folder, "train").sizes
        mean_bytes = None if sizes is None else float(sizes.mean())
        options: Any = {"indices": None, "image_size": size, "augment": True, "seed": 0}
        bytes_loader = ours(TorchvisionImages(folder, "train", **options))
        loaders: dict[str, tuple[DataLoader[Any], Any]] = {
            "plain": (plain(folder, size), None),
            "pil": (ours(ImageNetDataset(folder, "train", **options)), None),
            "torchvision": (bytes_loader, None),
            "torchvision, normalised": (bytes_loader, normalised),
            "synthetic": (ours(SyntheticImages(images, CLASSES)), None),
        }
        times: dict[str, list[float]] = {name: [] for name in loaders}
        for number in range(rounds + 1):
            for name, (loader, finish) in loaders.items():
                taken = seconds(loader, finish)
                if number:  # the first round warms up
                    times[name].append(taken)
    found: dict[str, Any] = {"mean_bytes": mean_bytes}
    for name, own in times.items():
        ratios = sorted(base / one for base, one in zip(times["plain"], own, strict=True))
        found[name] = {
            "images_per_s": images / statistics.median(own),
            "speed_to_plain": statistics.median(ratios),
            "least": ratios[0],
            "most": ratios[-1],
        }
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = measure(arguments.images, arguments.rounds, arguments.size)
    print(f"JPEGs of {found['mean_bytes'] / 1000:.0f} kB, one thread, processor time")
    print(f"{'loader':<26}{'images/s':>10}{'× plain':>9}   least … most")
    for name, one in found.items():
        if name != "mean_bytes":
            print(
                f"{name:<26}{one['images_per_s']:>10.0f}{one['speed_to_plain']:>9.2f}"
                f"   {one['least']:.2f} … {one['most']:.2f}"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
