"""Recordings of jpwr, in the layouts that jpwr 0.0.10 with pandas 3 writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalewatt.common.errors import InputError
from scalewatt.energies.integration.integrate import validate
from scalewatt.energies.views.describe import describe
from scalewatt.recordings.formats.detect import find_format, read_foreign
from scalewatt.recordings.formats.format import Options

T0 = 1_700_000_000.0
ONE_FILE = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
GH = "gh:Grace Power Socket 0", "gh:CPU Power Socket 0", "gh:Module Power Socket 0"


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Sequence[float]]) -> Path:
    """Write as DataFrame.to_csv does, with the index before."""
    lines = [f"{i},{','.join(map(str, row))}" for i, row in enumerate(rows)]
    path.write_text("\n".join([",".join(["", *columns]), *lines]) + "\n")
    return path


def write_hdf5(path: Path, columns: Sequence[str], rows: Sequence[Sequence[float]]) -> Path:
    """Write as DataFrame.to_hdf does, in the fixed form, each column's type in a block of its own."""
    values = np.array(rows, dtype=np.float64).reshape(len(rows), len(columns))
    names = np.array([name.encode() for name in columns])
    with h5py.File(path, "w") as file:
        group = file.create_group("jpwr")
        group.attrs["pandas_type"] = np.bytes_(b"frame")
        group.attrs["nblocks"] = 2
        group["axis0"], group["axis1"] = names, np.arange(len(rows))
        group["block0_items"], group["block0_values"] = names[:1], values[:, :1]
        group["block1_items"], group["block1_values"] = names[1:], values[:, 1:]
    return path


WRITERS = {"csv": write_csv, "h5": write_hdf5}


@pytest.mark.parametrize("end", WRITERS)
def test_powers_are_read_by_device_with_the_node_of_the_files_name(
    end: str, tmp_path: Path
) -> None:
    columns = ["timestamps", "pynvml:0", "pynvml:1", *GH]
    rows = [[T0 + i, 100.0 + i, 200.0 + i, 80.0, 60.0, 500.0 + i] for i in range(5)]
    path = WRITERS[end](tmp_path / f"power.jwb0001.4711.{end}", columns, rows)
    found = read_foreign(path)
    assert found.format == "jpwr" and found.t0_known and found.hosts == ("jwb0001",)
    devices = {one.sensor: (one.device_kind, one.device_index) for one in found.series}
    assert devices == {
        "pynvml:0": ("gpu", 0),
        "pynvml:1": ("gpu", 1),
        "gh:Grace Power Socket 0": ("cpu", 0),
        "gh:Module Power Socket 0": ("node", 0),
    }
    (second,) = (one for one in found.series if one.sensor == "pynvml:1")
    assert second.time_s.tolist() == [row[0] for row in rows]
    assert second.values.tolist() == [row[2] for row in rows]
    assert [one["code"] for one in found.problems] == ["not_counted"]  # a rail of the Grace socket


def test_the_user_names_the_node(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "power.3.csv", ["timestamps", "pynvml:0"], [[T0, 1.0]])
    assert read_foreign(path).hosts == ("power.3",)
    assert read_foreign(path, Options(node="n7")).hosts == ("n7",)


def test_a_rocm_device_without_a_counter_is_left_out_and_told(tmp_path: Path) -> None:
    rows = [[T0 + i, 300.0, 0.0] for i in range(3)]
    path = write_csv(tmp_path / "power.n.1.csv", ["timestamps", "rocm:0", "rocm:1"], rows)
    found = read_foreign(path)
    assert [one.sensor for one in found.series] == ["rocm:0"]
    assert [(one["code"], one["device"]) for one in found.problems] == [("no_own_sensor", "rocm:1")]


def test_an_ipu_counts_as_a_gpu_and_its_zeros_are_no_readings(tmp_path: Path) -> None:
    rows = [[T0, 90.0], [T0 + 1, 0.0]]
    (one,) = read_foreign(
        write_csv(tmp_path / "power.n.1.csv", ["timestamps", "gc:0"], rows)
    ).series
    assert one.device_kind == "gpu" and [f["code"] for f in one.flags] == ["ipu_as_gpu"]
    assert one.values[0] == 90.0 and np.isnan(one.values[1])


