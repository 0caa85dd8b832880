"""Batches of a rank: which samples, in which order, and how they are loaded.

The order is a function of seed, epoch and rank alone, so that a training resumes with the very next batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Sampler

Key = tuple[int, int]
"""(epoch, position in the dataset): what a dataset needs to make an item."""


class Batches(Sampler[list[Key]]):
    """Batches of one rank, whose last may be smaller; set `epoch` and `first_step` before iterating.

    With a `seed` the positions are shuffled anew in each epoch. What does not divide by the number of
    ranks is dropped, unless `whole`: then some ranks have a sample more than others.
    """

    def __init__(
        self,
        positions: Sequence[int],
        rank: int,
        ranks: int,
        batch_size: int,
        seed: int | None = None,
        whole: bool = False,
    ) -> None:
        used = len(positions) if whole else len(positions) // ranks * ranks
        self.positions, self.share = positions, slice(rank, used, ranks)
        self.batch_size, self.seed, self.whole = batch_size, seed, whole
        self.steps = -(-used // (ranks * batch_size))
        """Batches of the rank that has most."""
        self.epoch = self.first_step = 0

    def __len__(self) -> int:
        samples = len(range(len(self.positions))[self.share])
        return -(-samples // self.batch_size) - self.first_step

    def __iter__(self) -> Iterator[list[Key]]:
        positions = self.positions
        if self.seed is not None:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
            order = torch.randperm(len(positions), generator=generator)
            positions = torch.as_tensor(positions)[order].tolist()
        of_rank, size = positions[self.share], self.batch_size
        for first in range(self.first_step * size, len(of_rank), size):
            yield [(self.epoch, position) for position in of_rank[first : first + size]]


def worker_count(setting: int | str, ranks_per_node: int) -> int:
    """Loader workers of a rank by the setting `loader_workers`; `auto`: half of its cores, at most 12."""
    if setting != "auto":
        return int(setting)
    cores = min(len(os.sched_getaffinity(0)), (os.cpu_count() or 1) // ranks_per_node)
    return min(cores // 2, 12)
