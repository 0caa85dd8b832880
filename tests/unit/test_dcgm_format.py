"""Output of `dcgmi dmon`: with times before the rows, or by a period that the user states."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
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

from scalewatt.recordings.detect import read_foreign
from scalewatt.recordings.tables import Options

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
    assert ("damaged" in codes(found)) == (torn > 0)
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
    assert not found.t0_known and codes(found) == {"time_assumed"}
    for gpu in range(made.power_w.shape[0]):
        one = of_gpu(found, gpu)
        np.testing.assert_allclose(one.time_s, made.time_s - made.time_s[0])
        np.testing.assert_allclose(one.values, made.power_w[gpu])


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
        "#Entity  POWER                TOTEC\n"
        "1717144753.0 GPU 0  140737488355328.000  9223372036854775794\n"
        "1717144754.0 GPU 0  61.0                 5551899580\n"
    )
    found = read_foreign(written(tmp_path, text))
    np.testing.assert_array_equal(of_gpu(found, 0).values, [np.nan, 61.0])
    np.testing.assert_array_equal(of_gpu(found, 0, "counter").values, [np.nan, 5551899.58])
