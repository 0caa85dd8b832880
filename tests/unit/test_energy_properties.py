"""Any true power, read by any sensor: the energy's error stays below a stated bound.

S is the steepest slope of the true power in W/s, P its largest value in W, h the time in s between
adjacent valid samples. The bounds count only covered time; all else must be uncovered.

- power: |error| <= sum(S h²/4) over the covered intervals. A function of slope at most S is at most
  S h²/4 away from the trapezoid through both its ends. A bridged gap is an interval like any other.
- power that stands still for T s, unnoticed: S T²/2 + S T h/2 more.
- counter: exact to two quanta (and what the rounding of unix time, 0.24 µs, is worth) per step,
  however long it is.
- counter bridged over H s from intervals of h1 and h2 on both sides: S H (H + h1 + h2) more; their
  mean powers occur in them, so nothing bridged is further away in time than H + h1 + h2.
- counter reset unnoticed: limit · (h + 0.1 s) more.
- mean power: as the counter it comes of, over failed reads bridged. Failed reads at the beginning or
  the end, unnoticed: limit · (h + 0.1 s) more; four or more during a wrap: limit · their time.
- counter that stopped counting, unnoticed: P times three steps.
"""

from __future__ import annotations

import numpy as np
import pytest
from energy_files import codes
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from true_power import (
    NOISE_W,
    UNIX,
    TruePower,
    block,
    checked,
    compare,
    covered_s,
    cpu,
    cpu_means,
    gpu,
    read_counter,
    read_means,
    read_power,
    rng,
    sampling_times,
    stretches,
    total_j,
    true_powers,
)

from scalewatt.energies.integrate import LAG_S
from scalewatt.recordings.terms import BRIDGE_S, PLAUSIBLE_W

LIMIT_W = PLAUSIBLE_W["cpu"]
ROUNDING_J = 1e-3

quick = settings(
    max_examples=50,
    suppress_health_check=[HealthCheck.data_too_large],
)


def trapezoid_bound(step_s: np.ndarray, slope: float) -> float:
    return float(np.sum(slope * step_s**2 / 4 + NOISE_W * 1.02 * step_s)) + ROUNDING_J


@quick
@given(st.data(), true_powers())
def test_power_is_within_the_trapezoids_bound_whatever_samples_are_lost(
    data: st.DataObject, truth: TruePower
) -> None:
    time, _ = data.draw(sampling_times(truth.seconds))
    power = read_power(truth, time, rng(data.draw))
    lost = np.zeros(time.size, dtype=bool)
    for bad_w in (0.0, np.nan, 1e6, -5.0):
        where = data.draw(stretches(time.size, most=2))
        power[where] = bad_w
        lost |= where
    assume((~lost).any())
    result = checked(gpu(UNIX + time, power))
    # What is true and how far apart is known here, without asking the code under test.
    step = np.diff(time[~lost])
    assume(not np.any(np.abs(step - BRIDGE_S) < 1e-3))
    covered = step < BRIDGE_S
    true = np.diff(truth.energy_until(time[~lost]))[covered].sum()
    assert covered_s(result) == pytest.approx(step[covered].sum(), abs=1e-3)
    assert abs(total_j(result) - true) <= trapezoid_bound(step[covered], truth.slope)
    assert np.array_equal(np.isnan(result.power_w), lost)
    assert bool(codes(result.flags) - {"gap"}) == bool(lost.any())


@quick
@given(st.data(), true_powers(), st.floats(1.0, 262_000.0), st.sampled_from((3000.0, 65e3, 262e3)))
def test_a_counter_is_exact_to_its_quantum_over_wraps_failed_reads_and_gaps(
    data: st.DataObject, truth: TruePower, start_j: float, range_j: float
) -> None:
    time, period = data.draw(sampling_times(truth.seconds))
    quantum = data.draw(st.sampled_from((1e-6, 61e-6)))
    counter = read_counter(truth, time, start_j, range_j, quantum)
    lost = np.zeros(time.size, dtype=bool)
    for bad_j in (0.0, np.nan):
        where = data.draw(stretches(time.size, most=2))
        counter[where] = bad_j
        lost |= where
    lost |= counter == 0
    validated = checked(cpu(UNIX + time, counter, range_j), period)
    assert not any("repeat" in flag["detail"] for flag in validated.flags)
    result = compare(validated.curve, truth)
    error = np.abs(result.energy_j - result.true_j)
    stated = ~np.isnan(validated.power_w[np.isin(UNIX + time, validated.curve.time_s)][1:])
    assert np.all(error[stated] <= 2 * quantum + 5e-7 * truth.power_w.max())
    bridged = result.covered & ~stated
    assert np.all(error[bridged] <= np.ptp(truth.power_w) * result.step_s[bridged] + ROUNDING_J)
    # Left out only where one more wrap is possible, or more power than ever seen.
    step = np.diff(time[~lost])
    true = np.diff(truth.energy_until(time[~lost]))
    one_value = true % range_j + range_j > LIMIT_W * step + ROUNDING_J
    usual = step <= 2.9 * period
    likely = true / step < 1.99 * np.max((true / step)[usual], initial=0.0)
    surely = step[one_value & (usual | likely)].sum()
    assert covered_s(validated) >= surely - 1e-3


