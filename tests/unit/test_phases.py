"""A step's time by phase, and the history that tells it."""

from __future__ import annotations

import time

import pytest
import torch

from scalewatt.training.history import PHASES
from scalewatt.training.phases import PhaseTimer, mean_phases

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when told."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_each_phase_has_the_time_of_its_blocks(clock) -> None:
    timer = PhaseTimer(CPU)
    for step in range(2):
        timer.begin_step(step, 2)
        for phase, seconds in zip(PHASES[1:], (0.5, 1, 2, 4), strict=True):
            with timer.phase(phase):
                clock[0] += seconds * (step + 1)
    means = mean_phases(timer.sums()[None])
    assert means == {
        "step_data_s": None,
        "step_copy_s": 0.75,
        "step_forward_s": 1.5,
        "step_backward_s": 3.0,
        "step_optimizer_s": 6.0,
    }


def test_waiting_for_data_is_timed_in_every_step(clock) -> None:
    def loader():
        for number in range(3):
            clock[0] += 0.25
            yield number

    timer = PhaseTimer(CPU)
    seen = []
    for number in timer.waiting(loader()):
        clock[0] += 10  # work, which is no waiting
        seen.append(number)
    assert seen == [0, 1, 2]
    assert timer.sums()[0].tolist() == [0.75, 3]
