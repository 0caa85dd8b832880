"""Which samples a rank sees, and in which order: a function of seed, epoch and rank only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from scalewatt.common.errors import InputError

Key = tuple[int, int]
"""(epoch, position in the dataset): what a dataset needs to make one item."""


def epoch_order(samples: int, seed: int, epoch: int) -> torch.Tensor:
    """Return the permutation of `samples` positions in `epoch`, the same on every rank."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(samples, generator=generator)


class TrainingBatches(Sampler[list[Key]]):
    """One rank's batches of an epoch, from a given step on.

    Every rank gets floor(samples/ranks) samples; the last batch may be smaller. Set `epoch` and
    `first_step` before iterating; both are read in the main process only.
    """

    def __init__(self, samples: int, rank: int, ranks: int, batch_size: int, seed: int) -> None:
        self.samples, self.rank, self.ranks = samples, rank, ranks
        self.batch_size, self.seed = batch_size, seed
        self.epoch = 0
        self.first_step = 0

    @property
    def steps(self) -> int:
        """Number of batches of a whole epoch."""
        return -(-(self.samples // self.ranks) // self.batch_size)

    def __len__(self) -> int:
        return self.steps - self.first_step

    def __iter__(self) -> Iterator[list[Key]]:
        order = epoch_order(self.samples, self.seed, self.epoch)
        share = self.samples // self.ranks
        own = order[self.rank : share * self.ranks : self.ranks].tolist()
        for step in range(self.first_step, self.steps):
            first = step * self.batch_size
            yield [(self.epoch, position) for position in own[first : first + self.batch_size]]


class EvaluationBatches(Sampler[list[Key]]):
    """One rank's batches of an evaluation: every position on exactly one rank.

    With `whole` false the remainder that does not divide by the ranks is dropped.
    """

    def __init__(
        self, positions: Sequence[int], rank: int, ranks: int, batch_size: int, whole: bool
    ) -> None:
        used = len(positions) if whole else len(positions) // ranks * ranks
        self.own = list(positions[rank:used:ranks])
        self.batch_size = batch_size
        self.most = -(-used // (ranks * batch_size))
        """Number of batches of the rank that has most."""
        self.epoch = 0

    def __len__(self) -> int:
        return -(-len(self.own) // self.batch_size)

    def __iter__(self) -> Iterator[list[Key]]:
        for first in range(0, len(self.own), self.batch_size):
            yield [(self.epoch, p) for p in self.own[first : first + self.batch_size]]


def batches_of(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yield the loader's batches; a worker's InputError is raised without the worker's traceback."""
    try:
        yield from loader
    except InputError as error:
        last_line = str(error).strip().splitlines()[-1]
        kind = f"{InputError.__module__}.{InputError.__name__}: "
        raise InputError(last_line.removeprefix(kind)) from error
