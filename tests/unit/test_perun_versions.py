"""Files that perun itself recorded on stand-in sensors, against the energies that were true.

recordings/README.md says how they were made. Bounds: a counter is exact but for the stand-in's own
steps and perun's time stamps (0.2 %); a power is sampled every 0.25 s while it swings (0.2 %).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from energy_files import codes
from made_recordings import Sensor, read_perun_file, sensors
from true_power import total_j

import scalewatt
from scalewatt.energies.integrate import Validated, validate

MADE = Path(__file__).parent / "recordings"
TRUTH: dict[str, Any] = json.loads((MADE / "truth.json").read_text())
BOUND = 2e-3
PERIOD_S = 0.25
OLD = ("0.8.10", "0.9.1")
SPOILT = "cpu_0_package-0"
PACKAGE_SLOPE = 30 * 2 * np.pi / 6
"""W/s: the first package swings by 30 W, once in 6 s."""
ROUNDS = [
    (name, run_id, round_id)
    for name, runs in TRUTH.items()
    for run_id, rounds in runs.items()
    for round_id in rounds
]
NOT_COUNTED = ("grace_power", "module_power", "sysio_power")
"""Parts and wholes of what is counted; perun adds none of them up either."""


def made(name: str) -> Path:
    return MADE / f"{name}.hdf5"


def true_energies(name: str, run_id: str = "run1", round_id: str = "0") -> dict[Any, float]:
    """True energy in J of the sensors that count, by host and name."""
    return {
        (host, sensor): energy
        for host, energies in TRUTH[name][run_id][round_id].items()
        for sensor, energy in energies.items()
        if sensor != "seconds" and not sensor.startswith(NOT_COUNTED)
    }


def valid(sensor: Sensor) -> Validated:
    return validate(sensor.block, sensor.column, PERIOD_S)


@pytest.mark.parametrize(("name", "run_id", "round_id"), ROUNDS)
def test_every_sensors_energy_is_the_true_one(name: str, run_id: str, round_id: str) -> None:
    recording = read_perun_file(made(name), run_id, round_id)
    assert recording.period_s == PERIOD_S
    energies = {
        (sensor.node, sensor.name): total_j(valid(sensor))
        for sensor in sensors(recording)
        if sensor.quantity != "utilisation"
    }
    assert energies == pytest.approx(true_energies(name, run_id, round_id), rel=BOUND)


@pytest.mark.parametrize("version", OLD)
def test_a_node_of_an_older_perun_has_all_kinds_and_no_flag(version: str) -> None:
    name = f"perun-{version}-node"
    account, true = scalewatt.energy(made(name)), true_energies(name)
    for kind, begin in (("gpu", "CUDA:"), ("cpu", "cpu_"), ("ram", "ram_"), ("all", "")):
        expected = sum(energy for (_, name), energy in true.items() if name.startswith(begin))
        assert account.joules(kind) == pytest.approx(expected, rel=BOUND)
    assert account.gpus == 2 and account.flags.empty
    gpus = account.devices[account.devices["device_kind"] == "gpu"]
    assert gpus["uuid"].unique().tolist() == ["GPU-stand-in-0", "GPU-stand-in-1"]


def spoilt(sensors_of: list[Sensor]) -> Sensor:
    (sensor,) = (sensor for sensor in sensors_of if sensor.name == SPOILT)
    return sensor


@pytest.mark.parametrize("version", OLD)
def test_failed_reads_cost_nothing_where_perun_counts_the_counters_whole_range(
    version: str,
) -> None:
    path = made(f"perun-{version}-unreadable")
    counter = spoilt(sensors(read_perun_file(path)))
    assert np.count_nonzero(counter.values == 0) >= 2
    assert codes(valid(counter).flags) == {"missing_samples"}
    with h5py.File(path) as handle:
        own = handle["app/nodes/run1/nodes/0/metrics/CPU_ENERGY"].attrs["value"]
    assert own > 260_000 > 1000 > total_j(valid(counter))


def in_watts(name: str, copy: Path) -> list[Sensor]:
    """Sensors of a recording of which the counters were taken out of `copy`."""
    shutil.copy(made(name), copy)
    with h5py.File(copy, "a") as handle:
        counters: list[str] = []
        handle.visit(lambda path: counters.append(path) if path.endswith("alt_values") else None)
        for path in counters:
            del handle[path]
    return sensors(read_perun_file(copy))


@pytest.mark.parametrize("version", OLD)
def test_without_the_counter_perun_s_watts_are_as_good(tmp_path: Path, version: str) -> None:
    name = f"perun-{version}-node"
    of_file = in_watts(name, tmp_path / "watts.hdf5")
    means = {(s.node, s.name): total_j(valid(s)) for s in of_file if s.quantity == "mean_power"}
    true = {key: energy for key, energy in true_energies(name).items() if "CUDA" not in key[1]}
    assert means == pytest.approx(true, rel=BOUND) and len(means) == 4


@pytest.mark.parametrize("version", OLD)
def test_without_the_counter_all_watts_that_failed_reads_spoilt_are_left_out(
    tmp_path: Path, version: str
) -> None:
    name = f"perun-{version}-unreadable"
    counter = spoilt(sensors(read_perun_file(made(name))))
    validated = valid(spoilt(in_watts(name, tmp_path / "watts.hdf5")))
    assert codes(validated.flags) == {"over_limit"}
    failed = np.flatnonzero(counter.values == 0)
    assert {*failed, failed[-1] + 1} <= set(np.flatnonzero(validated.sample_flags))
    time = validated.curve.time_s
    energy = validated.curve.between(time[:-1], time[1:])
    true = valid(counter).curve.between(time[:-1], time[1:])
    covered = validated.curve.covered_s(time[:-1], time[1:]) > 0
    exact = ~np.isnan(validated.power_w[1:])
    assert energy[exact] == pytest.approx(true[exact], rel=1e-5)
    # Between h before and h after, H s are bridged: wrong by slope · H (H + 2h) at most.
    bridged_s = float(np.diff(time)[covered & ~exact].sum())
    bound = PACKAGE_SLOPE * bridged_s * (bridged_s + 2 * 0.26)
    assert abs((energy - true)[covered].sum()) <= bound + 0.01
    assert np.diff(time)[~covered].sum() + bridged_s <= (failed.size + 3) * 0.26
