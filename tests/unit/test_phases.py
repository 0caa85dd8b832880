"""A step's time by phase, and the history that tells it."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from scalewatt.training.history import PHASES
from scalewatt.training.phases import PhaseTimer, phase_statistics

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when told."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_each_phase_has_the_time_of_its_blocks(clock) -> None:
    def loader():
        for number in range(2):
            clock[0] += 0.25
            yield number

    timer = PhaseTimer(CPU)
    for step in timer.waiting(loader()):
        timer.begin_step(step, 2)
        for phase, seconds in zip(PHASES[1:], (0.5, 1, 2, 4), strict=True):
            for _ in range(2):  # gradient accumulation
                with timer.phase(phase):
                    clock[0] += seconds * (step + 1) / 2
    assert timer.seconds().tolist() == [[0.25, 0.25], [0.5, 1], [1, 2], [2, 4], [4, 8]]
    assert timer.seconds().shape == (5, 0)
    assert list(timer.waiting(loader())) == [0, 1], "work of which no phase is timed"
    seconds = timer.seconds()
    assert seconds[0].tolist() == [0.25] * 2 and np.isnan(seconds[1:]).all()


def test_statistics_are_over_steps_and_ranks_and_name_the_slowest_rank() -> None:
    ranks = np.full((2, len(PHASES), 4), np.nan)
    ranks[0, 0], ranks[1, 0] = [1, 2, 3, 4], [5, 6, 7, 8]
    ranks[:, 2, 1] = 10, 20  # one step of the forward pass is timed
    statistics = phase_statistics(ranks)
    at = {name: statistics[name] for name in ("step_data_s", "step_data_slowest_s")}
    assert at == {"step_data_s": 4.5, "step_data_slowest_s": 6.5}
    quartiles = [statistics[f"step_data_{name}_s"] for name in ("q25", "median", "q75")]
    assert quartiles == [2.75, 4.5, 6.25]
    assert (statistics["step_forward_s"], statistics["step_forward_slowest_s"]) == (15, 20)
    assert statistics["step_copy_s"] is statistics["step_copy_median_s"] is None
