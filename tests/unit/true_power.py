"""Made truth: power curves of which the energy is known, and sensors that read them, also badly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from scalewatt.energies.integrate import EnergyCurve, Validated, validate
from scalewatt.recordings.block import Block, sensor_frame

UNIX = 1.795e9
RANGE_J = 262_143.328850
NOISE_W = 0.05


@dataclass(frozen=True, eq=False)
class TruePower:
    """Power that is piecewise linear through `power_w` at `time_s` (from 0 on)."""

    time_s: np.ndarray
    power_w: np.ndarray

    @property
    def slope(self) -> float:
        """The steepest change in W/s."""
        return float(np.max(np.abs(np.diff(self.power_w) / np.diff(self.time_s))))

    @property
    def seconds(self) -> float:
        return float(self.time_s[-1])

    def at(self, time_s: np.ndarray) -> np.ndarray:
        return np.interp(time_s, self.time_s, self.power_w)

    def energy_until(self, time_s: np.ndarray) -> np.ndarray:
        """The exact energy in J from 0 to each time."""
        index = np.clip(np.searchsorted(self.time_s, time_s) - 1, 0, self.time_s.size - 2)
        parts = 0.5 * (self.power_w[1:] + self.power_w[:-1]) * np.diff(self.time_s)
        whole = np.concatenate(([0.0], np.cumsum(parts)))[index]
        rest = time_s - self.time_s[index]
        return whole + 0.5 * (self.power_w[index] + self.at(time_s)) * rest


@st.composite
def true_powers(
    draw: st.DrawFn, low: float = 20.0, high: float = 400.0, stretches: int = 12
) -> TruePower:
    """Draw ramps between random powers, or a telegraph: levels (nearly) held, with steep flanks."""
    count = draw(st.integers(2, stretches))
    levels = draw(st.lists(st.floats(low, high), min_size=count, max_size=count))
    lengths = draw(st.lists(st.floats(5.0, 60.0), min_size=count, max_size=count))
    time, power = [0.0], [levels[0]]
    telegraph = draw(st.booleans())
    for level, length in zip(levels, lengths, strict=True):
        if telegraph:
            time.append(time[-1] + 0.5)
            power.append(level)
        time.append(time[-1] + length)
        power.append(level)
    return TruePower(np.array(time), np.array(power))


@st.composite
def sampling_times(draw: st.DrawFn, seconds: float, gaps: int = 3) -> tuple[np.ndarray, float]:
    """Draw times in [0, seconds], regular but for jitter and some gaps; also the period."""
    period = draw(st.sampled_from((0.1, 0.25, 1.0, 2.0)))
    noise = rng(draw)
    jitter = draw(st.floats(0.0, 0.45)) * period
    time = np.arange(0.0, seconds, period)
    time = time + noise.uniform(0.0, jitter + 1e-9, time.size)
    kept = np.ones(time.size, dtype=bool)
    for _ in range(draw(st.integers(0, gaps))):
        begin = draw(st.floats(0.0, seconds))
        kept &= (time < begin) | (time > begin + draw(st.floats(0.0, 80.0)))
    kept[:2] = True
    return time[kept & (time <= seconds)], period


def rng(draw: st.DrawFn) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


@st.composite
def stretches(draw: st.DrawFn, size: int, most: int = 3, longest: int = 60) -> np.ndarray:
    """Draw a mask, shape (size,), of a few stretches of samples."""
    mask = np.zeros(size, dtype=bool)
    for _ in range(draw(st.integers(0, most))):
        begin = draw(st.integers(0, size - 1))
        mask[begin : begin + draw(st.integers(1, longest))] = True
    return mask


def block(time_s: np.ndarray, values: np.ndarray, **sensor: Any) -> Block:
    """A block of one sensor."""
    return Block("n", time_s, np.asfortranarray(values[:, None]), sensor_frame([sensor]))


def gpu(time_s: np.ndarray, power_w: np.ndarray, limit_w: float = 400.0, **more: Any) -> Block:
    """The block of a GPU; limit NaN: only what no GPU draws is above it."""
    return block(time_s, power_w, name="CUDA:0_POWER", kind="gpu", limit_w=limit_w, **more)


def cpu(
    time_s: np.ndarray,
    counter_j: np.ndarray,
    range_j: float = RANGE_J,
    limit_w: float = np.nan,
    quantity: str = "counter",
) -> Block:
    """The block of a package's counter."""
    sensor = {"name": "cpu_0", "kind": "cpu", "quantity": quantity}
    return block(time_s, counter_j, **sensor, range_j=range_j, limit_w=limit_w)


def cpu_means(time_s: np.ndarray, mean_w: np.ndarray) -> Block:
    """The block of a package's mean powers."""
    return cpu(time_s, mean_w, np.nan, quantity="mean_power")


def estimated(time_s: np.ndarray, power_w: np.ndarray) -> Block:
    """A block of power that no sensor measured, of which nothing but its gaps is doubted."""
    return block(time_s, power_w, name="rated", kind="cpu", origin="estimated")


def checked(block_read: Block, period_s: float | None = None) -> Validated:
    """The energy, power and flags of a block of one sensor."""
    return validate(block_read, 0, period_s)


def total_j(validated: Validated) -> float:
    """The energy of a whole series."""
    return float(validated.curve.between(-np.inf, np.inf))


def covered_s(validated: Validated) -> float:
    """The covered time of a whole series."""
    return float(validated.curve.covered_s(-np.inf, np.inf))


def read_power(truth: TruePower, time_s: np.ndarray, noise: np.random.Generator) -> np.ndarray:
    """Readings of a sensor with a resolution of 1 mW, wrong by NOISE_W at most."""
    error = noise.uniform(-NOISE_W, NOISE_W, time_s.size)
    return np.round(truth.at(time_s) + error, 3)


def read_counter(
    truth: TruePower, time_s: np.ndarray, start_j: float, range_j: float, quantum_j: float
) -> np.ndarray:
    """A counter that started at `start_j` and wraps at `range_j`."""
    total = start_j + truth.energy_until(time_s)
    return np.floor(total / quantum_j) * quantum_j % range_j


def read_means(time_s: np.ndarray, counter_j: np.ndarray, range_j: float) -> np.ndarray:
    """The mean powers that perun makes of a counter: float32, the first as the second."""
    difference = np.diff(counter_j)
    difference[difference < 0] += range_j
    mean = difference / np.diff(time_s)
    return np.concatenate((mean[:1], mean)).astype(np.float32).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Compared:
    """The intervals of a curve, shape (k,), beside the truth."""

    step_s: np.ndarray
    covered: np.ndarray
    energy_j: np.ndarray
    true_j: np.ndarray

    @property
    def error_j(self) -> float:
        """The error of the energy over the covered time."""
        return abs(float((self.energy_j - np.where(self.covered, self.true_j, 0.0)).sum()))


def compare(curve: EnergyCurve, truth: TruePower) -> Compared:
    """Set the intervals between a curve's samples (unix seconds) against the truth."""
    step = np.diff(curve.time_s)
    covered = np.diff(curve.cumulated_s)
    assert np.all((covered == 0) | (np.abs(covered - step) < 1e-6))
    return Compared(
        step, covered > 0, np.diff(curve.energy_j), np.diff(truth.energy_until(curve.time_s - UNIX))
    )
