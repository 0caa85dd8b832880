"""Estimates of power from utilisation and rated powers, with their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from scalewatt.energies.node import Sensor, estimates, list_sensors, node_utilisation
from scalewatt.recordings.block import Block, sensor_frame

TIME = np.arange(11.0)
CPU = {"sockets": 2, "idle_w": 60, "rated_w": 200}


def load(kind: str = "cpu", **shares: float) -> Block:
    """Utilisations that stay as they are."""
    rows = [{"name": name, "kind": kind, "quantity": "utilisation"} for name in shares]
    return Block("n1", TIME, np.full((11, len(rows)), [*shares.values()]), sensor_frame(rows))


def bounds(sensor: Sensor) -> tuple[float, float, float]:
    """The mean of a constant power in W between the ends of its interval."""
    assert sensor.row.origin == "estimated"
    power = float(sensor.curve.between(0.0, 10.0)) / 10.0
    return power / sensor.factor, power, power * sensor.factor


@pytest.mark.parametrize("name", ["CPU_BUSY", "CPU_USAGE", None])
def test_the_load_of_a_node_is_that_of_all_cores(name: str | None) -> None:
    whole = node_utilisation([load(CPU_USAGE_0=0.9), load(**({name: 0.3} if name else {}))])
    assert (whole is None) == (name is None)
    assert whole is None or whole.values == pytest.approx(0.3)


@pytest.mark.parametrize(("busy", "watts"), [(0.0, 29.6), (0.5, 162.8), (1.0, 296), (1.2, 296)])
def test_cpu_power_is_a_line_to_three_quarters_of_the_tdp(busy: float, watts: float) -> None:
    (sensor,) = list_sensors(estimates("cpu", [load(CPU_BUSY=busy)], CPU))
    assert bounds(sensor) == pytest.approx((watts / 5.4, watts, watts * 5.4))


def test_gpus_and_ram_are_estimated_from_rated_powers_within_the_users_factor() -> None:
    gpus = [load("gpu", a=1.0, b=0.0)]
    full, idle = list_sensors(estimates("gpu", gpus, {"idle_w": 50, "rated_w": 400, "factor": 2}))
    assert bounds(full) == pytest.approx((200, 400, 800))
    assert bounds(idle) == pytest.approx((25, 50, 100))
    (ram,) = list_sensors(estimates("ram", gpus, {"power_w": 30, "factor": 3}))
    assert bounds(ram) == pytest.approx((10, 30, 90))
