"""The energy of a journal so far: what the accounting says, whatever state the files are in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from energy_files import NO_POWERS, T0, counter, gpu, write_journal, write_telemetry
from run_files import make_spec

from scalewatt.energies.account import account
from scalewatt.energies.run_inputs import Run
from scalewatt.energies.tables import EnergyTotals
from scalewatt.monitoring.running_total import RunningTotal
from scalewatt.recordings.journal import beside
from scalewatt.tracking.running_total import JournalSum, read_so_far

RATED = {"cpu": {"sockets": 2, "idle_w": 50, "rated_w": 150}, "gpu": None, "ram": {"power_w": 10}}
ON_GPU = {"gpus": {"n1": [0]}}


def run_of(folder: Path, powers: dict[str, Any] = NO_POWERS, **provenance: Any) -> Run:
    return Run(folder, make_spec(), powers, provenance, None)


def journal(folder: Path, sensors: dict[str, Any], until: int = 0) -> Path:
    """A journal; the sampler's total counts its first `until` samples."""
    path = write_journal(folder / "perun" / "segment-000.n1.csv", "n1", sensors)
    about = json.loads(beside(path, ".sensors.json").read_text())
    total = RunningTotal(beside(path, ".total.json"), about)
    for row in pd.read_csv(path).head(until).itertuples(index=False):
        total.add(row[0], row[1], row[2:])
    return path


def so_far(path: Path, run: Run) -> tuple[JournalSum, pd.DataFrame]:
    """The sum of a journal, and its rows by device kind."""
    total = read_so_far(path, run)
    assert total is not None
    return total, total.kinds.set_index("kind")


def measured(n: int) -> dict[str, Any]:
    """Raw samples of two GPUs, a socket whose counter wraps, and a memory; some are missing."""
    random = np.random.default_rng(0)
    steps = np.cumsum(random.integers(50_000_000, 150_000_000, n))
    first = 1000.0 * random.integers(50, 390, n)
    first[100:103] = np.nan
    return {
        "CUDA:0_POWER": first,
        "CUDA:1_POWER": 1000.0 * random.integers(50, 390, n),
        "cpu_0_package-0": (262_000_000_000 + steps) % 262_143_328_850,
        "ram_0_dram": counter(n, 12.0),
    }


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
    path, run = journal(tmp_path, sensors(3001), until), run_of(tmp_path)
    total, rows = so_far(path, run)
    totals = EnergyTotals(account(run).energy, with_staging=True)
    for kind in ("gpu", "cpu", "ram"):
        assert rows["joules"][kind] == pytest.approx(totals.joules(kind), rel=1e-9)
        assert rows["covered_s"][kind] == pytest.approx(rows["device_s"][kind], rel=1e-3)
    assert total.seconds == pytest.approx(totals.runtime_s)
    assert set(rows["origin"]) == {"measured"}


@pytest.mark.parametrize("fault", ["missing", "still", "slow"])
def test_a_counter_that_shows_nothing_for_long_loses_nothing(tmp_path: Path, fault: str) -> None:
    used = 1e6 * (1000 + np.cumsum(80 + np.random.default_rng(0).normal(0, 2, 121)))
    if fault == "missing":
        used[30:90] = np.nan
    elif fault == "still":
        used[20:70] = used[20]
    else:
        used = np.repeat(used[::30], 30)[:121]
    path, run = journal(tmp_path, {"cpu_0_package-0": used}, until=121), run_of(tmp_path)
    joules = EnergyTotals(account(run).energy, with_staging=True).joules("cpu")
    assert so_far(path, run)[1]["joules"]["cpu"] == pytest.approx(joules, rel=1e-6)


def test_what_a_total_lacks_is_in_its_interval(tmp_path: Path) -> None:
    path = journal(tmp_path, {"CUDA:0_POWER": gpu(3001, 100)}, until=2995)
    row = so_far(path, run_of(tmp_path, **ON_GPU))[1].loc["gpu"]
    assert 299_000 <= row["joules"] < 300_000
    assert row["low_j"] <= 300_000 <= row["high_j"]


