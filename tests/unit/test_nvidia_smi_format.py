"""Tables of nvidia-smi: any columns, zones, faults; refused where something decisive is not said."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_recordings import Made, check_counters, check_powers, codes, local, made, of_gpu, written

from scalewatt.common.errors import InputError
from scalewatt.recordings.detect import read_foreign
from scalewatt.recordings.series import INSTANTANEOUS, MOVING_MEAN, sample_quantity
from scalewatt.recordings.tables import Options

BERLIN = Options(time_zone="Europe/Berlin")
STAMP = "%Y/%m/%d %H:%M:%S"
FIELDS = {
    "timestamp": "",
    "index": "",
    "uuid": "",
    "name": "",
    "power.draw": " [W]",
    "utilization.gpu": " [%]",
    "temperature.gpu": "",
}


def table(made: Made, fields: list[str], units: bool, missing: str, energy: bool) -> list[str]:
    """Write a made recording as nvidia-smi does."""
    names = [*fields, "total_energy_consumption"] if energy else fields
    lines = [", ".join(name + FIELDS.get(name, " [mJ]") for name in names)]
    for row in made.rows:
        power = missing if row.power_w is None else f"{row.power_w:.2f}" + (" W" if units else "")
        counter = "[N/A]" if row.counter_mj is None else f"{row.counter_mj}"
        cells = {
            "timestamp": local(row.time_s, made.zone, STAMP),
            "index": str(row.gpu),
            "uuid": f"GPU-{row.gpu:08d}-1234",
            "name": "NVIDIA A100-SXM4-40GB",
            "power.draw": power,
            "utilization.gpu": "97 %" if units else "97",
            "temperature.gpu": "61",
            "total_energy_consumption": counter + (" mJ" if units and counter[0] != "[" else ""),
        }
        lines.append(", ".join(cells[name] for name in names))
    return lines


@settings(max_examples=60, deadline=None)
@given(
    made(),
    st.permutations(list(FIELDS)),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["[N/A]", "[Not Supported]", "[Unknown Error]"]),
    st.data(),
)
def test_a_known_power_is_read_back(
    made: Made, fields: list[str], units: bool, energy: bool, missing: str, data: st.DataObject
) -> None:
    lines = table(made, fields, units, missing, energy)
    again = data.draw(st.integers(1, len(lines) - 1), label="heading again before")
    lines.insert(again, lines[0])
    torn = data.draw(st.integers(0, 20), label="letters of a torn line")
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), "\n".join(lines) + "\n" + lines[-1][:torn])
        found = read_foreign(path, Options(time_zone=made.zone))
    check_powers(found, made)
    if energy:
        check_counters(found, made)
    assert ("damaged" in codes(found)) == (torn > 0)
    assert not any("name no zone" in one["detail"] for one in found.problems)
    assert found.format == "nvidia-smi"


ROW = "2024/05/31 10:39:13.123"
LATER = "2024/05/31 10:39:14.123"


def smi(folder: Path, *lines: str) -> Path:
    return written(folder, "".join(f"{line}\n" for line in lines), "node7.csv")


def test_times_without_a_zone_are_this_machines_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    path = smi(tmp_path, "timestamp, index, power.draw [W]", f"{ROW}, 0, 6 W", f"{LATER}, 0, 6 W")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        found = read_foreign(path)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [one["code"] for one in found.problems] == ["time_assumed"]
    # 2024-05-31 01:39:13 UTC
    assert found.series[0].time_s[0] == pytest.approx(1_717_119_553.123, abs=1e-4)


def test_the_two_hours_of_autumn_are_told_by_order(tmp_path: Path) -> None:
    stamps = [f"2024/10/27 0{h}:{m:02d}:00.000" for h in (1, 2, 2, 3) for m in range(0, 60, 5)]
    path = smi(
        tmp_path,
        "timestamp, index, power.draw [W]",
        *(f"{stamp}, {gpu}, 6{gpu}.00 W" for stamp in stamps for gpu in (0, 1)),
    )
    for one in read_foreign(path, BERLIN).series:
        # 01:00 in summer is 23:00 UTC.
        np.testing.assert_array_equal(one.time_s, 1_729_983_600 + 300.0 * np.arange(48))


def test_gpus_are_told_by_uuid_or_bus_where_there_is_no_index(tmp_path: Path) -> None:
    for name, ids in {
        "uuid": ["GPU-b", "GPU-a"],
        "pci.bus_id": ["00000000:18:00.0", "00000000:3B:00.0"],
    }.items():
        rows = [f"{id}, {ROW}, {n}1.00 W" for n, id in enumerate(ids, 6)]
        found = read_foreign(smi(tmp_path, f"{name}, timestamp, power.draw [W]", *rows), BERLIN)
        first = ids == sorted(ids)
        assert [of_gpu(found, n).values[0] for n in (0, 1)] == (
            [61.0, 71.0] if first else [71.0, 61.0]
        )


def test_rows_of_several_nodes_are_not_taken_for_one_gpu(tmp_path: Path) -> None:
    rows = (f"{stamp}, 0, GPU-{n}, {n}1.00 W" for stamp in (ROW, LATER) for n in (6, 7))
    with pytest.raises(InputError, match=r"index 0 is 2 GPUs \(GPU-6, GPU-7\): rows of several"):
        read_foreign(smi(tmp_path, "timestamp, index, uuid, power.draw [W]", *rows), BERLIN)
    unknown = (
        f"{ROW}, 0, [Unknown Error], 61 W",
        f"{LATER}, 0, GPU-6, 61 W",
        "2024/05/31 10:39:15.123, 0, GPU-?, 6 W",
    )
    (one,) = read_foreign(
        smi(tmp_path, "timestamp, index, uuid, power.draw [W]", *unknown), BERLIN
    ).series
    assert one.time_s.size == 3 and one.uuid == "GPU-6"


def test_a_table_without_a_heading_needs_the_names_of_its_fields(tmp_path: Path) -> None:
    path = smi(tmp_path, f"{ROW}, 3, 61.23", f"{LATER}, 3, 71.23")
    with pytest.raises(InputError, match=r"header: \[timestamp, index, power.draw\]"):
        read_foreign(path, BERLIN)
    columns = written(tmp_path, "header: [timestamp, index, power.draw]\n", "columns.yaml")
    found = read_foreign(path, Options(time_zone="UTC", columns=columns))
    np.testing.assert_array_equal(of_gpu(found, 3).values, [61.23, 71.23])


def test_what_a_sample_stands_for_is_told_by_field_or_gpu(tmp_path: Path) -> None:
    path = smi(
        tmp_path,
        "timestamp, name, power.draw [W], power.draw.average [W], power.draw.instant [W], power.limit [W]",
        f"{ROW}, NVIDIA H100 80GB HBM3, 61 W, 62 W, 63 W, 700.00 W",
    )
    found = {one.sensor: one for one in read_foreign(path, BERLIN).series}
    said = {name: sample_quantity(one, None) for name, one in found.items()}
    assert said == {
        "GPU:0 power.draw": MOVING_MEAN,
        "GPU:0 power.draw.average": MOVING_MEAN,
        "GPU:0 power.draw.instant": INSTANTANEOUS,
    }
    assert {one.limit_w for one in found.values()} == {700.0}
    assert {one.device_index for one in found.values()} == {0}


def test_rows_of_errors_and_messages_between_are_left_out_and_counted(tmp_path: Path) -> None:
    path = smi(
        tmp_path,
        "timestamp, index, power.draw [W]",
        f"{ROW}, 0, 61 W",
        "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error",
        "[Unknown Error], [Unknown Error], [Unknown Error]",
        f"{LATER}, 0, 62 W",
    )
    found = read_foreign(path, BERLIN)
    assert of_gpu(found, 0).values.tolist() == [61.0, 62.0]
    (problem,) = found.problems
    assert problem["code"] == "damaged" and "2 lines" in problem["detail"]


def test_each_number_has_its_own_unit_or_that_of_the_heading_above_it(tmp_path: Path) -> None:
    head = "timestamp, index, power.draw [%s]"
    stamps = [f"2024/05/31 10:39:{second}.123" for second in range(10, 18)]
    cells = ["61", "[N/A]", "62.00 W", "0.063 kW", "64.00 WX", "65000 mW", "66000", "67 W"]
    rows = [f"{stamp}, 0, {cell}" for stamp, cell in zip(stamps, cells, strict=True)]
    path = smi(tmp_path, head % "W", *rows[:6], head % "mW", *rows[6:])
    values = of_gpu(read_foreign(path, BERLIN), 0).values
    np.testing.assert_allclose(values, [61, np.nan, 62, 63, np.nan, 65, 66, 67])
