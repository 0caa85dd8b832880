"""The energy of a journal so far: what the accounting says, whatever state the files are in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from energy_files import T0, counter, gpu, write_journal, write_telemetry
from run_files import make_spec

from scalewatt.energies.account import account
from scalewatt.energies.run_inputs import Run
from scalewatt.energies.tables import EnergyTotals
from scalewatt.monitoring.running_total import RunningTotal
from scalewatt.recordings.journal import beside
from scalewatt.tracking.running_total import JournalSum, read_so_far

NOTHING = {"cpu": None, "gpu": None, "ram": None}
RATED = {"cpu": {"sockets": 2, "idle_w": 50, "rated_w": 150}, "gpu": None, "ram": {"power_w": 10}}


def run_of(folder: Path, powers: dict[str, Any] = NOTHING, **provenance: Any) -> Run:
    return Run(folder, make_spec(), powers, provenance, None)


def measured(n: int, seed: int = 0) -> dict[str, Any]:
    """Raw samples of two GPUs, a socket whose counter wraps, and a memory; some are missing."""
    random = np.random.default_rng(seed)
    steps = np.cumsum(random.integers(50_000_000, 150_000_000, n))
    first = 1000.0 * random.integers(50, 390, n)
    first[100:103] = np.nan
    return {
        "CUDA:0_POWER": first,
        "CUDA:1_POWER": 1000.0 * random.integers(50, 390, n),
        "cpu_0_package-0": (262_000_000_000 + steps) % 262_143_328_850,
        "ram_0_dram": counter(n, 12.0),
    }


def journal(folder: Path, sensors: dict[str, Any], until: int = 0) -> Path:
    """A journal; the sampler's total counts its first `until` samples."""
    path = write_journal(folder / "perun" / "segment-000.n1.csv", "n1", sensors)
    about = json.loads(beside(path, ".sensors.json").read_text())
    total = RunningTotal(beside(path, ".total.json"), about)
    for row in pd.read_csv(path).head(until).itertuples(index=False):
        total.add(row[0], row[1], row[2:])
    return path


def found_in(path: Path, run: Run) -> JournalSum:
    found = read_so_far(path, run)
    assert found is not None
    return found


def by_kind(found: JournalSum) -> pd.DataFrame:
    return found.kinds.set_index("kind")


def faulty(n: int) -> dict[str, Any]:
    """Raw samples with faults between two totals: spikes, failed reads, a counter that begins anew."""
    power, used = gpu(n, 300), counter(n, 12.0)
    power[[505, 1010]] = 700_000
    used[1500:1505] = 0
    used[2003:] -= used[2002]
    gpus = {"CUDA:0_POWER": power, "CUDA:1_POWER": gpu(n)}
    return {**gpus, "cpu_0_package-0": counter(n, 90.0), "ram_0_dram": used}


@pytest.mark.parametrize("until", [3001, 0, 2500], ids=["total", "no total", "killed long after"])
@pytest.mark.parametrize("sensors", [measured, faulty])
def test_a_journal_says_what_the_accounting_of_its_run_says(
    tmp_path: Path, sensors: Callable[[int], dict[str, Any]], until: int
) -> None:
    path = journal(tmp_path, sensors(3001), until)
    run = run_of(tmp_path)
    found = found_in(path, run)
    totals = EnergyTotals(account(run).energy, with_staging=True)
    rows = by_kind(found)
    for kind in ("gpu", "cpu", "ram"):
        assert rows["joules"][kind] == pytest.approx(totals.joules(kind), rel=1e-9)
        assert rows["covered_s"][kind] == pytest.approx(rows["device_s"][kind], rel=1e-3)
    assert found.seconds == pytest.approx(totals.runtime_s)
    assert set(rows["origin"]) == {"measured"}


def test_what_a_total_lacks_is_in_its_interval(tmp_path: Path) -> None:
    path = journal(tmp_path, {"CUDA:0_POWER": gpu(3001, 100)}, until=2995)
    found = by_kind(found_in(path, run_of(tmp_path, gpus={"n1": [0]}))).loc["gpu"]
    assert 299_000 <= found["joules"] < 300_000
    assert found["low_j"] <= 300_000 <= found["high_j"]


