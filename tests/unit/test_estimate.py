"""Estimated power: from utilisation of all cores, never called measured."""

from __future__ import annotations

import numpy as np
import pytest
from energy_files import codes
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.energies.accounting.node_energy import node_kinds
from scalewatt.energies.integration.rated_power import (
    cpu_power_w,
    estimated_cpu,
    estimated_gpu,
    estimated_ram,
    node_utilisation,
)
from scalewatt.energies.integration.stage_intervals import tile_window
from scalewatt.recordings.series import SensorSeries

CPU = {"sockets": 2, "idle_w": 60, "rated_w": 200}
TIME = np.arange(11.0)


def share(sensor: str, value: float, kind: str = "cpu", index: int = 0) -> SensorSeries:
    return SensorSeries("n1", sensor, kind, index, "utilisation", TIME, np.full(11, value))


def power(sensor: str, kind: str, index: int, watts: float) -> SensorSeries:
    return SensorSeries("n1", sensor, kind, index, "power", TIME, np.full(11, watts))


def test_one_core_taken_for_all_is_flagged() -> None:
    found, flags = node_utilisation([share("CPU_USAGE_0", 0.9)])
    assert found is not None and codes(flags) == {"assumed"}
    found, flags = node_utilisation([share("CPU_USAGE_0", 0.9), share("CPU_USAGE_1", 0.1)])
    assert found is not None and found.values[0] == pytest.approx(0.5)
    assert codes(flags) == {"assumed"}
    assert node_utilisation([power("cpu_0_package-0", "cpu", 0, 9)]) == (None, [])


@pytest.mark.parametrize(("busy", "watts"), [(0.0, 29.6), (0.5, 162.8), (1.0, 296), (1.2, 296)])
def test_cpu_power_is_a_line_to_three_quarters_of_the_tdp_of_all_sockets(
    busy: float, watts: float
) -> None:
    series = estimated_cpu(share("CPU_BUSY", busy), CPU)
    assert series.values == pytest.approx(watts)
    assert (series.quantity, series.origin) == ("power", "estimated")
    assert series.bounds_w is not None
    assert series.bounds_w[0] == pytest.approx(watts / 5.4)
    assert series.bounds_w[1] == pytest.approx(watts * 5.4)


CURVE = {"sockets": 2, "idle_w": 0, "rated_w": 300, "load_w": [[10, 60], [50, 210], [100, 270]]}


@pytest.mark.parametrize(
    ("busy", "watts", "low", "high"),
    [
        (0.1, 60, 0.77, 1.28),
        (0.3, 135, 0.77, 1.28),
        (1.0, 270, 0.77, 1.28),
        (0.06, 60, 0.77, 1.28),
        (0.04, 60, 1 / 5.4, 5.4),
    ],
)
def test_a_measured_curve_is_interpolated_and_narrows_the_interval(
    busy: float, watts: float, low: float, high: float
) -> None:
    series = estimated_cpu(share("CPU_BUSY", busy), CURVE)
    assert series.values == pytest.approx(2 * watts) and series.bounds_w is not None
    assert series.bounds_w[0] == pytest.approx(2 * watts * low)
    assert series.bounds_w[1] == pytest.approx(2 * watts * high)


@given(
    load=st.lists(st.floats(0, 1), min_size=2, max_size=20),
    factor=st.one_of(st.none(), st.floats(1, 100)),
    curve=st.one_of(st.none(), st.just(CURVE["load_w"])),
)
def test_an_estimate_lies_within_its_own_interval(
    load: list[float], factor: float | None, curve: list[list[float]] | None
) -> None:
    cpu = {"rated_w": 200, "factor": factor, "load_w": curve}
    power, low, high = cpu_power_w(np.array(load), {k: v for k, v in cpu.items() if v})
    assert (low > 0).all() and (low <= power).all() and (power <= high).all()
    if factor:
        assert high / power == pytest.approx(factor) and power / low == pytest.approx(factor)


def test_the_users_factor_replaces_every_interval() -> None:
    gpu = estimated_gpu(
        share("CUDA:0_UTIL", 1.0, "gpu"), {"idle_w": 50, "rated_w": 400, "factor": 2}
    )
    ram = estimated_ram(gpu, {"power_w": 30, "factor": 3})
    assert gpu.bounds_w is not None and ram.bounds_w is not None
    assert (gpu.bounds_w[0][0], gpu.bounds_w[1][0]) == (200, 800)
    assert (ram.bounds_w[0][0], ram.bounds_w[1][0]) == (10, 90)


def test_a_measured_energy_is_its_own_interval_and_an_estimates_ends_add_up() -> None:
    series = [power("CUDA:0_POWER", "gpu", 0, 100), share("CPU_BUSY", 0.5)]
    gpu, cpu, _ = node_kinds("n1", series, powers={"cpu": CPU}, period_s=1, expected_gpus=1)
    whole = tile_window([], (0.0, 10.0))[0]
    _, low, high = gpu.intervals_j(whole)
    assert (low.sum(), high.sum()) == (pytest.approx(1000), pytest.approx(1000))
    _, low, high = cpu.intervals_j(whole)
    assert (low.sum(), high.sum()) == (pytest.approx(1628 / 5.4), pytest.approx(1628 * 5.4))


def test_gpu_and_ram_are_estimated_from_their_rated_powers() -> None:
    gpu = estimated_gpu(share("CUDA:0_UTIL", 0.25, "gpu"), {"idle_w": 50, "rated_w": 450})
    assert gpu.values == pytest.approx(150) and gpu.origin == "estimated"
    ram = estimated_ram(gpu, {"power_w": 30})
    assert ram.values == pytest.approx(30) and ram.device_kind == "ram"
