"""Known powers of several GPUs over time, with faults, for tests of the readers of other tools' files.

The power between two samples is the straight line, so the energy of what is left is known exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import strategies as st

from scalewatt.energies.integrate import Validated, validate
from scalewatt.recordings import perun_file
from scalewatt.recordings.block import Block, Recording
from scalewatt.recordings.terms import Flag

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe")
# Among them the hours when clocks are set forward in Berlin, St John's and on Lord Howe Island.
STARTS = (1_717_144_753.125, 1_711_846_785.0, 1_710_048_595.5, 1_728_142_190.0)
LOW_W, HIGH_W = 20.0, 700.0


@dataclass(frozen=True)
class Row:
    """One sample of one GPU; `power_w` None is a missing value."""

    time_s: float
    gpu: int
    power_w: float | None
    counter_mj: int | None


@dataclass(frozen=True, eq=False)
class Made:
    """The truth and what was written of it: rows in the order of the file."""

    time_s: np.ndarray
    power_w: np.ndarray
    """(GPUs, times)"""
    rows: list[Row]
    zone: str

    def kept(self, gpu: int) -> tuple[np.ndarray, np.ndarray]:
        """Times and powers of a GPU's samples that were written with a value."""
        result = {r.time_s: r.power_w for r in self.rows if r.gpu == gpu and r.power_w is not None}
        times = np.array(sorted(result))
        return times, np.array([result[time] for time in times])

    def true_j(self, gpu: int, begin_s: float, end_s: float) -> float:
        """The energy between two of the times."""
        inside = (self.time_s >= begin_s) & (self.time_s <= end_s)
        return float(np.trapezoid(self.power_w[gpu][inside], self.time_s[inside]))


@st.composite
def made(draw: st.DrawFn, most: int = 40) -> Made:
    """Draw powers of one to three GPUs, of which samples are lost, repeated or without a value."""
    gpus, count = draw(st.integers(1, 3)), draw(st.integers(8, most))
    period = draw(st.sampled_from([0.25, 1.0, 2.5]))
    time_s = draw(st.sampled_from(STARTS)) + period * np.arange(count)
    seed = draw(st.integers(0, 2**32 - 1))
    choose = np.random.default_rng(seed)
    power = choose.uniform(LOW_W, HIGH_W, (gpus, count)).round(2)
    steps = 0.5 * (power[:, 1:] + power[:, :-1]) * period
    energy_mj = 1e9 + np.concatenate((np.zeros((gpus, 1)), np.cumsum(steps, axis=1)), axis=1) * 1e3
    faults = draw(st.sampled_from([0.0, 0.05, 0.2]))
    rows: list[Row] = []
    for index in range(count):
        order = choose.permutation(gpus)
        for gpu in map(int, order):
            row = Row(
                float(time_s[index]), gpu, float(power[gpu, index]), round(energy_mj[gpu, index])
            )
            fault = choose.random()
            if fault < faults and index not in (0, 1, count - 1):
                if fault < faults / 3:
                    continue
                row = Row(row.time_s, gpu, None, None) if fault < faults / 1.5 else row
                rows.append(row)
            rows.append(row)
    return Made(time_s, power, rows, draw(st.sampled_from(ZONES)))


def local(time_s: float, zone: str, form: str) -> str:
    """Time of day in a zone, with three digits after the second."""
    shown = datetime.fromtimestamp(round(time_s * 1000) / 1000, UTC).astimezone(ZoneInfo(zone))
    return shown.strftime(form) + f".{shown.microsecond // 1000:03d}"


@dataclass(frozen=True, eq=False)
class Sensor:
    """A sensor of a recording: its row of the block's frame (`name`, `kind`, `index` …) with its samples."""

    block: Block
    column: int

    @property
    def time_s(self) -> np.ndarray:
        return self.block.time_s

    @property
    def values(self) -> np.ndarray:
        return self.block.values[:, self.column]

    @property
    def flags(self) -> list[Flag]:
        return [flag for flag in self.block.flags if flag["device"] == self.name]

    @property
    def validated(self) -> Validated:
        return validate(self.block, self.column)

    @property
    def energy_j(self) -> float:
        """Energy of all samples, as the accounting integrates it."""
        return float(self.validated.curve.between(-np.inf, np.inf))

    def __getattr__(self, name: str) -> Any:
        return self.block.node if name == "node" else self.block.sensors[name][self.column]


def sensors(recording: Recording) -> list[Sensor]:
    """Sensors of all nodes, by node, kind, index and name."""
    blocks = [block for blocks in recording.nodes.values() for block in blocks]
    every = [Sensor(block, i) for block in blocks for i in range(len(block.sensors))]
    return sorted(every, key=lambda sensor: (sensor.node, sensor.kind, sensor.index, sensor.name))


def of_gpu(recording: Recording, gpu: int, quantity: str = "power") -> Sensor:
    """The only sensor of a GPU of a quantity."""
    key = ("gpu", gpu, quantity)
    (only,) = (s for s in sensors(recording) if (s.kind, s.index, s.quantity) == key)
    return only


def read_perun_file(path: Path, run: str | None = None, round: str | None = None) -> Recording:
    """Read all hosts of a round of a perun file at once."""
    recording = perun_file.read_perun_file(path, run, round)
    return replace(recording, nodes=dict(recording.nodes))


def check_powers(recording: Recording, made: Made) -> None:
    """Hold a recording's powers against the truth: every sample, and the energy between them."""
    for gpu in range(made.power_w.shape[0]):
        series = of_gpu(recording, gpu)
        times, powers = made.kept(gpu)
        valued = np.isfinite(series.values)
        np.testing.assert_allclose(series.time_s[valued], times, atol=1e-3, rtol=0)
        np.testing.assert_allclose(series.values[valued], powers, rtol=1e-9)
        energy_j = series.energy_j
        assert abs(energy_j - np.trapezoid(powers, times)) < 1e-6 * energy_j + 1.0  # 1 ms of 700 W
        lost_s = float(np.diff(times)[np.diff(times) > 1.5 * np.diff(made.time_s).min()].sum())
        true = made.true_j(gpu, times[0], times[-1])
        assert abs(energy_j - true) <= lost_s * (HIGH_W - LOW_W) + 1e-6 * true + 1.0


def check_counters(recording: Recording, made: Made) -> None:
    """Hold a recording's energy counters against the truth: exact, whatever was lost between."""
    for gpu in range(made.power_w.shape[0]):
        series = of_gpu(recording, gpu, "counter")
        times, _ = made.kept(gpu)
        true = made.true_j(gpu, times[0], times[-1])
        assert abs(series.energy_j - true) < 0.002 + 1e-9 * true


def written(folder: Path, text: str, name: str = "recording") -> Path:
    """Write a file and return its path."""
    path = folder / name
    path.write_bytes(text.encode())
    return path
