"""Trainings in turn, in one process: seconds, joules and memory of windows of steps."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from scalewatt.provenance.versions import gpu_identity
from scalewatt.training.step_timer import finish, forget_peak_memory, peak_memory_bytes

COUNTER, POWER = "measured: NVML's energy counter", "measured: NVML's power, integrated"
_POWER_PERIOD_S = 0.02
_LEAST_ROUNDS = 2


class Clock:
    """What is left of the minutes that were given."""

    def __init__(self, minutes: float) -> None:
        self._began_s, self.total_s = time.monotonic(), 60 * minutes

    def elapsed_s(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self._began_s

    def left_s(self, share: float = 1.0) -> float:
        """Return the seconds until so large a share of the minutes is used, negative afterwards."""
        return share * self.total_s - self.elapsed_s()


class EnergyMeter:
    """The energy of one GPU between `start` and `stop`, in J; None where nothing measures it."""

    def __init__(self, device: torch.device) -> None:
        self.origin: str | None = None
        self._handle: Any = None
        self._start_j = 0.0
        self._samples: list[tuple[float, float]] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        index = gpu_identity(device).index if device.type == "cuda" else None
        if index is not None:
            self._find(index)

    def _find(self, index: int) -> None:
        import pynvml

        self._nvml = pynvml
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        for origin, read in ((COUNTER, self._counter_j), (POWER, self._power_w)):
            try:
                read()
            except pynvml.NVMLError:
                continue
            self.origin = origin
            return

    def _counter_j(self) -> float:
        return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3

    def _power_w(self) -> float:
        return float(self._nvml.nvmlDeviceGetPowerUsage(self._handle)) / 1e3

    def start(self) -> None:
        """Begin to measure."""
        if self.origin == COUNTER:
            self._start_j = self._counter_j()
        elif self.origin == POWER:
            self._samples, self._ended = [], threading.Event()
            self._thread = threading.Thread(target=self._sample, daemon=True)
            self._thread.start()

    def stop(self) -> float | None:
        """Return the joules since `start`."""
        if self.origin == COUNTER:
            return self._counter_j() - self._start_j
        if self._thread is None:
            return None
        self._ended.set()
        self._thread.join()
        self._thread = None
        pairs = zip(self._samples, self._samples[1:], strict=False)
        return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairs)

    def _sample(self) -> None:
        while True:
            self._samples.append((time.perf_counter(), self._power_w()))
            if self._ended.wait(_POWER_PERIOD_S):
                self._samples.append((time.perf_counter(), self._power_w()))
                return


class Training(Protocol):
    """What can be measured."""

    batch: int

    def prepare(self) -> None:
        """Set what is global: flags of TF32 and of cuDNN."""

    def settle(self) -> None:
        """Do what brings clocks and caches to this training, untimed."""

    def steps(self, count: int) -> int:
        """Do `count` steps, without waiting for the device; return the samples trained."""

    def facts(self) -> dict[str, Any]:
        """Return what is to be known of it beside its speed."""


@dataclass
class Contestant:
    """A training, and what was measured of it, window by window."""

    name: str
    what: str
    training: Training
    startup_s: float = 0.0
    steps: int = 1
    seconds: list[float] = field(default_factory=list)
    joules: list[float | None] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    peak_bytes: int = 0

    def calibrate(self, device: torch.device, window_s: float) -> None:
        """Choose how many steps a window of about `window_s` has; the first, untimed ones choose kernels."""
        self.training.prepare()
        self.training.steps(2)
        finish(device)
        began, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - began < min(0.5, window_s / 4):
            self.training.steps(3)
            finish(device)
            count += 3
        step_s = (time.perf_counter() - began) / count
        self.steps = max(1, round(window_s / step_s))

    def window(self, device: torch.device, meter: EnergyMeter) -> None:
        """Measure one window."""
        self.training.prepare()
        self.training.settle()
        finish(device)
        forget_peak_memory(device)
        meter.start()
        began = time.perf_counter()
        samples = self.training.steps(self.steps)
        finish(device)
        self.seconds.append(time.perf_counter() - began)
        self.joules.append(meter.stop())
        self.samples.append(samples)
        self.peak_bytes = max(self.peak_bytes, peak_memory_bytes(device))

    def samples_per_s(self) -> list[float]:
        """Return the throughput of each window."""
        return [n / s for n, s in zip(self.samples, self.seconds, strict=True)]

    def joules_per_sample(self) -> list[float] | None:
        """Return the energy of each window's samples; None if any window's is unknown."""
        found = [
            None if j is None else j / n for j, n in zip(self.joules, self.samples, strict=True)
        ]
        known = [one for one in found if one is not None]
        return known if known and len(known) == len(found) else None

    def as_json(self) -> dict[str, Any]:
        """Return all that was measured."""
        joules = self.joules_per_sample()
        speeds = self.samples_per_s()
        return {
            "what": self.what,
            "batch": self.training.batch,
            "steps_per_window": self.steps,
            "startup_s": self.startup_s,
            "window_s": self.seconds,
            "samples_per_s": speeds,
            "samples_per_s_median": statistics.median(speeds) if speeds else None,
            "joules_per_sample": joules,
            "joules_per_sample_median": statistics.median(joules) if joules else None,
            "peak_memory_bytes": self.peak_bytes,
            **self.training.facts(),
        }


def measure_in_turn(
    contestants: Sequence[Contestant],
    device: torch.device,
    meter: EnergyMeter,
    rounds: int,
    enough_time: Callable[[float], bool],
) -> None:
    """Measure a window of each in every round, in alternating order.

    `enough_time` is asked before a round whether so many seconds are left; two rounds are made anyway.
    """
    slowest_s = 0.0
    for number in range(rounds):
        if number >= _LEAST_ROUNDS and not enough_time(slowest_s):
            return
        began = time.monotonic()
        for one in contestants if number % 2 == 0 else reversed(contestants):
            one.window(device, meter)
        slowest_s = max(slowest_s, time.monotonic() - began)


@dataclass(frozen=True)
class Comparison:
    """How many times `quantity` of one training is that of another, round by round."""

    one: str
    other: str
    quantity: str
    ratios: list[float] | None
    at_least: float | None = None
    at_most: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the ratios with median, extremes, and whether the goal is met, null where it is unknown."""
        middle = statistics.median(self.ratios) if self.ratios else None
        met = None
        if middle is not None and self.at_least is not None:
            met = middle >= self.at_least
        elif middle is not None and self.at_most is not None:
            met = middle <= self.at_most
        return {
            "of": self.one,
            "to": self.other,
            "quantity": self.quantity,
            "ratios": self.ratios,
            "median": middle,
            "least": min(self.ratios) if self.ratios else None,
            "most": max(self.ratios) if self.ratios else None,
            "goal_at_least": self.at_least,
            "goal_at_most": self.at_most,
            "goal_met": met,
        }


def compared(
    one: Contestant, other: Contestant, at_least: float | None, joules_at_most: float | None = None
) -> list[Comparison]:
    """Return the ratios of throughput and of joules per sample of `one` to those of `other`."""
    speeds = _ratios(one.samples_per_s(), other.samples_per_s())
    joules = _ratios(one.joules_per_sample(), other.joules_per_sample())
    return [
        Comparison(one.name, other.name, "samples per second", speeds, at_least=at_least),
        Comparison(one.name, other.name, "joules per sample", joules, at_most=joules_at_most),
    ]


def _ratios(one: list[float] | None, other: list[float] | None) -> list[float] | None:
    if not one or not other:
        return None
    return [a / b for a, b in zip(one, other, strict=True)]
