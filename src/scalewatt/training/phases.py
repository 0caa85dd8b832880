"""Times of a training step's phases: waiting for data, copying, forward, backward, optimiser."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from scalewatt.training.history import PHASE_COLUMNS, PHASE_STATISTICS, PHASES, phase_column

SAMPLED_STEPS = 100
"""About how many steps of an epoch are timed; waiting for data is timed in every step."""


class PhaseTimer:
    """Times of one epoch's phases on one rank, since the segment began.

    On a GPU phases are bracketed by CUDA events, so that each is the GPU's own time: it waits for data
    only while it has nothing left to do, however long the processor, which runs ahead, waits. Events are
    read by `seconds`, so that no step waits for another. On a CPU the clock is read.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu, self._is_timed = device.type == "cuda", False
        self._marks: list[tuple[str, int, Any, Any]] = []
        self._steps = 0

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
    def phase(self, name: str) -> Iterator[None]:
        """Time the block as `name` (of PHASES), if this step is timed; blocks of a step add up."""
        began = self._now() if self._is_timed else None
        yield
        if began is not None:
            self._marks.append((name, self._steps - 1, began, self._now()))

    def waiting(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of the steps, and time how long each is waited for."""
        began = self._now()
        for batch in batches:
            self._marks.append(("data", self._steps, began, self._now()))
            self._steps += 1
            yield batch
            began = self._now()

    def seconds(self) -> np.ndarray:
        """Seconds, float64 (phases, steps), NaN where a step was not timed; the device has finished.

        Steps begin anew with the next batch.
        """
        seconds = np.full((len(PHASES), self._steps), np.nan)
        for name, step, began, ended in self._marks:
            at = PHASES.index(name), step
            before_s = 0.0 if np.isnan(seconds[at]) else seconds[at]
            took_s = began.elapsed_time(ended) / 1000 if self._on_gpu else ended - began
            seconds[at] = before_s + took_s
        self._marks.clear()
        self._steps = 0
        return seconds


def phase_statistics(seconds: np.ndarray) -> dict[str, float | None]:
    """PHASE_COLUMNS of an epoch, from the ranks' seconds (ranks, phases, steps); None if no step was timed.

    All ranks time the same steps. Mean, median and quartiles are over ranks and steps, `slowest` is the
    largest mean of a rank.
    """
    statistics: dict[str, float | None] = dict.fromkeys(PHASE_COLUMNS)
    for phase, ranks in zip(PHASES, seconds.transpose(1, 0, 2), strict=True):
        timed = ranks[:, ~np.isnan(ranks[0])]
        if timed.size:
            quartiles = np.quantile(timed, (0.25, 0.5, 0.75))
            values = timed.mean(), *quartiles, timed.mean(axis=1).max()
            names = (phase_column(phase, statistic) for statistic in PHASE_STATISTICS)
            statistics |= zip(names, map(float, values), strict=True)
    return statistics
