"""CodeCarbon's totals. Real files where SCALEWATT_OTHERS names a folder of them."""

from __future__ import annotations

import csv
import os
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalewatt.common.errors import InputError
from scalewatt.energies.views.describe import describe
from scalewatt.energies.views.describe_text import energy_text
from scalewatt.recordings.formats.detect import read_foreign
from scalewatt.recordings.formats.format import Options

OTHERS = os.environ.get("SCALEWATT_OTHERS")
real = pytest.mark.skipif(not OTHERS, reason="SCALEWATT_OTHERS names no folder with emissions.csv")
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
    return {one["code"] for one in (*found.problems, *(f for s in found.series for f in s.flags))}


def test_a_run_is_the_energy_of_each_kind_with_its_origin(tmp_path: Path) -> None:
    path = write(tmp_path / "n1.csv", RUN)
    found = describe(path, options=BERLIN)
    assert found["format"] == "codecarbon" and found["run"] == "a" and found["gpus"] == 4
    assert found["gpu_energy_j"] == pytest.approx(1.0 * KWH)
    assert found["cpu_energy_j"] == pytest.approx(0.05 * KWH)
    assert found["ram_energy_j"] == pytest.approx(0.02 * KWH)
    assert found["runtime_s"] == pytest.approx(3600) and found["coverage"] == pytest.approx(1)
    assert energy_text(found).startswith(f"{path}, run a\n")  # only perun's files have rounds
    origins = {one.device_kind: one.origin for one in read_foreign(path, BERLIN).series}
    assert origins == {"gpu": "measured", "cpu": "estimated", "ram": "estimated"}
    assert {one["code"] for one in found["flags"]} == {
        "total_only",
        "cpu_origin_unknown",
        "gpus_in_sum",
    }


