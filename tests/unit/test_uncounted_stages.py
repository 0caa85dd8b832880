"""What does not count need not be covered: staging under the paper's protocol; and signs of work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from energy_files import T0, Accounted, accounted, codes, gpu, make_run, write_journal
from run_files import make_spec

from scalewatt.energies.accounting.node_energy import node_kinds
from scalewatt.energies.accounting.totals import EnergyTotals
from scalewatt.recordings.series import SensorSeries
from scalewatt.recordings.telemetry import TelemetrySeries

NO_POWERS: dict[str, Any] = {"cpu": None, "gpu": None, "ram": None}
STAGES = [(0, "startup", 0.0, 10.0), (0, "stage_data", 10.0, 210.0), (0, "train", 210.0, 400.0)]


def staged(folder: Path, protocol: str, lost: slice) -> Accounted:
    """Account for a run of 400 s whose GPUs' power is lost for some of them."""
    power = gpu(401) + 1e3 * (np.arange(401) % 7)
    power[lost] = 0
    run = make_run(folder, stages=STAGES)
    sensors = {"CUDA:0_POWER": power, "CUDA:1_POWER": power}
    write_journal(run / "perun" / "segment-000.n1.journal", "n1", sensors)
    return accounted(run, make_spec(protocol=protocol), NO_POWERS)


def test_staging_that_does_not_count_does_not_count_against_coverage_either(tmp_path: Path) -> None:
    found = staged(tmp_path, "paper", slice(40, 201))
    assert "coverage" not in found.codes() and found.totals.coverage == 1
    by_stage = {
        row["stage"]: row["energy_j"]
        for row in found.energy.to_pylist()
        if row["device_kind"] == "gpu"
    }
    assert by_stage["train"] == pytest.approx(2 * 190 * 103, rel=0.01)
    assert by_stage["stage_data"] is None, "it is not known"
    counted = EnergyTotals(found.energy, with_staging=False)
    assert counted.total_j == pytest.approx(2 * 200 * 103, rel=0.01)


def test_staging_that_counts_has_to_be_covered(tmp_path: Path) -> None:
    found = staged(tmp_path, "corrected", slice(40, 201))
    assert "coverage" in found.codes() and found.totals.total_j is None


def test_training_has_to_be_covered_whatever_the_length_of_staging(tmp_path: Path) -> None:
    # 50 s are 12 % of the run, and 25 % of what counts.
    found = staged(tmp_path, "paper", slice(300, 350))
    assert "coverage" in found.codes()
    assert EnergyTotals(found.energy, with_staging=False).total_j is None
    assert found.totals.coverage == pytest.approx(1 - 51 / 200, abs=0.01)


def telemetry(quantity: str, unit: str, values: np.ndarray, index: int = 0) -> TelemetrySeries:
    time_s = T0 + np.arange(0.0, 400.0, 5.0)
    return TelemetrySeries("n1", "gpu", index, quantity, unit, time_s, values[:400:5])


def power(watts: np.ndarray, index: int = 0) -> SensorSeries:
    time_s = T0 + np.arange(watts.size)
    return SensorSeries("n1", f"CUDA:{index}_POWER", "gpu", index, "power", time_s, watts)


def test_a_gpus_own_telemetry_decides_whether_its_sensor_stands_still() -> None:
    said = 100 + 0.001 * np.random.default_rng(2).integers(0, 9000, 400)
    said[100:340] = 61.234
    busy = 1e6 + 300.0 * np.arange(400)
    steady = 1e6 + np.cumsum(said)

    def flags_of(*found: TelemetrySeries) -> set[str]:
        (kind, *_) = node_kinds("n1", [power(said)], powers={}, period_s=1.0, telemetry=found)
        return codes(kind.flags)

    assert flags_of() == {"constant"}
    assert flags_of(telemetry("energy_total", "J", busy)) == {"frozen", "coverage"}
    assert flags_of(telemetry("energy_total", "J", steady)) == set()
    assert flags_of(telemetry("energy_total", "J", busy, index=1)) == {"constant"}
    clock = np.where(np.arange(400) % 40 < 20, 210.0, 1410.0)
    assert flags_of(telemetry("clock_sm", "MHz", clock)) == {"frozen", "coverage"}
    assert flags_of(telemetry("clock_sm", "MHz", np.full(400, 210.0))) == {"constant"}
