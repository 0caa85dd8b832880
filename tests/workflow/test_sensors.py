"""Where perun's own backends find sensors, energy is measured. The sensors stand in, perun is real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from stand_in_rapl import WATTS, WRAP_UJ
from test_resume import WAVES
from training import CLUSTER, Training
from workspace import environment

from scalewatt.energy.account import write_energy
from scalewatt.results.runs import EnergyTotals

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# A loaded machine may delay the sampler, which is flagged too; these are doubts in the sensors.
SENSOR_DOUBTS = {
    "counter_zero",
    "counter_ambiguous",
    "over_limit",
    "zero_power",
    "unknown_power",
    "gpu_count",
    "hdf5_unreadable",
    "missing_host",
    "segment_unrecorded",
}
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Training:
    folder = tmp_path_factory.mktemp("sensors")
    return Training.of(folder / "run", data, WAVES, epochs=150, updates=150 * 6)


def totals(training: Training) -> EnergyTotals:
    """The run's energies, accounted as the workflow does."""
    (training.out / "spec.json").write_text((training.folder / "spec.json").read_text())
    device = CLUSTER["devices"]["local"]  # type: ignore[index]
    powers = {"cpu": device["cpu"], "gpu": None, "ram": None}
    tables = training.folder / "traces.parquet", training.folder / "energy.parquet"
    write_energy(training.out, training.out / "spec.json", powers, *tables)
    return EnergyTotals(pq.read_table(tables[1]), with_staging=True)


@pytest.fixture(scope="module")
def measured(training: Training) -> EnergyTotals:
    """A training with stand-in counters and GPUs."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("covering /sys/class/powercap needs a mount namespace (root)")
    nvml = os.pathsep.join([str(HERE / "stand_in_nvml"), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        ["unshare", "-m", sys.executable, str(HERE / "stand_in_rapl.py"), *training.command()],
        env={**environment(), "PYTHONPATH": nvml},
        check=True,
    )
    return totals(training)


def test_cpu_and_memory_energy_are_those_of_the_counters_across_wraps(
    measured: EnergyTotals,
) -> None:
    runtime = measured.runtime_s
    assert 2 * WATTS["package"] * runtime > 2 * WRAP_UJ / 1e6, "the counters should wrap"
    assert measured.origin == "measured"
    assert not {flag["code"] for flag in measured.flags} & SENSOR_DOUBTS
    assert measured.device_seconds("cpu") == pytest.approx(2 * runtime)
    assert measured.joules("cpu") == pytest.approx(2 * WATTS["package"] * runtime, rel=0.02)
    assert measured.joules("ram") == pytest.approx(2 * WATTS["dram"] * runtime, rel=0.02)


def test_gpus_that_a_run_does_not_hold_are_recorded_beside(measured: EnergyTotals) -> None:
    assert measured.absent("gpu")
    expected = 300 * measured.runtime_s
    assert measured.joules("unused_gpu") == pytest.approx(expected, rel=0.02)
