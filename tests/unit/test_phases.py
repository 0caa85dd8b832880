"""A step's time by phase, and the history that tells it."""

from __future__ import annotations

import time

import pytest
import torch
from stand_in_cuda import StandInGpu

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


STEP_S = {"copy": 0.02, "forward": 0.3, "backward": 0.6, "optimizer": 0.08}
"""What a step takes on the stand-in GPU: 1 s."""
LAUNCH_S = 0.001
"""What the processor needs to start each of its parts."""


def means_of_epoch(gpu: StandInGpu, loading_s: float, steps: int = 200) -> dict[str, float | None]:
    """Times per step of an epoch whose batches are loaded beside, one each `loading_s`."""
    begin_s = gpu.now_s

    def loader():
        for number in range(steps):
            gpu.wait_until(begin_s + (number + 1) * loading_s)
            yield number

    timer = PhaseTimer(gpu.device)
    for _ in timer.waiting(loader()):
        for phase, seconds in STEP_S.items():
            with timer.phase(phase):
                gpu.wait(LAUNCH_S)
                gpu.work(seconds)
    assert gpu.calls == [], "no step may wait for the GPU"
    gpu.synchronize()
    return mean_phases(timer.sums()[None])


@pytest.mark.parametrize(("loading_s", "share"), [(0.5, 0.0), (1.0, 0.0), (2.0, 0.5), (4.0, 0.75)])
def test_a_step_waits_for_data_as_long_as_the_gpu_has_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch, loading_s: float, share: float
) -> None:
    gpu = StandInGpu.put_in(monkeypatch)
    means = means_of_epoch(gpu, loading_s)
    seconds = {name: s or 0.0 for name, s in means.items()}
    assert seconds["step_data_s"] / sum(seconds.values()) == pytest.approx(share, abs=0.02)
    for phase, expected in STEP_S.items():
        assert seconds[f"step_{phase}_s"] == pytest.approx(expected, abs=2 * LAUNCH_S)
