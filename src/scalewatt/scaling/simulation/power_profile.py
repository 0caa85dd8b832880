"""Power of a simulated run's devices: levels by stage, and the readings of sensors.

Levels follow from the run's energies: integrated over the uninterrupted run they give them exactly. A
counter counts that integral; samples of a power sensor are scaled so that theirs is the same (`scaled`),
unless a real sensor's are wanted (`Nodes.is_scaled`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewatt.campaign.cluster import Device
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.recordings.stage_log import EVALUATIONS
from scalewatt.recordings.terms import MEAN_OVER_S, MOVING_MEAN, Floats, gpu_quantity
from scalewatt.scaling.simulation import assumptions
from scalewatt.scaling.simulation.run_sample import RunDraw
from scalewatt.scaling.simulation.stage_schedule import Segment, Stage

WORKING = ("train", *EVALUATIONS)


@dataclass(frozen=True)
class Level:
    """Mean power of one device in each stage, in W."""

    idle_w: float
    above_w: float
    """Above idle in training."""
    levels: Mapping[str, float]
    dip: float

    @classmethod
    def of(
        cls,
        joules: float,
        stages: Sequence[Stage],
        idle_w: float,
        levels: Mapping[str, float],
        dip: float,
    ) -> Level:
        """Return the level at which a device uses `joules` in `stages`."""
        seconds = stages[-1].end_s
        idle_w = min(idle_w, assumptions.IDLE_OF_MEAN * joules / seconds)
        unit = cls(0.0, 1.0, levels, dip)
        return cls(idle_w, (joules - idle_w * seconds) / unit.joules(stages), levels, dip)

    def watts(self, stage: str) -> float:
        """Return the mean power in a stage."""
        return self.idle_w + self.above_w * self.levels.get(stage, assumptions.OTHER_LEVEL)

    @property
    def dip_w(self) -> float:
        """Return the power while GPUs wait for the first batch."""
        return self.idle_w + self.above_w * self.dip

    def joules(self, stages: Sequence[Stage]) -> float:
        """Return the energy that a device at this level uses in stages."""
        return sum(
            self.watts(one.name) * (one.seconds - one.dip_s) + self.dip_w * one.dip_s
            for one in stages
        )


def levels_of(
    spec: RunSpec, device: Device, draw: RunDraw, uninterrupted: Segment
) -> dict[str, Level]:
    """Return the levels at which the uninterrupted run uses the energies that were drawn, by device kind.

    They are of one GPU, one CPU socket, and the memory of one socket.
    """
    sockets = spec.nodes * int(device.cpu["sockets"])
    ram_w = draw.joules.get("ram", 0.0) / sockets / draw.runtime_s
    gpu_idle_w = device.gpu["idle_w"] if device.gpu else 0.0
    gpu = assumptions.GPU_LEVELS, assumptions.GPU_DIP
    host = assumptions.HOST_LEVELS, assumptions.HOST_DIP
    kinds = {
        "gpu": (spec.gpus, gpu_idle_w, gpu),
        "cpu": (sockets, device.cpu["idle_w"], host),
        "ram": (sockets, assumptions.RAM_IDLE * ram_w, host),
    }
    return {
        kind: Level.of(draw.joules[kind] / devices, uninterrupted.stages, idle_w, *levels)
        for kind, (devices, idle_w, levels) in kinds.items()
        if kind in draw.joules
    }


@dataclass(frozen=True, eq=False)
class Course:
    """A device's mean power over a segment: constant from each `start_s` to the next; arrays (k,)."""

    start_s: Floats
    watts: Floats
    works: NDArray[np.bool_]
    idle_w: float
    stage_joules: Mapping[str, float]
    """Its energy by stage in J."""

    @classmethod
    def of(cls, level: Level, stages: Sequence[Stage]) -> Course:
        """Return the course of a device at a level."""
        rows: list[tuple[float, float, bool]] = []
        joules = dict.fromkeys((one.name for one in stages), 0.0)
        for one in stages:
            if one.dip_s:
                rows.append((one.start_s, level.dip_w, False))
            rows.append((one.start_s + one.dip_s, level.watts(one.name), one.name in WORKING))
            joules[one.name] += level.joules([one])
        start, watts, works = zip(*rows, strict=True)
        return cls(np.array(start), np.array(watts), np.array(works), level.idle_w, joules)

    @property
    def total_j(self) -> float:
        """Return the energy over the whole segment."""
        return sum(self.stage_joules.values())

    def at(self, time_s: Floats) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the mean power and whether the device works, at ascending times."""
        edges = np.searchsorted(time_s, self.start_s[1:], side="left")
        counts = np.diff(np.concatenate(([0], edges, [time_s.size])))
        return np.repeat(self.watts.astype(np.float32), counts), np.repeat(self.works, counts)

    def joules(self, time_s: Floats) -> Floats:
        """Return the energy since the segment's start, at any times."""
        ends = np.append(self.start_s, max(float(time_s.max()), float(self.start_s[-1])) + 1.0)
        energy = np.concatenate(([0.0], np.cumsum(self.watts * np.diff(ends))))
        return np.interp(time_s, ends, energy)

    def means(self, time_s: Floats, over_s: float) -> NDArray[np.float32]:
        """Return the mean power over the time before each of ascending times; at the first, its own power."""
        before = np.maximum(time_s - over_s, 0.0)
        seconds = time_s - before
        energy = self.joules(time_s) - self.joules(before)
        own, _ = self.at(time_s)
        return np.divide(energy, seconds, out=own.astype(np.float64), where=seconds > 0).astype(
            np.float32
        )


