"""Samples to energy: exact where it can be, flagged where it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from energy_files import codes
from hypothesis import given
from hypothesis import strategies as st
from true_power import (
    RANGE_J,
    UNIX,
    block,
    checked,
    covered_s,
    cpu,
    cpu_means,
    estimated,
    gpu,
    total_j,
)

from scalewatt.recordings.block import Block
from scalewatt.recordings.terms import BRIDGE_S


def times(step: list[float]) -> np.ndarray:
    return UNIX + np.concatenate(([0.0], np.cumsum(step)))


@given(
    st.lists(st.tuples(st.floats(0.5, 1.5), st.floats(20.0, 350.0)), min_size=2, max_size=60),
    st.floats(1.0, RANGE_J - 1),
    st.floats(200.0, 3000.0),
)
def test_counter_wraps_anywhere_recover_the_true_energy(
    intervals: list[tuple[float, float]], start_j: float, small_range_j: float
) -> None:
    step, power = (np.array(column) for column in zip(*intervals, strict=True))
    true = np.concatenate(([0.0], np.cumsum(step * power)))
    for wrap_j in (RANGE_J, small_range_j + 600):
        raw = (start_j + true) % wrap_j
        if np.any(raw == 0):
            continue
        validated = checked(cpu(times(list(step)), raw, wrap_j, limit_w=200.0))
        assert total_j(validated) == pytest.approx(true[-1], rel=1e-9)
        assert validated.flags == []


@pytest.mark.parametrize(("gap_s", "covered"), [(2.9, True), (BRIDGE_S, True), (31.0, False)])
def test_a_gap_of_power_is_bridged_up_to_the_stated_length(gap_s: float, covered: bool) -> None:
    time = np.concatenate((np.arange(10.0), 9 + gap_s + np.arange(10.0)))
    validated = checked(gpu(time, np.full(20, 100.0)), 1.0)
    seconds = 18 + (gap_s if covered else 0)
    assert covered_s(validated) == pytest.approx(seconds)
    assert total_j(validated) == pytest.approx(100 * seconds)
    assert codes(validated.flags) == (set() if gap_s < 3 else {"gap"})


def test_a_sensor_that_measures_0_w_is_missing_and_an_estimate_of_0_w_is_not() -> None:
    power = np.full(20, 100.0)
    power[5:9] = 0
    validated = checked(gpu(np.arange(20.0), power))
    assert total_j(validated) == pytest.approx(1900)
    assert [(each["code"], each["detail"]) for each in validated.flags] == [
        ("missing_samples", "4 of 20 samples of 0 W, 5.0 s, 0.0 s uncovered")
    ]
    honest = checked(estimated(np.arange(20.0), power))
    assert total_j(honest) == pytest.approx(1500) and honest.flags == []


def each_second(power_w: np.ndarray) -> Block:
    return gpu(np.arange(float(power_w.size)), power_w)


def noisy(size: int) -> np.ndarray:
    return 300 + np.round(5 * np.sin(np.arange(size) ** 2.0), 3)


def rising(time_s: np.ndarray, resets_at: int | None = None, **more: float) -> Block:
    """A counter of 200 W, which may begin anew at one of its samples."""
    counter_j = 150_000 + 200.0 * time_s
    if resets_at is not None:
        counter_j[resets_at:] -= counter_j[resets_at] - 10
    return cpu(time_s, counter_j, **more)


def stale(loses: bool) -> Block:
    """A counter of 200 W that stands still for 40 s, and then makes up for it or not."""
    counter_j = 5000 + 200.0 * np.arange(100)
    counter_j[20:60] = counter_j[20]
    counter_j[60:] -= 39 * 200 * loses
    return cpu(np.arange(100.0), counter_j)


def faulty(time_s: list[float], power_w: list[float]) -> Block:
    return gpu(np.array(time_s), np.array(power_w))


GAP = np.concatenate((np.arange(50.0), 149 + np.arange(50.0)))
WRAPPED = np.array([0.0, 1, 2, 102, 103])
FUTURE = np.where(np.arange(100) == 40, 5000.0, np.arange(100.0))
STEADY = np.concatenate((np.round(noisy(300)), np.full(300, 90.0), np.round(noisy(300))))
CASES: dict[str, tuple[Block, float | None, float, set[str]]] = {
    "a reset is bridged": (rising(np.arange(20.0), 10), 3800, 19, {"counter"}),
    "a reset is bridged without a range": (
        rising(np.arange(20.0), 10, range_j=np.nan), 3800, 19, {"counter"}
    ),
    "a gap in which a counter can have wrapped once": (
        cpu(WRAPPED, (RANGE_J - 5000 + 200 * WRAPPED) % RANGE_J), 200 * 103, 103, {"gap"}
    ),
    "a gap in which it can have wrapped twice": (
        rising(np.array([0.0, 1, 2, 502, 503])), 600, 3, {"gap", "counter"}
    ),
    "a reset within a gap is no wrap": (rising(GAP, 50), 98 * 200, 98, {"gap", "counter"}),
    "a stale counter that catches up": (stale(False), 200 * 99, 99, {"counter"}),
    "a stale counter that does not": (stale(True), 200 * 59, 59, {"counter"}),
    "a stamp in the future": (gpu(FUTURE, noisy(100)), None, 99, {"clock"}),
    "whole watts under steady load": (each_second(STEADY), None, 899, {"constant"}),
    "three faults": (
        faulty([0, 1, 2, 1.5, 3, 4, 5], [100, 100, np.nan, 100, 100, 9e6, 100]),
        *(500, 5, {"clock", "missing_samples"}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_a_fault_leaves_known_is_exact(name: str) -> None:
    block, joules, seconds, flags = CASES[name]
    validated = checked(block, 1.0)
    assert codes(validated.flags) == flags
    assert covered_s(validated) == pytest.approx(seconds)
    assert joules is None or total_j(validated) == pytest.approx(joules)


def test_every_flag_says_its_samples_and_its_seconds() -> None:
    power = np.full(200, 100.0) + np.arange(200) % 2
    power[10:14] = 0
    power[60:120] = np.nan
    validated = checked(each_second(power), 1.0)
    (flag,) = validated.flags
    assert flag["detail"] == (
        "60 of 200 samples without a value, 4 of 200 samples of 0 W, 66.0 s, 61.0 s uncovered"
    )
    assert covered_s(validated) == 199 - 61


def held(length: int) -> np.ndarray:
    """What a sensor said in 600 s: the same value `length` times."""
    powers = noisy(600)
    powers[100 : 100 + length] = powers[100]
    return powers


@pytest.mark.parametrize(("length", "flagged"), [(50, set()), (240, {"constant"})])
def test_a_power_that_repeats_itself_for_long_is_flagged_and_counted(
    length: int, flagged: set[str]
) -> None:
    validated = checked(each_second(held(length)), 1.0)
    assert codes(validated.flags) == flagged and covered_s(validated) == 599


@pytest.mark.parametrize(
    ("limit_w", "device", "most_w"),
    [
        (400.0, "", 600),
        (400.0, "NVIDIA H100 80GB HBM3", 600),
        (np.nan, "NVIDIA H100 80GB HBM3", 1050),
        (np.nan, "AMD Instinct MI250X", 840),
        (np.nan, "", 1500),
    ],
)
def test_a_single_spike_beyond_what_the_device_draws_is_left_out(
    limit_w: float, device: str, most_w: float
) -> None:
    for spike_w, spikes, left_out in ((most_w + 9, 1, 1), (most_w - 9, 1, 0), (most_w + 9, 2, 0)):
        power = noisy(100)
        power[40 : 40 + spikes] = spike_w
        validated = checked(gpu(np.arange(100.0), power, limit_w, device=device), 1.0)
        assert np.isnan(validated.power_w).sum() == left_out
        assert codes(validated.flags) == ({"missing_samples"} if left_out else set())
        assert covered_s(validated) == 99


@pytest.mark.parametrize("quantity", ["power", "mean_power", "counter"])
def test_samples_of_which_most_share_a_stamp_are_not_known(quantity: str) -> None:
    """Two devices under one name, or ten samples a second with stamps of whole seconds."""
    values = 300 + np.arange(100.0) % 2 * 500
    shared = block(np.arange(100) // 2 * 1.0, values, name="s", kind="cpu", quantity=quantity)
    validated = checked(shared, 1.0)
    (detail,) = [each["detail"] for each in validated.flags if each["code"] == "clock"]
    assert "so nothing is known" in detail
    assert covered_s(validated) == total_j(validated) == 0


@pytest.mark.parametrize(("back_s", "is_known"), [(2.0, True), (40.0, False)])
def test_a_clock_set_back_for_long_leaves_nothing_known(back_s: float, is_known: bool) -> None:
    time = np.concatenate((np.arange(100.0), 100 - back_s + np.arange(100.0)))
    for case in (gpu(time, noisy(200)), cpu(time, 5000 + 20.0 * np.arange(200))):
        validated = checked(case, 1.0)
        assert "clock" in codes(validated.flags)
        assert covered_s(validated) == (199 - back_s if is_known else 0)


def test_a_failed_counter_read_costs_nothing_and_is_flagged() -> None:
    counter_j = 5000 + 150.0 * np.arange(20)
    counter_j[[4, 5, 11]] = 0
    validated = checked(cpu(np.arange(20.0), counter_j))
    assert total_j(validated) == pytest.approx(19 * 150)
    (flag,) = validated.flags
    assert (flag["code"], flag["device"]) == ("missing_samples", "cpu_0")
    assert "3 of 20" in flag["detail"]


def test_mean_powers_belong_to_the_time_before_them() -> None:
    time = np.array([0.0, 1, 3, 4])
    validated = checked(cpu_means(time, np.array([100.0, 100, 200, 50])), 1.0)
    assert total_j(validated) == 100 + 2 * 200 + 50
    assert np.array_equal(validated.power_w, [np.nan, 100, 200, 50], equal_nan=True)
    assert validated.flags == []
