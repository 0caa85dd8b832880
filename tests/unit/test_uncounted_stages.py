"""Staging under the paper's protocol does not count, and so need not be covered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from energy_files import Accounted, accounted, gpu, make_run, record
from run_files import make_spec

from scalewatt.energies.tables import EnergyTotals

STAGES = [(0, "startup", 0.0, 10.0), (0, "stage_data", 10.0, 210.0), (0, "train", 210.0, 400.0)]


def staged(folder: Path, protocol: str, lost: slice) -> Accounted:
    """Account for a run of 400 s whose GPUs' power is lost for some of them."""
    power = gpu(401) + 1e3 * (np.arange(401) % 7)
    power[lost] = 0
    run = make_run(folder, stages=STAGES)
    record(run, {"n1": {"CUDA:0_POWER": power, "CUDA:1_POWER": power}})
    return accounted(run, make_spec(protocol=protocol))


def test_staging_that_does_not_count_does_not_count_against_coverage_either(tmp_path: Path) -> None:
    run = staged(tmp_path, "paper", slice(40, 201))
    assert "coverage" not in run.codes() and run.totals.coverage == 1
    by_stage = run.tables.energy.query("device_kind == 'gpu'").set_index("stage")["energy_j"]
    assert by_stage["train"] == pytest.approx(2 * 190 * 103, rel=0.01)
    assert np.isnan(by_stage["stage_data"]), "it is not known"
    counted = EnergyTotals(run.tables.energy, with_staging=False)
    assert counted.total_j == pytest.approx(2 * 200 * 103, rel=0.01)


@pytest.mark.parametrize(
    ("protocol", "lost"), [("corrected", slice(40, 201)), ("paper", slice(300, 350))]
)
def test_what_counts_has_to_be_covered_whatever_the_length_of_staging(
    tmp_path: Path, protocol: str, lost: slice
) -> None:
    """50 s of training are 12 % of the run, and 25 % of what counts under the paper's protocol."""
    run = staged(tmp_path, protocol, lost)
    counted = EnergyTotals(run.tables.energy, with_staging=protocol == "corrected")
    assert "coverage" in run.codes() and counted.total_j is None
    if protocol == "paper":
        assert run.totals.coverage == pytest.approx(1 - 51 / 200, abs=0.01)
