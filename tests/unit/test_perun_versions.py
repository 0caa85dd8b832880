"""Files that perun itself recorded on stand-in sensors, against the energies that were true.

recordings/README.md says how they were made. Bounds: a counter is exact but for the stand-in's own
steps and perun's time stamps (0.2 %); a power is sampled every 0.25 s while it swings (0.2 %).
"""

from __future__ import annotations

import json
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


@pytest.mark.parametrize("version", OLD)
def test_failed_reads_cost_nothing_where_perun_counts_the_counters_whole_range(
    version: str,
) -> None:
    path = made(f"perun-{version}-unreadable")
    (counter,) = (s for s in sensors(read_perun_file(path)) if s.name == SPOILT)
    assert np.count_nonzero(counter.values == 0) >= 2
    assert codes(valid(counter).flags) == {"missing_samples"}
    with h5py.File(path) as handle:
        perun_j = handle["app/nodes/run1/nodes/0/metrics/CPU_ENERGY"].attrs["value"]
    assert perun_j > 260_000 > 1000 > total_j(valid(counter))
