"""Estimated power: from utilisation of all cores, never called measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.energies.estimate import (
    cpu_power_w,
    estimated_cpu,
    estimated_gpus,
    estimated_ram,
    node_utilisation,
)
from scalewatt.recordings.block import Block, sensor_frame

TIME = np.arange(11.0)
LINE = {"sockets": 2, "idle_w": 60, "rated_w": 200}
CURVE = {"sockets": 2, "idle_w": 0, "rated_w": 300, "load_w": [[10, 60], [50, 210], [100, 270]]}


def load(kind: str = "cpu", **shares: float) -> Block:
    """Utilisations that stay as they are."""
    rows = [{"name": name, "kind": kind, "quantity": "utilisation"} for name in shares]
    return Block("n1", TIME, np.full((11, len(rows)), [*shares.values()]), sensor_frame(rows))


def bounds(block: Block, column: int = 0) -> tuple[float, float, float]:
    """A constant power between the ends of its interval."""
    assert block.bounds is not None and set(block.sensors["origin"]) == {"estimated"}
    columns = [each[:, column] for each in (block.bounds[0], block.values, block.bounds[1])]
    assert all(np.ptp(each) == 0 for each in columns)
    low, power, high = (float(each[0]) for each in columns)
    return low, power, high


@pytest.mark.parametrize("name", ["CPU_BUSY", "CPU_USAGE", None])
def test_the_load_of_a_node_is_that_of_all_cores(name: str | None) -> None:
    whole = node_utilisation([load(CPU_USAGE_0=0.9), load(**({name: 0.3} if name else {}))])
    assert (whole is None) == (name is None)
    assert whole is None or whole.values == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("rated", "busy", "watts", "ends"),
    [
        *((LINE, busy, watts, (1 / 5.4, 5.4)) for busy, watts in ((0.0, 29.6), (0.5, 162.8))),
        *((LINE, busy, 296, (1 / 5.4, 5.4)) for busy in (1.0, 1.2)),
        *((CURVE, busy, 120, (0.77, 1.28)) for busy in (0.1, 0.06)),
        *((CURVE, busy, watts, (0.77, 1.28)) for busy, watts in ((0.3, 270), (1.0, 540))),
        (CURVE, 0.04, 120, (1 / 5.4, 5.4)),
    ],
)
def test_cpu_power_is_a_line_to_three_quarters_of_the_tdp_or_a_measured_curve(
    rated: dict[str, Any], busy: float, watts: float, ends: tuple[float, float]
) -> None:
    expected = (watts * ends[0], watts, watts * ends[1])
    assert bounds(estimated_cpu(load(CPU_BUSY=busy), rated)) == pytest.approx(expected)


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


def test_gpus_and_ram_are_estimated_from_rated_powers_within_the_users_factor() -> None:
    gpus = estimated_gpus(load("gpu", a=1.0, b=0.0), {"idle_w": 50, "rated_w": 400, "factor": 2})
    assert (bounds(gpus), bounds(gpus, 1)) == ((200, 400, 800), (25, 50, 100))
    assert bounds(estimated_ram(gpus, {"power_w": 30, "factor": 3})) == (10, 30, 90)
    quarter = estimated_gpus(load("gpu", a=0.25), {"idle_w": 50, "rated_w": 450})
    assert quarter.values == pytest.approx(150)