@dataclass(frozen=True)
class Sensor:
    """The variation of a power sensor's samples around the mean power."""

    noise: float
    waits: float = 0.0
    """Part of the time in which a working device is at WAIT_LEVEL; 0 for a sensor that averages."""
    over_s: float = 0.0
    """How long before a sample it averages; 0: samples are instantaneous."""

    def read(
        self, course: Course, time_s: Floats, devices: int, random: Any
    ) -> NDArray[np.float32]:
        """Return samples (devices, n) in W, not yet scaled; their mean over time is that of the course."""
        watts, works = course.at(time_s)
        if self.over_s:
            watts = course.means(time_s, self.over_s)
        shape = devices, time_s.size
        samples = np.broadcast_to(watts, shape)
        if self.waits:
            high = (1 - self.waits * assumptions.WAIT_LEVEL) / (1 - self.waits)
            waiting = random.random(shape, dtype=np.float32) < self.waits
            part = np.where(waiting, np.float32(assumptions.WAIT_LEVEL), np.float32(high))
            samples = np.where(works, course.idle_w + (samples - course.idle_w) * part, samples)
        return samples * noise(shape, self.noise, random)


def noise(shape: tuple[int, int], deviation: float, random: Any) -> NDArray[np.float32]:
    """Return factors around 1."""
    factors = random.standard_normal(shape, dtype=np.float32)
    factors *= deviation
    factors += 1
    return np.maximum(factors, assumptions.LEAST_NOISE, out=factors)


def gpu_sensor(spec: RunSpec) -> Sensor:
    """Return the properties of the power sensor of the run's GPUs."""
    if gpu_quantity(spec.device) == MOVING_MEAN:
        return Sensor(assumptions.AVERAGED_NOISE, over_s=MEAN_OVER_S)
    return Sensor(assumptions.NOISE, assumptions.waits(spec))


def counted(course: Course, time_s: Floats, devices: int, random: Any) -> Floats:
    """Return the energy in J since the first sample as counters count it, (devices, n).

    The mean power between two samples varies; over the whole time it is the course's.
    """
    steps = np.diff(course.joules(time_s))
    found = np.zeros((devices, time_s.size))
    np.cumsum(
        steps * noise((devices, steps.size), assumptions.AVERAGED_NOISE, random),
        axis=1,
        out=found[:, 1:],
    )
    return found * (steps.sum() / found[:, -1])[:, None]


def scaled(
    samples: NDArray[np.float32], time_s: Floats, joules: Floats, over_s: float = 0.0
) -> Floats:
    """Return samples (devices, n) in W, scaled so that their integral over time is `joules` (devices,).

    That is the trapezoid over them. Means over the `over_s` before them are the powers in the middle of these
    times: half of one is left out at the beginning, and the last one holds to the end.
    """
    found = np.trapezoid(samples, time_s, axis=1)
    begin_s = time_s[0] + over_s / 2
    if over_s and time_s[-1] > begin_s:
        whole = int(np.searchsorted(time_s, begin_s, side="right")) - 1
        left_out = np.trapezoid(samples[:, : whole + 1], time_s[: whole + 1], axis=1)
        step = slice(whole, whole + 2)
        part = (begin_s - time_s[whole]) / (time_s[whole + 1] - time_s[whole])
        left_out += part * np.trapezoid(samples[:, step], time_s[step], axis=1)
        found += over_s / 2 * samples[:, -1] - left_out
    return samples * (joules / found)[:, None]