@pytest.mark.parametrize(("seconds", "until"), [(9, 10), (20, 21), (60, 61), (3000, 2980)], ids=str)
def test_of_a_short_journal_or_one_whose_total_is_overdue_all_samples_count(
    tmp_path: Path, seconds: int, until: int
) -> None:
    path = journal(tmp_path, {"CUDA:0_POWER": gpu(seconds + 1, 100)}, until)
    row = so_far(path, run_of(tmp_path, **ON_GPU))[1].loc["gpu"]
    assert row["joules"] == pytest.approx(100 * seconds)
    assert row["device_s"] >= seconds - 2


def test_a_total_is_as_old_as_the_monotonic_clock_says(tmp_path: Path) -> None:
    path = journal(tmp_path, {"CUDA:0_POWER": gpu(3006, 100)}, until=3006)
    rows = pd.read_csv(path)
    rows.loc[3003:, "t"] -= 3600  # the wall clock is set while the total is not due
    rows.to_csv(path, index=False)
    _, kinds = so_far(path, run_of(tmp_path, **ON_GPU))
    assert kinds["joules"]["gpu"] == pytest.approx(300_000)


# --- what counts, and by whose power: with the sampler's total and without --------------------------

EITHER = pytest.mark.parametrize("until", [221, 0], ids=["total", "no total"])


@EITHER
def test_gpus_that_the_run_does_not_hold_are_none_of_its_energy(tmp_path: Path, until: int) -> None:
    sensors = {"CUDA:0_POWER": gpu(221, 100), "CUDA:1_POWER": gpu(221, 300)}
    path = journal(tmp_path, sensors, until)
    total, rows = so_far(path, run_of(tmp_path, gpus={"n1": [1]}))
    assert rows["joules"]["gpu"] == pytest.approx(220 * 300)
    assert total.watts == pytest.approx(300)


@EITHER
def test_the_power_is_the_mean_of_the_last_ten_seconds(tmp_path: Path, until: int) -> None:
    sensors = {"CUDA:0_POWER": [*gpu(200, 80), *gpu(21, 300)], "ram_0_dram": counter(221, 12)}
    total, _ = so_far(journal(tmp_path, sensors, until), run_of(tmp_path, **ON_GPU))
    assert (total.watts, total.last_s) == (pytest.approx(312), T0 + 220)


@EITHER
def test_without_sensors_it_is_estimated_from_the_load(tmp_path: Path, until: int) -> None:
    path = journal(tmp_path, {"CPU_BUSY": np.full(221, 50.0)}, until)
    total, rows = so_far(path, run_of(tmp_path, RATED, torch_device="cpu"))
    assert rows["joules"].sum() == pytest.approx(220 * (2 * 61.05 + 10))
    assert set(rows["origin"]) == {"estimated"}
    assert total.watts == pytest.approx(2 * 61.05 + 10)


def test_a_gpus_power_is_estimated_from_the_load_in_telemetry(tmp_path: Path) -> None:
    path = journal(tmp_path, {"CPU_BUSY": np.full(60, 50.0)})
    write_telemetry(path, "n1", {"gpu_utilisation": 50.0}, np.arange(0, 61, 5.0))
    rated = NO_POWERS | {"gpu": {"idle_w": 60, "rated_w": 400}}
    _, rows = so_far(path, run_of(tmp_path, rated, **ON_GPU))
    assert rows["joules"]["gpu"] == pytest.approx(59 * 230, rel=0.1)
    assert rows["origin"]["gpu"] == "estimated"


@pytest.mark.parametrize("until", [60, 0])
def test_devices_that_nothing_was_recorded_of_are_uncovered(tmp_path: Path, until: int) -> None:
    path = journal(tmp_path, {"cpu_0_package-0": counter(60, 100)}, until)
    _, rows = so_far(path, run_of(tmp_path, gpus={"n1": [0, 1]}))
    assert rows["covered_s"]["gpu"] == 0 < rows["device_s"]["gpu"]
    assert rows["joules"].sum() == pytest.approx(5900, abs=1000 if until else 1e-6)


@pytest.mark.parametrize("content", [b"", b"{", b"nothing\n" * 50, b"t,mono\n1,1\n", b"\xff" * 99])
def test_what_is_no_journal_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "segment-000.n1.csv"
    path.write_bytes(content)
    assert read_so_far(path, run_of(tmp_path)) is None
