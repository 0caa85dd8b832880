"""CodeCarbon's totals of runs."""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from energy_files import codes

import scalewatt
from scalewatt.common.errors import InputError
from scalewatt.energies.read import account_text
from scalewatt.recordings.detect import read_foreign
from scalewatt.recordings.tables import Options

KWH = 3.6e6
BERLIN = "Europe/Berlin"
RUN = {
    "timestamp": "2024-05-31T12:00:00",
    "project_name": "codecarbon",
    "run_id": "a",
    "duration": 3600.0,
    "emissions": 0.1,
    "cpu_energy": 0.05,
    "gpu_energy": 1.0,
    "ram_energy": 0.02,
    "energy_consumed": 1.07,
    "gpu_count": 4,
    "gpu_model": "4 x NVIDIA A100-SXM4-40GB",
    "tracking_mode": "machine",
    "pue": 1.0,
}


def write(path: Path, *rows: dict) -> Path:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, [*rows[0]])
        table.writeheader()
        table.writerows(rows)
    return path


def test_a_run_is_the_energy_of_each_kind_with_its_origin(tmp_path: Path) -> None:
    path = write(tmp_path / "n1.csv", RUN)
    account = scalewatt.energy(path, time_zone=BERLIN)
    assert (account.format, account.run, account.gpus) == ("codecarbon", "a", 4)
    kwh = {kind: account.joules(kind) / KWH for kind in ("gpu", "cpu", "ram")}
    assert kwh == pytest.approx({"gpu": 1.0, "cpu": 0.05, "ram": 0.02})
    assert (account.runtime_s, account.coverage) == pytest.approx((3600, 1))
    assert account_text(account).startswith(f"{path}, run a\n")  # only perun's files have rounds
    origins = account.totals.set_index("device_kind")["energy_origin"]
    assert origins[["gpu", "cpu", "ram"]].tolist() == ["measured", "estimated", "estimated"]
    assert codes(account.flags) == {"total_only", "assumed"}


def test_the_last_run_is_read_and_the_others_are_named(tmp_path: Path) -> None:
    rows = [
        {**RUN, "run_id": "a", "cpu_energy": 1e-3},
        {**RUN, "run_id": "b", "cpu_energy": 3e-3, "duration": 60.0},
        {**RUN, "run_id": "b", "cpu_energy": 4e-3},
    ]
    path = write(tmp_path / "n1.csv", *rows)
    last = scalewatt.energy(path, time_zone=BERLIN)
    assert last.run == "b"
    assert last.flags["detail"].str.contains("run b is read; others: a").any()
    for run, kwh in {None: 4e-3, "a": 1e-3, "b": 4e-3}.items():
        account = scalewatt.energy(path, run=run, time_zone=BERLIN)
        assert account.joules("cpu") == pytest.approx(kwh * KWH), run
    with pytest.raises(InputError, match="no run c; allowed: a, b"):
        read_foreign(path, Options(run="c"))


def test_energies_with_the_overhead_of_the_data_centre_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "n1.csv", {**RUN, "pue": 1.25})
    with pytest.raises(InputError, match=r"not the machine's: pue is \"1\.25\""):
        read_foreign(path)


def test_samples_count_before_a_total_of_the_same_device(tmp_path: Path) -> None:
    end = datetime(2024, 5, 31, 12, tzinfo=ZoneInfo(BERLIN)).timestamp()
    total = {**RUN, "gpu_count": 1, "gpu_energy": 400 * 60 / KWH, "duration": 60.0}
    write(tmp_path / "emissions.csv", {**total, "cpu_energy": 1e-3, "ram_energy": 1e-4})
    rows = [f"{end - 60 + i},{300.0 + i % 2}" for i in range(61)]
    (tmp_path / "power.csv").write_text("\n".join(["time,power0", *rows, ""]))
    account = scalewatt.energy(tmp_path, node="n1", time_zone=BERLIN)
    assert (account.hosts, account.gpus) == (["n1"], 1)
    assert account.joules("gpu") == pytest.approx(300.5 * 60)
    assert account.joules("cpu") == pytest.approx(1e-3 * KWH)
    second = account.flags[account.flags["code"] == "second_sensor"]
    assert second["sensor"].tolist() == ["gpu_energy"]
