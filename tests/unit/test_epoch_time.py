"""When the clock is read around an epoch, with a stand-in for a GPU."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from stand_in_cuda import StandInGpu

from scalewatt.recordings.stage_log import EventLog
from scalewatt.training.train import FINISHED, STOPPED, Trainer


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> StandInGpu:
    return StandInGpu.put_in(monkeypatch)


class OneEpoch(Trainer):
    """A training whose steps the processor has started long before the GPU has done them."""

    def __init__(self, gpu: StandInGpu, stops: bool) -> None:
        self.gpu, self.stops, self.device = gpu, stops, gpu.device
        self.spec: Any = SimpleNamespace(epochs=1)
        self.epoch, self.step, self.notes = 0, 0, None
        self.stage, self.entered_s, self.seconds = "startup", gpu.now_s, defaultdict(float)
        self.events = EventLog(None, 0)

    def _train_epoch(self) -> bool:
        self._enter("train")
        for _ in range(20):
            self.gpu.wait(0.1)
            self.gpu.work(1.0)
        return not self.stops

    def _end_epoch(self) -> bool:
        self._enter("validate")
        self.epoch += 1
        return True

    def checkpoint(self) -> None:
        self._enter("checkpoint")

    def _write_result(self) -> None:
        self._enter("checkpoint")


@pytest.mark.parametrize("stops", [False, True])
def test_the_time_of_an_epoch_ends_when_the_gpu_has_done_its_last_step(
    gpu: StandInGpu, stops: bool
) -> None:
    trainer = OneEpoch(gpu, stops)
    assert trainer.run() == (STOPPED if stops else FINISHED)
    assert trainer.seconds["train"] == pytest.approx(20.1)
    assert trainer.seconds["validate"] == 0
