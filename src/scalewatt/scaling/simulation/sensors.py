"""What the sensors of a simulated run's nodes read, as a journal has it: whole mW of GPUs, µJ of counters.

A counter counts the integral of the mean power. Samples of a power sensor are scaled so that their integral
over time is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.recordings.terms import MEAN_OVER_S, MOVING_MEAN, Floats, gpu_quantity
from scalewatt.scaling.simulation import assumptions
from scalewatt.scaling.simulation.run import Course, Simulation

Random = np.random.Generator

_JITTER_S = 0.002
_LEAST_STEP = 0.25
"""Part of a period: the last sample but one is left out where the last would follow sooner."""
_COUNTERS = {"cpu": "cpu_{0}_package-{0}", "ram": "ram_{0}_dram"}


@dataclass(frozen=True, eq=False)
class NodeSamples:
    """Samples of one node. `time_s` (n,) from the run's start."""

    host: str
    time_s: Floats
    sensors: dict[str, dict[str, Any]]
    """Kind, index, unit, mag, valid_max, uuid of each, by name."""
    raw: dict[str, NDArray[Any]]
    """Whole numbers (n,) by the sensor's name."""


def sample_nodes(run: Simulation) -> Iterator[NodeSamples]:
    """Yield what is sampled in a run, node by node."""
    shares = gpu_shares(run).reshape(run.spec.nodes, -1)
    for number, host in enumerate(run.hosts):
        random = run.draw.random(1, 0, number)
        time_s = sample_times(run, random)
        node = NodeSamples(host, time_s, {}, {})
        _add_gpus(node, run, shares[number], random)
        for kind in ("cpu", "ram"):
            if kind in run.courses:
                _add_counters(node, run, kind, random)
        yield node


def gpu_shares(run: Simulation) -> Floats:
    """Energy of each of the run's GPUs relative to their mean."""
    shares = 1 + assumptions.DEVICE_SPREAD * run.draw.random(2).standard_normal(run.spec.gpus)
    return shares / shares.mean()


def sample_times(run: Simulation, random: Random) -> Floats:
    """Times of all samples of a node, from 0 to the end; whole float32, as perun takes them."""
    seconds = run.stages[-1].end_s
    until = min(run.fine_start_s, seconds)
    fine = np.arange(0.0, until, run.fine_period_s)
    inner = np.concatenate((fine, np.arange(until, seconds, run.period_s)))[1:]
    inner += random.uniform(-_JITTER_S, _JITTER_S, inner.size)
    last_step = run.period_s if seconds > until else run.fine_period_s
    inner = inner[inner < seconds - _LEAST_STEP * last_step]
    return np.concatenate(([0.0], inner, [seconds])).astype(np.float32).astype(np.float64)


# --- GPUs -----------------------------------------------------------------------------------------


def _add_gpus(node: NodeSamples, run: Simulation, shares: Floats, random: Random) -> None:
    """Add a node's GPUs: those that the run uses, and the idle others."""
    time_s, over_s, course = node.time_s, averaged_s(run.spec), run.courses["gpu"]
    read = read_power(run.spec, course, time_s, shares.size, random)
    watts = scaled(read, time_s, course.joules(np.array([course.end_s])) * shares, over_s)
    if idle := run.device.gpus_per_node - shares.size:
        steady = noise((idle, time_s.size), assumptions.UNUSED_NOISE, random)
        joules = np.full(idle, run.gpu_w["idle_w"] * time_s[-1])
        watts = np.concatenate((watts, scaled(steady, time_s, joules, over_s)))
    top = round(1000 * max(run.gpu_w["rated_w"], float(watts.max())))
    milliwatts = np.rint(watts * 1000).astype(np.uint32)
    for index, uuid in enumerate(run.uuids(node.host)):
        name = f"CUDA:{index}_POWER"
        facts = {"kind": "gpu", "index": index, "unit": "W", "mag": 1e-3, "valid_max": top}
        node.sensors[name] = {**facts, "uuid": uuid}
        node.raw[name] = milliwatts[index]


def averaged_s(spec: RunSpec) -> float:
    """Time before a sample over which the sensor of the run's GPUs averages; 0: instantaneous."""
    return MEAN_OVER_S if gpu_quantity(spec.device) == MOVING_MEAN else 0.0


def read_power(
    spec: RunSpec, course: Course, time_s: Floats, devices: int, random: Random
) -> NDArray[np.float32]:
    """Read power (devices, n) in W as a real sensor does; the mean over time is the course's."""
    shape = devices, time_s.size
    if over_s := averaged_s(spec):
        return course.means(time_s, over_s) * noise(shape, assumptions.AVERAGED_NOISE, random)
    watts, works = course.at(time_s)
    waits, low = assumptions.waits(spec), assumptions.WAIT_LEVEL
    waiting = random.random(shape, dtype=np.float32) < waits
    part = np.where(waiting, np.float32(low), np.float32((1 - waits * low) / (1 - waits)))
    samples = np.where(works, course.idle_w + (watts - course.idle_w) * part, watts)
    return samples * noise(shape, assumptions.NOISE, random)


def noise(shape: tuple[int, int], deviation: float, random: Random) -> NDArray[np.float32]:
    """Draw factors around 1."""
    factors = random.standard_normal(shape, dtype=np.float32)
    factors *= deviation
    factors += 1
    return np.maximum(factors, assumptions.LEAST_NOISE, out=factors)


def scaled(
    samples: NDArray[np.float32], time_s: Floats, joules: Floats, over_s: float = 0.0
) -> Floats:
    """Scale samples (devices, n) in W so that their integral over time is `joules` (devices,).

    That is the trapezoid over them. Means over the `over_s` before them are the powers in the middle of these
    times: half of it is left out at the beginning, and the last one holds to the end.
    """
    energy = from_zero(np.diff(time_s) * (samples[:, 1:] + samples[:, :-1]) / 2)
    begin = [np.interp(time_s[0] + over_s / 2, time_s, device) for device in energy]
    integral = energy[:, -1] - begin + over_s / 2 * samples[:, -1]
    return samples * (joules / integral)[:, None]


def from_zero(steps: Floats) -> Floats:
    """Sum up steps (devices, n - 1) from 0 on, (devices, n)."""
    return np.pad(np.cumsum(steps, axis=1), ((0, 0), (1, 0)))


# --- counters -------------------------------------------------------------------------------------


def _add_counters(node: NodeSamples, run: Simulation, kind: str, random: Random) -> None:
    """Add one counter per socket; it begins anywhere in its range, and wraps."""
    sockets = int(run.device.cpu["sockets"])
    top = assumptions.counter_range_uj(kind, run.device)
    joules = counted(run.courses[kind], node.time_s, sockets, random)
    counts = np.rint(joules * 1e6).astype(np.uint64)
    for socket, begin in enumerate(random.integers(1, top, sockets)):
        name = _COUNTERS[kind].format(socket)
        facts = {"kind": kind, "index": socket, "unit": "J", "mag": 1e-6, "valid_max": top}
        node.sensors[name] = facts
        # A counter is never 0 but for a failed read.
        node.raw[name] = np.maximum((counts[socket] + np.uint64(begin)) % np.uint64(top), 1)


def counted(course: Course, time_s: Floats, devices: int, random: Random) -> Floats:
    """Energy in J since the first sample as counters count it, (devices, n).

    The mean power between two samples varies; over the whole time it is the course's.
    """
    steps = np.diff(course.joules(time_s))
    noisy = steps * noise((devices, steps.size), assumptions.AVERAGED_NOISE, random)
    energy = from_zero(noisy)
    return energy * (steps.sum() / energy[:, -1])[:, None]
