"""What a model must provide to be trained by the loop. A new model is one new module beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from scalewatt.campaign.run_spec import RunSpec

Batch = tuple[torch.Tensor, ...]
"""What a data loader yields, moved to the workload's device."""


@dataclass(frozen=True)
class Evaluation:
    """A dataset to evaluate on, and the positions of it that count."""

    dataset: Dataset[Any]
    positions: Sequence[int]
    whole: bool = True
    """Every position counts once; else the remainder that does not divide by the ranks is dropped."""


class SyntheticSamples(Dataset[tuple[int]]):
    """Positions without samples: nothing is read, and the workload has what it computes on the device."""

    workers = 0

    def __init__(self, samples: int | None) -> None:
        self.samples = samples or 0

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, key: tuple[int, int]) -> tuple[int]:
        """Give the position, so that a batch is int64 (n,) alone."""
        return (key[1],)


class Schedule:
    """A learning-rate schedule: one of torch's, stepped after every epoch, or without one a constant rate."""

    def __init__(self, scheduler: Any = None) -> None:
        self.scheduler = scheduler

    def begin_step(self, epoch: int, step: int, steps: int) -> None:
        """Set the rate of update `step` of `steps` in `epoch` (all 0-based), if it changes there."""

    def end_epoch(self, epoch: int, results: dict[str, float | None]) -> None:
        """Adapt to an epoch's results."""
        if self.scheduler:
            self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """State that resuming needs; the rate itself is in that of the optimiser.

        A checkpoint takes tensors, numbers, text, and lists and dictionaries of these only.
        """
        return self.scheduler.state_dict() if self.scheduler else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from `state`."""
        if self.scheduler:
            self.scheduler.load_state_dict(state)


class Workload(ABC):
    """One run's model, data, loss and metrics. Sums are float64 vectors that add up over batches."""

    metric_name: str
    metric_goal: str = "min"
    """`max` where larger values of the metric are better."""
    pinned: bool = True
    """Whether a GPU gets its batches from pinned memory."""

    def __init__(self, spec: RunSpec, data_folder: str, device: torch.device) -> None:
        assert spec.seed is not None  # only registered runs have none
        self.spec, self.folder, self.device = spec, data_folder, device
        self.seed, self.settings = spec.seed, spec.settings
        self.paper = spec.protocol == "paper"
        self.synthetic = self.settings.get("loader") == "synthetic"

    @abstractmethod
    def model(self) -> nn.Module:
        """Make the network, with freshly initialised weights."""

    @abstractmethod
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Make the optimiser of its parameters."""

    def schedule(self, optimizer: torch.optim.Optimizer) -> Schedule:
        """Make the learning-rate schedule, by default a constant rate."""
        return Schedule()

    def index_lists(self) -> dict[str, np.ndarray]:
        """Positions (int64) of the samples that it reads, for each split that it does not read whole."""
        return {}

    @abstractmethod
    def training_data(self) -> Dataset[Any]:
        """Training data, with items by key (epoch, position)."""

    @abstractmethod
    def evaluations(self) -> dict[str, Evaluation]:
        """Evaluations after every epoch, by name."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean loss over the batch (with its graph), and the batch's sums."""

    @abstractmethod
    def evaluate(self, name: str, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Sums of the batch in evaluation `name`."""

    @abstractmethod
    def results(self, sums: dict[str, np.ndarray]) -> dict[str, float | None]:
        """Results of an epoch from the sums of each evaluation and of "train", shape (ranks, k).

        Keys: train_loss, train_metric, validation_loss, metric, and what the model adds.
        """


def workload_class(model: str) -> type[Workload]:
    """Workload of `model`: WORKLOAD of the module of its name, imported here and not before."""
    return import_module(f"scalewatt.models.{model}").WORKLOAD
