"""Estimated power: from utilisation of all cores, never called measured."""

from __future__ import annotations

import numpy as np
import pytest
from energy_files import codes
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.energies.estimate import (
    cpu_power_w,
    estimated_cpu,
    estimated_gpus,
    estimated_ram,
    node_utilisation,
)
from scalewatt.energies.node import NodeFacts, node_kinds
from scalewatt.energies.stages import tile_window
from scalewatt.recordings.block import Block, sensor_frame

CPU = {"sockets": 2, "idle_w": 60, "rated_w": 200}
TIME = np.arange(11.0)


def sampled(kind: str, quantity: str, **values: float) -> Block:
    """Return a block of sensors that always read the same."""
    rows = [{"name": name, "kind": kind, "quantity": quantity} for name in values]
    return Block("n1", TIME, np.full((11, len(rows)), [*values.values()]), sensor_frame(rows))


def load(kind: str = "cpu", **shares: float) -> Block:
    return sampled(kind, "utilisation", **shares)


def test_one_core_taken_for_all_is_flagged() -> None:
    found, flags = node_utilisation([load(CPU_USAGE_0=0.9)])
    assert found is not None and codes(flags) == {"assumed"}
    found, flags = node_utilisation([load(CPU_USAGE_0=0.9, CPU_USAGE_1=0.1)])
    assert found is not None and found.values == pytest.approx(0.5)
    assert codes(flags) == {"assumed"} and len(found.sensors) == 1
    assert node_utilisation([sampled("cpu", "power", package=9)]) == (None, [])


@pytest.mark.parametrize("whole", ["CPU_BUSY", "CPU_USAGE"])
def test_a_utilisation_of_all_cores_is_taken_as_it_is(whole: str) -> None:
    found, flags = node_utilisation([load(CPU_USAGE_0=0.9), load(CPU_USAGE_1=0.1, **{whole: 0.3})])
    assert found is not None and found.values == pytest.approx(0.3)
    assert list(found.sensors["name"]) == [whole] and flags == []


@pytest.mark.parametrize(("busy", "watts"), [(0.0, 29.6), (0.5, 162.8), (1.0, 296), (1.2, 296)])
def test_cpu_power_is_a_line_to_three_quarters_of_the_tdp_of_all_sockets(
    busy: float, watts: float
) -> None:
    found = estimated_cpu(load(CPU_BUSY=busy), CPU)
    assert bounds(found) == pytest.approx((watts / 5.4, watts, watts * 5.4))
    assert found.sensors.iloc[0][["quantity", "origin"]].to_list() == ["power", "estimated"]


def bounds(block: Block, column: int = 0) -> tuple[float, float, float]:
    """Return the power of a sensor, which is always the same, between the ends of its interval."""
    assert block.bounds is not None
    columns = [each[:, column] for each in (block.bounds[0], block.values, block.bounds[1])]
    assert all(np.ptp(each) == 0 for each in columns)
    low, power, high = (float(each[0]) for each in columns)
    return low, power, high


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
    found = bounds(estimated_cpu(load(CPU_BUSY=busy), CURVE))
    assert found == pytest.approx((2 * watts * low, 2 * watts, 2 * watts * high))


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
    gpus = estimated_gpus(load("gpu", a=1.0, b=0.0), {"idle_w": 50, "rated_w": 400, "factor": 2})
    assert (bounds(gpus), bounds(gpus, 1)) == ((200, 400, 800), (25, 50, 100))
    assert bounds(estimated_ram(gpus, {"power_w": 30, "factor": 3})) == (10, 30, 90)


def test_a_measured_energy_is_its_own_interval_and_an_estimates_ends_add_up() -> None:
    blocks = [sampled("gpu", "power", a=100), load(CPU_BUSY=0.5)]
    facts = NodeFacts("n1", (0.0, 10.0), 1.0, {"cpu": CPU}, expected_gpus=1)
    gpu, cpu, _ = node_kinds(facts, blocks)
    whole = tile_window([], (0.0, 10.0))[0]
    _, low, high = gpu.intervals_j(whole)
    assert (low.sum(), high.sum()) == (pytest.approx(1000), pytest.approx(1000))
    _, low, high = cpu.intervals_j(whole)
    assert (low.sum(), high.sum()) == (pytest.approx(1628 / 5.4), pytest.approx(1628 * 5.4))


def test_gpu_and_ram_are_estimated_from_their_rated_powers() -> None:
    gpus = estimated_gpus(load("gpu", a=0.25), {"idle_w": 50, "rated_w": 450})
    assert gpus.values == pytest.approx(150) and gpus.sensors["origin"][0] == "estimated"
    ram = estimated_ram(gpus, {"power_w": 30})
    assert ram.values == pytest.approx(30) and ram.sensors["kind"][0] == "ram"
