"""Output of `dcgmi dmon`: with times before the rows, or by a period that the user states."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_recordings import (
    Made,
    check_counters,
    check_powers,
    codes,
    local,
    made,
    of_gpu,
    written,
)

from scalewatt.common.errors import InputError
from scalewatt.recordings.formats.detect import find_format, read_foreign
from scalewatt.recordings.formats.format import Options

HEADING = ["#Entity   POWER                       TOTEC                       GPUTL    ", "ID"]
HEADING[1] = "ID        W                           mJ                          %"


def rows(made: Made, stamp: str, commas: bool) -> list[str]:
    """Write a made recording as dcgmi does, below headings that come again."""
    lines = []
    for number, row in enumerate(made.rows):
        if number % 14 == 0:
            lines += HEADING
        power = "N/A" if row.power_w is None else f"{row.power_w:.3f}"
        counter = "N/A" if row.counter_mj is None else str(row.counter_mj)
        time = f"{row.time_s:.3f}" if stamp == "unix" else local(row.time_s, made.zone, stamp)
        lines.append(f"{time} GPU {row.gpu}     {power:<28}{counter:<28}97       ")
    if commas:
        lines = [",".join(line.replace("GPU ", "GPU_").split()) for line in lines]
        lines = [line.replace("GPU_", "GPU ") for line in lines]
    return lines


@settings(max_examples=40, deadline=None)
@given(
    made(),
    st.sampled_from(["unix", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]),
    st.booleans(),
    st.integers(0, 50),
)
def test_a_known_power_is_read_back(made: Made, stamp: str, commas: bool, torn: int) -> None:
    lines = rows(made, stamp, commas and stamp != "%Y-%m-%d %H:%M:%S")
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), "\n".join(lines) + "\n" + lines[-1][:torn])
        found = read_foreign(path, Options(time_zone=made.zone))
    check_powers(found, made)
    check_counters(found, made)
    assert ("torn_end" in codes(found)) == (torn > 0)
    assert "damaged_lines" not in codes(found)
    assert found.format == "dcgm" and found.t0_known


@settings(max_examples=30, deadline=None)
@given(made())
def test_rows_without_times_have_the_stated_period(made: Made) -> None:
    # Nothing shows that a row was lost or stands there twice.
    whole = [
        f"GPU {gpu}     {made.power_w[gpu, place]:.3f}     N/A     97"
        for place in range(made.time_s.size)
        for gpu in range(made.power_w.shape[0])
    ]
    period = made.time_s[1] - made.time_s[0]
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), "\n".join([*HEADING, *whole]) + "\n")
        columns = written(Path(folder), f"time: {{period_s: {period}}}\n", "columns.yaml")
        found = read_foreign(path, Options(columns=columns))
    assert not found.t0_known and codes(found) == {"period_stated"}
    for gpu in range(made.power_w.shape[0]):
        one = of_gpu(found, gpu)
        np.testing.assert_allclose(one.time_s, made.time_s - made.time_s[0])
        np.testing.assert_allclose(one.values, made.power_w[gpu])


PLAIN = "#Entity   POWER\nID        W\nGPU 0     61.230\nGPU 1     71.230\nGPU 0     62.230\n"


def test_rows_without_times_are_refused_with_what_would_help(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ts '%.s'.*period_s: 1.0"):
        read_foreign(written(tmp_path, PLAIN))


def test_a_stated_beginning_is_a_wall_clock_time(tmp_path: Path) -> None:
    columns = written(
        tmp_path,
        "time: {period_s: 2, since: 2024-05-31 10:39:13, zone: Europe/Berlin}\n",
        "columns.yaml",
    )
    found = read_foreign(written(tmp_path, PLAIN), Options(columns=columns))
    assert found.t0_known
    # 08:39:13 UTC
    assert of_gpu(found, 0).time_s.tolist() == [1_717_144_753.0, 1_717_144_755.0]
    assert of_gpu(found, 1).time_s.tolist() == [1_717_144_753.0]


def test_the_older_heading_and_other_fields_and_entities_are_read(tmp_path: Path) -> None:
    text = (
        "# Entity  SMCLK  DVNAM  POWER  PMLMT\n      Id\n"
        "1717144753.0     GPU 0     1410  NVIDIA A100-SXM4-40GB  61.230  400.000\n"
        "1717144753.0     GPU-I 3   N/A   N/A                    20.000  N/A\n"
        "1717144753.0     Switch 0  N/A   N/A                    N/A     N/A\n"
    )
    found = read_foreign(written(tmp_path, text))
    (one,) = found.series
    assert one.values.tolist() == [61.23] and one.limit_w == 400.0
    assert not found.problems


def test_numbers_that_stand_for_a_missing_value_are_none(tmp_path: Path) -> None:
    text = (
        "#Entity POWER TOTEC\n"
        "1717144753.0 GPU 0 140737488355328.000 9223372036854775794\n"
        "1717144754.0 GPU 0 61.0 5551899580\n"
    )
    found = read_foreign(written(tmp_path, text))
    np.testing.assert_array_equal(of_gpu(found, 0).values, [np.nan, 61.0])
    np.testing.assert_array_equal(of_gpu(found, 0, "counter").values, [np.nan, 5551899.58])


def test_headings_that_come_again_behind_a_stamp_are_no_damaged_lines(tmp_path: Path) -> None:
    heading = ["#Entity   POWER     TOTEC", "ID        W         mJ"]
    lines = [f"GPU 0     {61 + n}.230    {5551899580 + n}" for n in range(4)]
    lines = [*heading, *lines[:2], *heading, *lines[2:]]
    text = "".join(f"{1717144753 + n}.000000 {line}\n" for n, line in enumerate(lines))
    found = read_foreign(written(tmp_path, text))
    assert not found.problems
    assert of_gpu(found, 0).values.tolist() == [61.23, 62.23, 63.23, 64.23]


def test_quoted_cells_are_read(tmp_path: Path) -> None:
    text = '"#Entity","POWER"\n"ID","W"\n"1717144753.0","GPU 0","61.230"\n'
    assert of_gpu(read_foreign(written(tmp_path, text)), 0).values.tolist() == [61.23]


def test_rows_that_do_not_fit_their_heading_are_counted(tmp_path: Path) -> None:
    text = "#Entity POWER TOTEC\n1717144753.0 GPU 0 61.0 5551899580\n1717144754.0 GPU 0 61.0\n"
    (problem,) = read_foreign(written(tmp_path, text)).problems
    assert problem["code"] == "damaged_lines" and "1 line" in problem["detail"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#Entity SMCLK\n1717144753.0 GPU 0 1410\n", "no field that is read"),
        ("#Entity POWER\n1717144753.0 GPU-I 0 61\n", "rows of parts of GPUs only"),
        ("#Entity POWER\nGPU zero 61\nSwitch 0 1\n", "no row of a GPU|parts of GPUs"),
        ("#Entity POWER\nlater GPU 0 61\n", "'later' before a row is no time"),
        ("#Entity POWER\n1717144753.0 GPU 99999 61\n", "no row of a GPU"),
    ],
)
def test_what_holds_no_sample_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_foreign(written(tmp_path, text))


def test_it_is_told_by_its_content(tmp_path: Path) -> None:
    found = find_format(written(tmp_path, PLAIN))
    assert found is not None and found.name == "dcgm"
