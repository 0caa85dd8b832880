"""ResNet50 on ImageNet: torchvision's network, SGD, warm-up and plateau as in the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import ReduceLROnPlateau

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.data.imagenet import subset_positions
from scalewatt.data.images import AuthorsImages, ImageNetDataset
from scalewatt.models.interface import Batch, Evaluation, Schedule, SyntheticSamples, Workload

REFERENCE_BATCH = 256
"""Global batch at which the learning rate is `base_learning_rate` (Goyal et al. 2017)."""


class ResNet50(Workload):
    """The paper's first workload; sums are (samples, loss, top-1 hits, top-5 hits, batch means, batches).

    The setting `loader` chooses where images come from. With `synthetic` they are random and stay
    on the device, no data is needed, and losses and errors, which would mean nothing, are None.
    """

    metric_name = "top1_error_percent"

    def __init__(self, spec: RunSpec, data_folder: str, device: torch.device) -> None:
        super().__init__(spec, data_folder, device)
        self.pinned = not self.paper
        # As the authors' code does it, and as PyTorch is fastest.
        torch.backends.cudnn.deterministic = self.paper
        torch.backends.cudnn.benchmark = not self.paper
        base_rate = self.settings["base_learning_rate"]
        self.reference_rate = base_rate * (spec.global_batch_size / REFERENCE_BATCH)
        self._subsets = {} if self.synthetic else subset_positions(data_folder, spec)
        if self.synthetic:
            # Standard normal, roughly as normalised images: a GPU's power depends on the values.
            random = torch.Generator(device).manual_seed(self.seed)
            shape = (spec.local_batch_size, 3, *2 * [self.settings["image_size"]])
            pixels, last = torch.randn(shape, generator=random, device=device), torch.channels_last
            is_last = self.settings["channels_last"]
            self._pixels = pixels.contiguous(memory_format=last) if is_last else pixels

    def model(self) -> nn.Module:
        """Make torchvision's resnet50, unchanged, with the dataset's number of classes."""
        from torchvision.models.resnet import resnet50

        return resnet50(weights=None, num_classes=self.spec.dataset["classes"])

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Make SGD with momentum and weight decay on every parameter; fused but for protocol paper.

        Nor in fp16: where the scaler skips the first update, the fused kernel leaves its momenta undefined.
        """
        return torch.optim.SGD(
            model.parameters(),
            lr=self.reference_rate,
            momentum=self.settings["momentum"],
            weight_decay=self.settings["weight_decay"],
            fused=None if self.paper or self.settings["precision"] == "fp16" else True,
        )

    def schedule(self, optimizer: torch.optim.Optimizer) -> WarmupThenPlateau:
        """Make linear warm-up, then ReduceLROnPlateau on the validation loss."""
        return WarmupThenPlateau(optimizer, self.reference_rate, self.settings, self.paper)

    def index_lists(self) -> dict[str, np.ndarray]:
        """Subsets that this run reads, by split; empty if the whole dataset or none of it is read."""
        return self._subsets

    def _images(self, split: str, augment: bool) -> ImageNetDataset | SyntheticSamples:
        if self.synthetic:
            samples = {"train": self.spec.dataset_samples, "val": self.spec.validation_samples}
            return SyntheticSamples(samples[split])
        return (AuthorsImages if self.paper else ImageNetDataset)(
            self.folder,
            split,
            self._subsets.get(split),
            image_size=self.settings["image_size"],
            augment=augment,
            seed=self.seed,
            crop_scale=tuple(self.settings["crop_scale"]),
            horizontal_flip=self.settings["horizontal_flip"],
        )

    def training_data(self) -> ImageNetDataset | SyntheticSamples:
        """Training images, augmented."""
        return self._images("train", augment=True)

    def evaluations(self) -> dict[str, Evaluation]:
        """Validation images; under the paper's protocol augmented, and the training set too."""
        data = {"validation": self._images("val", augment=self.paper)}
        if self.paper:
            data["train_again"] = self.training_data()
        return {
            name: Evaluation(images, range(len(images)), whole=not self.paper)
            for name, images in data.items()
        }

    def evaluate(self, name: str, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Sums of cross entropy and hits, which the paper's protocol counts as the authors do."""
        return self.loss(model, batch, one_by_one=self.paper)[1]

    def loss(
        self, model: nn.Module, batch: Batch, one_by_one: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Cross entropy in fp32, and the sums of the batch; hits counted as in `top_hits`."""
        if self.synthetic:
            labels = batch[0] % self.spec.dataset["classes"]
            pixels = self._pixels[: len(labels)]
        else:
            pixels, labels = batch
        logits = model(pixels).float()
        loss = functional.cross_entropy(logits, labels)

        top = logits.detach().topk(min(5, logits.shape[1]), dim=1).indices  # best first
        hits = (top[:, 0] == labels).sum().double(), top_hits(top, labels, one_by_one).double()
        n, mean = len(labels), loss.detach().double()
        batches = torch.ones((), dtype=torch.float64, device=labels.device)
        return loss, torch.stack([n * batches, n * mean, *hits, mean, batches])

    def results(self, sums: dict[str, np.ndarray]) -> dict[str, float | None]:
        """Errors in percent; the paper's protocol takes training metrics from the second pass."""
        train, validation = sums["train_again" if self.paper else "train"], sums["validation"]
        mean_over_ranks = float(np.mean(validation[:, 4] / validation[:, 5]))
        results = {
            "train_loss": _mean(train, 1),
            "train_metric": 100 * (1 - _mean(train, 2)),
            "validation_loss": _mean(validation, 1),
            "metric": 100 * (1 - _mean(validation, 2)),
            "top5_error_percent": 100 * (1 - _mean(validation, 3)),
            "plateau_loss": mean_over_ranks if self.paper else _mean(validation, 1),
        }
        return {name: None if self.synthetic else value for name, value in results.items()}


def top_hits(top: torch.Tensor, labels: torch.Tensor, one_by_one: bool) -> torch.Tensor:
    """Count the labels (n) that are in their row of `top` (n, k).

    One by one it waits for the device at each: so do the authors of the paper, and the time and energy of it
    are in what they measured.
    """
    if not one_by_one:
        return (top == labels[:, None]).sum()
    hits = sum(bool((row == label).any()) for row, label in zip(top, labels, strict=True))
    return torch.tensor(hits, device=top.device)


def _mean(sums: np.ndarray, column: int) -> float:
    """Mean of a column of sums (ranks, 6) over the samples."""
    return float(sums[:, column].sum() / sums[:, 0].sum())


class WarmupThenPlateau(Schedule):
    """Linear from `warmup_start` to `reference` over the warm-up, then lowered on plateaus.

    Per epoch (the authors' code): epoch e of W runs at start + e/W·(reference − start).
    Otherwise the same line at every update.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        reference: float,
        settings: dict[str, Any],
        per_epoch: bool,
    ) -> None:
        factor, patience = settings["plateau_factor"], settings["plateau_patience"]
        super().__init__(ReduceLROnPlateau(optimizer, factor=factor, patience=patience))
        self.optimizer, self.reference, self.per_epoch = optimizer, reference, per_epoch
        self.warmup_epochs, self.start = settings["warmup_epochs"], settings["warmup_start"]

    def begin_step(self, epoch: int, step: int, steps: int) -> None:
        """Set the rate during the warm-up, and at its end the reference."""
        if epoch < self.warmup_epochs:
            progress = (epoch + (0.0 if self.per_epoch else step / steps)) / self.warmup_epochs
            rate = self.start + progress * (self.reference - self.start)
        elif epoch == self.warmup_epochs and step == 0:
            rate = self.reference
        else:
            return
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def end_epoch(self, epoch: int, results: dict[str, float | None]) -> None:
        """Step the plateau scheduler by the validation loss after the warm-up."""
        loss = results["plateau_loss"]
        if epoch >= self.warmup_epochs and loss is not None:
            self.scheduler.step(loss)


WORKLOAD = ResNet50