@pytest.mark.parametrize("seconds", [9, 20, 60])
def test_of_a_short_journal_all_samples_count(tmp_path: Path, seconds: int) -> None:
    path = journal(tmp_path, {"CUDA:0_POWER": gpu(seconds + 1, 100)}, until=seconds + 1)
    found = by_kind(found_in(path, run_of(tmp_path, gpus={"n1": [0]}))).loc["gpu"]
    assert found["joules"] == pytest.approx(100 * seconds)
    assert found["device_s"] >= seconds - 2


def test_a_total_that_was_not_written_when_it_was_due_does_not_count(tmp_path: Path) -> None:
    path = journal(tmp_path, {"CUDA:0_POWER": gpu(3001, 100)}, until=2980)
    found = by_kind(found_in(path, run_of(tmp_path, gpus={"n1": [0]})))
    assert found["joules"]["gpu"] == pytest.approx(300_000)


def test_a_total_is_as_old_as_the_monotonic_clock_says(tmp_path: Path) -> None:
    path = journal(tmp_path, {"CUDA:0_POWER": gpu(3006, 100)}, until=3006)
    rows = pd.read_csv(path)
    rows.loc[3003:, "t"] -= 3600  # the wall clock is set while the total is not due
    rows.to_csv(path, index=False)
    found = by_kind(found_in(path, run_of(tmp_path, gpus={"n1": [0]})))
    assert found["joules"]["gpu"] == pytest.approx(300_000)


@pytest.mark.parametrize("until", [61, 0])
def test_gpus_that_the_run_does_not_hold_are_none_of_its_energy(tmp_path: Path, until: int) -> None:
    path = journal(tmp_path, {"CUDA:0_POWER": gpu(61, 100), "CUDA:1_POWER": gpu(61, 300)}, until)
    found = found_in(path, run_of(tmp_path, gpus={"n1": [1]}))
    assert by_kind(found)["joules"]["gpu"] == pytest.approx(18_000)
    assert found.watts == pytest.approx(300)


@pytest.mark.parametrize("until", [60, 0])
def test_without_sensors_it_is_estimated_from_the_load(tmp_path: Path, until: int) -> None:
    path = journal(tmp_path, {"CPU_BUSY": np.full(60, 50.0)}, until)
    found = found_in(path, run_of(tmp_path, RATED, torch_device="cpu"))
    assert found.kinds["joules"].sum() == pytest.approx(59 * (2 * 61.05 + 10))
    assert set(found.kinds["origin"]) == {"estimated"}
    assert found.watts == pytest.approx(2 * 61.05 + 10)


def test_a_gpus_power_is_estimated_from_the_load_in_telemetry(tmp_path: Path) -> None:
    path = journal(tmp_path, {"CPU_BUSY": np.full(60, 50.0)})
    seconds = np.arange(0, 61, 5.0)
    write_telemetry(path, "n1", {"gpu_utilisation": np.full(13, 50.0)}, seconds)
    rated = {"cpu": None, "gpu": {"idle_w": 60, "rated_w": 400}, "ram": None}
    rows = by_kind(found_in(path, run_of(tmp_path, rated, gpus={"n1": [0]})))
    assert rows["joules"]["gpu"] == pytest.approx(59 * 230, rel=0.1)
    assert rows["origin"]["gpu"] == "estimated"


@pytest.mark.parametrize("until", [60, 0])
def test_devices_that_nothing_was_recorded_of_are_uncovered(tmp_path: Path, until: int) -> None:
    path = journal(tmp_path, {"cpu_0_package-0": counter(60, 100)}, until)
    rows = by_kind(found_in(path, run_of(tmp_path, gpus={"n1": [0, 1]})))
    assert rows["covered_s"]["gpu"] == 0 < rows["device_s"]["gpu"]
    assert rows["joules"].sum() == pytest.approx(5900, abs=1000 if until else 1e-6)


@pytest.mark.parametrize("content", [b"", b"{", b"nothing\n" * 50, b"t,mono\n1,1\n", b"\xff" * 99])
def test_what_is_no_journal_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "segment-000.n1.csv"
    path.write_bytes(content)
    assert read_so_far(path, run_of(tmp_path)) is None


@pytest.mark.parametrize("until", [221, 0])
def test_the_power_is_the_mean_of_the_last_ten_seconds(tmp_path: Path, until: int) -> None:
    sensors = {"CUDA:0_POWER": [*gpu(200, 80), *gpu(21, 300)], "ram_0_dram": counter(221, 12)}
    found = found_in(journal(tmp_path, sensors, until), run_of(tmp_path, gpus={"n1": [0]}))
    assert (found.watts, found.last_s) == (pytest.approx(312), T0 + 220)
