"""When the clock is read around an epoch, with a stand-in for a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from stand_in_cuda import StandInGpu

from scalewatt.training.trainer import FINISHED, STOPPED, Trainer


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> StandInGpu:
    return StandInGpu.put_in(monkeypatch)


class OneEpoch(Trainer):
    """A training whose steps the processor has started long before the GPU has done them."""

    def __init__(self, gpu: StandInGpu, stops: bool) -> None:
        self.gpu, self.stops, self.device = gpu, stops, gpu.device
        self.spec: Any = SimpleNamespace(epochs=1)
        self.epoch, self.epoch_s, self.train_s = 0, 0.0, 0.0
        self.seen: list[tuple[str, float, float]] = []

    def _train_epoch(self) -> bool:
        for _ in range(20):
            self.gpu.wait(0.1)
            self.gpu.work(1.0)
        return not self.stops

    def _end_epoch(self) -> bool:
        self.epoch += 1
        self.gpu.calls.append("evaluate")
        return True

    def checkpoint(self) -> None:
        self.gpu.calls.append("checkpoint")

    def _write_result(self) -> None:
        self.gpu.calls.append("result")


@pytest.mark.parametrize("stops", [False, True])
def test_the_time_of_an_epoch_ends_when_the_gpu_has_done_its_last_step(
    gpu: StandInGpu, stops: bool
) -> None:
    trainer = OneEpoch(gpu, stops)
    assert trainer.run() == (STOPPED if stops else FINISHED)
    assert trainer.train_s == trainer.epoch_s == pytest.approx(20.1)
    then = ["checkpoint"] if stops else ["evaluate", "checkpoint", "result"]
    assert gpu.calls == ["synchronize", *then], "once an epoch, before anything else begins"