@quick
@given(st.data(), true_powers())
def test_counter_resets_cost_what_bridging_them_may_cost(
    data: st.DataObject, truth: TruePower
) -> None:
    period = data.draw(st.sampled_from((0.5, 1.0, 2.0)))
    time = np.arange(0.0, truth.seconds, period)
    indices = data.draw(st.lists(st.integers(1, time.size - 1), max_size=3, unique=True))
    total = 1e5 + truth.energy_until(time)
    for index in indices:
        total[index:] -= total[index] - data.draw(st.floats(0.01, 100.0))
    validated = checked(cpu(UNIX + time, total, 262e3), period)
    assert codes(validated.flags) <= {"counter"}
    result = compare(validated.curve, truth)
    bridged = len(indices) * period
    bound = truth.slope * bridged * (bridged + 2 * period)
    unnoticed = LIMIT_W * (period + LAG_S)
    assert result.error_j <= len(indices) * unnoticed + ROUNDING_J
    if np.isnan(validated.power_w[indices]).all():
        assert result.error_j <= bound + ROUNDING_J
    assert result.step_s[~result.covered].sum() <= bridged + 1e-6


@quick
@given(st.data(), true_powers(), st.sampled_from((1.0, 2.0, 5.0)), st.floats(0.0, 1.0))
def test_a_slow_counter_read_often_is_exact_from_its_first_change_to_its_last(
    data: st.DataObject, truth: TruePower, update_s: float, phase: float
) -> None:
    period = 0.1
    time = np.arange(0.0, truth.seconds, period)
    noise = rng(data.draw)
    time = time + noise.uniform(0.0, 0.02, time.size)
    content = np.floor(time / update_s + phase)
    updated = np.clip((content - phase) * update_s, 0.0, None)
    counter = (200e3 + truth.energy_until(updated)) % 262e3
    changes = np.flatnonzero(np.diff(counter)) + 1
    assume(changes.size > 4)
    ends = UNIX + time[changes[[1, -1]]]
    result = checked(cpu(UNIX + time, counter, 262e3))
    assert result.flags == []
    true = float(np.diff(truth.energy_until(ends - UNIX))[0])
    most = float(truth.power_w.max())
    # A change is seen within a step of its happening, at both ends.
    step = float(np.diff(time).max())
    assert abs(float(result.curve.between(*ends)) - true) <= 2 * most * step + ROUNDING_J
    # Before the first and after the last change its lag is bridged.
    assert covered_s(result) == pytest.approx(time[-1] - time[0], abs=1e-3)


@quick
@given(st.data(), true_powers(), st.integers(2, 90))
def test_a_counter_that_was_read_stale_is_exact_or_bridged_or_uncovered(
    data: st.DataObject, truth: TruePower, length: int
) -> None:
    time = np.arange(0.0, truth.seconds, 1.0)
    assume(time.size > length + 10)
    counter = 1000 + truth.energy_until(time)
    begin = data.draw(st.integers(1, time.size - length - 2))
    counter[begin : begin + length] = counter[begin]
    validated = checked(cpu(UNIX + time, counter, 262e3), 1.0)
    result = compare(validated.curve, truth)
    stale = np.argmax(result.step_s)
    if length > 3:
        assert "counter" in codes(validated.flags)
        seconds = float(length)
        if not result.covered[stale]:
            assert length > BRIDGE_S
        else:
            bound = truth.slope * seconds * (seconds + 2)
            assert abs(result.energy_j[stale] - result.true_j[stale]) <= bound + ROUNDING_J
    rest = np.delete(result.energy_j - result.true_j, stale)
    assert np.all(np.abs(rest) <= ROUNDING_J)


