"""Samples to energy: exact where it can be, flagged where it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from energy_files import codes
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.energy.integrate import (
    BRIDGE_S,
    counter_energy,
    power_samples,
    series_energy,
    trapezoid_energy,
)
from scalewatt.energy.samples import SensorSeries

RANGE_J = 262_143.328850
UNIX = 1.795e9

steps = st.lists(st.floats(0.5, 1.5), min_size=2, max_size=40)
powers = st.floats(1.0, 700.0)


def times(step: list[float]) -> np.ndarray:
    return UNIX + np.concatenate(([0.0], np.cumsum(step)))


@st.composite
def sampled_power(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    time = times(draw(steps))
    power = draw(st.lists(powers, min_size=time.size, max_size=time.size))
    return time, np.array(power)


@given(sampled_power(), st.lists(st.floats(-0.2, 1.2), min_size=2, max_size=8))
def test_energy_is_additive_over_any_split(
    samples: tuple[np.ndarray, np.ndarray], places: list[float]
) -> None:
    time, power = samples
    curve, _ = trapezoid_energy(time, power)
    cuts = np.sort(time[0] + np.array(places) * (time[-1] - time[0]))
    whole = curve.between(cuts[0], cuts[-1])
    assert curve.between(cuts[:-1], cuts[1:]).sum() == pytest.approx(whole, abs=1e-6)
    covered = curve.covered_s(cuts[:-1], cuts[1:]).sum()
    assert covered == pytest.approx(curve.covered_s(cuts[0], cuts[-1]), abs=1e-6)


@given(sampled_power())
def test_a_piecewise_linear_power_is_integrated_exactly_at_its_knots(
    samples: tuple[np.ndarray, np.ndarray],
) -> None:
    time, power = samples
    curve, flags = trapezoid_energy(time, power)
    for i in range(time.size):
        exact = sum(0.5 * (power[k] + power[k + 1]) * (time[k + 1] - time[k]) for k in range(i))
        assert curve.between(time[0], time[i]) == pytest.approx(exact, rel=1e-12, abs=1e-9)
    assert flags == []
    assert curve.covered_s(time[0], time[-1]) == pytest.approx(time[-1] - time[0])


@given(st.lists(st.floats(0.7, 1.3), min_size=50, max_size=200), st.floats(1.0, 20.0))
def test_a_smooth_power_sampled_with_jitter_keeps_the_trapezoid_bound(
    step: list[float], swing_s: float
) -> None:
    time = times(step) - UNIX
    omega = 2 * np.pi / (swing_s * 10)
    curve, _ = trapezoid_energy(time, 300 + 100 * np.sin(omega * time))
    exact = 300 * time[-1] + 100 / omega * (1 - np.cos(omega * time[-1]))
    bound = 100 * omega**2 / 12 * np.sum(np.diff(time) ** 3)
    assert abs(curve.between(0, time[-1]) - exact) <= bound + 1e-6


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
        curve, flags = counter_energy(times(list(step)), raw, valid_max=wrap_j, limit_w=400.0)
        assert curve.between(-np.inf, np.inf) == pytest.approx(true[-1], rel=1e-9)
        assert flags == []


def test_a_failed_counter_read_costs_nothing_and_is_flagged() -> None:
    counter_j = 5000 + 150.0 * np.arange(20)
    counter_j[[4, 5, 11]] = 0
    curve, flags = counter_energy(
        np.arange(20.0), counter_j, valid_max=RANGE_J, limit_w=2000, device="cpu_0"
    )
    assert curve.between(0, 19) == pytest.approx(19 * 150)
    assert codes(flags) == {"counter_zero"}
    assert flags[0]["device"] == "cpu_0" and "3 of 20" in flags[0]["detail"]


@pytest.mark.parametrize("valid_max", [RANGE_J, None])
def test_a_counter_reset_is_bridged_by_the_power_around_it(valid_max: float | None) -> None:
    counter_j = 5000 + 150.0 * np.arange(20)
    counter_j[10:] -= counter_j[10] - 1
    curve, flags = counter_energy(np.arange(20.0), counter_j, valid_max=valid_max, limit_w=2000)
    assert curve.between(0, 19) == pytest.approx(19 * 150)
    assert codes(flags) == {"counter_reset"}


def test_a_counter_stays_exact_over_a_gap_in_which_it_can_have_wrapped_once_only() -> None:
    time = np.array([0.0, 1, 2, 102, 103])
    true = 200.0 * time
    raw = (RANGE_J - 5000 + true) % RANGE_J
    curve, flags = counter_energy(time, raw, valid_max=RANGE_J, limit_w=2000)
    assert curve.between(0, 103) == pytest.approx(true[-1])
    assert curve.covered_s(0, 103) == pytest.approx(103)
    assert codes(flags) == {"gap"}


def test_a_gap_that_could_hide_a_whole_wrap_is_uncovered() -> None:
    time = np.array([0.0, 1, 2, 502, 503])
    curve, flags = counter_energy(time, 10 + 200.0 * time, valid_max=RANGE_J, limit_w=2000)
    assert curve.between(0, 503) == pytest.approx(3 * 200)
    assert curve.covered_s(0, 503) == pytest.approx(3)
    assert codes(flags) == {"gap", "counter_ambiguous"}


@pytest.mark.parametrize(("gap_s", "covered"), [(2.9, True), (BRIDGE_S, True), (31.0, False)])
def test_a_gap_of_power_is_bridged_up_to_the_stated_length(gap_s: float, covered: bool) -> None:
    time = np.concatenate((np.arange(10.0), 9 + gap_s + np.arange(10.0)))
    curve, flags = trapezoid_energy(time, np.full(20, 100.0), period_s=1.0)
    seconds = 18 + (gap_s if covered else 0)
    assert curve.covered_s(0, 100) == pytest.approx(seconds)
    assert curve.between(0, 100) == pytest.approx(100 * seconds)
    assert codes(flags) == (set() if gap_s < 3 else {"gap"})


def test_a_long_sampling_period_makes_no_gap() -> None:
    time = 60.0 * np.arange(10)
    curve, flags = trapezoid_energy(time, np.full(10, 100.0), period_s=60)
    assert curve.covered_s(0, 540) == 540 and flags == []


def test_zero_watts_of_a_gpu_are_missing_and_bridged() -> None:
    power = np.full(20, 100.0)
    power[5:9] = 0
    curve, flags = trapezoid_energy(np.arange(20.0), power, zero_is_missing=True, device="g")
    assert curve.between(0, 19) == pytest.approx(1900)
    assert codes(flags) == {"zero_power"}
    assert "4 of 20 samples of 0 W, 5.0 s: 5.0 s bridged, 0.0 s uncovered" in flags[0]["detail"]
    honest, none = trapezoid_energy(np.arange(20.0), power)
    assert honest.between(0, 19) == pytest.approx(1500) and none == []


def test_a_lost_sensor_is_uncovered_to_the_end() -> None:
    power = np.array([100.0] * 3 + [0.0] * 6)
    curve, _ = trapezoid_energy(np.arange(9.0), power, zero_is_missing=True)
    assert curve.covered_s(0, 8) == 2 and curve.between(0, 8) == 200


def test_missing_samples_impossible_power_and_a_clock_running_backwards_are_flagged() -> None:
    time = np.array([0.0, 1, 2, 1.5, 3, 4, 5])
    power = np.array([100.0, 100, np.nan, 100, 100, 9e6, 100])
    curve, flags = trapezoid_energy(time, power, limit_w=800)
    assert curve.between(0, 5) == pytest.approx(500)
    assert codes(flags) == {"clock_backwards", "missing_samples", "over_limit"}


@pytest.mark.parametrize("n", [0, 1])
def test_no_interval_is_no_energy_and_no_coverage(n: int) -> None:
    for curve, _ in (
        trapezoid_energy(np.arange(float(n)), np.ones(n)),
        counter_energy(np.arange(float(n)), np.ones(n), valid_max=None),
    ):
        assert curve.between(0, 10) == 0 and curve.covered_s(0, 10) == 0


def test_a_gpus_own_limit_and_kind_decide_which_samples_are_true() -> None:
    time, values = np.arange(5.0), np.array([100.0, 0, 900, 100, 100])
    gpu = SensorSeries("n", "CUDA:0_POWER", "gpu", 0, "power", time, values, limit_w=400)
    curve, flags = series_energy(gpu)
    assert curve.between(0, 4) == pytest.approx(400)
    assert codes(flags) == {"zero_power", "over_limit"}
    assert np.isnan(power_samples(gpu)[1:3]).all()


def test_a_counters_trace_is_the_mean_power_since_the_sample_before() -> None:
    counter_j = np.array([10.0, 110, 0, 410, 11])
    series = SensorSeries(
        "n", "cpu_0_package-0", "cpu", 0, "counter", np.arange(5.0), counter_j, RANGE_J
    )
    power = power_samples(series)
    assert power[1] == 100 and power[3] == 150
    assert np.isnan(power[[0, 2, 4]]).all()
