"""Journals: sample by sample, whatever tore them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from energy_files import T0, codes, counter, gpu, write_journal, write_record_journal
from hypothesis import given, settings
from hypothesis import strategies as st

from scalewatt.common.errors import InputError
from scalewatt.energies.views.describe import describe
from scalewatt.recordings.journal import is_journal, last_sample_s, read_journal
from scalewatt.recordings.record_file import Field, RecordWriter

SENSORS = {"CUDA:0_POWER": gpu(6, 120), "cpu_0_package-0": counter(6, 150), "CPU_BUSY": [40.0] * 6}


@pytest.mark.parametrize("host", ["n1", "node_a-1.cluster"])
def test_sensors_without_a_description_are_known_by_name(tmp_path: Path, host: str) -> None:
    write_journal(tmp_path / "j", host, SENSORS)
    recording = read_journal(tmp_path / "j")
    assert recording.hosts == (host,) and recording.t0_known
    found = {s.sensor: s for s in recording.series}
    assert found["CUDA:0_POWER"].values.tolist() == [120.0] * 6
    assert (found["CUDA:0_POWER"].device_index, found["CUDA:0_POWER"].limit_w) == (0, None)
    assert np.diff(found["cpu_0_package-0"].values) == pytest.approx(150)
    assert found["CPU_BUSY"].values.tolist() == [0.4] * 6
    assert found["CPU_BUSY"].time_s == pytest.approx(T0 + np.arange(6))


def test_the_header_states_limits_and_identity(tmp_path: Path) -> None:
    facts = {"device_kind": "gpu", "device_index": 7, "unit": "W", "mag": 1e-3}
    facts |= {"valid_max": 400_000, "uuid": "GPU-1", "device_name": "A"}
    rapl = {"device_kind": "cpu", "device_index": 0, "unit": "J", "mag": 1e-6}
    described = {"CUDA:0_POWER": facts, "cpu_0_package-0": rapl | {"valid_max": 5 * 10**8}}
    sensors = {"CUDA:0_POWER": gpu(4), "cpu_0_package-0": counter(4, 100)}
    write_record_journal(tmp_path / "s.journal", "n1", sensors, facts=described)
    recording = read_journal(tmp_path / "s.journal")
    cpu, device = recording.series
    assert (device.limit_w, device.uuid, device.device_index) == (400, "GPU-1", 7)
    assert (cpu.valid_max, cpu.limit_w, cpu.uuid, cpu.quantity) == (500, None, None, "counter")
    assert recording.sampling_period_s == 1.0 and recording.problems == ()


def test_sensors_that_energy_does_not_need_are_left_out(tmp_path: Path) -> None:
    facts = {"CUDA:0_MEM": {"device_kind": "gpu", "unit": "B", "mag": 1}}
    sensors = {"CUDA:0_MEM": np.ones(3), "CUDA:0_POWER": gpu(3)}
    write_record_journal(tmp_path / "s.journal", "n1", sensors, facts=facts)
    assert [s.sensor for s in read_journal(tmp_path / "s.journal").series] == ["CUDA:0_POWER"]


@pytest.mark.parametrize("tail", [b"\0\0\0\0", b"\0" * 200, b"half a record", b""])
def test_a_torn_last_record_loses_only_itself(tmp_path: Path, tail: bytes) -> None:
    write_journal(tmp_path / "j", "n1", SENSORS)
    (tmp_path / "j").write_bytes((tmp_path / "j").read_bytes() + tail)
    recording = read_journal(tmp_path / "j")
    assert recording.series[0].time_s.size == 6 and recording.problems == ()


def test_damaged_records_are_counted_and_a_torn_one_is_not(tmp_path: Path) -> None:
    path = write_record_journal(tmp_path / "s.journal", "n1", SENSORS)
    data = bytearray(path.read_bytes())
    data[-60] ^= 0xFF
    path.write_bytes(data[:-1])
    recording = read_journal(path)
    assert recording.series[0].time_s.size == 4
    assert codes(recording.problems) == {"damaged"}


def test_no_bit_of_a_header_changes_unseen(tmp_path: Path) -> None:
    path = write_record_journal(tmp_path / "s.journal", "n1", SENSORS)
    content = path.read_bytes()
    for at in range(content.index(b"\n") + 1):
        flipped = bytearray(content)
        flipped[at] ^= 1 << (at % 8)
        path.write_bytes(flipped)
        with pytest.raises(InputError, match=r"s\.journal: "):
            read_journal(path)


def test_a_clock_that_is_set_makes_no_energy_and_is_flagged(tmp_path: Path) -> None:
    fields = [Field("CUDA:0_POWER", "<u4")]
    header = {"journal": 3, "host": "n1", "sensors": {}}
    writer = RecordWriter(tmp_path, "s", "journal", header, fields)
    for i in range(10):
        writer.append(T0 + i + (3600 if i > 6 else 0), 5.0 + i, [100_000])
    recording = read_journal(tmp_path / "s.journal")
    assert codes(recording.problems) == {"clock"}
    assert recording.series[0].time_s == pytest.approx(T0 + np.arange(10))
    assert describe(tmp_path / "s.journal")["gpu_energy_j"] == pytest.approx(900)


def test_journals_of_two_hosts_and_of_one_host_twice_are_joined(tmp_path: Path) -> None:
    write_journal(tmp_path / "b", "n1", {"CUDA:0_POWER": gpu(5)}, start=T0 + 5)
    write_record_journal(tmp_path / "a.journal", "n1", {"CUDA:0_POWER": gpu(5)})
    write_journal(tmp_path / "c", "n2", {"CUDA:0_POWER": gpu(5)})
    recording = read_journal([tmp_path / "b", tmp_path / "a.journal", tmp_path / "c"])
    assert recording.hosts == ("n1", "n2")
    (series,) = recording.nodes["n1"]
    assert series.time_s == pytest.approx(T0 + np.arange(10)) and series.limit_w == 400


def test_a_missing_value_of_a_record_is_a_missing_sample(tmp_path: Path) -> None:
    values = [1e5, np.nan, 1e5, -1.0, 1e5]
    write_record_journal(tmp_path / "s.journal", "n1", {"CUDA:0_POWER": values})
    (series,) = read_journal(tmp_path / "s.journal").series
    np.testing.assert_equal(series.values, [100, np.nan, 100, np.nan, 100])


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


def test_the_last_sample_is_found_from_the_end(tmp_path: Path) -> None:
    path = write_record_journal(tmp_path / "s.journal", "n1", SENSORS)
    assert last_sample_s(path) == T0 + 5
    path.write_bytes(path.read_bytes()[:-2])
    assert last_sample_s(path) == T0 + 4
    path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n")
    assert last_sample_s(path) is None
    assert last_sample_s(tmp_path / "none") is None


@pytest.mark.parametrize(
    "content", [b"", b"hello\n", b'{"journal": 1, "host": "n1"}\n', b'{"journal": 3}\n', None]
)
def test_what_is_no_journal_is_refused_in_one_line(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "j").write_bytes(content)
    with pytest.raises(InputError, match=r"j: ") as caught:
        read_journal(tmp_path / "j")
    assert "\n" not in str(caught.value)
    write_record_journal(tmp_path / "s.journal", "n2", SENSORS)
    recording = read_journal([tmp_path / "j", tmp_path / "s.journal"])
    assert recording.hosts == ("n2",) and codes(recording.problems) == {"unreadable"}


def test_a_journal_of_another_format_is_refused(tmp_path: Path) -> None:
    write_journal(tmp_path / "j", "n1", SENSORS, version=2)
    with pytest.raises(InputError, match=r"j: is no journal of format 3"):
        read_journal(tmp_path / "j")


def test_a_journal_is_known_by_its_first_word(tmp_path: Path) -> None:
    write_journal(tmp_path / "j", "n1", SENSORS)
    known: dict[str, Any] = {"telemetry": b'{"telemetry":2,"host"', "nothing": b""}
    for name, text in known.items():
        (tmp_path / name).write_bytes(text)
    assert [path.name for path in tmp_path.iterdir() if is_journal(path)] == ["j"]
    assert not is_journal(tmp_path / "none") and not is_journal(tmp_path)
