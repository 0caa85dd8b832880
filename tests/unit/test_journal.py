"""Journals: sample by sample, whatever tore them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from energy_files import (
    T0,
    codes,
    counter,
    gpu,
    recordings,
    write_journal,
    write_record_journal,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from true_power import total_j

from scalewatt.common.errors import InputError
from scalewatt.energies.integration.integrate import validate
from scalewatt.energies.views.describe import describe
from scalewatt.recordings.journal import last_sample_s, read_journal
from scalewatt.recordings.record_file import Field, RecordWriter

SENSORS = {"CUDA:0_POWER": gpu(6, 120), "cpu_0_package-0": counter(6, 150), "CPU_BUSY": [40.0] * 6}


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("host", ["n1", "node_a-1.cluster"])
def test_sensors_are_known_by_name_with_and_without_header(
    tmp_path: Path, header: bool, host: str
) -> None:
    write_journal(tmp_path / "j", host, SENSORS, header=header)
    recording = read_journal(tmp_path / "j")
    assert recording.hosts == (host,) and recording.t0_known
    found = {s.sensor: s for s in recording.series}
    assert found["CUDA:0_POWER"].values.tolist() == [120.0] * 6
    assert np.diff(found["cpu_0_package-0"].values) == pytest.approx(150)
    assert found["CPU_BUSY"].values.tolist() == [0.4] * 6
    assert found["CPU_BUSY"].time_s == pytest.approx(T0 + np.arange(6))


def test_the_header_describes_sensors_that_no_name_tells(tmp_path: Path) -> None:
    sensors = {
        "n1_box": {"device_kind": "cpu", "unit": "J", "mag": 1e-3, "valid_max": 1000},
        "n1_disk": {"device_kind": "disk", "unit": "B", "mag": 1},
    }
    lines = [{"journal": 1, "host": "n1", "sampling_period_s": 2.0, "sensors": sensors}]
    lines += [{"t": T0 + i, "n1_box": 500 * i % 1000 + 1, "n1_disk": 5} for i in range(4)]
    (tmp_path / "j").write_text("\n".join(map(json.dumps, lines)))
    recording = read_journal(tmp_path / "j")
    (series,) = recording.series
    assert (series.quantity, series.device_kind, series.valid_max) == ("counter", "cpu", 1.0)
    assert recording.sampling_period_s == 2.0


@pytest.mark.parametrize("tail", [b'{"t": 17952519', b"\0\0\0\0", b'{"t": 1, "n1_CUDA:0_PO', b""])
def test_a_torn_last_line_loses_only_itself(tmp_path: Path, tail: bytes) -> None:
    write_journal(tmp_path / "j", "n1", SENSORS)
    (tmp_path / "j").write_bytes((tmp_path / "j").read_bytes() + tail)
    recording = read_journal(tmp_path / "j")
    assert recording.series[0].time_s.size == 6 and recording.problems == ()


def test_an_unreadable_line_in_the_middle_is_counted(tmp_path: Path) -> None:
    write_journal(tmp_path / "j", "n1", SENSORS)
    lines = (tmp_path / "j").read_text().splitlines()
    lines[3] = lines[3][:20]
    (tmp_path / "j").write_text("\n".join(lines) + "\n")
    recording = read_journal(tmp_path / "j")
    assert recording.series[0].time_s.size == 5
    assert codes(recording.problems) == {"journal_damaged"}


def test_a_clock_that_is_set_makes_no_energy_and_is_flagged(tmp_path: Path) -> None:
    lines = [
        {"t": T0 + i + (3600 if i > 6 else 0), "mono": 5.0 + i, "n1_CUDA:0_POWER": 1e5}
        for i in range(10)
    ]
    (tmp_path / "j").write_text("\n".join(map(json.dumps, lines)))
    recording = read_journal(tmp_path / "j")
    assert total_j(validate(recording.series[0])) == pytest.approx(900)
    assert recording.series[0].time_s[0] == pytest.approx(T0)
    assert codes(recording.problems) == {"clock_jump"}


def test_journals_of_two_hosts_and_of_one_host_twice_are_joined(tmp_path: Path) -> None:
    write_journal(tmp_path / "b", "n1", {"CUDA:0_POWER": gpu(5)}, start=T0 + 5)
    write_journal(tmp_path / "a", "n1", {"CUDA:0_POWER": gpu(5)})
    write_journal(tmp_path / "c", "n2", {"CUDA:0_POWER": gpu(5)})
    recording = read_journal([tmp_path / "b", tmp_path / "a", tmp_path / "c"])
    assert recording.hosts == ("n1", "n2")
    (series,) = recording.nodes["n1"]
    assert series.time_s == pytest.approx(T0 + np.arange(10))


def test_a_missing_value_is_a_missing_sample_not_a_zero(tmp_path: Path) -> None:
    lines = [{"t": T0 + i, "n1_CUDA:0_POWER": 1e5} for i in range(4)]
    del lines[1]["n1_CUDA:0_POWER"]
    lines[2]["n1_CUDA:0_POWER"] = None
    (tmp_path / "j").write_text("\n".join(map(json.dumps, lines)))
    values = read_journal(tmp_path / "j").series[0].values
    assert np.isnan(values[1:3]).all() and values[3] == 100


@pytest.mark.parametrize("content", ["", "hello\n", '{"journal": 1, "host": "n1"}\n'])
def test_a_journal_without_samples_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "j").write_text(content)
    with pytest.raises(InputError, match=r"j: no samples; expected a journal"):
        read_journal(tmp_path / "j")


def test_a_missing_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none"):
        read_journal(tmp_path / "none")


def test_recorded_journals_give_the_stand_in_powers() -> None:
    folder = recordings() / "made-1.0.0/live_callback_journal"
    recording = read_journal(sorted(folder.glob("hkn*.jsonl")))
    assert recording.hosts == ("hkn0001", "hkn0002") and len(recording.series) == 8
    for path in folder.iterdir():
        said = describe(path)
        watts = [device["mean_power_w"] for device in said["devices"]]
        assert watts == pytest.approx([100, 101, 102, 103])
        assert said["flags"] == [] and said["cpu_energy_kwh"] is None


def test_records_and_lines_say_the_same(tmp_path: Path) -> None:
    write_journal(tmp_path / "lines", "n1", SENSORS)
    write_record_journal(tmp_path / "s.journal", "n1", SENSORS)
    lines, records = read_journal(tmp_path / "lines"), read_journal(tmp_path / "s.journal")
    assert records.sampling_period_s == lines.sampling_period_s == 1.0 and records.t0_known
    assert records.hosts == ("n1",) and records.problems == ()
    for a, b in zip(lines.series, records.series, strict=True):
        assert (a.sensor, a.device_kind, a.device_index) == (
            b.sensor,
            b.device_kind,
            b.device_index,
        )
        assert a.quantity == b.quantity
        assert a.time_s.tolist() == b.time_s.tolist()
        assert a.values.tolist() == b.values.tolist()


def test_the_header_of_records_states_limits_and_identity(tmp_path: Path) -> None:
    facts = {"device_kind": "gpu", "device_index": 7, "unit": "W", "mag": 1e-3}
    facts |= {"valid_max": 400_000, "uuid": "GPU-1", "device_name": "A"}
    rapl = {
        "device_kind": "cpu",
        "device_index": 0,
        "unit": "J",
        "mag": 1e-6,
        "valid_max": 5 * 10**8,
    }
    sensors = {"CUDA:0_POWER": gpu(4), "cpu_0_package-0": counter(4, 100)}
    described = {"CUDA:0_POWER": facts, "cpu_0_package-0": rapl}
    write_record_journal(tmp_path / "s.journal", "n1", sensors, facts=described)
    cpu, device = read_journal(tmp_path / "s.journal").series
    assert (device.limit_w, device.uuid, device.device_index) == (400, "GPU-1", 7)
    assert (cpu.valid_max, cpu.limit_w, cpu.uuid) == (500, None, None)


def test_a_sensor_that_the_records_header_lacks_is_known_by_its_name(tmp_path: Path) -> None:
    sensors = {"CUDA:1_POWER": gpu(4, 250)}
    write_record_journal(tmp_path / "s.journal", "node_a-1.cluster", sensors, facts={})
    (series,) = read_journal(tmp_path / "s.journal").series
    assert (series.node, series.device_index, series.limit_w) == ("node_a-1.cluster", 1, None)
    assert series.values.tolist() == [250.0] * 4


def test_a_missing_value_of_a_record_is_a_missing_sample(tmp_path: Path) -> None:
    values = [1e5, np.nan, 1e5, -1.0, 1e5]
    write_record_journal(tmp_path / "s.journal", "n1", {"CUDA:0_POWER": values})
    (series,) = read_journal(tmp_path / "s.journal").series
    np.testing.assert_equal(series.values, [100, np.nan, 100, np.nan, 100])


def test_damaged_records_are_counted_and_a_torn_one_is_not(tmp_path: Path) -> None:
    path = write_record_journal(tmp_path / "s.journal", "n1", SENSORS)
    data = bytearray(path.read_bytes())
    data[-60] ^= 0xFF
    path.write_bytes(data[:-1])
    recording = read_journal(path)
    assert recording.series[0].time_s.size == 4
    assert codes(recording.problems) == {"journal_damaged"}
    path.write_bytes(write_record_journal(tmp_path / "t.journal", "n1", SENSORS).read_bytes()[:-3])
    assert read_journal(path).problems == ()


def test_a_clock_that_is_set_is_seen_in_records(tmp_path: Path) -> None:
    path = write_record_journal(tmp_path / "s.journal", "n1", {"CUDA:0_POWER": gpu(4)})
    folder = tmp_path / "jump"
    folder.mkdir()
    writer = RecordWriter(
        folder, "s", "journal", {"journal": 2, "host": "n1"}, [Field("CUDA:0_POWER", "<u4")]
    )
    for i in range(10):
        writer.append(T0 + i + (3600 if i > 6 else 0), 5.0 + i, [100_000])
    recording = read_journal(folder / "s.journal")
    assert codes(recording.problems) == {"clock_jump"}
    assert recording.series[0].time_s == pytest.approx(T0 + np.arange(10))
    assert read_journal(path).problems == ()


def test_journals_of_both_formats_are_joined(tmp_path: Path) -> None:
    write_journal(tmp_path / "a.journal", "n1", {"CUDA:0_POWER": gpu(5)})
    write_record_journal(tmp_path / "b.journal", "n1", {"CUDA:0_POWER": gpu(5)}, start=T0 + 5)
    (series,) = read_journal([tmp_path / "b.journal", tmp_path / "a.journal"]).series
    assert series.time_s == pytest.approx(T0 + np.arange(10)) and series.limit_w == 400


@settings(max_examples=40)
@given(cut=st.integers(0, 400))
def test_records_cut_anywhere_keep_what_stands_before_the_cut(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    path = write_record_journal(folder / "s.journal", "n1", {"CUDA:0_POWER": gpu(12)})
    data = path.read_bytes()
    start, size = data.index(b"\n") + 1, 8 + 8 + 4 + 4
    path.write_bytes(data[: start + cut])
    if cut < size:
        with pytest.raises(InputError, match="no samples"):
            read_journal(path)
    else:
        recording = read_journal(path)
        assert recording.series[0].time_s.size == min(cut // size, 12)
        assert recording.problems == ()


@pytest.mark.parametrize("write", [write_journal, write_record_journal])
def test_the_last_sample_is_found_from_the_end(tmp_path: Path, write: Any) -> None:
    path = tmp_path / "s.journal"
    write(path, "n1", SENSORS)
    assert last_sample_s(path) == T0 + 5
    path.write_bytes(path.read_bytes()[:-2])
    assert last_sample_s(path) == T0 + 4
    path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n")
    assert last_sample_s(path) is None


def test_the_last_of_many_lines_is_found(tmp_path: Path) -> None:
    write_journal(tmp_path / "j", "n1", {"CUDA:0_POWER": gpu(3000)}, header=False)
    assert (tmp_path / "j").stat().st_size > 1 << 17
    assert last_sample_s(tmp_path / "j") == T0 + 2999


@pytest.mark.parametrize(
    "header",
    [
        b'{"journal": 2, "host": "n1"}\n',
        b'{"journal": 2, "host": "n1", "fields": [["t", "<f8"]]}\n',
        b'{"journal": 2, "fields": [["t", "<f8"], ["mono", "<f8"], ["crc32", "<u4"]]}\n',
        b'{"journal": 3, "host": "n1"}\n',
        b'{"journal": "two"}\n',
    ],
)
def test_a_header_of_another_kind_is_refused_in_one_line(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "j").write_bytes(header)
    with pytest.raises(InputError, match=r"j: .*expected") as caught:
        read_journal(tmp_path / "j")
    assert "\n" not in str(caught.value)
    write_record_journal(tmp_path / "s.journal", "n2", SENSORS)
    recording = read_journal([tmp_path / "j", tmp_path / "s.journal"])
    assert recording.hosts == ("n2",) and codes(recording.problems) == {"journal_unreadable"}
    assert last_sample_s(tmp_path / "j") is None


def test_a_missing_journal_has_no_last_sample(tmp_path: Path) -> None:
    assert last_sample_s(tmp_path / "none") is None
