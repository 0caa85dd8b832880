"""Estimated power: from utilisation of all cores, never called measured."""

from __future__ import annotations

import numpy as np
import pytest
from energy_files import codes

from scalewatt.energy.accounting.node_energy import node_kinds
from scalewatt.energy.integration.rated_power import (
    estimated_cpu,
    estimated_gpu,
    estimated_ram,
    node_utilisation,
)
from scalewatt.recordings.series import SensorSeries

CPU = {"sockets": 2, "idle_w": 60, "rated_w": 200}
TIME = np.arange(11.0)


def share(sensor: str, value: float, kind: str = "cpu", index: int = 0) -> SensorSeries:
    return SensorSeries("n1", sensor, kind, index, "utilisation", TIME, np.full(11, value))


def power(sensor: str, kind: str, index: int, watts: float) -> SensorSeries:
    return SensorSeries("n1", sensor, kind, index, "power", TIME, np.full(11, watts))


def test_our_own_busy_share_is_preferred_to_peruns() -> None:
    found, flags = node_utilisation([share("CPU_USAGE", 0.9), share("CPU_BUSY", 0.5)])
    assert found is not None and found.sensor == "CPU_BUSY" and flags == []


def test_one_core_taken_for_all_is_flagged() -> None:
    found, flags = node_utilisation([share("CPU_USAGE_0", 0.9)])
    assert found is not None and codes(flags) == {"utilisation_one_core"}
    found, flags = node_utilisation([share("CPU_USAGE_0", 0.9), share("CPU_USAGE_1", 0.1)])
    assert found is not None and found.values[0] == pytest.approx(0.5)
    assert codes(flags) == {"utilisation_per_core"}
    assert node_utilisation([power("cpu_0_package-0", "cpu", 0, 9)]) == (None, [])


@pytest.mark.parametrize(("busy", "watts"), [(0.0, 120), (0.5, 260), (1.0, 400), (1.2, 400)])
def test_cpu_power_runs_from_idle_to_rated_on_all_sockets(busy: float, watts: float) -> None:
    series = estimated_cpu(share("CPU_BUSY", busy), CPU)
    assert series.values == pytest.approx(watts)
    assert (series.quantity, series.origin) == ("power", "estimated")


def test_gpu_and_ram_are_estimated_from_their_rated_powers() -> None:
    gpu = estimated_gpu(share("CUDA:0_UTIL", 0.25, "gpu"), {"idle_w": 50, "rated_w": 450})
    assert gpu.values == pytest.approx(150) and gpu.origin == "estimated"
    ram = estimated_ram(gpu, {"power_w": 30})
    assert ram.values == pytest.approx(30) and ram.device_kind == "ram"


@pytest.mark.parametrize("busy", [np.nan, -0.05, -np.inf])
def test_an_unknown_utilisation_stays_unknown(busy: float) -> None:
    series = share("CPU_BUSY", 0.5)
    series.values[3] = busy
    assert np.isnan(estimated_cpu(series, CPU).values[3])


def test_measured_kinds_stay_measured_where_others_are_estimated() -> None:
    series = [power("CUDA:0_POWER", "gpu", 0, 100), share("CPU_BUSY", 0.5)]
    powers = {"cpu": CPU, "gpu": {"idle_w": 9, "rated_w": 9}, "ram": None}
    gpu, cpu, ram = node_kinds("n1", series, powers=powers, period_s=1, expected_gpus=1)
    assert (gpu.origin, cpu.origin, ram.origin) == ("measured", "estimated", None)
    assert gpu.recorded_j((0, 10)) == pytest.approx(1000)
    assert cpu.recorded_j((0, 10)) == pytest.approx(2600) and cpu.devices == 2
    assert codes(ram.flags) == {"absent"} and ram.coverage is None


def test_gpus_without_power_and_utilisation_are_unknown_not_absent() -> None:
    powers = {"cpu": None, "gpu": {"idle_w": 9, "rated_w": 99}, "ram": None}
    gpu, *_ = node_kinds("n1", [share("CPU_BUSY", 0.5)], powers=powers, period_s=1, expected_gpus=2)
    assert codes(gpu.flags) == {"gpu_count", "unknown_power"} and not gpu.known
    busy = [share("CUDA:0_UTIL", 1.0, "gpu", 0), share("CUDA:1_UTIL", 0.0, "gpu", 1)]
    gpu, *_ = node_kinds("n1", busy, powers=powers, period_s=1, expected_gpus=2)
    assert gpu.recorded_j((0, 10)) == pytest.approx(10 * (99 + 9))
    assert gpu.origin == "estimated" and gpu.known
