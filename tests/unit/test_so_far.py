"""The energy of a journal so far: what the accounting says, whatever state the file is in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from energy_files import T0, counter, gpu, write_record_journal
from run_files import make_spec

from scalewatt.energies.accounting.account import account
from scalewatt.energies.accounting.run_inputs import Run
from scalewatt.energies.accounting.totals import EnergyTotals
from scalewatt.energies.views.running_total import JournalSum, last_power, read_so_far
from scalewatt.recordings.telemetry import TelemetryWriter

NOTHING = {"cpu": None, "gpu": None, "ram": None}
RATED = {"cpu": {"sockets": 2, "idle_w": 50, "rated_w": 150}, "gpu": None, "ram": {"power_w": 10}}


def run_of(folder: Path, powers: dict[str, Any] = NOTHING, **provenance: Any) -> Run:
    return Run(folder, make_spec(), powers, provenance, None)


def measured(n: int, seed: int = 0) -> dict[str, Any]:
    """Raw samples of two GPUs, a socket whose counter wraps, and a memory."""
    random = np.random.default_rng(seed)
    steps = np.cumsum(random.integers(50_000_000, 150_000_000, n))
    return {
        "CUDA:0_POWER": 1000.0 * random.integers(50, 390, n),
        "CUDA:1_POWER": 1000.0 * random.integers(50, 390, n),
        "cpu_0_package-0": (262_000_000_000 + steps) % 262_143_328_850,
        "ram_0_dram": counter(n, 12.0),
    }


def journal(folder: Path, sensors: dict[str, Any]) -> Path:
    return write_record_journal(folder / "perun" / "segment-000.n1.journal", "n1", sensors)


def whole(found: JournalSum | None) -> JournalSum:
    assert found is not None
    return found


def test_a_journal_says_what_the_accounting_of_its_run_says(tmp_path: Path) -> None:
    path = journal(tmp_path, measured(3000))
    run = run_of(tmp_path)
    found = whole(read_so_far(path, run))
    totals = EnergyTotals(account(run).energy, with_staging=True)
    assert totals.total_j is not None
    assert found.recorded_j == pytest.approx(totals.total_j, rel=1e-9)
    for kind in ("gpu", "cpu", "ram"):
        assert found.kinds[kind].recorded_j == pytest.approx(totals.joules(kind), rel=1e-9)
    assert found.length_s == pytest.approx(totals.runtime_s)
    assert found.known and {kind.origin for kind in found.kinds.values()} == {"measured"}


def test_a_journal_with_damaged_records_is_counted_without_them(tmp_path: Path) -> None:
    path = journal(tmp_path, measured(4000))
    intact = whole(read_so_far(path, run_of(tmp_path)))
    content = bytearray(path.read_bytes())
    start = content.index(b"\n") + 1
    size = (len(content) - start) // 4000
    content[start + 1000 * size + 20] ^= 0xFF
    path.write_bytes(content)
    note = read_so_far(path, run_of(tmp_path))
    assert whole(note).recorded_j == pytest.approx(intact.recorded_j, rel=1e-3)


def test_without_sensors_it_is_estimated_from_the_load(tmp_path: Path) -> None:
    path = journal(tmp_path, {"CPU_BUSY": np.full(60, 50.0)})
    found = whole(read_so_far(path, run_of(tmp_path, RATED, torch_device="cpu")))
    assert found.recorded_j == pytest.approx(59 * (2 * 61.05 + 10))
    assert {kind.origin for kind in found.kinds.values()} == {"estimated"}


def test_a_gpus_power_is_estimated_from_the_load_in_telemetry(tmp_path: Path) -> None:
    class Load:
        quantities = ("gpu_utilisation",)
        device_index = 0

        def read(self) -> list[float]:
            return [50.0]

    path = journal(tmp_path, {"CPU_BUSY": np.full(60, 50.0)})
    facts = {"host": "n1", "sampling_period_s": 1.0}
    writer = TelemetryWriter(path.parent, "segment-000.n1", facts, [Load()])  # type: ignore[list-item]
    clock = iter(T0 + np.arange(0, 61, 5.0))
    for _ in range(13):
        writer._last_s = -np.inf
        with pytest.MonkeyPatch.context() as patch:
            now = next(clock)
            patch.setattr("scalewatt.recordings.telemetry.time.time", lambda now=now: now)
            patch.setattr("scalewatt.recordings.telemetry.time.monotonic", lambda now=now: now)
            assert writer.sample()
    rated = {"cpu": None, "gpu": {"idle_w": 60, "rated_w": 400}, "ram": None}
    found = whole(read_so_far(path, run_of(tmp_path, rated, gpus={"n1": [0]})))
    assert found.kinds["gpu"].recorded_j == pytest.approx(59 * 230, rel=0.1)
    assert found.kinds["gpu"].origin == "estimated"


def test_devices_that_nothing_was_recorded_of_make_the_energy_unknown(tmp_path: Path) -> None:
    path = journal(tmp_path, {"cpu_0_package-0": counter(60, 100)})
    found = whole(read_so_far(path, run_of(tmp_path, gpus={"n1": [0, 1]})))
    assert not found.known
    assert found.recorded_j == pytest.approx(5900)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"nothing\n" * 50, b'{"journal": 2}\n', b"\xff" * 99]
)
def test_what_is_no_journal_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "segment-000.n1.journal"
    path.write_bytes(content)
    assert read_so_far(path, run_of(tmp_path)) is None
    assert last_power(path, run_of(tmp_path), 10) is None


def test_the_last_power_is_the_mean_of_the_last_samples(tmp_path: Path) -> None:
    path = journal(
        tmp_path, {"CUDA:0_POWER": [*gpu(200, 80), *gpu(20, 300)], "ram_0_dram": counter(220, 12)}
    )
    found = last_power(path, run_of(tmp_path, gpus={"n1": [0]}), 10)
    assert found is not None
    total, watts = found
    assert watts == pytest.approx(312)
    assert (total.last_s, total.length_s) == (T0 + 219, 9)
