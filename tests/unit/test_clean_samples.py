"""Samples without a flag take a fast path, of which nothing but the speed may differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from energy_files import codes
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from true_power import (
    UNIX,
    cpu,
    cpu_means,
    gpu,
    read_counter,
    read_means,
    read_power,
    rng,
    sampling_times,
    stretches,
    true_powers,
)

from scalewatt.energies.integration.counter_series import (
    clean_counter,
    clean_means,
    validate_counter,
    validate_means,
)
from scalewatt.energies.integration.integrate import clean_power, validate, validate_power
from scalewatt.energies.integration.sample_checks import SAMPLE_FLAGS, Device
from scalewatt.recordings.series import PLAUSIBLE_W, SensorSeries


@st.composite
def read_by(draw: st.DrawFn, quantity: str, spoilt: bool) -> tuple[SensorSeries, Device]:
    """Draw what a sensor of a quantity read, and what is known of its device."""
    truth = draw(true_powers(stretches=6))
    time, period = draw(sampling_times(truth.seconds, gaps=2 if spoilt else 0))
    # At 3 kJ and a period of 2 s a further wrap may hide in a step.
    range_j = draw(st.sampled_from((65e3, 3e3))) if spoilt else 65e3
    if quantity == "power":
        values = read_power(truth, time, rng(draw))
    else:
        values = read_counter(truth, time, draw(st.floats(1.0, range_j - 1)), range_j, 1e-6)
        assume(values.all())
    if spoilt:
        bad = draw(st.sampled_from((0.0, np.nan, -5.0, 300.0, 2500.0, 1e6)))
        values[draw(stretches(time.size, most=2, longest=3))] = bad
        held = draw(stretches(time.size, most=1, longest=200))
        values[held] = values[held][:1]
    if quantity == "mean_power":
        values = read_means(time, values, range_j)
        if spoilt:
            bad = draw(st.sampled_from((0.0, np.nan, -5.0, 2500.0, 1e6)))
            values[draw(stretches(time.size, most=1, longest=3))] = bad
            values[0] = draw(st.sampled_from((values[0], bad)))
    if spoilt and draw(st.booleans()):
        time[draw(st.integers(0, time.size - 1))] = draw(st.floats(0.0, truth.seconds))
    made = {"power": gpu, "counter": cpu, "mean_power": cpu_means}[quantity](UNIX + time, values)
    series = replace(made, valid_max=range_j if quantity == "counter" else None)
    limit_w = 800.0 if quantity == "power" else PLAUSIBLE_W["cpu"]
    declared = draw(st.sampled_from((None, period)))
    return series, Device(series.sensor, limit_w, True, series.valid_max, declared)


WAYS = {
    "power": (clean_power, validate_power),
    "counter": (clean_counter, validate_counter),
    "mean_power": (clean_means, validate_means),
}


@pytest.mark.parametrize("spoilt", [False, True])
@pytest.mark.parametrize("quantity", WAYS)
@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.data_too_large],
)
@given(data=st.data())
def test_the_fast_path_for_clean_samples_gives_what_full_validation_gives(
    data: st.DataObject, quantity: str, spoilt: bool
) -> None:
    series, device = data.draw(read_by(quantity, spoilt))
    clean, close = WAYS[quantity]
    with np.errstate(all="ignore"):
        quick_look = clean(series.time_s, series.values, device)
        full = close(series.time_s, series.values, device)
    validated = validate(series, device.period_s)
    if quick_look is None:
        assert spoilt
        quick_look = full
    for one in (quick_look, validated):
        assert one.flags == full.flags
        assert np.array_equal(one.sample_flags, full.sample_flags)
        assert one.power_w == pytest.approx(full.power_w, rel=1e-12, nan_ok=True)
        start, end = series.time_s[0] - 1, np.linspace(series.time_s[0], series.time_s[-1], 50)
        for part in ("between", "covered_s"):
            found, expected = (getattr(of.curve, part)(start, end) for of in (one, full))
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize(
    ("first_w", "code"),
    [(-5.0, "missing_samples"), (np.nan, "missing_samples"), (np.inf, "over_limit")],
)
def test_a_first_mean_power_that_cannot_be_true_is_flagged(first_w: float, code: str) -> None:
    """It belongs to the time before the first sample and counts for nothing."""
    validated = validate(cpu_means(np.arange(9.0), np.array([first_w] + [100.0] * 8)), 1.0)
    assert codes(validated.flags) == {code}
    assert SAMPLE_FLAGS[validated.sample_flags[0]] == code
