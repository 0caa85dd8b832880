"""What does not count need not be covered: staging under the paper's protocol; and signs of work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from energy_files import Accounted, accounted, gpu, make_run, write_journal
from run_files import make_spec

from scalewatt.energies.tables import EnergyTotals

NO_POWERS: dict[str, Any] = {"cpu": None, "gpu": None, "ram": None}
STAGES = [(0, "startup", 0.0, 10.0), (0, "stage_data", 10.0, 210.0), (0, "train", 210.0, 400.0)]


def staged(folder: Path, protocol: str, lost: slice) -> Accounted:
    """Account for a run of 400 s whose GPUs' power is lost for some of them."""
    power = gpu(401) + 1e3 * (np.arange(401) % 7)
    power[lost] = 0
    run = make_run(folder, stages=STAGES)
    sensors = {"CUDA:0_POWER": power, "CUDA:1_POWER": power}
    write_journal(run / "perun" / "segment-000.n1.csv", "n1", sensors)
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
    counted = EnergyTotals(found.tables.energy, with_staging=False)
    assert counted.total_j == pytest.approx(2 * 200 * 103, rel=0.01)


def test_staging_that_counts_has_to_be_covered(tmp_path: Path) -> None:
    found = staged(tmp_path, "corrected", slice(40, 201))
    assert "coverage" in found.codes() and found.totals.total_j is None


def test_training_has_to_be_covered_whatever_the_length_of_staging(tmp_path: Path) -> None:
    # 50 s are 12 % of the run, and 25 % of what counts.
    found = staged(tmp_path, "paper", slice(300, 350))
    assert "coverage" in found.codes()
    assert EnergyTotals(found.tables.energy, with_staging=False).total_j is None
    assert found.totals.coverage == pytest.approx(1 - 51 / 200, abs=0.01)
