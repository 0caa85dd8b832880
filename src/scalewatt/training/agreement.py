"""What the ranks of a training agree on: whether to stop, and whether a checkpoint is due."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from scalewatt.training.device import synchronize


class Agreement:
    """Agrees about twice a second on what any rank wishes.

    All ranks call `reached` after each batch, and exchange their wishes at the same ones. Between them
    nothing is sent and no device is waited for.
    """

    EVERY_S = 0.5

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._batches, self._next, self._since_s = 0, 1, time.monotonic()

    def reached(self, *wishes: bool) -> list[bool]:
        """Whether any rank has each wish; False until the next exchange."""
        self._batches += 1
        if self._batches < self._next:
            return [False for _ in wishes]
        synchronize(self._device)  # to know how long the batches took
        seconds = time.monotonic() - self._since_s
        values = torch.tensor([*wishes, seconds], dtype=torch.float32, device=self._device)
        if dist.is_initialized():  # a process alone has nobody to ask
            dist.all_reduce(values, dist.ReduceOp.MAX)
        *agreed, seconds = values.tolist()
        batches = round(self.EVERY_S * self._batches / seconds) if seconds else self._batches
        self._batches, self._next = 0, max(1, min(batches, 2 * self._next))
        self._since_s = time.monotonic()
        return [*map(bool, agreed)]
