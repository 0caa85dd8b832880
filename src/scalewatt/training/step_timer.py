"""Timing of a training step's phases: waiting for data, copying, forward, backward, optimiser."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from scalewatt.training.history import PHASES

SAMPLED_STEPS = 100
"""About how many steps of an epoch are timed; waiting for data is timed in every step."""
_DATA = PHASES.index("data")


class PhaseTimer:
    """Sums of one epoch's phases on one rank, in seconds.

    On a GPU phases are bracketed by CUDA events, so that each is the GPU's own time: it waits for data
    only while it has nothing left to do, however long the processor, which runs ahead, waits. Events
    are read when the GPU has passed them: no step waits for another. On a CPU the clock is read.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sums = np.zeros((len(PHASES), 2))  # seconds, steps
        self._pending: deque[tuple[int, torch.cuda.Event, torch.cuda.Event]] = deque()
        self._stride, self._sampled = 1, False

    def begin_epoch(self, steps: int) -> None:
        """Choose which of the epoch's steps are timed."""
        self._stride = max(1, steps // SAMPLED_STEPS)

    def begin_step(self, step: int) -> None:
        """Decide by the step's number whether it is timed."""
        self._sampled = step % self._stride == 0

    def mark(self) -> Any:
        """Return this moment: on a GPU the one at which it has done all it was given, as an event."""
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def waited(self, began: Any) -> None:
        """Record that a step waited for its batch from the mark `began` until now."""
        self._add(_DATA, began)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the block as `name` (one of PHASES), if this step is timed."""
        if not self._sampled:
            yield
            return
        began = self.mark()
        yield
        self._add(PHASES.index(name), began)

    def _add(self, index: int, began: Any) -> None:
        ended = self.mark()
        if self._device.type != "cuda":
            self._sums[index] += ended - began, 1
            return
        self._pending.append((index, began, ended))
        while self._pending and self._pending[0][2].query():
            self._read_first()

    def _read_first(self) -> None:
        index, began, ended = self._pending.popleft()
        self._sums[index] += began.elapsed_time(ended) / 1000, 1

    def sums(self) -> np.ndarray:
        """Return seconds and steps of every phase so far, float64 (phases, 2)."""
        if self._pending:
            finish(self._device)
        while self._pending:
            self._read_first()
        return self._sums.copy()

    def restore(self, sums: np.ndarray | None) -> None:
        """Continue from `sums`, or from zero."""
        self._pending.clear()
        self._sums = np.zeros((len(PHASES), 2)) if sums is None else np.array(sums)


def mean_phases(ranks: np.ndarray) -> dict[str, float | None]:
    """Return `step_<phase>_s`: seconds per step, mean over ranks' timed steps, of sums (ranks, phases, 2)."""
    seconds, steps = ranks.sum(axis=0).T
    return {
        f"step_{phase}_s": float(s / n) if n else None
        for phase, s, n in zip(PHASES, seconds, steps, strict=True)
    }


def finish(device: torch.device) -> None:
    """Wait until the device has done all it was given: a GPU computes on while the loop goes on."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def forget_peak_memory(device: torch.device) -> None:
    """Let a GPU's peak of memory begin anew; that of a process cannot."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device: torch.device) -> int:
    """Return this rank's peak memory: of the GPU since it was last forgotten or read, else of the process."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        forget_peak_memory(device)
        return int(peak)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def timed(batches: Iterator[Any], timer: PhaseTimer) -> Iterator[Any]:
    """Yield the batches, and record the time waited for each."""
    while True:
        began = timer.mark()
        try:
            batch = next(batches)
        except StopIteration:
            return
        timer.waited(began)
        yield batch
