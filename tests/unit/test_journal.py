"""Journals: sample by sample, whatever tore them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from energy_files import T0, codes, counter, gpu, recordings, write_journal

from scalewatt.energy.integrate import series_energy
from scalewatt.energy.journal import read_journal
from scalewatt.energy.summary import describe
from scalewatt.errors import InputError

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
    curve, _ = series_energy(recording.series[0])
    assert curve.between(-np.inf, np.inf) == pytest.approx(900)
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
    with pytest.raises(InputError, match=r"j: no samples; expected JSON lines"):
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
