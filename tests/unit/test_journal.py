"""Journals: sample by sample, whatever tore them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from energy_files import T0, codes, counter, gpu, write_journal
from hypothesis import given, settings
from hypothesis import strategies as st

import scalewatt
from scalewatt.common.errors import InputError
from scalewatt.recordings import journal
from scalewatt.recordings.block import Block
from scalewatt.recordings.journal import LineWriter, is_journal, last_stamps, read_journal

SENSORS = {"CUDA:0_POWER": gpu(6, 120), "cpu_0_package-0": counter(6, 150), "CPU_BUSY": [40.0] * 6}


def block(path: Path) -> Block:
    """The only block of a journal."""
    ((only,),) = read_journal([path]).nodes.values()
    return only


def write(folder: Path, sensors: dict[str, Any] = SENSORS, host: str = "n1", **more: Any) -> Path:
    return write_journal(folder / f"segment-000.{host}.csv", host, sensors, **more)


def test_sensors_are_columns_in_w_j_and_shares(tmp_path: Path) -> None:
    power = {"kind": "gpu", "index": 7, "unit": "W", "mag": 1e-3, "valid_max": 400_000}
    facts = {
        "CUDA:0_POWER": {**power, "uuid": "GPU-1"},
        "cpu_0_package-0": {"kind": "cpu", "index": 0, "unit": "J", "mag": 1e-6, "valid_max": 5e8},
        "CPU_BUSY": {"kind": "cpu", "index": 1, "unit": "%"},
        "CUDA:0_MEM": {"kind": "gpu", "index": 7, "unit": "B"},
    }
    path = write(tmp_path, {**SENSORS, "CUDA:0_MEM": gpu(6)}, facts=facts, simulated=True)
    recording, of_journal = read_journal([path]), block(path)
    assert recording.clock_known and recording.period_s == 1.0 and recording.flags == ()
    assert of_journal.time_s == pytest.approx(T0 + np.arange(6))
    np.testing.assert_allclose(of_journal.values[0], [1000, 0.4, 120])
    np.testing.assert_allclose(np.diff(of_journal.values[:, 0]), 150)
    columns = ["name", "kind", "index", "quantity", "range_j", "limit_w", "uuid", "origin"]
    assert of_journal.sensors[columns].fillna(0).to_numpy().tolist() == [
        ["cpu_0_package-0", "cpu", 0, "counter", 500, 0, "", "simulated"],
        ["CPU_BUSY", "cpu", 1, "utilisation", 0, 0, "", "simulated"],
        ["CUDA:0_POWER", "gpu", 7, "power", 0, 400, "GPU-1", "simulated"],
    ]


@settings(max_examples=40)
@given(cut=st.integers(0, 300), tail=st.sampled_from([b"", b"\0\0\0", b"\0" * 9000, b"17.5,"]))
def test_a_torn_last_line_loses_only_itself(
    tmp_path_factory: pytest.TempPathFactory, cut: int, tail: bytes
) -> None:
    path = write(tmp_path_factory.mktemp("cut"))
    heading, *lines = path.read_bytes().splitlines(keepends=True)
    left = b"".join(lines)[:cut]
    path.write_bytes(heading + left + tail)
    if not (whole := left.count(b"\n")):
        with pytest.raises(InputError, match="no samples"):
            read_journal([path])
    else:
        assert block(path).time_s.size == whole and block(path).flags == ()
    assert (last_stamps(path) or [None])[0] == (T0 + whole - 1 if whole else None)


def test_line_ends_of_windows_change_nothing(tmp_path: Path) -> None:
    path = write(tmp_path)
    values, lines = block(path).values, path.read_bytes().splitlines()
    path.write_bytes(b"\r\n".join([*lines, b"damaged", b""]))
    np.testing.assert_array_equal(block(path).values, values)


def test_a_missing_value_is_a_missing_sample(tmp_path: Path) -> None:
    path = write(tmp_path, {"CUDA:0_POWER": [1e5, np.nan, 1e5]})
    np.testing.assert_equal(block(path).values[:, 0], [100, np.nan, 100])


@pytest.mark.parametrize("damage", [b"1x2", b"1,2", b"", b"\0\0", b"--1", b"a"])
def test_a_damaged_line_is_left_out_and_counted(tmp_path: Path, damage: bytes) -> None:
    path = write(tmp_path)
    lines = path.read_bytes().splitlines()
    lines[3] = lines[3].rsplit(b",", 3)[0] + b"," + damage
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert block(path).time_s.tolist() == [T0 + i for i in (0, 1, 3, 4, 5)]
    (flag,) = block(path).flags
    assert flag["code"] == "damaged" and "1 lines" in flag["detail"]


@pytest.mark.parametrize("missing", [[], [3]])
def test_a_clock_that_is_set_makes_no_energy_and_is_flagged(
    tmp_path: Path, missing: list[int]
) -> None:
    path = write(tmp_path, {"CUDA:0_POWER": gpu(10)})
    rows = pd.read_csv(path)
    rows.loc[7:, "t"] += 3600
    rows.loc[missing, "t"] = np.nan
    rows.to_csv(path, index=False)
    assert codes(block(path).flags) == {"clock"}
    assert block(path).time_s == pytest.approx(T0 + np.arange(10))
    assert scalewatt.energy(path).joules("gpu") == pytest.approx(900)


def test_the_journals_of_a_segment_are_its_nodes(tmp_path: Path) -> None:
    paths = [write(tmp_path, host=host) for host in ("n2", "n1.cluster")]
    assert list(read_journal(paths).nodes) == ["n1.cluster", "n2"]
    again = write(tmp_path / "again", host="n2")
    with pytest.raises(InputError, match="second journal of node n2"):
        read_journal([*paths, again])


@pytest.mark.parametrize("content", [b"", b"hello\n", b"t,mono,CUDA:0_POWER\n", b"t,mono", None])
def test_what_holds_no_sample_is_refused_or_flagged_among_others(
    tmp_path: Path, content: bytes | None
) -> None:
    path = write(tmp_path)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"n1\.csv: ") as caught:
        read_journal([path])
    assert "\n" not in str(caught.value) and last_stamps(path) is None
    recording = read_journal([path, write(tmp_path, host="n2")])
    assert list(recording.nodes) == ["n2"] and codes(recording.flags) == {"unreadable"}


def test_a_journal_is_known_by_its_heading_and_its_sensors(tmp_path: Path) -> None:
    path = write(tmp_path)
    (tmp_path / "segment-000.n1.telemetry.csv").write_text("t,mono,temperature:0\n")
    (tmp_path / "other.csv").write_text("t,mono,power\n")
    assert [each for each in tmp_path.iterdir() if is_journal(each)] == [path]
    assert not is_journal(tmp_path / "none") and not is_journal(tmp_path)
    (tmp_path / "segment-000.n1.sensors.json").unlink()
    with pytest.raises(InputError, match=r"sensors\.json"):
        read_journal([path])


# --- lines as they are written ----------------------------------------------------------------------


def test_numbers_are_written_as_they_are_and_what_is_none_is_missing(tmp_path: Path) -> None:
    values = [np.uint64(2**63), np.float32(0.1), -3, None, np.nan, True, "odd"]
    LineWriter(tmp_path / "a.csv", "abcdefg").append(1795000000.1234567, 0.5, values)
    line = "1795000000.1234567,0.5,9223372036854775808,0.10000000149011612,-3,,,,"
    assert (tmp_path / "a.csv").read_text().splitlines() == ["t,mono,a,b,c,d,e,f,g", line]


@pytest.mark.parametrize("room", [0, 1, 5])
def test_a_full_disk_loses_samples_and_leaves_no_torn_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Only `room` bytes fit of the second and third line."""
    left, write_whole = room, os.write

    def write_what_fits(file: int, data: bytes) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, "no space left")
        written = write_whole(file, data[:left])
        left -= written
        return written

    writer = LineWriter(tmp_path / "a.csv", ["x"])
    writer.append(1, 1, [1])
    with monkeypatch.context() as full:
        full.setattr(journal.os, "write", write_what_fits)
        for t in (2, 3):
            with pytest.raises(OSError):
                writer.append(t, t, [t])
    writer.append(4, 4, [4])
    assert (tmp_path / "a.csv").read_text() == "t,mono,x\n1,1,1\n4,4,4\n"
