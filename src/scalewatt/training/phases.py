"""Times of a training step's phases: waiting for data, copying, forward, backward, optimiser."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from scalewatt.training.history import PHASES

SAMPLED_STEPS = 100
"""About how many steps of an epoch are timed; waiting for data is timed in every step."""


class PhaseTimer:
    """Times of one epoch's phases on one rank, since the segment began.

    On a GPU phases are bracketed by CUDA events, so that each is the GPU's own time: it waits for data
    only while it has nothing left to do, however long the processor, which runs ahead, waits. Events are
    read by `sums`, so that no step waits for another. On a CPU the clock is read.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu, self._is_timed = device.type == "cuda", False
        self._marks: list[tuple[str, float, Any, Any]] = []

    def begin_step(self, step: int, steps: int) -> None:
        """Time this step, if it is of those of the epoch's `steps` that are sampled."""
        self._is_timed = step % max(1, steps // SAMPLED_STEPS) == 0

    def _now(self) -> Any:
        """Moment at which the device has done all that it was given, on a GPU as an event."""
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @contextmanager
    def phase(self, name: str, blocks: int = 1) -> Iterator[None]:
        """Time the block as `name` (of PHASES), if this step is timed; it may consist of several blocks."""
        began = self._now() if self._is_timed else None
        yield
        if began is not None:
            self._marks.append((name, 1 / blocks, began, self._now()))

    def waiting(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches, and time how long each is waited for."""
        began = self._now()
        for batch in batches:
            self._marks.append(("data", 1, began, self._now()))
            yield batch
            began = self._now()

    def sums(self) -> np.ndarray:
        """Seconds and steps of each phase, float64 (phases, 2), which begin anew; the device has finished."""
        sums = np.zeros((len(PHASES), 2))
        for name, steps, began, ended in self._marks:
            seconds = began.elapsed_time(ended) / 1000 if self._on_gpu else ended - began
            sums[PHASES.index(name)] += seconds, steps
        self._marks.clear()
        return sums


def mean_phases(ranks: np.ndarray) -> dict[str, float | None]:
    """Mean `step_<phase>_s` over the ranks' timed steps, from their sums (ranks, phases, 2)."""
    rows = zip(PHASES, *ranks.sum(axis=0).T.tolist(), strict=True)
    return {f"step_{phase}_s": seconds / steps if steps else None for phase, seconds, steps in rows}
