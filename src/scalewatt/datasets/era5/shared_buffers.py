"""Shared buffers for batches: filled by loader workers, read by the training process, reused.

Fresh memory costs as much as reading into it, because the system zeroes every page first. So batches
lie in buffers that are allocated once and shared with the workers that are forked later. A buffer is
free again when the last tensor over it is gone, which only the training process can know: it then
clears the buffer's lease, and a worker acquires it anew. Every lease has a number of its own, and a
process forked from the owner releases nothing that it inherited.
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
_pools: weakref.WeakValueDictionary[int, SharedBuffers] = weakref.WeakValueDictionary()

Shape = tuple[int, ...]


class SharedBuffers:
    """`count` buffers of `size` bytes. Pages that are never written take no memory."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self.number = next(_numbers)
        self._buffers = [mmap.mmap(-1, size) for _ in range(count)]
        # The number of each buffer's lease, 0 for none; at the end, the last number given.
        self._leases = np.frombuffer(mmap.mmap(-1, 8 * (count + 1)), np.int64)
        self._lock = multiprocessing.get_context("fork").Lock()
        _pools[self.number] = self

    def acquire(self, shapes: Sequence[Shape]) -> Lease | None:
        """Lease a buffer for float32 arrays of these shapes; None if none is free or large enough."""
        if 4 * sum(map(prod, shapes)) > self.size or not self._lock.acquire(timeout=_LOCK_S):
            return None
        try:
            free = np.flatnonzero(self._leases[:-1] == 0)
            if not len(free):
                return None
            buffer = int(free[0])
            self._leases[-1] += 1
            number = int(self._leases[-1])
            self._leases[buffer] = number
        finally:
            self._lock.release()
        return Lease(self.number, buffer, number, tuple(shapes))

    def arrays(self, lease: Lease) -> list[np.ndarray]:
        """Return the buffer's arrays, to be filled."""
        return _split(np.frombuffer(self._buffers[lease.buffer], np.float32), lease.shapes)

    def tensors(self, lease: Lease) -> tuple[torch.Tensor, ...]:
        """Return the buffer's tensors; the lease ends when none of them, nor any view, is left."""
        memory = np.frombuffer(self._buffers[lease.buffer], np.float32)
        # torch keeps this very array for as long as anything uses the memory.
        weakref.finalize(memory, self._release_in, os.getpid(), lease).atexit = False
        return tuple(_split(torch.from_numpy(memory), lease.shapes))

    def release(self, lease: Lease) -> None:
        """Free the buffer, unless it has been released and leased anew."""
        if self._leases[lease.buffer] == lease.number:
            self._leases[lease.buffer] = 0

    def _release_in(self, process: int, lease: Lease) -> None:
        if os.getpid() == process:
            self.release(lease)

    def __reduce__(self) -> Any:
        raise TypeError("buffers are shared with forked processes only")


@dataclass(frozen=True)
class Lease:
    """A buffer in use. Sent to another process, it arrives as the tensors over the buffer."""

    pool: int
    buffer: int
    number: int
    shapes: tuple[Shape, ...]

    def __reduce__(self) -> Any:
        return _receive, (self.pool, self.buffer, self.number, self.shapes)


def _receive(
    pool: int, buffer: int, number: int, shapes: tuple[Shape, ...]
) -> tuple[torch.Tensor, ...]:
    return _pools[pool].tensors(Lease(pool, buffer, number, shapes))


def _split(flat: Any, shapes: Sequence[Shape]) -> list[Any]:
    ends = list(itertools.accumulate(map(prod, shapes)))
    starts = [0, *ends]
    return [
        flat[start:end].reshape(shape)
        for start, end, shape in zip(starts, ends, shapes, strict=False)
    ]
