"""What a model must offer to be trained by the loop. A new model is one new file beside this one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

Batch = tuple[torch.Tensor, ...]
"""What a data loader yields, moved to the workload's device."""


@dataclass(frozen=True)
class Evaluation:
    """A dataset to evaluate on, and the positions of it that count."""

    dataset: Dataset[Any]
    positions: Sequence[int]
    whole: bool = True
    """Every position counts once; else what does not divide by the ranks is dropped."""


class Schedule(Protocol):
    """A learning-rate schedule."""

    def begin_step(self, epoch: int, step: int, steps: int) -> None:
        """Set the rate of update `step` of `steps` in `epoch` (all 0-based)."""

    def end_epoch(self, epoch: int, results: dict[str, float | None]) -> None:
        """React to an epoch's results."""

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""


class Workload(Protocol):
    """One run's model, data, loss and metrics. Sums are float64 vectors that add up over batches."""

    metric_name: str
    evaluate_train: bool
    """Evaluate the training set again after every epoch."""

    def __init__(self, spec: dict[str, Any], data_folder: str, device: torch.device) -> None: ...

    def model(self) -> nn.Module:
        """The network with freshly initialised weights."""

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimiser of its parameters."""

    def schedule(self, optimizer: torch.optim.Optimizer) -> Schedule:
        """The learning-rate schedule."""

    def provenance(self) -> dict[str, Any]:
        """What the run's provenance should say of the model's data."""

    def index_lists(self) -> dict[str, np.ndarray]:
        """Positions (int64) of the samples that it reads of each split it does not read whole."""

    def training_data(self) -> Dataset[Any]:
        """Items by key (epoch, position)."""

    def evaluations(self) -> dict[str, Evaluation]:
        """What to evaluate after every epoch, by name."""

    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean loss over the batch (with its graph), and the batch's sums."""

    def evaluate(self, name: str, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The batch's sums in evaluation `name`."""

    def results(self, sums: dict[str, np.ndarray]) -> dict[str, float | None]:
        """An epoch's results from each evaluation's sums, shape (ranks, k), and "train"'s.

        Keys: train_loss, train_metric, validation_loss, metric, and what the model adds.
        """
