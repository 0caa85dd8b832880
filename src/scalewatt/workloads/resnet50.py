"""ResNet50 on ImageNet: torchvision's network, SGD, warm-up and plateau as in the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import ReduceLROnPlateau

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.datasets.imagenet.alternative_loaders import (
    RandomImages,
    SyntheticImages,
    TorchvisionImages,
    normalised,
)
from scalewatt.datasets.imagenet.imagenet_dataset import ImageNetDataset
from scalewatt.datasets.imagenet.index import SPLITS, ImageFolderIndex, index_path
from scalewatt.datasets.imagenet.subsets import indices_sha256, stratified_subset
from scalewatt.workloads.interface import Batch, Evaluation, Schedule, Workload

READERS = {"pil": ImageNetDataset, "torchvision": TorchvisionImages}

REFERENCE_BATCH = 256
"""Global batch at which the learning rate is `base_learning_rate` (Goyal et al. 2017)."""

RESULTS = (
    "train_loss",
    "train_metric",
    "validation_loss",
    "metric",
    "top5_error_percent",
    "plateau_loss",
)
"""Keys of `ResNet50.results`."""


class ResNet50(Workload):
    """The paper's first workload; sums are (samples, loss, top-1 hits, top-5 hits, batch means, batches).

    The setting `loader` chooses where images come from. With `synthetic` they are random and stay
    on the device, no data is needed, and losses and errors, which would mean nothing, are None.
    """

    metric_name = "top1_error_percent"

    def __init__(self, spec: RunSpec, data_folder: str, device: torch.device) -> None:
        super().__init__(spec, data_folder, device)
        self.paper = spec.protocol == "paper"
        self.evaluate_train = self.paper
        # As the authors' code does it, and as PyTorch is fastest.
        torch.backends.cudnn.deterministic = self.paper
        torch.backends.cudnn.benchmark = not self.paper
        self._random: RandomImages | None = None
        if self.settings["loader"] == "synthetic":
            s = self.settings
            self._random = RandomImages(s["image_size"], self.seed, device, s["channels_last"])
        self._indices: dict[str, np.ndarray] = {}

    def model(self) -> nn.Module:
        """Return torchvision's resnet50, unchanged, with the dataset's number of classes."""
        from torchvision.models.resnet import resnet50

        return resnet50(weights=None, num_classes=self.spec.dataset["classes"])

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return SGD with momentum and weight decay on every parameter; fused but for protocol paper."""
        s = self.settings
        return torch.optim.SGD(
            model.parameters(),
            lr=self._reference_rate(),
            momentum=s["momentum"],
            weight_decay=s["weight_decay"],
            fused=None if self.paper else True,
        )

    def _reference_rate(self) -> float:
        scale = self.spec.global_batch_size / REFERENCE_BATCH
        return self.settings["base_learning_rate"] * scale

    def schedule(self, optimizer: torch.optim.Optimizer) -> WarmupThenPlateau:
        """Return linear warm-up, then ReduceLROnPlateau on the validation loss."""
        s = self.settings
        return WarmupThenPlateau(
            optimizer,
            reference=self._reference_rate(),
            warmup_epochs=s["warmup_epochs"],
            warmup_start=s["warmup_start"],
            factor=s["plateau_factor"],
            patience=s["plateau_patience"],
            per_epoch=self.paper,
        )

    def _dataset(self, split: str, augment: bool) -> ImageNetDataset | SyntheticImages:
        s = self.settings
        if self._random is not None:
            return SyntheticImages(self._samples(split), self.spec.dataset["classes"])
        data = READERS[s["loader"]](
            self.folder,
            split,
            self._subset(split),
            image_size=s["image_size"],
            augment=augment,
            seed=self.seed,
            crop_scale=tuple(s["crop_scale"]),
            horizontal_flip=s["horizontal_flip"],
        )
        if len(data) != self._samples(split):
            raise InputError(
                f"{index_path(self.folder, split)}: has {len(data)} images,"
                f" the spec of {self.spec.configuration} asks for {self._samples(split)}"
            )
        return data

    def provenance(self) -> dict[str, Any]:
        """Return the SHA-256 of the training and validation subsets' index lists, None for a whole set."""
        subsets = {split: self._subset(split) for split in SPLITS}
        return {
            f"{split}_indices_sha256": None if indices is None else indices_sha256(indices)
            for split, indices in subsets.items()
        }

    def index_lists(self) -> dict[str, np.ndarray]:
        """Return the subsets this run reads, by split: positions (int64) in the split's index, ascending.

        Empty if the whole dataset or none of it is read.
        """
        subsets = {split: self._subset(split) for split in SPLITS}
        return {split: indices for split, indices in subsets.items() if indices is not None}

    def _samples(self, split: str) -> int:
        return getattr(self.spec, "dataset_samples" if split == "train" else "validation_samples")

    def _subset(self, split: str) -> np.ndarray | None:
        if self.spec.dataset_fraction == "1" or self._random is not None:
            return None
        if split not in self._indices:  # seconds at ImageNet's size
            labels = ImageFolderIndex.load(self.folder, split).labels
            samples = self._samples(split)
            self._indices[split] = stratified_subset(labels, samples, self.seed)
        return self._indices[split]

    def training_data(self) -> ImageNetDataset | SyntheticImages:
        """Return the training images, augmented."""
        return self._dataset("train", augment=True)

    def evaluations(self) -> dict[str, Evaluation]:
        """Return the validation images; under the paper's protocol augmented, and the training set too."""
        validation = self._dataset("val", augment=self.paper)
        found = {"validation": Evaluation(validation, range(len(validation)), whole=not self.paper)}
        if self.evaluate_train:
            train = self.training_data()
            found["train_again"] = Evaluation(train, range(len(train)), whole=False)
        return found

    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the cross entropy, and the batch's sums."""
        logits, labels, loss = self._forward(model, batch)
        top = _top(logits)
        return loss, _sums(labels, loss, top, top_hits(top, labels))

    def evaluate(self, name: str, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Return sums of cross entropy and hits, which the paper's protocol counts as the authors do."""
        logits, labels, loss = self._forward(model, batch)
        top = _top(logits)
        count = top_hits_one_by_one if self.paper else top_hits
        return _sums(labels, loss, top, count(top, labels))

    def _forward(
        self, model: nn.Module, batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return logits (n, classes) in fp32, labels, and the batch's mean loss."""
        *images, labels = batch
        if self._random is not None:
            pixels = self._random.batch(len(labels))
        else:
            pixels = normalised(images[0]) if images[0].dtype == torch.uint8 else images[0]
        logits = model(pixels).float()
        return logits, labels, functional.cross_entropy(logits, labels)

    def results(self, sums: dict[str, np.ndarray]) -> dict[str, float | None]:
        """Return errors in percent; the paper's protocol takes training metrics from the second pass."""
        if self._random is not None:
            return dict.fromkeys(RESULTS)
        train = sums["train_again"] if self.paper else sums["train"]
        return {
            "train_loss": _mean_loss(train),
            "train_metric": _error(train, 2),
            "validation_loss": _mean_loss(sums["validation"]),
            "metric": _error(sums["validation"], 2),
            "top5_error_percent": _error(sums["validation"], 3),
            "plateau_loss": (
                float(np.mean(sums["validation"][:, 4] / sums["validation"][:, 5]))
                if self.paper  # the mean over ranks of each rank's mean of batch means
                else _mean_loss(sums["validation"])
            ),
        }


def _top(logits: torch.Tensor) -> torch.Tensor:
    """Return the most probable five classes or fewer, best first: (n, ≤ 5)."""
    return logits.detach().topk(min(5, logits.shape[1]), dim=1).indices


def top_hits(top: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Count the labels (n) that are in their row of `top` (n, k), on the device."""
    return (top == labels[:, None]).sum()


def top_hits_one_by_one(top: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Count as `top_hits` does, but sample by sample, waiting for the device each time.

    So do the authors of the paper, and the time and energy of it are in what they measured.
    """
    hits = sum(bool((row == label).any()) for row, label in zip(top, labels, strict=True))
    return torch.tensor(hits, device=top.device)


def _sums(
    labels: torch.Tensor, loss: torch.Tensor, top: torch.Tensor, top_five_hits: torch.Tensor
) -> torch.Tensor:
    n, loss = len(labels), loss.detach().double()
    return torch.stack(
        [
            torch.full((), n, dtype=torch.float64, device=labels.device),
            loss * n,
            (top[:, 0] == labels).sum().double(),
            top_five_hits.double(),
            loss,
            torch.ones((), dtype=torch.float64, device=labels.device),
        ]
    )


def _mean_loss(sums: np.ndarray) -> float:
    return float(sums[:, 1].sum() / sums[:, 0].sum())


def _error(sums: np.ndarray, column: int) -> float:
    return float(100 * (1 - sums[:, column].sum() / sums[:, 0].sum()))


class WarmupThenPlateau(Schedule):
    """Linear from `warmup_start` to `reference` over the warm-up, then halved on plateaus.

    Per epoch (the authors' code): epoch e of W runs at start + e/W·(reference − start).
    Otherwise the same line at every update.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        reference: float,
        warmup_epochs: int,
        warmup_start: float,
        factor: float,
        patience: int,
        per_epoch: bool,
    ) -> None:
        super().__init__(ReduceLROnPlateau(optimizer, factor=factor, patience=patience))
        self.optimizer = optimizer
        self.reference = reference
        self.warmup_epochs = warmup_epochs
        self.warmup_start = warmup_start
        self.per_epoch = per_epoch

    def begin_step(self, epoch: int, step: int, steps: int) -> None:
        """Set the rate during the warm-up, and at its end the reference."""
        if epoch < self.warmup_epochs:
            progress = (epoch + (0.0 if self.per_epoch else step / steps)) / self.warmup_epochs
            self._set(self.warmup_start + progress * (self.reference - self.warmup_start))
        elif epoch == self.warmup_epochs and step == 0:
            self._set(self.reference)

    def _set(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def end_epoch(self, epoch: int, results: dict[str, float | None]) -> None:
        """Step the plateau scheduler by the validation loss after the warm-up."""
        loss = results["plateau_loss"]
        if epoch >= self.warmup_epochs and loss is not None:
            self.scheduler.step(loss)


WORKLOAD = ResNet50