@ONE_FILE
@given(data=st.data())
def test_a_known_power_is_accounted_for_whatever_lines_are_lost(
    data: st.DataObject, tmp_path: Path
) -> None:
    start = data.draw(st.floats(50, 400))
    slope = data.draw(st.floats(-1, 1).filter(lambda s: abs(s) > 1e-3))
    size = data.draw(st.integers(4, 40))
    rows = [f"{i},{T0 + i},{start + slope * i}" for i in range(size)]
    kept = sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=2)))
    lines = []
    for i in kept:
        lines += [rows[i]] * data.draw(st.integers(1, 2))
        lines += data.draw(st.lists(st.sampled_from(["junk", "1,2,3,4", f"0,,{1e9}"]), max_size=1))
    torn = data.draw(st.booleans())
    path = tmp_path / "power.n.1.csv"
    path.write_text("\n".join([",timestamps,pynvml:0", *lines, ""]) + ("9,1.7" if torn else ""))
    recording = read_foreign(path)
    (series,) = recording.series
    steps = np.diff(kept)
    # What lies between two samples is bridged up to 30 s, or three usual steps.
    known = steps <= max(30.0, 3 * float(np.median(steps[steps > 0])))
    power = start + slope * np.array(kept)
    truth = float(np.sum((0.5 * (power[1:] + power[:-1]) * steps)[known]))
    assert validate(series).curve.energy_j[-1] == pytest.approx(truth, rel=1e-5)
    assert ("torn_end" in {one["code"] for one in recording.problems}) == torn
    damaged = any(line.count(",") != 2 for line in lines)
    assert ("damaged_lines" in {one["code"] for one in recording.problems}) == damaged


@pytest.mark.parametrize("end", WRITERS)
def test_the_energy_of_a_recording_is_that_of_its_powers(end: str, tmp_path: Path) -> None:
    rows = [[T0 + 0.1 * i, 100.0 + i % 7, 150.0 + i % 5] for i in range(101)]
    columns = ["timestamps", "pynvml:0", "pynvml:1"]
    path = WRITERS[end](tmp_path / f"power.n.1.{end}", columns, rows)
    powers = np.array(rows)
    truth = float(np.trapezoid(powers[:, 1] + powers[:, 2], powers[:, 0]))
    found = describe(path)
    assert found["format"] == "jpwr" and found["gpus"] == 2
    assert found["gpu_energy_j"] == pytest.approx(truth) == found["energy_j"]


def test_devices_without_a_single_reading_are_no_copies_of_each_other(tmp_path: Path) -> None:
    rows = [[T0 + i, "", ""] for i in range(60)]
    path = write_csv(tmp_path / "power.n.1.csv", ["timestamps", "pynvml:0", "pynvml:1"], rows)
    found = describe(path)
    assert found["energy_j"] is None
    assert {one["code"] for one in found["flags"]} == {"missing_samples", "coverage"}


def test_energies_without_times_are_refused_and_no_recording_of_a_folder(tmp_path: Path) -> None:
    sums = tmp_path / "energy.n.1.csv"
    sums.write_text(",0\npynvml:0,1.5\npynvml:1,1.25\n")
    counters = tmp_path / "energy_from_counter.n.1.csv"
    counters.write_text(",rocm:0,rocm:1\n0,1.5,1.25\n")
    with h5py.File(tmp_path / "energy.n.1.h5", "w") as file:
        file["jpwr/index"], file["jpwr/values"] = np.array([b"pynvml:0"]), np.array([1.5])
    frame = write_hdf5(tmp_path / "energy_from_counter.n.1.h5", ["rocm:0", "rocm:1"], [[1.0, 2.0]])
    for path in (sums, counters, frame, tmp_path / "energy.n.1.h5"):
        form = find_format(path)
        assert form is not None and not form.records, path
        with pytest.raises(InputError, match=r"without times; give the file power\.\*"):
            read_foreign(path)
    columns = ["timestamps", "pynvml:0"]
    write_csv(tmp_path / "power.n.1.csv", columns, [[T0 + i, 100.0 + i % 2] for i in range(3)])
    assert describe(tmp_path)["energy_j"] == pytest.approx(201.0)


HOSTILE = {
    "no samples": (b",timestamps,pynvml:0\n", "no sample with a time"),
    "no number as time": (
        b",timestamps,pynvml:0\n0,now,1\n1,nan,1\n2,-5,2\n3,1e300,3\n",
        "no sample",
    ),
    "a wild index": (b",timestamps,pynvml:99999999999\n0,1.7e9,1\n", "no known device"),
}


@pytest.mark.parametrize(("content", "words"), HOSTILE.values(), ids=HOSTILE)
def test_a_csv_is_refused_with(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "power.n.1.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_foreign(path)


@settings(ONE_FILE, max_examples=25)
@given(cut=st.integers(8, 4000), place=st.integers(8, 4000), byte=st.integers(0, 255))
def test_a_damaged_hdf5_file_is_read_or_refused(
    cut: int, place: int, byte: int, tmp_path: Path
) -> None:
    columns = ["timestamps", "pynvml:0"]
    path = write_hdf5(tmp_path / "power.n.1.h5", columns, [[T0 + i, 100.0] for i in range(9)])
    whole = bytearray(path.read_bytes())
    whole[place % len(whole)] = byte
    path.write_bytes(bytes(whole[: max(cut, 9)]) if cut % 2 else bytes(whole))
    try:
        found = read_foreign(path)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert found.series


def test_frames_of_other_things_than_numbers_are_refused(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path / "power.n.1.h5", ["timestamps", "pynvml:0"], [[T0, 1.0]])
    with h5py.File(path, "r+") as file:
        del file["jpwr/block1_values"]
        file["jpwr/block1_values"] = np.array([[b"300"]])
    with pytest.raises(InputError, match="expected numbers"):
        read_foreign(path)
