"""CodeCarbon's totals. Real files where SCALEWATT_OTHERS names a folder of them."""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from energy_said import describe
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_recordings import sensors

from scalewatt.common.errors import InputError
from scalewatt.energies.account_text import account_text
from scalewatt.energies.read import Reading, read_account
from scalewatt.recordings.detect import read_foreign
from scalewatt.recordings.tables import Options

ONE_FILE = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
KWH = 3.6e6
BERLIN = Options(time_zone="Europe/Berlin")
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


def codes(path: Path, options: Options = BERLIN) -> set[str]:
    found = read_foreign(path, options)
    return {one["code"] for one in found.flags}


def test_a_run_is_the_energy_of_each_kind_with_its_origin(tmp_path: Path) -> None:
    path = write(tmp_path / "n1.csv", RUN)
    found = describe(path, options=BERLIN)
    assert found["format"] == "codecarbon" and found["run"] == "a" and found["gpus"] == 4
    assert found["gpu_energy_j"] == pytest.approx(1.0 * KWH)
    assert found["cpu_energy_j"] == pytest.approx(0.05 * KWH)
    assert found["ram_energy_j"] == pytest.approx(0.02 * KWH)
    assert found["runtime_s"] == pytest.approx(3600) and found["coverage"] == pytest.approx(1)
    told = account_text(read_account(path, Reading(time_zone="Europe/Berlin")))
    assert told.startswith(f"{path}, run a\n")  # only perun's files have rounds
    origins = {one.kind: one.origin for one in sensors(read_foreign(path, BERLIN))}
    assert origins == {"gpu": "measured", "cpu": "estimated", "ram": "estimated"}
    assert {one["code"] for one in found["flags"]} == {"total_only", "assumed"}


def test_the_last_run_is_read_and_the_others_are_named(tmp_path: Path) -> None:
    rows = [
        {**RUN, "run_id": "a", "cpu_energy": 1e-3},
        {**RUN, "run_id": "", "cpu_energy": 2e-3},
        {**RUN, "run_id": "b", "cpu_energy": 3e-3, "duration": 60.0},
        {**RUN, "run_id": "b", "cpu_energy": 4e-3},
    ]
    path = write(tmp_path / "n1.csv", *rows)
    found = describe(path, options=BERLIN)
    assert found["run"] == "b" and found["cpu_energy_j"] == pytest.approx(4e-3 * KWH)
    (told,) = (one for one in found["flags"] if one["code"] == "several")
    assert "others: a, 2" in told["detail"]
    for run, kwh in {"a": 1e-3, "2": 2e-3, "3": 3e-3, "b": 4e-3}.items():
        found = describe(path, run_id=run, options=BERLIN)
        assert found["cpu_energy_j"] == pytest.approx(kwh * KWH), run
    with pytest.raises(InputError, match="no run c; allowed: a, 2, b"):
        read_foreign(path, Options(run="c"))


def test_overhead_of_the_data_centre_is_taken_out(tmp_path: Path) -> None:
    path = write(tmp_path / "n1.csv", {**RUN, "pue": 1.25})
    assert describe(path, options=BERLIN)["energy_j"] == pytest.approx(1.07 * KWH / 1.25)
    assert "assumed" in codes(path)


@ONE_FILE
@given(data=st.data())
def test_known_totals_come_out_as_they_went_in(data: st.DataObject, tmp_path: Path) -> None:
    seconds = data.draw(st.floats(1.0, 1e6))
    gpus = data.draw(st.integers(0, 16))
    watts = {kind: data.draw(st.floats(1, 300)) for kind in ("cpu", "gpu", "ram")}
    kwh = {kind: power * seconds / KWH for kind, power in watts.items()}
    kwh["gpu"] *= gpus
    row = {**RUN, "duration": seconds, "gpu_count": gpus or "", "gpu_model": f"{gpus} x A100"}
    row |= {f"{kind}_energy": value for kind, value in kwh.items()}
    rows = data.draw(st.permutations([row, *({**RUN, "run_id": str(i)} for i in "xyz")]))
    path = write(tmp_path / "n1.csv", *rows)
    found = describe(path, run_id="a", options=BERLIN)
    for kind, value in kwh.items():
        energy = found[f"{kind}_energy_j"]
        assert energy == (pytest.approx(value * KWH) if value else None)
    assert found["energy_j"] == pytest.approx(sum(kwh.values()) * KWH)
    assert found["runtime_s"] == pytest.approx(seconds, rel=1e-6)


def test_samples_count_before_a_total_of_the_same_device(tmp_path: Path) -> None:
    end = datetime(2024, 5, 31, 12, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    total = {**RUN, "gpu_count": 1, "gpu_energy": 400 * 60 / KWH, "duration": 60.0}
    write(tmp_path / "emissions.csv", {**total, "cpu_energy": 1e-3, "ram_energy": 1e-4})
    rows = [f"{end - 60 + i},{300.0 + i % 2}" for i in range(61)]
    (tmp_path / "power.csv").write_text("\n".join(["time,power0", *rows, ""]))
    found = describe(tmp_path, options=Options(node="n1", time_zone="Europe/Berlin"))
    assert found["hosts"] == ["n1"] and found["gpus"] == 1
    assert found["gpu_energy_j"] == pytest.approx(300.5 * 60)
    assert found["cpu_energy_j"] == pytest.approx(1e-3 * KWH)
    (told,) = (one for one in found["flags"] if one["code"] == "second_sensor")
    assert told["device"] == "gpu_energy"
