"""A stand-in for a GPU: a stream of work that goes on behind the processor's back, and its events."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

QUEUE_S = 4.0
"""How much work waits for the GPU at most."""


class StandInGpu:
    """Processor and GPU on one clock. All CUDA calls of the training are noted in `calls`."""

    device: Any = SimpleNamespace(type="cuda", index=0)

    def __init__(self) -> None:
        self.now_s = 100.0
        self.busy_until_s = 0.0
        self.calls: list[str] = []

    @classmethod
    def put_in(cls, monkeypatch: pytest.MonkeyPatch) -> StandInGpu:
        """Replace torch's calls of CUDA, and the clocks, for the rest of the test."""
        gpu = cls()
        monkeypatch.setattr(time, "perf_counter", lambda: gpu.now_s)
        monkeypatch.setattr(time, "monotonic", lambda: gpu.now_s)
        monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: StandInEvent(gpu))
        monkeypatch.setattr(torch.cuda, "synchronize", gpu.synchronize)
        for name in ("reset_peak_memory_stats", "max_memory_allocated"):
            monkeypatch.setattr(torch.cuda, name, gpu.noted(name))
        return gpu

    def work(self, seconds: float) -> None:
        """Give the GPU something to do; the processor goes on at once, unless it is far ahead."""
        self.wait_until(self.busy_until_s - QUEUE_S)
        self.busy_until_s = max(self.busy_until_s, self.now_s) + seconds

    def wait(self, seconds: float) -> None:
        """Let the processor do something."""
        self.now_s += seconds

    def wait_until(self, moment_s: float) -> None:
        """Let the processor wait for a moment, if it is still to come."""
        self.now_s = max(self.now_s, moment_s)

    def synchronize(self, device: Any = None) -> None:
        """Let the processor wait for the GPU."""
        self.calls.append("synchronize")
        self.wait_until(self.busy_until_s)

    def noted(self, name: str) -> Any:
        """A call that is noted and gives 0."""

        def call(*_: Any) -> int:
            self.calls.append(name)
            return 0

        return call


class StandInEvent:
    """A moment in the GPU's stream."""

    def __init__(self, gpu: StandInGpu) -> None:
        self.gpu = gpu
        self.at_s: float | None = None

    def record(self) -> None:
        """Take the moment at which all that was given to the GPU before is done."""
        self.at_s = max(self.gpu.busy_until_s, self.gpu.now_s)

    def query(self) -> bool:
        """Whether the GPU has come to it."""
        return self.at_s is None or self.at_s <= self.gpu.now_s

    def elapsed_time(self, other: StandInEvent) -> float:
        """Milliseconds until the other; RuntimeError, as torch's, if the GPU has not come to both."""
        if self.at_s is None or other.at_s is None or not (self.query() and other.query()):
            raise RuntimeError("CUDA error: device not ready")
        return 1000 * (other.at_s - self.at_s)
