"""What the protocols cost: `paper`, as the authors' code computes, and `corrected`, as PyTorch is fastest.

    python benchmarks/protocols.py [loader|layer|update|epoch|plain ...] [--device cuda] [--rounds 10]

loader  processor time an image, of photos of ImageNet's size
layer   time of a spectral layer of FourCastNet, forward and backward, of the paper's width
update  time an update of both models
epoch   time an epoch of ResNet50 with its evaluations
plain   the same under `corrected`, against a plain loop of PyTorch with the same settings

On a CPU the networks are small, and times are the processor's, which others on the machine change little; on
a GPU the networks are the paper's, at LBS 256 and 1, with their energy by NVML's counter. The two sides take
turns; printed are samples/s (and J/sample) of both, and the geometric mean of the ratios of their times with
its 95 % interval.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy import stats
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.termination import StopRequest
from scalewatt.data.imagenet import find_images
from scalewatt.models.afno import FastSpectralLayer, SpectralLayer
from scalewatt.models.interface import workload_class
from scalewatt.recordings.stage_log import EventLog
from scalewatt.run_files.record import Job
from scalewatt.training.distributed import choose_device, join_ranks, start_process_group
from scalewatt.training.train import Trainer

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "gpu"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "factories"))
from small_trainings import FOURCASTNET, RESNET50, small_spec

PROTOCOLS = ("paper", "corrected")
SMALL = {
    RESNET50: {"local_batch_size": 8, "settings": {"image_size": 96}},
    FOURCASTNET: {"local_batch_size": 1},
}
FULL: dict[str, dict[str, Any]] = {
    RESNET50: {"local_batch_size": 256, "settings": {"image_size": 224}},
    FOURCASTNET: {
        "local_batch_size": 1,
        "grid": [720, 1440],
        "settings": {"embed_dim": 768, "depth": 12},
    },
}
UPDATES = {"cpu": 6, "cuda": 40}
PHOTOS = {"cpu": 160, "cuda": 5120}

Work = Callable[[], int]
"""Does what is timed, and gives the number of its samples."""
Side = Callable[[], Work]
"""Prepares some work, untimed."""


def spec_of(model: str, protocol: str, on_gpu: bool) -> RunSpec:
    """Spec of a model at the size of the device."""
    size = dict((FULL if on_gpu else SMALL)[model])
    grid = size.pop("grid", None)
    spec = small_spec(model, 1, protocol, **size)
    return replace(spec, dataset={**spec.dataset, "grid": grid}) if grid else spec


def make_photos(folder: Path, count: int) -> None:
    """Write photos of 500 × 375 pixels in 10 classes, and an index of them."""
    random = np.random.default_rng(0)
    for split, images in (("train", count), ("val", count // 8)):
        for number in range(images):
            path = folder / split / f"n{number % 10}" / f"{number}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            coarse = random.integers(0, 256, (47, 63, 3), dtype=np.uint8)
            image = Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)
            noise = random.normal(0, 8, (375, 500, 3))
            pixels = (np.asarray(image) + noise).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(path, quality=90)
        find_images(folder, split).save(folder, split)


def photo_spec(protocol: str, on_gpu: bool, photos: int, workers: int) -> RunSpec:
    """Spec of ResNet50 on the photos."""
    spec = spec_of(RESNET50, protocol, on_gpu)
    settings = {**spec.settings, "loader": "pil", "loader_workers": workers}
    samples = {"dataset_samples": photos, "validation_samples": photos // 8}
    dataset = {**spec.dataset, "classes": 10}
    once = {"dataset_fraction": "1", "epochs": 1}
    return replace(spec, **samples, **once, dataset=dataset, settings=settings)


class Bench:
    """A device, its process group and a folder of photos."""

    def __init__(self, torch_device: str, folder: Path) -> None:
        self.ranks = join_ranks("benchmark", 1, 1)
        self.device = choose_device(torch_device, self.ranks)
        self.on_gpu = self.device.type == "cuda"
        self.folder, self.photos = folder, PHOTOS[self.device.type]
        start_process_group(self.ranks, self.device)
        make_photos(folder, self.photos)

    def trainer(self, spec: RunSpec) -> Trainer:
        """Trainer of a spec, warmed up."""
        work = Path(tempfile.mkdtemp(dir=self.folder))
        job = Job(spec, str(self.folder), work, 0)
        trainer = Trainer(job, self.ranks, self.device, StopRequest(), EventLog(None, 0))
        trainer.warm_up()
        return trainer

    # --- sides: what is timed -----------------------------------------------------------------

    def loader(self, protocol: str) -> Work:
        """Load photos in this process."""
        spec = photo_spec(protocol, self.on_gpu, self.photos, 0)
        spec = replace(spec, settings={**spec.settings, "image_size": 224})
        data: Any = workload_class(RESNET50)(spec, str(self.folder), self.device).training_data()

        def load() -> int:
            for position in range(min(self.photos, 160)):
                data[0, position]
            return min(self.photos, 160)

        return load

    def layer(self, protocol: str) -> Work:
        """Pass through a spectral layer and back."""
        kind = {"paper": SpectralLayer, "corrected": FastSpectralLayer}[protocol]
        layer = kind(768, 8, 0.01).to(self.device)
        x = torch.randn(1, 45, 90, 768, device=self.device, requires_grad=True)
        count = UPDATES[self.device.type]

        def pass_through() -> int:
            for _ in range(count):
                layer(x).square().sum().backward()
            return count

        return pass_through

    def updates(self, model: str, protocol: str) -> Work:
        """Compute updates by the same batch."""
        trainer = self.trainer(spec_of(model, protocol, self.on_gpu))
        trainer.parallel.train()
        batch, count = next(iter(trainer.loader)), UPDATES[self.device.type]

        def update() -> int:
            for _ in range(count):
                trainer.step = 0
                trainer.update(batch)
            return count * trainer.spec.local_batch_size

        return update

    def epoch(self, protocol: str, workers: int) -> Work:
        """Train an epoch on the photos, and evaluate."""
        trainer = self.trainer(photo_spec(protocol, self.on_gpu, self.photos, workers))

        def train() -> int:
            with redirect_stdout(io.StringIO()):
                trainer.run()
            return self.photos

        return train

    def plain(self, workers: int) -> Work:
        """Do the same as `epoch` under `corrected`, in a plain loop of PyTorch."""
        # Network, data and optimiser are made alike.
        trainer = self.trainer(photo_spec("corrected", self.on_gpu, self.photos, workers))

        def train() -> int:
            model, data = trainer.network, trainer.workload.training_data()
            ddp = DistributedDataParallel(
                model,
                [self.device.index] if self.on_gpu else None,
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
            )
            optimizer = trainer.workload.optimizer(model)
            options = {"num_workers": workers, "pin_memory": self.on_gpu}
            batches = trainer.batches
            for batch in DataLoader(data, batch_sampler=batches, **options):
                images, labels = (part.to(self.device, non_blocking=True) for part in batch)
                optimizer.zero_grad(set_to_none=True)
                torch.nn.functional.cross_entropy(ddp(images), labels).backward()
                optimizer.step()
            model.eval()
            right = 0
            positions, _ = trainer.evaluations["validation"]
            held_out = trainer.workload.evaluations()["validation"].dataset
            with torch.no_grad():
                for batch in DataLoader(held_out, batch_sampler=positions, **options):
                    images, labels = (part.to(self.device, non_blocking=True) for part in batch)
                    right += (model(images).argmax(dim=1) == labels).sum()
            float(right)
            with open(self.folder / "weights.pt", "wb") as file:
                torch.save(model.state_dict(), file)
                os.fsync(file.fileno())
            return self.photos

        return train


# --- measuring ------------------------------------------------------------------------------------


def gpu_energy_j() -> float:
    """Energy of the first GPU since its driver was loaded, in J."""
    import pynvml

    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(0)) / 1e3


@contextmanager
def measured(cost: dict[str, float], on_gpu: bool) -> Iterator[None]:
    """Put the seconds and, on a GPU, the joules of a block into `cost`."""
    clock = time.perf_counter if on_gpu else time.process_time
    began_s, began_j = clock(), gpu_energy_j() if on_gpu else 0.0
    yield
    if on_gpu:
        torch.cuda.synchronize()
    cost["s"], cost["J"] = clock() - began_s, gpu_energy_j() - began_j if on_gpu else 0.0


def compare(name: str, sides: dict[str, Side], rounds: int, on_gpu: bool) -> None:
    """Let two sides take turns, and print both rates and the ratio of their times."""
    rows: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    for side in sides.values():
        side()()  # kernels, caches
    for number in range(rounds):
        for side in list(sides)[:: 1 if number % 2 else -1]:
            cost: dict[str, float] = {}
            work = sides[side]()
            with measured(cost, on_gpu):
                samples = work()
            rows[side].append((cost["s"] / samples, cost["J"] / samples))
    first, second = (np.array(row) for row in rows.values())
    logs = np.log(first[:, 0] / second[:, 0])
    half = stats.t.ppf(0.975, rounds - 1) * logs.std(ddof=1) / np.sqrt(rounds)
    low, middle, high = np.exp([logs.mean() - half, logs.mean(), logs.mean() + half])
    rates = [
        f"{side} {1 / np.median(row[:, 0]):.4g} samples/s"
        + (f" {np.median(row[:, 1]):.4g} J/sample" if on_gpu else "")
        for side, row in zip(rows, (first, second), strict=True)
    ]
    print(f"{name}: {', '.join(rates)}; time {middle:.3f} ({low:.3f}-{high:.3f})", flush=True)


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parts = ("loader", "layer", "update", "epoch", "plain")
    parser.add_argument("parts", nargs="*", metavar="|".join(parts), help="default: all")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--workers", type=int, help="of loaders; default: 0 on a CPU, 4 on a GPU")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.device, Path(folder))
        workers = options.workers if options.workers is not None else 4 * bench.on_gpu
        measure = {"rounds": options.rounds, "on_gpu": bench.on_gpu}
        chosen = options.parts or parts
        if "loader" in chosen:
            threads = torch.get_num_threads()
            torch.set_num_threads(1)  # as in a loader's workers
            sides = {protocol: partial(bench.loader, protocol) for protocol in PROTOCOLS}
            compare("loader", sides, options.rounds, False)
            torch.set_num_threads(threads)
        if "layer" in chosen:
            sides = {protocol: partial(bench.layer, protocol) for protocol in PROTOCOLS}
            compare("layer fourcastnet", sides, **measure)
        if "update" in chosen:
            for model in (RESNET50, FOURCASTNET):
                sides = {
                    protocol: partial(bench.updates, model, protocol) for protocol in PROTOCOLS
                }
                compare(f"update {model}", sides, **measure)
        if "epoch" in chosen:
            sides = {protocol: partial(bench.epoch, protocol, workers) for protocol in PROTOCOLS}
            compare("epoch resnet50", sides, **measure)
        if "plain" in chosen:
            ours = partial(bench.epoch, "corrected", workers)
            sides = {"corrected": ours, "plain": partial(bench.plain, workers)}
            compare("epoch resnet50", sides, **measure)


if __name__ == "__main__":
    main()