@quick
@given(st.data(), true_powers(low=200.0, high=260.0), st.integers(1, 200))
def test_a_counter_that_stopped_counting_is_noticed(
    data: st.DataObject, truth: TruePower, length: int
) -> None:
    time = np.arange(0.0, truth.seconds, 1.0)
    assume(time.size > length + 10)
    begin = data.draw(st.integers(1, time.size - length - 3))
    micro = np.round(1e9 + 1e6 * truth.energy_until(time)).astype(np.int64)
    micro[begin + length :] -= micro[begin + length] - micro[begin]
    micro[begin : begin + length] = micro[begin]
    validated = checked(cpu(UNIX + time, 1e-6 * micro, 262e3), 1.0)
    result = compare(validated.curve, truth)
    if length < 3:
        assert result.error_j <= 260 * length + ROUNDING_J
        return
    details = " ".join(flag["detail"] for flag in validated.flags)
    assert "that repeat the one before" in details and "cannot have made" not in details
    unknown = length + 1.0
    assert (result.covered.all()) == (unknown <= BRIDGE_S)
    assert result.error_j <= truth.slope * unknown * (unknown + 2) + ROUNDING_J


@quick
@given(st.data(), true_powers(), st.floats(1.0, 262_000.0))
def test_mean_powers_are_as_exact_as_the_counter_they_come_of(
    data: st.DataObject, truth: TruePower, start_j: float
) -> None:
    time = np.arange(0.0, truth.seconds, 1.0)
    range_j = 262e3
    counter = read_counter(truth, time, start_j, range_j, 61e-6)
    reads = data.draw(st.integers(0, min(12, time.size - 4)))
    failed = data.draw(st.integers(0, time.size - reads))
    wraps = bool(np.any(np.diff(counter[max(failed - 1, 0) : failed + reads + 1]) < 0))
    counter[failed : failed + reads] = 0.0
    validated = checked(cpu_means(UNIX + time, read_means(time, counter, range_j)), 1.0)
    result = compare(validated.curve, truth)
    # Of what is left out there are as many steps as failed reads, one more, and one on both sides.
    unknown = reads + 3.0
    outside = failed < 2 or failed + reads > time.size - 2
    flagged = codes(validated.flags)
    if reads == 0:
        assert not flagged and result.covered.all() and result.error_j <= 0.1
    elif "missing_samples" in flagged:
        assert flagged == {"missing_samples"}
        assert result.error_j <= truth.slope * unknown * (unknown + 2) + 0.1
    elif flagged:
        assert flagged <= {"counter"} and reads > 3 and (wraps or outside)
        assert result.error_j <= LIMIT_W * (reads + LAG_S)
    else:
        assert outside or (wraps and result.covered.all())
        assert result.error_j <= (LIMIT_W * (1 + LAG_S) if outside else 0.1)
    assert result.step_s[~result.covered].sum() <= unknown + 1e-3


anything = st.floats(allow_nan=True, allow_infinity=True, width=32)


@pytest.mark.filterwarnings("error")
@quick
@given(
    st.lists(st.tuples(anything, anything), max_size=120),
    st.sampled_from(("power", "counter", "mean_power")),
    st.sampled_from(("gpu", "cpu", "ram")),
    st.sampled_from((np.nan, 100.0, 65e3)),
    st.booleans(),
    st.sampled_from((None, 1.0)),
)
def test_whatever_the_samples_are_energy_is_never_negative_and_never_nan(
    samples: list[tuple[float, float]],
    quantity: str,
    kind: str,
    range_j: float,
    regular: bool,
    period_s: float | None,
) -> None:
    time = np.array([pair[0] for pair in samples], dtype=np.float64)
    values = np.array([pair[1] for pair in samples], dtype=np.float64)
    if regular:
        time = UNIX + np.arange(float(time.size))
    validated = checked(
        block(time, values, name="s", kind=kind, quantity=quantity, range_j=range_j), period_s
    )
    assert validated.power_w.shape == time.shape
    assert np.all(validated.power_w[~np.isnan(validated.power_w)] >= 0)
    assert np.all(np.isfinite(validated.curve.energy_j))
    assert np.all(np.diff(validated.curve.energy_j) >= 0)
    assert np.all(np.diff(validated.curve.cumulated_s) >= 0)
    finite = time[np.isfinite(time)]
    span = np.ptp(finite) if finite.size else 0.0
    assert 0 <= covered_s(validated) <= span * (1 + 1e-9) + 1e-6
