"""examples/zeus/convert.py: rows of Zeus's published tables become runs of one epoch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from scalewatt.campaign.load import load_campaign
from scalewatt.energies.account import write_energy
from scalewatt.registration.register import register
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.run_row import RunFiles, run_row

SCRIPT = Path(__file__).parents[2] / "examples" / "zeus" / "convert.py"
OTHERS = os.environ.get("SCALEWATT_OTHERS")
HEADING = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power"
SHUFFLENET = "shufflenetv2-v100-n001-lbs{:04d}-s0050000-e001{}-gpulimit{}w"


def registered(tmp_path: Path, *rows: str) -> tuple[str, list[str]]:
    """What the converter and `register` print of the rows of a V100's table."""
    table = tmp_path / "summary_power_v100.csv"
    table.write_text("\n".join([HEADING, *rows, ""]))
    return converted(table, tmp_path)


def converted(table: Path, tmp_path: Path) -> tuple[str, list[str]]:
    out = tmp_path / "converted"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(table), str(out)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = register("zeus", [], out / "runs.csv", tmp_path / "results", tmp_path / "campaigns")
    return done.stdout, lines


def row_of(tmp_path: Path, configuration: str, repeat: int = 1) -> dict:
    files = RunFiles(tmp_path / "results" / "zeus", configuration, repeat)
    for path in (files.energy, files.traces):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_energy(files.folder, files.folder / "spec.json", {}, files.traces, files.energy)
    return run_row(files, "zeus", Facility())


def epoch(batch: int, limit: int, seconds: float, watts: float, optimizer: str = "adadelta") -> str:
    return f"cifar100,shufflenetv2,{batch},{optimizer},{limit},{seconds},{watts}"


def test_a_row_is_a_run_with_the_energy_of_its_epoch(tmp_path: Path) -> None:
    registered(tmp_path, epoch(64, 125, 60.0, 90.0), epoch(64, 250, 50.0, 180.0))
    row = row_of(tmp_path, SHUFFLENET.format(64, "", 125))
    assert row["energy_kwh"] == pytest.approx(60 * 90 / 3.6e6, rel=1e-12)
    assert (row["energy_origin"], row["energy_scope"]) == ("measured", "gpu")
    assert (row["runtime_s"], row["gpu_power_limit_w"]) == (60.0, 125.0)
    assert (row["samples"], row["local_batch_size"]) == (50_000, 64)
    assert row["device_name"] == "NVIDIA V100" and row["metric_last"] is None
    assert "total_only" in row["flags"]


def test_limits_and_batch_sizes_are_compared_in_a_figure(tmp_path: Path) -> None:
    rows = [epoch(batch, limit, 60.0, 90.0 + batch) for batch in (64, 128) for limit in (125, 250)]
    registered(tmp_path, *rows)
    campaign = load_campaign(tmp_path / "campaigns" / "zeus.yaml", None)
    assert len(campaign.series) == 4
    assert campaign.figures["operating_points"] == {"series": list(campaign.series)}


def test_several_optimizers_are_variants_and_several_rows_of_a_setting_repeats(
    tmp_path: Path,
) -> None:
    first, second = epoch(64, 125, 60.0, 90.0), epoch(64, 125, 61.0, 90.0)
    registered(tmp_path, first, second, first, epoch(64, 125, 55.0, 91.0, "adam"))
    campaign = load_campaign(tmp_path / "campaigns" / "zeus.yaml", None)
    names = [SHUFFLENET.format(64, f"-{optimizer}", 125) for optimizer in ("adadelta", "adam")]
    assert campaign.repeats == dict(zip(names, (2, 1), strict=True))


def test_rows_that_are_no_measurement_are_left_out(tmp_path: Path) -> None:
    wrong = [epoch(64, 125, -60.0, 90.0), "mnist,lenet,64,adam,125,60,90", epoch(64, 125, 60, 0)]
    printed, lines = registered(tmp_path, epoch(32, 125, 60.0, 90.0), *wrong)
    assert [f"line {n}:" in printed for n in (2, 3, 4, 5)] == [False, True, True, True]
    assert sum(line.startswith("registered") for line in lines) == 1


@pytest.mark.skipif(
    not OTHERS or not Path(OTHERS, "zeus").is_dir(),
    reason="SCALEWATT_OTHERS names no folder with Zeus's tables",
)
def test_all_rows_of_a_real_table_are_runs_with_their_energies(tmp_path: Path) -> None:
    table = Path(OTHERS or "", "zeus", "summary_power_a40.csv")
    converted(table, tmp_path)
    rows = pd.read_csv(table)
    runs = sorted((tmp_path / "results" / "zeus" / "runs").glob("*/*"))
    assert len(runs) == len(rows)
    energies = [
        row_of(tmp_path, run.parent.name, int(run.name))["energy_kwh"] for run in runs[::20]
    ]
    known = (rows.time_per_epoch * rows.average_power / 3.6e6).tolist()
    assert all(any(energy == pytest.approx(one, rel=1e-9) for one in known) for energy in energies)
