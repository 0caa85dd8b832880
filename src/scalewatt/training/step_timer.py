"""Timing of a training step's phases: waiting for data, copying, forward, backward, optimiser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from scalewatt.training.history import PHASES

SAMPLED_STEPS = 100
"""About how many steps of an epoch are timed; waiting for data is timed in every step."""


class PhaseTimer:
    """Sums of one epoch's phases on one rank, in seconds.

    On a GPU sampled steps are bracketed by CUDA events, which are read once at the epoch's end:
    no step waits for another. On a CPU the clock is read.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._sums = np.zeros((len(PHASES), 2))  # seconds, steps
        self._events: list[tuple[int, torch.cuda.Event, torch.cuda.Event]] = []
        self._stride, self._sampled = 1, False

    def begin_epoch(self, steps: int) -> None:
        """Choose which of the epoch's steps are timed."""
        self._stride = max(1, steps // SAMPLED_STEPS)

    def begin_step(self, step: int) -> None:
        """Decide by the step's number whether it is timed."""
        self._sampled = step % self._stride == 0

    def waited(self, seconds: float) -> None:
        """Record how long a step waited for its batch."""
        self._sums[0] += seconds, 1

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the block as `name` (one of PHASES), if this step is timed."""
        if not self._sampled:
            yield
            return
        index = PHASES.index(name)
        if self._on_gpu:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            yield
            end.record()
            self._events.append((index, begin, end))
        else:
            began = time.perf_counter()
            yield
            self._sums[index] += time.perf_counter() - began, 1

    def sums(self) -> np.ndarray:
        """Return seconds and steps of every phase so far, float64 (phases, 2)."""
        if self._events:
            torch.cuda.synchronize()
            for index, begin, end in self._events:
                self._sums[index] += begin.elapsed_time(end) / 1000, 1
            self._events.clear()
        return self._sums.copy()

    def restore(self, sums: np.ndarray | None) -> None:
        """Continue from `sums`, or from zero."""
        self._events.clear()
        self._sums = np.zeros((len(PHASES), 2)) if sums is None else np.array(sums)


def mean_phases(ranks: np.ndarray) -> dict[str, float | None]:
    """Return `step_<phase>_s`: seconds per step, mean over ranks' timed steps, of sums (ranks, phases, 2)."""
    seconds, steps = ranks.sum(axis=0).T
    return {
        f"step_{phase}_s": float(s / n) if n else None
        for phase, s, n in zip(PHASES, seconds, steps, strict=True)
    }


def peak_memory_bytes(device: torch.device) -> int:
    """Return this rank's peak memory: of the GPU since the last call, else of the process."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return int(peak)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def timed(batches: Iterator[Any], timer: PhaseTimer) -> Iterator[Any]:
    """Yield the batches, and record the time waited for each."""
    while True:
        began = time.perf_counter()
        try:
            batch = next(batches)
        except StopIteration:
            return
        timer.waited(time.perf_counter() - began)
        yield batch
