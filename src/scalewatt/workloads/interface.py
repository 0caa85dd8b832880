"""What a model must provide to be trained by the loop. A new model is one new module beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
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


class Schedule:
    """A learning-rate schedule: one of torch's, stepped after every epoch, or without one a constant rate."""

    def __init__(self, scheduler: Any = None) -> None:
        self.scheduler = scheduler

    def begin_step(self, epoch: int, step: int, steps: int) -> None:
        """Set the rate of update `step` of `steps` in `epoch` (all 0-based), if it changes there."""

    def end_epoch(self, epoch: int, results: dict[str, float | None]) -> None:
        """Adapt to an epoch's results."""
        if self.scheduler is not None:
            self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to resume; the rate itself is in the optimiser's state.

        A checkpoint takes tensors, numbers, text, and lists and dictionaries of these only.
        """
        return {} if self.scheduler is None else self.scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from `state`."""
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state)


class Workload(ABC):
    """One run's model, data, loss and metrics. Sums are float64 vectors that add up over batches."""

    metric_name: str
    metric_goal: str = "min"
    """`max` where larger values of the metric are better."""
    evaluate_train: bool = False
    """Evaluate the training set again after every epoch."""

    def __init__(self, spec: RunSpec, data_folder: str, device: torch.device) -> None:
        assert spec.seed is not None  # only registered runs have none
        self.spec, self.folder, self.device = spec, data_folder, device
        self.seed, self.settings = spec.seed, spec.settings

    @abstractmethod
    def model(self) -> nn.Module:
        """Return the network with freshly initialised weights."""

    @abstractmethod
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimiser of its parameters."""

    def schedule(self, optimizer: torch.optim.Optimizer) -> Schedule:
        """Return the learning-rate schedule, by default a constant rate."""
        return Schedule()

    def provenance(self) -> dict[str, Any]:
        """Return what the run's provenance should record about the model's data."""
        return {}

    def index_lists(self) -> dict[str, np.ndarray]:
        """Return positions (int64) of the samples that it reads, for each split it does not read whole."""
        return {}

    @abstractmethod
    def training_data(self) -> Dataset[Any]:
        """Return the training data, with items by key (epoch, position)."""

    @abstractmethod
    def evaluations(self) -> dict[str, Evaluation]:
        """Return what to evaluate after every epoch, by name."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean loss over the batch (with its graph), and the batch's sums."""

    @abstractmethod
    def evaluate(self, name: str, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Return the batch's sums in evaluation `name`."""

    @abstractmethod
    def results(self, sums: dict[str, np.ndarray]) -> dict[str, float | None]:
        """Return an epoch's results from the sums of each evaluation and of "train", shape (ranks, k).

        Keys: train_loss, train_metric, validation_loss, metric, and what the model adds.
        """
