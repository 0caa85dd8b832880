"""Memory for batches that is used again and again, filled by loader workers, read by the trainer.

Fresh memory costs as much as reading into it: the system hands out every page zeroed. So batches
lie in slots, made once and shared with the workers that are forked later. A slot is free again
when the last tensor over it is gone, which only the process that trains can know; it then clears
the slot's mark, and a worker takes it anew. Every loan has a mark of its own, and no process that
was forked from the borrower gives back what it inherited.
"""

from __future__ import annotations

import itertools
import mmap
import multiprocessing
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch

_LOCK_S = 1.0
_numbers = itertools.count()
_known: weakref.WeakValueDictionary[int, LentMemory] = weakref.WeakValueDictionary()

Shape = tuple[int, ...]


class LentMemory:
    """`count` slots of `size` bytes. Pages that are never written take no memory."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self.number = next(_numbers)
        self._slots = [mmap.mmap(-1, size) for _ in range(count)]
        # Of every slot the number of its loan, 0 if there is none; at the end, the last number given.
        self._marks = np.frombuffer(mmap.mmap(-1, 8 * (count + 1)), np.int64)
        self._lock = multiprocessing.get_context("fork").Lock()
        _known[self.number] = self

    def take(self, shapes: Sequence[Shape]) -> Loan | None:
        """A slot with float32 arrays of these shapes; None if none is free or large enough."""
        if 4 * sum(map(prod, shapes)) > self.size or not self._lock.acquire(timeout=_LOCK_S):
            return None
        try:
            free = np.flatnonzero(self._marks[:-1] == 0)
            if not len(free):
                return None
            slot = int(free[0])
            self._marks[-1] += 1
            mark = int(self._marks[-1])
            self._marks[slot] = mark
        finally:
            self._lock.release()
        return Loan(self.number, slot, mark, tuple(shapes))

    def arrays(self, loan: Loan) -> list[np.ndarray]:
        """The slot's arrays, to be filled."""
        return _split(np.frombuffer(self._slots[loan.slot], np.float32), loan.shapes)

    def tensors(self, loan: Loan) -> tuple[torch.Tensor, ...]:
        """The slot's tensors; the slot is free again when none of them, nor any view, is left."""
        memory = np.frombuffer(self._slots[loan.slot], np.float32)
        # torch keeps this very array for as long as anything uses the memory.
        weakref.finalize(memory, self._drop, loan, os.getpid()).atexit = False
        return tuple(_split(torch.from_numpy(memory), loan.shapes))

    def give_back(self, loan: Loan) -> None:
        """The slot is free, unless it was given back and is lent anew."""
        if self._marks[loan.slot] == loan.mark:
            self._marks[loan.slot] = 0

    def _drop(self, loan: Loan, borrower: int) -> None:
        if os.getpid() == borrower:
            self.give_back(loan)

    def __reduce__(self) -> Any:
        raise TypeError("memory is lent to forked processes only")


@dataclass(frozen=True)
class Loan:
    """A slot in use. Handed to another process, it arrives as the tensors over it."""

    memory: int
    slot: int
    mark: int
    shapes: tuple[Shape, ...]

    def __reduce__(self) -> Any:
        return _receive, (self.memory, self.slot, self.mark, self.shapes)


def _receive(
    memory: int, slot: int, mark: int, shapes: tuple[Shape, ...]
) -> tuple[torch.Tensor, ...]:
    return _known[memory].tensors(Loan(memory, slot, mark, shapes))


def _split(flat: Any, shapes: Sequence[Shape]) -> list[Any]:
    ends = list(itertools.accumulate(map(prod, shapes)))
    starts = [0, *ends]
    return [
        flat[start:end].reshape(shape)
        for start, end, shape in zip(starts, ends, shapes, strict=False)
    ]