def test_no_stage_is_told_of_a_total(tmp_path: Path) -> None:
    path = write(tmp_path / "n1.csv", RUN)
    end = datetime(2024, 5, 31, 12, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    stages = tmp_path / "stages.csv"
    stages.write_text(
        f"stage,start_s,end_s\nstartup,{end - 3600},{end - 3000}\ntrain,{end - 3000},{end}\n"
    )
    found = describe(path, stages=stages, options=BERLIN)
    assert found["energy_j"] == pytest.approx(1.07 * KWH)
    energies = {row["stage"]: row["gpu_energy_j"] for row in found["stages"]}
    assert energies["startup"] is None and energies["train"] is None


def test_the_stamp_is_the_runs_end_in_local_time(tmp_path: Path) -> None:
    path = write(tmp_path / "n1.csv", RUN)
    found = read_foreign(path, BERLIN)
    end = datetime(2024, 5, 31, 12, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    assert found.t0_known and found.series[0].time_s.tolist() == [end - 3600, end]
    assert "time_zone_assumed" in codes(path, Options()) - codes(path)
    with pytest.raises(InputError, match="no time zone"):
        read_foreign(path, Options(time_zone="Mars/Base"))


def test_a_run_without_a_stamp_has_no_time_of_day(tmp_path: Path) -> None:
    path = write(tmp_path / "n1.csv", {**RUN, "timestamp": ""})
    found = read_foreign(path, BERLIN)
    assert not found.t0_known and found.series[0].time_s.tolist() == [0, 3600]
    assert "no_time" in codes(path)


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
    (told,) = (one for one in found["flags"] if one["code"] == "several_runs")
    assert "others: a, 2" in told["detail"]
    for run, kwh in {"a": 1e-3, "2": 2e-3, "3": 3e-3, "b": 4e-3}.items():
        found = describe(path, run_id=run, options=BERLIN)
        assert found["cpu_energy_j"] == pytest.approx(kwh * KWH), run
    with pytest.raises(InputError, match="no run c; allowed: a, 2, b"):
        read_foreign(path, Options(run="c"))


def test_overhead_of_the_data_centre_is_taken_out(tmp_path: Path) -> None:
    path = write(tmp_path / "n1.csv", {**RUN, "pue": 1.25})
    assert describe(path, options=BERLIN)["energy_j"] == pytest.approx(1.07 * KWH / 1.25)
    assert "pue_removed" in codes(path)


def test_what_the_row_says_of_its_energies_is_told(tmp_path: Path) -> None:
    assert "one_process" in codes(write(tmp_path / "a.csv", {**RUN, "tracking_mode": "process"}))
    assert "total_differs" in codes(write(tmp_path / "b.csv", {**RUN, "energy_consumed": 2.0}))
    apple = write(tmp_path / "c.csv", {**RUN, "gpu_model": "Apple M1", "gpu_count": 1})
    assert {one.origin for one in read_foreign(apple, BERLIN).series} == {"estimated"}


@pytest.mark.parametrize("energy", ["", "0.0", "-0.01", "nan", "x"])
def test_an_energy_that_cannot_be_is_unknown(energy: str, tmp_path: Path) -> None:
    path = write(tmp_path / "n1.csv", {**RUN, "cpu_energy": energy})
    found = describe(path, options=BERLIN)
    assert found["cpu_energy_j"] is None and found["energy_j"] is None
    assert found["gpu_energy_j"] == pytest.approx(KWH) and "unknown_total" in codes(path)


def test_no_gpus_are_no_unknown_gpus(tmp_path: Path) -> None:
    path = write(tmp_path / "n1.csv", {**RUN, "gpu_energy": 0, "gpu_count": "", "gpu_model": ""})
    found = describe(path, options=BERLIN)
    assert found["gpus"] == 0 and found["energy_scope"] == "cpu+ram"
    assert found["energy_j"] == pytest.approx(0.07 * KWH)


@pytest.mark.parametrize("duration", ["0", "-1725969928.7", "nan", "", "1e300"])
def test_a_run_without_a_length_is_refused(duration: str, tmp_path: Path) -> None:
    path = write(tmp_path / "n1.csv", {**RUN, "duration": duration})
    with pytest.raises(InputError, match=r"duration .* of a; expected s above 0"):
        read_foreign(path, BERLIN)


def test_energies_in_sum_only_are_refused(tmp_path: Path) -> None:
    old = {name: value for name, value in RUN.items() if not name.endswith("u_energy")}
    with pytest.raises(InputError, match="energies in sum only; expected gpu_energy"):
        read_foreign(write(tmp_path / "n1.csv", old), BERLIN)


def test_rows_that_are_cut_or_too_short_are_left_out_and_told(tmp_path: Path) -> None:
    path = write(tmp_path / "n1.csv", RUN, {**RUN, "run_id": "b"})
    whole = path.read_text()
    path.write_text(whole + "2024-05-31T12:00:00,x\n" + whole.splitlines()[1][:60])
    assert read_foreign(path, BERLIN).run_id == "b"
    assert {"torn_end", "damaged_lines"} <= codes(path)
    path.write_text(whole.splitlines()[0] + "\n")
    with pytest.raises(InputError, match="holds no run"):
        read_foreign(path, BERLIN)


@ONE_FILE
@given(data=st.data())
def test_known_totals_come_out_as_they_went_in(data: st.DataObject, tmp_path: Path) -> None:
    seconds = data.draw(st.floats(1.0, 1e6))
    gpus = data.draw(st.integers(0, 16))
    watts = {kind: data.draw(st.floats(1, 300)) for kind in ("cpu", "gpu", "ram")}
    kwh = {kind: power * seconds / KWH for kind, power in watts.items()}
    kwh["gpu"] *= gpus
    row = {**RUN, "duration": seconds, "gpu_count": gpus or ""}
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
    rows = [f"{i},{end - 60 + i},{300.0 + i % 2}" for i in range(61)]
    (tmp_path / "power.n1.1.csv").write_text("\n".join([",timestamps,pynvml:0", *rows, ""]))
    found = describe(tmp_path, options=Options(node="n1", time_zone="Europe/Berlin"))
    assert found["hosts"] == ["n1"] and found["gpus"] == 1
    assert found["gpu_energy_j"] == pytest.approx(300.5 * 60)
    assert found["cpu_energy_j"] == pytest.approx(1e-3 * KWH)
    (told,) = (one for one in found["flags"] if one["code"] == "second_sensor")
    assert told["device"] == "gpu_energy"


@real
def test_real_runs_have_the_energies_of_their_rows() -> None:
    path = Path(OTHERS or "", "codecarbon", "emissions.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 28
    for place, row in enumerate(rows, start=1):
        found = describe(path, run_id=str(place), options=BERLIN)
        for kind in ("cpu", "gpu", "ram"):
            kwh = float(row[f"{kind}_energy"] or 0)
            energy = found[f"{kind}_energy_j"]
            assert energy == (pytest.approx(kwh * KWH, rel=1e-6) if kwh else None)
        assert found["origin"] == "estimated"
        assert found["runtime_s"] == pytest.approx(float(row["duration"]), rel=1e-6)


@real
def test_a_real_file_with_other_columns_is_read() -> None:
    path = Path(OTHERS or "", "codecarbon", "emissions_valid_headers.csv")
    found = describe(path, options=BERLIN)
    assert found["cpu_energy_j"] is None and found["gpus"] == 0
    assert found["ram_energy_j"] == pytest.approx(0.00057442898176 * KWH)
