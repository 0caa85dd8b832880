"""Which sensor of a device counts: counters of modules and dies, and two sensors that disagree."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from scalewatt.energies.node import KindEnergy, Node, node_kinds
from scalewatt.recordings.block import Block, sensor_frame

N = 121
TIMES = np.arange(N, dtype=np.float64)
WATTS = 100 + 20 * np.sin(TIMES / 7)
JOULES = np.concatenate(([0.0], np.cumsum(0.5 * (WATTS[1:] + WATTS[:-1]))))
USED_J = float(JOULES[-1])
START_J = 1000.0
"""Content of each counter at the beginning; 0 is a failed read."""
WHOLE = (0.0, N - 1.0)


def kinds_of(
    model: str, *sensors: tuple[Mapping[str, object], np.ndarray]
) -> dict[str, KindEnergy]:
    """Energies of the device kinds of a node with some sensors, read together."""
    values = np.asfortranarray(np.column_stack([column for _, column in sensors]))
    block = Block("n1", TIMES, values, sensor_frame([row for row, _ in sensors]))
    kinds = node_kinds(Node("n1", [block], 1.0, window=WHOLE, model=model))
    return {kind.device_kind: kind for kind in kinds}


def codes(kind: KindEnergy) -> set[str]:
    return {each["code"] for each in kind.flags}


def gpu_with_counter(times_power: float, model: str = "") -> dict[str, KindEnergy]:
    """A GPU with a power, and a counter of so many times its energy."""
    power = {"name": "power", "kind": "gpu"}
    counter = {"name": "energy", "kind": "gpu", "quantity": "counter", "range_j": np.inf}
    return kinds_of(model, (power, WATTS), (counter, START_J + times_power * JOULES))


@pytest.mark.parametrize("model", ["NVIDIA GH200 480GB", "NVIDIA GB200"])
def test_the_counter_of_a_module_is_one_of_the_node_and_the_power_that_of_the_gpu(
    model: str,
) -> None:
    kinds = gpu_with_counter(1.6, model)
    # The power of GPUs of these names is the mean over a second, and counts half a second earlier.
    assert kinds["gpu"].recorded_j(WHOLE) == pytest.approx(USED_J, rel=1e-3)
    assert kinds["node"].recorded_j(WHOLE) == pytest.approx(1.6 * USED_J)
    assert "second_sensor" in codes(kinds["node"])


def test_the_counter_of_a_module_alone_is_no_energy_of_its_gpu() -> None:
    counter = {"name": "energy", "kind": "gpu", "quantity": "counter", "range_j": np.inf}
    kinds = kinds_of("NVIDIA GH200 480GB", (counter, START_J + JOULES))
    assert kinds["gpu"].coverage is None
    assert kinds["node"].recorded_j(WHOLE) == pytest.approx(USED_J)


@pytest.mark.parametrize(
    ("factor", "counted", "flagged"),
    [(1.02, 1.02, False), (1.05, 1.0, True), (1.6, 1.0, True), (0.95, 0.95, True)],
)
def test_the_power_counts_if_the_counter_has_more_and_both_values_are_flagged(
    factor: float, counted: float, flagged: bool
) -> None:
    gpu = gpu_with_counter(factor)["gpu"]
    assert gpu.recorded_j(WHOLE) == pytest.approx(counted * USED_J)
    details = [each["detail"] for each in gpu.flags if each["code"] == "disagrees"]
    assert len(details) == flagged
    assert all(f"{j:.0f} J" in detail for detail in details for j in (USED_J, factor * USED_J))


def dies(late_s: float, *names: str) -> KindEnergy:
    """CPUs whose second counter is the first one, read so much later."""
    rows = [
        {"name": name, "kind": "cpu", "index": i, "quantity": "counter"}
        for i, name in enumerate(names)
    ]
    later = START_J + np.interp(TIMES + late_s, TIMES, JOULES)
    return kinds_of("", (rows[0], START_J + JOULES), (rows[1], later))["cpu"]


@pytest.mark.parametrize("late_s", [0.0, 0.001])
def test_a_die_that_repeats_the_counter_of_its_socket_counts_once(late_s: float) -> None:
    cpu = dies(late_s, "cpu_0_package-0-die-0", "cpu_1_package-0-die-1")
    assert cpu.count == 1 and cpu.recorded_j(WHOLE) == pytest.approx(USED_J)
    assert "second_sensor" in codes(cpu)


@pytest.mark.parametrize(
    ("late_s", "names"),
    [
        (0.5, ("cpu_0_package-0-die-0", "cpu_1_package-0-die-1")),
        (0.0, ("cpu_0_package-0", "cpu_1_package-1")),
        (0.0, ("cpu_0_package-0-die-0", "cpu_1_package-1-die-0")),
    ],
)
def test_dies_that_differ_and_sockets_that_are_alike_count_both(
    late_s: float, names: tuple[str, str]
) -> None:
    cpu = dies(late_s, *names)
    assert cpu.count == 2 and "second_sensor" not in codes(cpu)
