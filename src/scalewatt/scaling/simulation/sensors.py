"""Raw values of the sensors of a simulated run's nodes, as perun would have sampled them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewatt.campaign.cluster import Device
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.recordings.terms import DEVICE_KINDS, Floats
from scalewatt.scaling.simulation import assumptions
from scalewatt.scaling.simulation.power_profile import (
    Course,
    Level,
    counted,
    gpu_sensor,
    noise,
    scaled,
)
from scalewatt.scaling.simulation.run_sample import RunDraw
from scalewatt.scaling.simulation.stage_schedule import Segment

_JITTER_S = 0.002
_LEAST_STEP = 0.25
"""Part of a period: the last sample but one is left out where the last would follow sooner."""


@dataclass(frozen=True, eq=False)
class Samples:
    """The samples of one sensor: `raw` (n,) whole numbers, mW of a GPU, µJ of a counter."""

    name: str
    device_kind: str
    device_index: int
    raw: NDArray[Any]
    valid_max: int
    uuid: str | None = None
    kept: NDArray[np.bool_] | None = None
    """Mask (n,) of the samples that exist; None: all."""
    counted_uj: NDArray[np.uint64] | None = None
    """Energy since the first sample, (n,), however often the counter wraps; None: not a counter."""
    over_s: float = 0.0
    """How long before a sample its power is averaged."""

    @property
    def is_counter(self) -> bool:
        """Return True if its values are a counter's."""
        return self.counted_uj is not None

    def with_range(self, range_uj: int, first: int) -> Samples:
        """Return the same counter, beginning at `first` and wrapping at `range_uj`."""
        if self.counted_uj is None:
            raise ValueError(f"{self.name} is no counter")
        raw = (self.counted_uj + np.uint64(first)) % np.uint64(range_uj)
        # A counter is never 0 but for a failed read.
        return replace(self, raw=np.maximum(raw, 1), valid_max=range_uj)


@dataclass(frozen=True, eq=False)
class NodeSamples:
    """The samples of one node in one segment. `time_s` (n,) from the segment's start."""

    host: str
    time_s: Floats
    sensors: tuple[Samples, ...]


@dataclass(frozen=True)
class Periods:
    """The sampling periods: `usual_s`, and `fine_s` until `until_s`."""

    usual_s: float
    fine_s: float
    until_s: float = 0.0

    def times(self, seconds: float, random: np.random.Generator) -> Floats:
        """Return the times of all samples of a recording, from 0 to its end.

        float32, as perun writes them: every reader sees the same.
        """
        until = min(self.until_s, seconds)
        fine = np.arange(0.0, until, self.fine_s)
        usual = np.arange(until, seconds, self.usual_s)
        inner = np.concatenate((fine, usual))[1:]
        inner += random.uniform(-_JITTER_S, _JITTER_S, inner.size)
        last_step = self.usual_s if seconds > until else self.fine_s
        inner = inner[inner < seconds - _LEAST_STEP * last_step]
        times = np.concatenate(([0.0], inner, [seconds]))
        return times.astype(np.float32).astype(np.float64)


@dataclass(frozen=True)
class Nodes:
    """A simulated run's nodes."""

    spec: RunSpec
    device: Device
    draw: RunDraw
    levels: Mapping[str, Level]
    """Of one device, by kind."""
    periods: Periods
    is_scaled: bool = True
    """True if the integral over a GPU's samples is its true energy; else it has the error of sampling."""

    @property
    def hosts(self) -> list[str]:
        """Return their names."""
        return [f"sim-{self.device.name}-{n:04d}" for n in range(1, self.spec.nodes + 1)]

    @property
    def held_gpus(self) -> int:
        """Return the number of a node's GPUs that the run uses; 0 without GPUs."""
        return int(self.spec.ranks_per_node) if "gpu" in self.levels else 0

    def sampled(self, segment: Segment) -> Iterator[NodeSamples]:
        """Yield the samples of a segment, node by node."""
        courses = self.courses(segment)
        shares = self.shares()
        for number, host in enumerate(self.hosts):
            yield self._node(segment, courses, shares, number, host)

    def courses(self, segment: Segment) -> dict[str, Course]:
        """Return the mean power of one device of each kind over a segment."""
        return {
            kind: Course.of(self.levels[kind], segment.stages)
            for kind in DEVICE_KINDS
            if kind in self.levels
        }

    def uuids(self, host: str) -> list[str]:
        """Return the UUIDs of all GPUs of a node."""
        return [f"GPU-{host}-{index}" for index in range(self.device.gpus_per_node)]

    def _node(
        self,
        segment: Segment,
        courses: Mapping[str, Course],
        shares: Floats,
        number: int,
        host: str,
    ) -> NodeSamples:
        random = self.draw.random(1, segment.number, number)
        time_s = self.periods.times(segment.seconds, random)
        sensors: list[Samples] = []
        for kind, course in courses.items():
            if kind == "gpu":
                held = self.held_gpus
                own = shares[number * held : (number + 1) * held]
                sensors += self._gpus(host, course, own, time_s, random)
            else:
                sensors += self._counters(kind, course, time_s, random)
        return NodeSamples(host, time_s, tuple(sensors))

    def _gpus(
        self,
        host: str,
        course: Course,
        shares: Floats,
        time_s: Floats,
        random: np.random.Generator,
    ) -> Iterator[Samples]:
        """Yield the samples of a node's GPUs: those that the run uses, and the idle others."""
        sensor = gpu_sensor(self.spec)
        read = sensor.read(course, time_s, shares.size, random)
        watts = read * shares[:, None]
        if self.is_scaled:
            watts = scaled(read, time_s, course.total_j * shares, sensor.over_s)
        idle = self.device.gpus_per_node - shares.size
        if idle:
            constant = np.full(idle, self.idle_w(course) * time_s[-1])
            steady = noise((idle, time_s.size), assumptions.UNUSED_NOISE, random)
            watts = np.concatenate((watts, scaled(steady, time_s, constant, sensor.over_s)))
        limit_w = max((self.device.gpu or {"rated_w": 0.0})["rated_w"], float(watts.max()))
        milliwatts = np.rint(watts * 1000).astype(np.uint32)
        for index, uuid in enumerate(self.uuids(host)):
            name = f"CUDA:{index}_POWER"
            own, top = milliwatts[index], round(1000 * limit_w)
            yield Samples(name, "gpu", index, own, top, uuid, over_s=sensor.over_s)

    def shares(self) -> Floats:
        """Return the energy of each of the run's GPUs relative to their mean; the same in all segments."""
        shares = 1 + assumptions.DEVICE_SPREAD * self.draw.random(2).standard_normal(self.spec.gpus)
        return shares / shares.mean()

    def idle_w(self, course: Course) -> float:
        """Return the power of a GPU that the run does not use."""
        return self.device.gpu["idle_w"] if self.device.gpu else course.idle_w

    def _counters(
        self, kind: str, course: Course, time_s: Floats, random: np.random.Generator
    ) -> Iterator[Samples]:
        """Yield one counter per socket; it begins anywhere in its range, and wraps."""
        sockets, top = (
            int(self.device.cpu["sockets"]),
            assumptions.counter_range_uj(kind, self.device),
        )
        joules = counted(course, time_s, sockets, random)
        counts = np.rint(joules * 1e6).astype(np.uint64)
        name = "cpu_{0}_package-{0}" if kind == "cpu" else "ram_{0}_dram"
        for socket, begin in enumerate(random.integers(1, top, sockets)):
            own = counts[socket]
            one = Samples(name.format(socket), kind, socket, own, top, counted_uj=own)
            yield one.with_range(top, int(begin))
