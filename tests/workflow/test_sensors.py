"""Where perun's own backends find sensors, energy is measured. The sensors stand in, perun is real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_recordings import read_perun_file, sensors
from stand_in_rapl import WATTS, WRAPS_AFTER_S
from test_resume import WAVES
from training import CLUSTER, Training
from workspace import environment, first_on_path

from scalewatt.energies.account import write_energy
from scalewatt.recordings.journal import journal_files, read_journal
from scalewatt.recordings.telemetry import GROUP_VARIABLE, read_telemetry
from scalewatt.results.tables.run_row import EnergyTotals

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

# A loaded machine may delay the sampler, which is flagged too; these are flags of the sensors.
SENSOR_FLAGS = {
    "missing_samples",
    "counter",
    "not_recorded",
    "unreadable",
    "damaged",
}
GPU_WATTS = (100, 200, 150, 250)
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Training:
    folder = tmp_path_factory.mktemp("sensors")
    return Training.of(folder / "run", data, WAVES, epochs=150)


def totals(training: Training) -> EnergyTotals:
    """The run's energies, accounted as the workflow does."""
    (training.out / "spec.json").write_text((training.folder / "spec.json").read_text())
    device = CLUSTER["devices"]["local"]  # type: ignore[index]
    powers = {"cpu": device["cpu"], "gpu": None, "ram": None}
    tables = training.folder / "traces.parquet", training.folder / "energy.parquet"
    write_energy(training.out, training.out / "spec.json", powers, *tables)
    return EnergyTotals(pq.read_table(tables[1]).to_pandas(), with_staging=True)


@pytest.fixture(scope="module")
def recorded(training: Training) -> Path:
    """The recording of a training with stand-in counters and GPUs, alone on its node."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("covering /sys/class/powercap needs a mount namespace (root)")
    nvml = first_on_path(HERE / "stand_in_nvml")
    alone = {GROUP_VARIABLE: str(training.folder / "samplers")}
    subprocess.run(
        ["unshare", "-m", sys.executable, str(HERE / "stand_in_rapl.py"), *training.command()],
        env={**environment(), "PYTHONPATH": nvml, **alone},
        check=True,
    )
    return training.out / "perun"


@pytest.fixture(scope="module")
def measured(recorded: Path, training: Training) -> EnergyTotals:
    """Its energies."""
    return totals(training)


def only(folder: Path, pattern: str) -> Path:
    """The one file of a kind."""
    (file,) = folder.glob(pattern)
    return file


def test_cpu_and_memory_energy_are_those_of_the_counters_across_wraps(
    measured: EnergyTotals, training: Training
) -> None:
    runtime = measured.runtime_s
    assert runtime > WRAPS_AFTER_S, "the counters should wrap"
    assert measured.origin == "measured"
    flags = pq.read_table(training.folder / "energy.flags.parquet")
    assert not set(flags["code"].to_pylist()) & SENSOR_FLAGS
    assert measured.kinds["device_s"]["cpu"] == pytest.approx(2 * runtime)
    assert measured.joules("cpu") == pytest.approx(2 * WATTS["package"] * runtime, rel=0.02)
    assert measured.joules("ram") == pytest.approx(2 * WATTS["dram"] * runtime, rel=0.02)


def test_gpus_that_a_run_does_not_hold_count_separately(measured: EnergyTotals) -> None:
    assert "gpu" not in measured.scope
    expected = sum(GPU_WATTS) * measured.runtime_s
    assert measured.joules("unused_gpu") == pytest.approx(expected, rel=0.02)


def test_the_journal_holds_what_peruns_file_holds(recorded: Path) -> None:
    journal = read_journal(journal_files(recorded)[0].values())
    perun = read_perun_file(recorded / "segment-000.hdf5")
    assert journal.flags == () and journal.nodes.keys() == perun.nodes.keys()
    in_journal = {sensor.name: sensor for sensor in sensors(journal)}
    in_perun = {sensor.name: sensor for sensor in sensors(perun)}
    assert set(in_journal) == set(in_perun) and len(in_journal) == 4 + 2 + 2 + 1
    for name, sensor in in_journal.items():
        same = in_perun[name]
        np.testing.assert_allclose(sensor.values, same.values, rtol=1e-12)
        for limit in ("range_j", "limit_w"):
            both = getattr(sensor, limit), getattr(same, limit)
            assert both[0] == pytest.approx(both[1], nan_ok=True), (name, limit)
        assert sensor.uuid == same.uuid
        if sensor.quantity != "utilisation":
            # The journal's stamps come after a sample and perun's before it, apart on a loaded machine.
            assert sensor.energy_j == pytest.approx(same.energy_j, rel=0.02), name


def test_telemetry_is_recorded_with_power(recorded: Path) -> None:
    (telemetry,), flags = read_telemetry([only(recorded, "*.telemetry.csv")])
    assert flags == []
    columns = dict(zip(telemetry.sensors["name"], telemetry.values.T, strict=True))
    time_s = telemetry.time_s
    ((block,),) = read_journal(journal_files(recorded)[0].values()).nodes.values()
    for gpu, watts in enumerate(GPU_WATTS):
        assert set(columns[f"temperature:{gpu}"]) == {50 + gpu}
        assert set(columns[f"clock_sm:{gpu}"]) == {1410}
        assert set(columns[f"gpu_utilisation:{gpu}"]) == {90 + gpu}
        assert time_s[0] == pytest.approx(block.time_s[0], abs=1.0)
        if gpu < 3:
            joules = columns[f"energy_total:{gpu}"]
            expected = watts * (time_s[-1] - time_s[0])
            assert joules[-1] - joules[0] == pytest.approx(expected, rel=0.02)
    assert set(columns["concurrent_samplers:0"]) == {0}
